"""From a model to a nest: inputs keep their names, initialisers are constants."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from polyfuse.errors import BadArgument
from polyfuse.frontend.importers import Failed, Refusal, free_name
from polyfuse.frontend.onnx.files import Model, read
from polyfuse.frontend.onnx.graph import Walk, check_order, type_name
from polyfuse.frontend.onnx.operators.registry import TYPES, is_symbolic, value_of
from polyfuse.frontend.onnx.scope import Scope
from polyfuse.ir import Nest
from polyfuse.ir.whole import all_whole, is_whole
from polyfuse.nn import input
from polyfuse.nn.graph import RESERVED, Value
from polyfuse.nn.lower import lower_values
from polyfuse.nn.nest_writer import sizes_in
from polyfuse.nn.sizes import Shape, Size, is_reserved, size_of

Array = np.ndarray[Any, Any]
Sizes = Mapping[str, int | Sequence[int]]


@dataclass(frozen=True)
class Imported:
    """A model as values.

    Attributes:
        inputs: The inputs that a call passes, by the model's names.
        outputs: The outputs by the model's names: values, and arrays that are known.
        refused: The nodes that cannot be expressed; the outputs are complete if there is none.
        unknown: The inputs whose numbers have to be known, by the model's names.
    """

    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value | Array]
    refused: tuple[Refusal, ...]
    unknown: tuple[str, ...]


def nest_of(model: Any, sizes: Sizes, constants: Mapping[str, Array], name: str | None) -> Nest:
    """The nest of a model; BadArgument names every operator that is not supported."""
    loaded = read(model)
    called = name or free_name(loaded.proto.graph.name or "graph", set())
    found = imported(loaded, sizes, constants)
    refused = list(found.refused)
    values = []
    for output, operand in found.outputs.items():
        if is_symbolic(operand):
            refused.append(Refusal(output, "output", "is symbolic sizes: give them as sizes={…}"))
        elif isinstance(operand, np.ndarray) and operand.dtype.name not in TYPES:
            refused.append(Refusal(output, "output", f"is known before a call, as {operand.dtype.name}"))
        elif not refused:
            values.append(value_of(operand))
    if refused:
        lines = "\n".join(f"  {one}" for one in refused)
        raise BadArgument(
            f"from_onnx: {len(refused)} of {called}'s nodes cannot be expressed:\n{lines}\n"
            "opset and operator are the model's; constants={…} gives inputs that are known now"
        )
    return lower_values(values, called, list(found.inputs.values()))


def imported(model: Model, sizes: Sizes, constants: Mapping[str, Array]) -> Imported:
    """Make the values of a model's outputs.

    Args:
        model: The model.
        sizes: Numbers for symbolic sizes, by their names or by input.
        constants: Inputs that are known.

    Returns:
        The values, and what could not be expressed.

    Raises:
        BadArgument: if the graph is no graph, a size or a type of an input is not known, or `sizes` and `constants`
            name what the model does not have.
    """
    graph = model.proto.graph
    check_order(graph)
    scope, walk = Scope(ChainMap({})), Walk(model, model.opset)
    held = {tensor.name for tensor in graph.initializer}
    called = [one for one in graph.input if one.name not in held]
    shapes = _shapes([one for one in called if one.name not in constants], sizes)
    strange = [key for key in constants if key not in {one.name for one in called}]
    if strange:
        raise BadArgument(
            f"from_onnx: constants names {strange[0]!r}; the model's inputs are {', '.join(one.name for one in called)}"
        )
    taken = set(sizes_in(shapes.values()))
    inputs: dict[str, Value] = {}
    names: dict[str, str] = {}
    for one in called:
        if one.name in constants:
            scope.operands[one.name] = np.asarray(constants[one.name])
            continue
        dtype = type_name(one.type.tensor_type.elem_type)
        if dtype not in TYPES:
            walk.refused.append(
                Refusal(
                    one.name,
                    "input",
                    f"element type {dtype}: expected {', '.join(TYPES)}",
                )
            )
            scope.operands[one.name] = Failed()
            continue
        own = free_name(one.name, taken)
        names[own] = one.name
        inputs[one.name] = input(own, shapes[one.name], dtype)
        walk.define(scope, one.name, inputs[one.name])
    walk.initialisers(graph, scope, taken)
    for one in graph.input:
        if one.name in held:
            _check_declared("initialiser", one, scope.operands[one.name], walk)
    walk.nodes(graph.node, scope)
    outputs: dict[str, Any] = {}
    for one in graph.output:
        operand = scope.operands.get(one.name)
        if operand is None:
            raise BadArgument(f"from_onnx: no node makes the output {one.name!r}")
        outputs[one.name] = operand
        _check_declared("output", one, operand, walk)
    unknown = tuple(names.get(own, own) for own in walk.unknown)
    return Imported(inputs, outputs, tuple(walk.refused), unknown)


def _shapes(inputs: Sequence[onnx.ValueInfoProto], sizes: Sizes) -> dict[str, Shape]:
    """The inputs' shapes, symbolic where a name gets no number; BadArgument names every size without a name."""
    known: set[str] = set()
    open_: list[str] = []
    found: dict[str, Shape] = {}
    for one in inputs:
        if one.type.WhichOneof("value") != "tensor_type":
            kind = one.type.WhichOneof("value") or "nothing"
            raise BadArgument(f"from_onnx: input {one.name!r} is a {kind}; expected a tensor")
        declared = one.type.tensor_type
        given = sizes.get(one.name)
        if given is not None and not is_whole(given):
            known.add(one.name)
            whole = all_whole(f"from_onnx: sizes of {one.name}", given)
            _check_given(one, whole)
            found[one.name] = whole
            continue
        if not declared.HasField("shape"):
            open_.append(f"input {one.name!r} has no shape")
            continue
        shape: list[Size] = []
        for axis, dim in enumerate(declared.shape.dim):
            if dim.WhichOneof("value") == "dim_value":
                shape.append(int(dim.dim_value))
            elif dim.dim_param and is_whole(sizes.get(dim.dim_param)):
                known.add(dim.dim_param)
                shape.append(int(sizes[dim.dim_param]))  # type: ignore[arg-type]  # a whole number, as checked
            elif is_size_name(dim.dim_param):
                shape.append(size_of(f"from_onnx: input {one.name!r}", dim.dim_param))
            else:
                called = f"the name {dim.dim_param!r}" if dim.dim_param else "no name"
                open_.append(f"axis {axis} of input {one.name!r} has {called} in place of a size")
        found[one.name] = tuple(shape)
    if open_:
        raise BadArgument(
            "from_onnx: sizes are not known: "
            + "; ".join(open_)
            + '. Give sizes={"name": 8}, or all sizes of an input: sizes={"input": (8, 3)}'
        )
    strange = [key for key in sizes if key not in known]
    if strange:
        raise BadArgument(f"from_onnx: sizes names {strange[0]!r}, which is no symbolic size of the model")
    return found


