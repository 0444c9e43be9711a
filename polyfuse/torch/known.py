"""Nodes of a graph whose values no call changes: they are computed once, by torch, and kept with the graph.

    arange(16) -> add 1 -> le …       polyfuse_known_0        what reads no argument, and polyfuse does not compute

Models make row numbers, masks and positions in this way, of integers, which a nest has as row numbers alone. What
polyfuse can make of nothing stays: one number everywhere is cheaper inside a region than as a tensor in memory.
"""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import map_arg
from torch.utils._python_dispatch import _disable_current_modes

from polyfuse.frontend.torch.arrays import array_of
from polyfuse.frontend.torch.aten import VIEWS
from polyfuse.frontend.torch.graph import KNOWN, Known, refusal_of

LARGEST = 2**22
"""A tensor of more elements is computed in each call: it would be kept as long as the graph."""

WHOLE = (torch.int32, torch.int64, torch.bool)
"""Types whose values importers may read: row numbers, where bags begin, masks."""

BY_FORM = frozenset(
    f"aten.{name}.default"
    for name in ("new_zeros", "new_ones", "new_full", "zeros_like", "ones_like", "full_like")
)
"""Operators that read the shape and the type of their operand, and none of its elements."""


def fold(module: torch.fx.GraphModule) -> int:
    """Compute what is known of a graph before any call, where polyfuse does not compute it.

    Args:
        module: A functional graph with meta values; it is changed.

    Returns:
        How many nodes were computed.
    """
    with _disable_current_modes(), torch.no_grad():  # torch calls a backend where tensors are stand-ins
        found = _known(module)
        computed = [node for node in found if node.op == "call_function"]
        for number, node in enumerate(computed):
            readers = [user for user in node.users if user not in found]
            if readers:
                _keep(module, node, found[node], f"polyfuse_known_{number}", readers)
    for node in reversed(computed):
        module.graph.erase_node(node)
    if computed:
        module.recompile()
    return len(computed)


def _known(module: torch.fx.GraphModule) -> dict[torch.fx.Node, torch.Tensor]:
    """The values of the graph's own tensors, of refused nodes that read no argument, and of what follows from these."""
    values: dict[torch.fx.Node, torch.Tensor] = {}
    chosen: set[torch.fx.Node] = set()
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = getattr(module, node.target, None)
            if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
                values[node] = value
                node.meta.setdefault("val", value)
                _mark(node, value)
                chosen.add(node)
        elif _is_repeatable(node) and all(one in values for one in _read(node)):
            value = _computed(node, values)
            if not _is_as_expected(value, node.meta["val"]):
                continue
            values[node] = value
            if refusal_of(node) is not None or any(one in chosen for one in _read(node)):
                chosen.add(node)
    return {node: value for node, value in values.items() if node in chosen}


def _is_repeatable(node: torch.fx.Node) -> bool:
    """Whether a node has one result, of known sizes, and the same one in each call."""
    meta = node.meta.get("val")
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    if not isinstance(meta, torch.Tensor) or not all(isinstance(size, int) for size in meta.shape):
        return False
    drawn = torch.Tag.nondeterministic_seeded in node.target.tags
    return not drawn and not node.target._schema.is_mutable and meta.numel() <= LARGEST


def _computed(node: torch.fx.Node, values: dict[torch.fx.Node, torch.Tensor]) -> torch.Tensor:
    args, kwargs = map_arg(
        (node.args, dict(node.kwargs)), lambda one: values[one] if one in values else _of_form(one)
    )
    made: torch.Tensor = node.target(*args, **kwargs)
    return made


def _is_as_expected(value: torch.Tensor, meta: torch.Tensor) -> bool:
    """Whether a value has the form that the graph says; autocast may have computed it in another type."""
    return (value.dtype, value.shape, value.stride()) == (meta.dtype, meta.shape, meta.stride())


def _of_form(node: torch.fx.Node) -> torch.Tensor:
    """A tensor of a node's form with any elements."""
    meta = node.meta["val"]
    return torch.empty_strided(meta.shape, meta.stride(), dtype=meta.dtype, device=meta.device)


def _read(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes whose elements a node reads."""
    return [] if str(node.target) in BY_FORM else node.all_input_nodes


def _mark(node: torch.fx.Node, tensor: torch.Tensor) -> None:
    if tensor.dtype in WHOLE:
        node.meta[KNOWN] = Known(tensor, array_of(tensor))


def _keep(
    module: torch.fx.GraphModule,
    node: torch.fx.Node,
    tensor: torch.Tensor,
    name: str,
    readers: list[torch.fx.Node],
) -> None:
    """Let nodes read a tensor of the module; of what could leave the graph as it is, each call makes a copy."""
    module.register_buffer(name, tensor, persistent=False)
    shown = [user for user in readers if user.op == "output" or str(user.target) in VIEWS]
    with module.graph.inserting_before(node):
        kept = module.graph.get_attr(name)
        kept.meta = dict(node.meta)
        _mark(kept, tensor)
        if shown:
            copied = module.graph.call_function(torch.ops.aten.clone.default, (kept,))
            copied.meta = dict(node.meta)
    for user in readers:
        user.replace_input_with(node, copied if user in shown else kept)
