"""One region of a graph as a module: a nest for each combination of sizes it is called with.

A call converts truth values to 1 and 0 and back, and gives results the strides that the graph expects. Weights may be
constants of the nest: a call with others, or with changed ones, replaces them.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from polyfuse.compiler import compile
from polyfuse.errors import PolyfuseError
from polyfuse.frontend.importers import Refusal, Unsupported
from polyfuse.frontend.torch.arrays import array_of
from polyfuse.frontend.torch.aten.registry import Result, size_of
from polyfuse.frontend.torch.graph import import_nodes
from polyfuse.ir import Nest
from polyfuse.nn.graph import Value, constant, input
from polyfuse.nn.lower import lower_values
from polyfuse.runtime.executable import Executable
from polyfuse.torch.options import Options
from polyfuse.torch.record import Region

Key = tuple[Any, ...]

LOG = logging.getLogger("polyfuse.torch")


class NotImported(PolyfuseError):
    """A region whose nodes are supported one by one, but not together."""


@dataclass
class Held:
    """A weight that is a constant of a nest: the argument's number, the constant's name, and the tensor as it was."""

    at: int
    name: str
    tensor: torch.Tensor
    version: int

    def changed(self, now: torch.Tensor) -> bool:
        """Whether a call passes another tensor, or one written to since: torch counts writes, but not those to .data.

        The tensor that is kept keeps its memory, so that no other can have the same address.
        """
        return bool(now.data_ptr() != self.tensor.data_ptr() or now._version != self.version)


@dataclass(frozen=True)
class Call:
    """An executable, whether the graph wants a tuple of its results, their meta values, and the weights it holds."""

    executable: Executable
    several: bool
    metas: tuple[torch.Tensor, ...]
    held: tuple[Held, ...]

    def update(self, args: tuple[Any, ...]) -> None:
        """Replace the weights that are others than in the call before."""
        new = [one for one in self.held if one.changed(args[one.at])]
        if new:
            self.executable.replace_constants({one.name: array_of(args[one.at]) for one in new})
            for one in new:
                one.tensor, one.version = args[one.at].detach(), args[one.at]._version


class Compiled(torch.nn.Module):
    """A region's module. It computes by polyfuse, and by torch where that fails."""

    def __init__(
        self, module: torch.fx.GraphModule, options: Options, record: Region, held: tuple[int, ...] = ()
    ) -> None:
        super().__init__()
        self._module, self._options, self._record, self._held = module, options, record, held
        self._made: dict[Key, Call] = {}
        metas = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
        if not held and all(map(is_fixed, metas)):
            self._call(tuple(map(_key, metas)), None)

    def forward(self, *args: Any) -> Any:
        """The region's results: one, or a tuple."""
        call = None if self._record.failed else self._call(tuple(map(_key, args)), args)
        if call is None:
            return self._module(*args)
        call.update(args)
        constant = {one.at for one in call.held}
        found = call.executable(
            *(
                _passed(one)
                for at, one in enumerate(args)
                if isinstance(one, torch.Tensor) and at not in constant
            )
        )
        if len(call.metas) == 1:
            found = (found,)
        results = tuple(map(_returned, found, call.metas))
        return results if call.several else results[0]

    def _call(self, key: Key, args: tuple[Any, ...] | None) -> Call | None:
        """What to call for these sizes; None where there is nothing, which the record says."""
        if key in self._made:
            return self._made[key]
        given = [node.meta["val"] for node in self._module.graph.nodes if node.op == "placeholder"]
        fixed = args is None or all(map(is_fixed, given))
        module = self._module if fixed else sized(self._module, args or ())
        held = self._holds(module, args) if args is not None else ()
        try:
            nest = nest_of(module, self._record.name, {one.name: one.tensor for one in held})
            executable = compile(nest, **self._arguments(module))
        except PolyfuseError as error:
            self._record.failed = str(error)
            LOG.warning("%s runs in eager: %s", self._record.name, error)
            return None
        output = next(node for node in module.graph.nodes if node.op == "output").args[0]
        several = isinstance(output, list | tuple)
        metas = tuple(node.meta["val"] for node in (output if several else (output,)))
        self._made[key] = Call(executable, several, metas, held)
        self._record.compiled.append(executable)
        return self._made[key]

    def _holds(self, module: torch.fx.GraphModule, args: tuple[Any, ...]) -> tuple[Held, ...]:
        """The weights that are to be constants; a tensor made in inference mode does not count its writes."""
        names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
        return tuple(
            Held(at, names[at], args[at].detach(), args[at]._version)
            for at in self._held
            if args[at].is_floating_point() and not args[at].is_inference()
        )

    def _arguments(self, module: torch.fx.GraphModule) -> Mapping[str, Any]:
        """Arguments of `compile`; the target is the device of the region's tensors unless one was asked for."""
        metas = (node.meta.get("val") for node in module.graph.nodes)
        kinds = {meta.device.type for meta in metas if isinstance(meta, torch.Tensor)}
        return {"target": "cuda" if "cuda" in kinds else "cpu", **self._options.compile}


