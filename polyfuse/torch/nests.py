"""The nest of a region: for all sizes that its graph allows, or for those of one call."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from polyfuse.errors import PolyfuseError
from polyfuse.frontend.importers import Refusal, Unsupported
from polyfuse.frontend.torch.arrays import array_of
from polyfuse.frontend.torch.aten.registry import Result
from polyfuse.frontend.torch.graph import KNOWN, import_nodes, number_in
from polyfuse.frontend.torch.merged import Merged
from polyfuse.ir import Nest
from polyfuse.nn.graph import Value, constant, input
from polyfuse.nn.lower import lower_values
from polyfuse.torch.symbols import Values, reader


class NotImported(PolyfuseError):
    """A region whose nodes are supported one by one, but not together, or not for symbolic sizes."""


def nest_of(module: torch.fx.GraphModule, name: str, held: Mapping[str, torch.Tensor], fixed: Values) -> Nest:
    """Return the nest of a graph, with torch's symbols as symbolic sizes: s0, s77.

    Args:
        module: The graph, with meta values.
        name: The nest's name.
        held: Tensors that are constants, by the placeholder's name.
        fixed: Numbers in place of symbols.

    Returns:
        The nest; its inputs are the graph's other tensors in their order.

    Raises:
        NotImported: if nodes cannot be expressed; all are named.
    """
    sizes = reader(fixed)
    given: dict[str, Any] = {}
    inputs: list[Value] = []
    refused: list[Refusal] = []
    for node in placeholders(module):
        meta = node.meta["val"]
        try:
            if isinstance(meta, int | torch.SymInt):
                given[node.name] = number_in(meta, sizes)
                continue
            if not isinstance(meta, torch.Tensor):
                raise Unsupported(f"a {type(meta).__name__}; expected a tensor or an integer")
            if node.name in held:
                given[node.name] = constant(array_of(held[node.name]), node.name)
                continue
            result = Result.of(meta, sizes)
            value = input(node.name, result.shape, result.element)
            known = node.meta.get(KNOWN)
            given[node.name] = value if known is None else replace(known, value=value)
            inputs.append(value)
        except Unsupported as unsupported:
            refused.append(Refusal(node.name, "placeholder", str(unsupported)))
    if refused:
        raise NotImported("; ".join(map(str, refused)))
    found = import_nodes(module.graph.nodes, given, sizes=sizes)
    merged = (
        f"{one.value!r} leaves it as a matrix of rows" for one in found.outputs if isinstance(one, Merged)
    )
    if reasons := [*map(str, found.refused), *merged]:
        raise NotImported("; ".join(reasons))
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
    for node, one in zip(placeholders(made), args, strict=True):
        node.meta.setdefault("val", one)
    return made


def placeholders(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The nodes that stand for a graph's arguments."""
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def outputs(module: torch.fx.GraphModule) -> tuple[bool, tuple[torch.Tensor, ...]]:
    """Whether a graph returns a tuple, and the meta values of what it returns."""
    output = next(node for node in module.graph.nodes if node.op == "output").args[0]
    several = isinstance(output, list | tuple)
    return several, tuple(node.meta["val"] for node in (output if several else (output,)))


def is_fixed(meta: Any) -> bool:
    """Whether a meta value has numbers for sizes."""
    return isinstance(meta, torch.Tensor) and all(isinstance(size, int) for size in meta.shape)
