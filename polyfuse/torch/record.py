"""What the backend did with a model's graphs: plain values, filled in as graphs are compiled."""

from __future__ import annotations

from dataclasses import dataclass, field

from polyfuse.frontend.importers import Refusal
from polyfuse.runtime.executable import Executable


@dataclass
class Region:
    """Some nodes that one nest computes.

    Attributes:
        name: The submodule that stands for them in the graph.
        operators: What they call, in order.
        compiled: The executables: one for all sizes, or one for each combination of sizes that was called.
        failed: Why the nodes run in eager all the same, by the sizes of a call.
        remarks: Why there is more than one executable.
    """

    name: str
    operators: tuple[str, ...]
    compiled: list[Executable] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


@dataclass
class Graph:
    """One graph that AOTAutograd handed over.

    Attributes:
        kind: "forward", "backward" or "inference".
        nodes: How many operators it calls.
        regions: What polyfuse computes.
        left: The nodes that torch computes, and why.
        known: How many nodes more were computed once, since no call changes their values.
    """

    kind: str
    nodes: int
    regions: list[Region] = field(default_factory=list)
    left: list[Refusal] = field(default_factory=list)
    known: int = 0


@dataclass
class Record:
    """The graphs of a model, in the order in which they were compiled."""

    graphs: list[Graph] = field(default_factory=list)
