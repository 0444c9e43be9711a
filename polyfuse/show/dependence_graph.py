"""The dependence graph: statements as nodes, dependences with their kinds and distances as edges.

For Graphviz as DOT, which needs its program `dot` to become a picture, and as a picture that needs matplotlib alone.
The picture has equal layers once:

    ┌ mac0: …        ┐ × 12        the block stands for twelve in a row, equal up to names
    └ relu0: …       ┘
      next: relu0 (0, *)           mac1 depends on relu0: an edge to the block behind is drawn to the same box
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyfuse.errors.proving import proving
from polyfuse.ir import Nest
from polyfuse.ir.given import nest_given
from polyfuse.ir.nest import ordered_statements
from polyfuse.ir.nest_text import body_text
from polyfuse.ir.tree import Sequence, statements
from polyfuse.show.distances import distances
from polyfuse.show.folded_tree import runs_of
from polyfuse.show.optional import need
from polyfuse.show.sheet import LINE, box, frame, middle, note, note_width, sheet, width_of

if TYPE_CHECKING:
    import graphviz
    from matplotlib.figure import Figure

KINDS = {"flow": "tab:blue", "anti": "tab:orange", "output": "tab:green", "reduction": "tab:gray"}
"""The kinds of dependences, and the colour of each in every picture."""

WIDEST = 2.5
"""Inches that an edge may reach out at most."""

MOST_NOTES = 5
"""Edges named above a box."""


@dataclass(frozen=True)
class Edge:
    """A dependence between two statements: its kind, and the distances of its instances, as text."""

    source: str
    sink: str
    kind: str
    distance: str

    @property
    def label(self) -> str:
        """The kind and the distance."""
        return f"{self.kind} {self.distance}".rstrip()


def edges(nest: Nest) -> list[Edge]:
    """Return each dependence once, in the original order of the statements."""
    place = {s.name: position for position, s in enumerate(ordered_statements(nest))}
    found = [
        Edge(pairs.source, pairs.sink, pairs.kind, distances(pairs)) for pairs in nest.dependences().pairs
    ]
    return sorted(found, key=lambda edge: (place[edge.source], place[edge.sink]))


@proving("the view dependence_graph")
def dependence_graph(nest: Nest) -> graphviz.Digraph:
    """Return the dependence graph for Graphviz: `.source` is DOT; `.render()` needs Graphviz's program `dot`.

    Args:
        nest: The nest.

    Returns:
        The graph.

    Raises:
        TargetUnavailable: if the package graphviz is not installed.
    """
    library, nest = need("graphviz"), nest_given("dependence_graph", nest)
    graph = library.Digraph(nest.name, node_attr={"shape": "box", "fontname": "monospace"})
    for statement in ordered_statements(nest):
        graph.node(statement.name, label=library.escape(f"{statement.name}: {body_text(statement)}"))
    for edge in edges(nest):
        graph.edge(edge.source, edge.sink, label=edge.label, color=KINDS[edge.kind].removeprefix("tab:"))
    return graph


@dataclass(frozen=True)
class Block:
    """Rows `first` to `last` (excluded) of a picture, which stand for so many `times` as many statements."""

    first: int
    last: int
    times: int


@dataclass(frozen=True)
class Folded:
    """The statements that a picture shows, the blocks among them, and where each statement of the nest is shown.

    `place` has the row of a statement, and which repetition of the row's block it belongs to.
    """

    shown: tuple[str, ...]
    blocks: tuple[Block, ...]
    place: dict[str, tuple[int, int]]


def folded(nest: Nest) -> Folded:
    """Find runs of parts that are equal up to names, such as layers."""
    order = nest.order if isinstance(nest.order, Sequence) else Sequence((nest.order,))
    shown: list[str] = []
    blocks, place = [], {}
    for run in runs_of(nest, order):
        first, period = len(shown), run.last - run.first
        for repetition in range(run.times):
            row = first
            for child in order.children[run.first + repetition * period :][:period]:
                for name in statements(child):
                    if repetition == 0:
                        shown.append(name)
                    place[name] = row, repetition
                    row += 1
        if run.times > 1:
            blocks.append(Block(first, len(shown), run.times))
    return Folded(tuple(shown), tuple(blocks), place)


@dataclass(frozen=True)
class Arc:
    """An edge between two rows: between a block and itself `ahead` repetitions later, where that is not 0."""

    source: int
    sink: int
    edge: Edge
    ahead: int

    @property
    def note(self) -> str:
        """The text above the sink's box: where the dependence comes from, and its distance."""
        when = {0: "", 1: "next: "}.get(self.ahead, f"{self.ahead} later: ")
        return f"{when}{self.edge.source} {self.edge.distance}".rstrip()


