"""From torch.export to a nest: parameters are constants, inputs keep their names."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind

from polyfuse.errors import BadArgument
from polyfuse.frontend.importers import Failed, Refusal, Unsupported, free_name
from polyfuse.frontend.torch.arrays import array_of
from polyfuse.frontend.torch.aten.registry import (
    NotAffine,
    ReadSize,
    expression_size,
    size_of,
    value_type,
)
from polyfuse.frontend.torch.decompositions import export_decompositions
from polyfuse.frontend.torch.graph import Known, Node, import_nodes
from polyfuse.frontend.torch.merged import Merged
from polyfuse.frontend.torch.torch_nest import TorchNest
from polyfuse.ir import Nest
from polyfuse.ir.sizes import LARGEST
from polyfuse.nn import constant, input
from polyfuse.nn.graph import Constant, Input, Value, as_value
from polyfuse.nn.lower import lower_values
from polyfuse.nn.sizes import Affine, Size

FOLDED_ELEMENTS = 2**24
"""A known tensor of more elements is not computed while a model is imported."""


def nest_of(
    module: torch.nn.Module | torch.export.ExportedProgram,
    args: Sequence[Any] | None,
    dynamic_shapes: Any,
    kwargs: Mapping[str, Any] | None,
    name: str | None,
) -> TorchNest:
    """The nest of a module or an exported program; BadArgument names every operator that is not supported."""
    program, called = _exported(module, args, dynamic_shapes, kwargs)
    whole = program.run_decompositions(export_decompositions())
    names = _names(whole, dynamic_shapes)
    sizes = partial(size_of, names=names)
    given, refused = _given(whole, sizes)
    found = import_nodes(whole.graph.nodes, given, _folded, sizes)
    every = (*refused, *found.refused, *_changed(whole))
    if every:
        lines = "\n".join(f"  {one}" for one in every)
        raise BadArgument(
            f"from_torch: {len(every)} of {called}'s nodes cannot be expressed:\n{lines}\n"
            'torch.compile(model, backend="polyfuse") leaves such nodes to torch'
        )
    inputs = [
        value for value in given.values() if isinstance(value, Value) and isinstance(value.source, Input)
    ]
    outputs = [_output(called, value) for value in found.outputs]
    made = lower_values(outputs, name or called, inputs, _assumed(whole, names))
    return _with_torch_names(made, whole, given)


def _exported(
    module: Any, args: Sequence[Any] | None, dynamic_shapes: Any, kwargs: Mapping[str, Any] | None
) -> tuple[torch.export.ExportedProgram, str]:
    """The exported program, and what to call it."""
    if isinstance(module, torch.export.ExportedProgram):
        program, called = module, "graph"
    elif not isinstance(module, torch.nn.Module):
        raise BadArgument(f"from_torch: {module!r} is neither a torch.nn.Module nor an exported program")
    else:
        if args is None or isinstance(args, torch.Tensor):
            raise BadArgument(
                "from_torch: example_inputs is a tuple of tensors, as in from_torch(model, (x,))"
            )
        called = type(module).__name__.lower()
        _check_tensors(tuple(args), kwargs or {})
        try:
            program = torch.export.export(
                module, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes
            )
        except (
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:  # of the model's own code too: shapes that do not fit
            raise BadArgument(
                f"from_torch: torch.export refuses {called}{_place(error)}: {error}\n"
                'torch.compile(model, backend="polyfuse") leaves to torch what it cannot record, packed sequences too'
            ) from error
    return program, called


def _check_tensors(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """BadArgument for an example that no array of a call can be."""
    for name, one in (*((f"example_inputs[{at}]", one) for at, one in enumerate(args)), *kwargs.items()):
        if not isinstance(one, torch.Tensor):
            continue
        kinds = {
            "sparse": one.layout != torch.strided,
            "quantised": one.is_quantized,
            "complex": one.is_complex(),
        }
        if found := next((kind for kind, is_one in kinds.items() if is_one), None):
            raise BadArgument(
                f"from_torch: {name} is a {found} tensor ({one.dtype}, {one.layout}); expected a dense one of "
                "floating point, integers or bool"
            )


def _place(error: Exception) -> str:
    """The last line of the model that an error comes from, if one does: " at model.py:12: y = x @ w"."""
    own = Path(torch.__file__).parent, Path(__file__).parent, Path(traceback.__file__).parent
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(Path(frame.filename).is_relative_to(folder) for folder in own)
    ]
    return f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""


def _names(program: torch.export.ExportedProgram, dynamic_shapes: Any) -> dict[str, str]:
    """The names that a user gave to torch's symbols, where an axis is one symbol."""
    specs = program.graph_signature.input_specs
    inputs = [spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT]
    metas = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    wanted = (
        dynamic_shapes.items()
        if isinstance(dynamic_shapes, Mapping)
        else zip(inputs, dynamic_shapes or (), strict=False)
    )
    found: dict[str, str] = {}
    for name, axes in wanted:
        pairs = axes.items() if isinstance(axes, Mapping) else enumerate(axes or ())
        for axis, dim in pairs:
            size = metas[name].shape[axis] if isinstance(metas.get(name), torch.Tensor) else 0
            if isinstance(dim, torch.export.Dim) and isinstance(size, torch.SymInt):
                found[str(size.node.expr)] = dim.__name__
    return found