def nest_of(module: torch.fx.GraphModule, name: str, held: Mapping[str, torch.Tensor] | None = None) -> Nest:
    """Return the nest of a graph whose sizes are numbers.

    Args:
        module: The graph, with meta values.
        name: The nest's name.
        held: Tensors that are constants, by the placeholder's name.

    Returns:
        The nest; its inputs are the graph's other tensors in their order.

    Raises:
        NotImported: if nodes cannot be expressed; all are named.
    """
    given: dict[str, Any] = {}
    inputs: list[Value] = []
    refused: list[Refusal] = []
    for node in module.graph.nodes:
        if node.op != "placeholder":
            continue
        meta = node.meta["val"]
        if not isinstance(meta, torch.Tensor):
            given[node.name] = int(meta)
            continue
        try:
            if held and node.name in held:
                given[node.name] = constant(array_of(held[node.name]), node.name)
                continue
            result = Result.of(meta, size_of)
            given[node.name] = input(node.name, result.shape, result.element)
            inputs.append(given[node.name])
        except Unsupported as unsupported:
            refused.append(Refusal(node.name, "placeholder", str(unsupported)))
    if refused:
        raise NotImported("; ".join(map(str, refused)))
    found = import_nodes(module.graph.nodes, given)
    if found.refused:
        raise NotImported("; ".join(map(str, found.refused)))
    return lower_values(found.outputs, name, inputs)


def sized(module: torch.fx.GraphModule, args: tuple[Any, ...]) -> torch.fx.GraphModule:
    """Return a copy of a graph with meta values of the sizes of a call.

    Args:
        module: The graph, of symbolic sizes.
        args: The call's tensors and sizes.

    Returns:
        The copy.
    """
    made = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    for node in made.graph.nodes:
        node.meta.pop("val", None)
    with torch.no_grad():
        FakeTensorProp(made, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*args)
    for node, one in zip((n for n in made.graph.nodes if n.op == "placeholder"), args, strict=True):
        node.meta.setdefault("val", one)
    return made


def is_fixed(meta: Any) -> bool:
    """Whether a meta value has numbers for sizes."""
    return isinstance(meta, torch.Tensor) and all(isinstance(size, int) for size in meta.shape)


def _key(one: Any) -> Any:
    return tuple(one.shape) if isinstance(one, torch.Tensor) else one


def _passed(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as an executable takes it: without a gradient, truth values as 1 and 0."""
    plain = tensor.detach()
    return plain.to(torch.float32) if plain.dtype == torch.bool else plain


def _returned(found: torch.Tensor, meta: torch.Tensor) -> torch.Tensor:
    """A result in the type and the strides that the graph's next nodes expect."""
    typed = found if found.dtype == meta.dtype else found.to(meta.dtype)
    strides = tuple(int(step) for step in meta.stride())
    if typed.stride() == strides or typed.numel() < 2:
        return typed
    return torch.empty_strided(typed.shape, strides, dtype=typed.dtype, device=typed.device).copy_(typed)
