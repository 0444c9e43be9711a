"""Divide a graph into regions that polyfuse computes, and nodes that torch does.

    graph  ->  (region | node)*        a region is a submodule; between regions the graph stays as it is

A region is worth a call if it computes something: views alone are torch's, which makes no copies of them.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Mapping

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from polyfuse.frontend.importers import Refusal, Unsupported
from polyfuse.frontend.torch.aten import VIEWS
from polyfuse.frontend.torch.aten.registry import type_name, value_type
from polyfuse.frontend.torch.graph import missing_of, refusal_of

DEVICES = ("cpu", "cuda")

LOOKUPS = (
    "aten.embedding.default",
    "aten._embedding_bag.default",
    "aten._embedding_bag_forward_only.default",
)
"""Operators that read rows of a table, their first operand, by the numbers of their second."""

COPIES = ("aten.clone.default", "aten.alias.default", "aten.detach.default")
"""Operators that compute nothing either, but are no views."""


def refusals(graph: torch.fx.Graph) -> dict[torch.fx.Node, Refusal]:
    """Return the nodes that polyfuse does not compute, and why.

    An operator of several results is computed if all of those that are read are; what picks one goes with it.

    Args:
        graph: A functional graph of ATen nodes with meta values.

    Returns:
        Refusals by node.
    """
    found: dict[torch.fx.Node, Refusal] = {}
    for node in graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        refusal = (
            _elsewhere(node)
            or _of_other_kind(node)
            or refusal_of(node)
            or _unread(node)
            or _of_computed_rows(node, found)
        )
        if refusal is not None:
            found[node] = refusal
    for node in graph.nodes:
        if node.target is operator.getitem and (source := found.get(node.args[0])) is not None:
            found[node] = Refusal(node.name, "getitem", f"picks from {source.node}, which torch computes")
    return found


def _elsewhere(node: torch.fx.Node) -> Refusal | None:
    """Why a node is on the wrong device; a node of sizes alone is left without a word of its own."""
    meta = node.meta.get("val")
    if is_size(node):
        return Refusal(node.name, str(node.target), "computes a size, and no tensor")
    first = next(
        (one for one in (meta if isinstance(meta, list | tuple) else [meta]) if one is not None), None
    )
    device = getattr(first, "device", None)
    if device is not None and device.type not in DEVICES:
        return Refusal(
            node.name, str(node.target), f"on device {device}; polyfuse has {' and '.join(DEVICES)}"
        )
    return None


def _of_other_kind(node: torch.fx.Node) -> Refusal | None:
    """Why a node reads or makes tensors that no value stands for: complex or quantised ones."""
    metas = (one.meta.get("val") for one in (node, *node.all_input_nodes))
    for meta in (part for one in metas for part in (one if isinstance(one, list | tuple) else (one,))):
        if not isinstance(meta, torch.Tensor):
            continue
        try:
            value_type(type_name(meta.dtype))
        except Unsupported as error:
            return Refusal(node.name, str(node.target), str(error))
    return None


def is_size(node: torch.fx.Node) -> bool:
    """Whether a node computes a number of sizes, and no tensor."""
    return isinstance(
        node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool
    )


def _unread(node: torch.fx.Node) -> Refusal | None:
    """Why a result of several that the graph reads is not computed."""
    wanted = [user.args[1] for user in node.users if user.target is operator.getitem]
    missing = missing_of(node) if wanted else {}
    return next((Refusal(node.name, str(node.target), missing[at]) for at in wanted if at in missing), None)


def _of_computed_rows(node: torch.fx.Node, refused: Mapping[torch.fx.Node, Refusal]) -> Refusal | None:
    """Why a lookup is not computed whose table or row numbers may be results of a region: they have to be inputs."""
    if str(node.target) not in LOOKUPS:
        return None
    table, rows = node.args[:2]
    while _is_shown(rows) and rows not in refused:
        rows = rows.all_input_nodes[0]
    for operand, called in ((table, "a table"), (rows, "row numbers")):
        if operand.op == "call_function" and operand not in refused:
            reason = f"{called} computed as {operand.name}: a nest takes them as inputs, so that a call can check them"
            return Refusal(node.name, str(node.target), reason)
    return None


def _is_shown(node: torch.fx.Node) -> bool:
    """Whether a node shows elements of another one, or picks one of several views."""
    return node.op == "call_function" and not computes(node)


class _Supported(OperatorSupportBase):
    def __init__(self, refused: Mapping[torch.fx.Node, Refusal]) -> None:
        self.refused = refused

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        """Whether a region may have the node."""
        return node.op == "call_function" and node not in self.refused


def shared(graph: torch.fx.Graph) -> dict[torch.fx.Node, Refusal]:
    """Return the views that leave a graph beside what they show, or beside other views of it.

    y = relu(x); return y, y.T        the two are one memory: a write to either is seen in both

    Args:
        graph: A functional graph of ATen nodes.

    Returns:
        Refusals by node: torch makes these views, of what a region computes.
    """
    leaving = dict.fromkeys(next(node for node in graph.nodes if node.op == "output").all_input_nodes)
    chains = [chain for chain in map(_shown_by, leaving) if chain[-1].op == "call_function"]
    times = Counter(chain[-1] for chain in chains)
    return {
        node: Refusal(
            node.name, str(node.target), "shows what another result shows, which torch lets be written to"
        )
        for chain in chains
        if times[chain[-1]] > 1
        for node in chain[:-1]
    }


def _shown_by(node: torch.fx.Node) -> list[torch.fx.Node]:
    """A node, what it is a view of, and so on to what is none."""
    chain = [node]
    while chain[-1].op == "call_function" and _is_view(chain[-1]) and chain[-1].all_input_nodes:
        chain.append(chain[-1].all_input_nodes[0])
    return chain


def _is_view(node: torch.fx.Node) -> bool:
    """Whether torch makes a node without a copy: a view, or one of several that its operand is."""
    one = node.args[0] if node.target is operator.getitem else node
    return str(one.target) in VIEWS - {"aten.flip.default"}


def divided(
    module: torch.fx.GraphModule, refused: Mapping[torch.fx.Node, Refusal]
) -> tuple[torch.fx.GraphModule, tuple[str, ...]]:
    """Return the graph with each region as a submodule, and the submodules' names.

    Args:
        module: The graph; it is changed.
        refused: The nodes outside of all regions.

    Returns:
        The graph and the names, in no order.
    """
    return in_parts(module, _Supported(refused), "polyfuse_")


def in_parts(
    module: torch.fx.GraphModule, supported: OperatorSupportBase, prefix: str
) -> tuple[torch.fx.GraphModule, tuple[str, ...]]:
    """Return the graph with supported nodes in as few submodules as there can be, and the submodules' names.

    Args:
        module: The graph; it is changed.
        supported: Which nodes a submodule may have. Views at its ends stay outside, and what computes nothing.
        prefix: How the names begin.

    Returns:
        The graph and the names, in no order.
    """
    parts = CapabilityBasedPartitioner(module, supported, allows_single_node_partition=True)
    worth = []
    for part in parts.propose_partitions():
        for node in trimmed(part.nodes):
            part.remove_node(node)
        if any(map(computes, part.nodes)):
            worth.append(part)
    before = {name for name, _ in module.named_children()}
    fused = parts.fuse_partitions(worth, prefix=prefix)
    return fused, tuple(name for name, _ in fused.named_children() if name not in before)


def computes(node: torch.fx.Node) -> bool:
    """Whether a node does more than show elements of another one."""
    name = str(node.target)
    return node.target is not operator.getitem and name not in VIEWS and name not in COPIES


def trimmed(nodes: Iterable[torch.fx.Node]) -> list[torch.fx.Node]:
    """The views at a region's start that torch makes without a copy: of what it is given, and read outside alone."""
    inside, gone = set(nodes), list[torch.fx.Node]()
    changed = True
    while changed:
        changed = False
        for node in sorted(inside):
            given = all(operand not in inside for operand in node.all_input_nodes)
            unread = all(user not in inside for user in node.users)
            if not computes(node) and given and unread:
                inside.discard(node)
                gone.append(node)
                changed = True
    return gone