def is_size_name(name: str) -> bool:
    """True for a name that a symbolic size of a nest can have."""
    return name.isascii() and name.isidentifier() and name not in RESERVED and not is_reserved(name)


def _check_given(one: onnx.ValueInfoProto, given: tuple[int, ...]) -> None:
    """BadArgument where the sizes of an input are not those that the model fixes."""
    declared = one.type.tensor_type
    if not declared.HasField("shape"):
        return
    fixed = [
        int(dim.dim_value) if dim.WhichOneof("value") == "dim_value" else None for dim in declared.shape.dim
    ]
    if len(fixed) != len(given) or any(a not in (None, b) for a, b in zip(fixed, given, strict=True)):
        raise BadArgument(f"from_onnx: sizes gives input {one.name!r} {given}; the model has {fixed}")


def _check_declared(what: str, one: onnx.ValueInfoProto, operand: Any, walk: Walk) -> None:
    """Refuse an output or an initialiser whose shape is not the one that the model declares."""
    declared = one.type.tensor_type
    if isinstance(operand, Failed) or not declared.HasField("shape"):
        return
    fixed = [
        int(dim.dim_value) if dim.WhichOneof("value") == "dim_value" else None for dim in declared.shape.dim
    ]
    shape = tuple(operand.shape)
    pairs = [(a, b) for a, b in zip(fixed, shape, strict=False) if a is not None and isinstance(b, int)]
    if len(fixed) != len(shape) or any(a != b for a, b in pairs):
        walk.refused.append(
            Refusal(one.name, what, f"its shape is {shape}, and the model declares {tuple(fixed)}")
        )