def arcs_of(nest: Nest, rows: Folded) -> list[Arc]:
    """Return the arcs of a picture; of those that only repeat one in a later block, the first."""
    found: dict[tuple[int, int, str, int], Arc] = {}
    for edge in edges(nest):
        (source, before), (sink, after) = rows.place[edge.source], rows.place[edge.sink]
        inside = any(b.first <= source < b.last and b.first <= sink < b.last for b in rows.blocks)
        ahead = after - before if inside else 0
        found.setdefault((source, sink, edge.kind, ahead), Arc(source, sink, edge, ahead))
    return list(found.values())


@proving("the view dependence_plot")
def dependence_plot(nest: Nest) -> Figure:
    """Plot the dependence graph: statements in a column in their original order, dependences as arcs.

    Above a box stand the sources of its dependences with their distances: how much later the second instance is, in
    each dimension that both statements have. A statement that depends on itself says so in its box. Equal layers are
    shown once, in a frame with "× 12"; "next: relu0" is then the statement of the layer before.

    Args:
        nest: The nest.

    Returns:
        A matplotlib Figure.

    Raises:
        TargetUnavailable: if matplotlib is not installed.
    """
    nest = nest_given("dependence_plot", nest)
    rows = folded(nest)
    arcs = arcs_of(nest, rows)
    texts = [_text(nest, arcs, row, name) for row, name in enumerate(rows.shown)]
    between = [arc for arc in arcs if arc.source != arc.sink]
    notes = [_notes(between, row) for row in range(len(texts))]
    left = max((_reach(arc.source, arc.sink, arc.edge.kind) for arc in between), default=0.0) + 0.2
    width = (
        max(*map(width_of, texts), *(note_width("".join(text for text, _ in each)) for each in notes)) + 0.1
    )
    axes = sheet(left + width + 0.8 * bool(rows.blocks), 2 * len(texts) + 1)
    for block in rows.blocks:
        frame(axes, left - 0.1, 2 * block.first + 1, left + width + 0.7, 2 * block.last, f"× {block.times}")
    for row, text in enumerate(texts):
        box(axes, left, 2 * row + 2, text, "white")
        note(axes, left, 2 * row + 1, notes[row])
    for arc in between:
        _arc(axes, left, arc.source, arc.sink, arc.edge.kind)
    used = [kind for kind in KINDS if any(kind == arc.edge.kind for arc in between)]
    for kind in used:
        axes.plot([], [], color=KINDS[kind], label=kind)
    if used:
        axes.legend(loc="upper left", ncols=len(used), frameon=False, fontsize=9, borderpad=0)
    figure: Figure = axes.figure
    return figure


def _text(nest: Nest, arcs: list[Arc], row: int, name: str) -> str:
    """A box: the statement, and its dependences on itself."""
    own = [arc for arc in arcs if arc.source == arc.sink == row]
    kinds = [f"{'next: ' * (arc.ahead > 0)}{arc.edge.label}" for arc in own]
    return f"{name}: {body_text(nest.statement(name))}" + (f"    ↻ {', '.join(kinds)}" if own else "")


def _notes(arcs: list[Arc], row: int) -> list[tuple[str, str]]:
    """(text, colour) of what stands above a box: one for each arc that ends there."""
    ending = [(f"{arc.note}   ", KINDS[arc.edge.kind]) for arc in arcs if arc.sink == row]
    more = len(ending) - MOST_NOTES
    return [*ending[:MOST_NOTES], (f"and {more} more", "black")] if more > 0 else ending


def _reach(source: int, sink: int, kind: str) -> float:
    """Inches that an arc reaches out to the left; kinds between the same two statements differ."""
    length = 2 * LINE * abs(sink - source)
    return min(0.3 * length, WIDEST) * (1 + 0.3 * list(KINDS).index(kind))


def _arc(axes: Any, left: float, source: int, sink: int, kind: str) -> None:
    """An arrow from below the middle of the source's left edge to above the middle of the sink's, or upwards."""
    down = 1 if sink > source else -1
    start, end = middle(2 * source + 2) + 0.06 * down, middle(2 * sink + 2) - 0.06 * down
    # matplotlib's arc3 reaches out by half of rad times the length
    bend = 2 * _reach(source, sink, kind) / abs(end - start)
    form = {"arrowstyle": "-|>", "color": KINDS[kind], "shrinkA": 0, "shrinkB": 0}
    style = f"arc3,rad={down * bend:.3f}"
    axes.annotate("", (left, end), (left, start), arrowprops=form | {"connectionstyle": style}, zorder=0)