def _assumed(program: torch.export.ExportedProgram, names: Mapping[str, str]) -> Iterator[Size]:
    """What may not be negative in the ranges that torch found: a size less its least value, and its largest less it.

    Least values of 2 are torch's own assumption that a size is not 0 or 1, and no result depends on them.
    """
    for symbol, bounds in program.range_constraints.items():
        size = expression_size(str(symbol), names)
        if bounds.lower > 2:
            yield size - int(bounds.lower)
        if bounds.upper.is_finite and bounds.upper < LARGEST:
            yield int(bounds.upper) - size


def _given(program: torch.export.ExportedProgram, sizes: ReadSize) -> tuple[dict[str, Any], list[Refusal]]:
    """What each placeholder stands for: an input, a constant, or a tensor that is known."""
    tensors = {**program.state_dict, **program.constants}
    specs = program.graph_signature.input_specs
    inputs = {spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT}
    taken, shared = set(inputs), dict[Any, Value]()
    given: dict[str, Any] = {}
    refused: list[Refusal] = []
    metas = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    for spec in specs:
        placeholder, target = spec.arg.name, spec.target
        try:
            if spec.kind is InputKind.USER_INPUT:
                given[placeholder] = _input(placeholder, metas[placeholder], sizes)
                continue
            tensor = tensors[target]
            if not tensor.dtype.is_floating_point:
                given[placeholder] = Known(tensor, array_of(tensor))
                continue
            value_type(str(tensor.dtype).removeprefix("torch."))
            key = _memory(tensor)
            if key not in shared or not tensor.numel():
                shared[key] = constant(array_of(tensor), free_name(target, taken))
            given[placeholder] = shared[key]
        except Unsupported as unsupported:
            refused.append(Refusal(placeholder, str(spec.kind), str(unsupported)))
            given[placeholder] = None
    return given, refused


def _input(name: str, meta: Any, sizes: ReadSize) -> Any:
    if not isinstance(meta, torch.Tensor):
        return meta
    return input(name, tuple(map(sizes, meta.shape)), value_type(str(meta.dtype).removeprefix("torch.")))


def _with_torch_names(
    nest: Nest, program: torch.export.ExportedProgram, given: Mapping[str, Any]
) -> TorchNest:
    """The nest with what became of each tensor of the module's state."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    specs = [spec for spec in program.graph_signature.input_specs if spec.target in program.state_dict]
    by_target = {spec.target: nodes[spec.arg.name] for spec in specs}
    by_memory = {_memory(program.state_dict[target]): node for target, node in by_target.items()}
    weights: dict[str, str] = {}
    folded: dict[str, Any] = {}
    for target, tensor in program.state_dict.items():
        node = by_target.get(target) or by_memory.get(_memory(tensor))
        value = given[node.name] if node is not None else None
        if isinstance(value, Known) and node is not None and node.users:
            folded[target] = value.array
            continue
        source = value.source if isinstance(value, Value) else None
        constant = source.name if isinstance(source, Constant) else None
        weights[target] = constant if constant is not None and constant in nest.constants else ""
    fields = {one.name: getattr(nest, one.name) for one in dataclasses.fields(nest)}
    return TorchNest(**fields, weights=weights, folded=folded)


def _memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The same for tensors that are one."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def _folded(node: Node, args: Any, kwargs: Mapping[str, Any]) -> Known | None:
    """Compute a node that reads known tensors and numbers alone; others, and large ones, are left."""
    meta = node.meta.get("val")
    if not isinstance(meta, torch.Tensor) or not all(isinstance(size, int) for size in meta.shape):
        return None
    if meta.numel() > FOLDED_ELEMENTS or not _all_known((args, kwargs)):
        return None
    if torch.Tag.nondeterministic_seeded in node.target.tags:
        return None
    with torch.no_grad():
        tensor = node.target(*_tensors(args), **_tensors(kwargs))
    return Known(tensor, array_of(tensor))


def _all_known(tree: Any) -> bool:
    if isinstance(tree, list | tuple):
        return all(map(_all_known, tree))
    if isinstance(tree, dict):
        return all(map(_all_known, tree.values()))
    return not isinstance(tree, Value | Merged | Affine | NotAffine | Failed)


def _tensors(tree: Any) -> Any:
    if isinstance(tree, list | tuple):
        return [_tensors(part) for part in tree]
    if isinstance(tree, dict):
        return {key: _tensors(part) for key, part in tree.items()}
    return tree.tensor if isinstance(tree, Known) else tree


def _changed(program: torch.export.ExportedProgram) -> Iterator[Refusal]:
    """Outputs that are no results: a nest of layers changes nothing in place."""
    for spec in program.graph_signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            reason = "changes a tensor in place; model.eval() stops the running statistics of batch norm"
            yield Refusal(str(spec.arg.name), f"{spec.kind.name.lower()} of {spec.target}", reason)


def _output(called: str, value: Any) -> Value:
    if isinstance(value, Known):
        kept = value.array
        if not kept.dtype.kind == "f":
            raise BadArgument(
                f"from_torch: an output of {called} is known before the call: {value.tensor.dtype}"
            )
        return as_value(kept, "float32")
    if isinstance(value, Merged):
        raise BadArgument(
            f"from_torch: an output of {called} has {value.axes} symbolic axes of {value.value!r} as one, whose size "
            "is not affine: return them apart"
        )
    if not isinstance(value, Value):
        raise BadArgument(f"from_torch: an output of {called} is {value!r}, and not a tensor")
    return value
