"""Webs: the independent live ranges of a temporary, as the writes and reads that are connected by flow.

    S: t = a[i];  R: b[i] = t;  V: t = c[i];  Q: d[i] = t        two webs, { S, R } and { V, Q }

Webs are the connected parts of the flow through the temporary. Nothing flows between two of them, so each may have a
place of its own (Chow and Hennessy 1990 call this live range splitting; Feautrier 1988 array expansion).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from polyfuse.ir import Nest
from polyfuse.ir.dependences import Pairs

Node = tuple[str, str]
"""A statement and what it does to the temporary: "writes" or "reads"."""


@dataclass(frozen=True)
class Web:
    """Writers and readers of one life of a temporary, in the nest's order, and the flow between them."""

    tensor: str
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    flow: tuple[Pairs, ...]

    @property
    def statements(self) -> tuple[str, ...]:
        """Writers and readers, each once."""
        return tuple(dict.fromkeys((*self.writers, *self.readers)))


def webs(nest: Nest, tensor: str) -> tuple[Web, ...]:
    """The webs of a temporary, in the order of their first writers."""
    flow = nest.flow_through(tensor)
    nodes = _nodes(nest, tensor)
    parent = {node: node for node in nodes}

    def root(node: Node) -> Node:
        while parent[node] != node:
            node = parent[node]
        return node

    for pair in flow:
        parent[root(_sink(nest, tensor, pair))] = root((pair.source, "writes"))
    fed = {_sink(nest, tensor, pair) for pair in flow}
    for node in nodes:
        if node[1] == "reads" and node not in fed:  # its domain is empty: it goes with any writer
            parent[root(node)] = root(nodes[0])
    groups: dict[Node, list[Node]] = {}
    for node in nodes:
        groups.setdefault(root(node), []).append(node)
    return tuple(_web(nest, tensor, group, flow) for group in groups.values())


def _nodes(nest: Nest, tensor: str) -> list[Node]:
    """Return the accesses to a tensor as nodes; a reduction's read and write are one node."""
    nodes: list[Node] = []
    for s in nest.statements:
        if s.write.tensor == tensor:
            nodes.append((s.name, "writes"))
    for s in nest.statements:
        if any(access.tensor == tensor for access in s.reads):
            nodes.append((s.name, "reads"))
    return nodes


def _sink(nest: Nest, tensor: str, pair: Pairs) -> Node:
    s = nest.statement(pair.sink)
    reads = any(access.tensor == tensor for access in s.reads)
    return (pair.sink, "reads" if reads else "writes")


def _web(nest: Nest, tensor: str, group: Iterable[Node], flow: tuple[Pairs, ...]) -> Web:
    writers = tuple(name for name, what in group if what == "writes")
    readers = tuple(name for name, what in group if what == "reads")
    return Web(tensor, writers, readers, tuple(p for p in flow if p.source in writers))
