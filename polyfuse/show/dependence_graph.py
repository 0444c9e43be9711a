"""The dependence graph: statements as nodes, kinds of dependences as edges.

For Graphviz as DOT, which needs its program `dot` to become a picture, and as a picture that needs matplotlib alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyfuse.errors.proving import proving
from polyfuse.ir import Nest
from polyfuse.ir.given import nest_given
from polyfuse.ir.nest import ordered_statements
from polyfuse.ir.nest_text import body_text
from polyfuse.show.optional import need
from polyfuse.show.sheet import LINE, box, middle, sheet, width_of

if TYPE_CHECKING:
    import graphviz
    from matplotlib.figure import Figure

KINDS = {"flow": "tab:blue", "anti": "tab:orange", "output": "tab:green", "reduction": "tab:gray"}
"""The kinds of dependences, and the colour of each in every picture."""

WIDEST = 2.5
"""Inches that an edge may reach out at most."""


def edges(nest: Nest) -> list[tuple[str, str, str]]:
    """(source, sink, kind), each once, in the original order of the statements."""
    place = {s.name: position for position, s in enumerate(ordered_statements(nest))}
    found = [(pairs.source, pairs.sink, pairs.kind) for pairs in nest.dependences().pairs]
    return sorted(found, key=lambda edge: (place[edge[0]], place[edge[1]]))


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
    for source, sink, kind in edges(nest):
        graph.edge(source, sink, label=kind, color=KINDS[kind].removeprefix("tab:"))
    return graph


@proving("the view dependence_plot")
def dependence_plot(nest: Nest) -> Figure:
    """Plot the dependence graph: statements in a column in their original order, dependences as arcs.

    A statement that depends on itself says so in its box.

    Args:
        nest: The nest.

    Returns:
        A matplotlib Figure.

    Raises:
        TargetUnavailable: if matplotlib is not installed.
    """
    nest = nest_given("dependence_plot", nest)
    names = [s.name for s in ordered_statements(nest)]
    texts = [f"{s.name}: {body_text(s)}{_own(nest, s.name)}" for s in ordered_statements(nest)]
    arcs = [(names.index(a), names.index(b), kind) for a, b, kind in edges(nest) if a != b]
    left = max((_reach(a, b, kind) for a, b, kind in arcs), default=0.0) + 0.2
    axes = sheet(left + max(map(width_of, texts)) + 0.1, 2 * len(texts) + 1)
    for row, text in enumerate(texts):
        box(axes, left, 2 * row + 1, text, "white")
    for source, sink, kind in arcs:
        _arc(axes, left, source, sink, kind)
    used = [kind for kind in KINDS if any(kind == found for _, _, found in arcs)]
    for kind in used:
        axes.plot([], [], color=KINDS[kind], label=kind)
    if used:
        axes.legend(loc="upper left", ncols=len(used), frameon=False, fontsize=9, borderpad=0)
    figure: Figure = axes.figure
    return figure


def _own(nest: Nest, statement: str) -> str:
    """The kinds of dependences of a statement on itself, for its box."""
    kinds = [kind for source, sink, kind in edges(nest) if source == sink == statement]
    return f"    ↻ {', '.join(kinds)}" if kinds else ""


def _reach(source: int, sink: int, kind: str) -> float:
    """Inches that an arc reaches out to the left; kinds between the same two statements differ."""
    length = 2 * LINE * abs(sink - source)
    return min(0.3 * length, WIDEST) * (1 + 0.3 * list(KINDS).index(kind))


def _arc(axes: Any, left: float, source: int, sink: int, kind: str) -> None:
    """An arrow from below the middle of the source's left edge to above the middle of the sink's, or upwards."""
    down = 1 if sink > source else -1
    start, end = middle(2 * source + 1) + 0.06 * down, middle(2 * sink + 1) - 0.06 * down
    # matplotlib's arc3 reaches out by half of rad times the length
    bend = 2 * _reach(source, sink, kind) / abs(end - start)
    form = {"arrowstyle": "-|>", "color": KINDS[kind], "shrinkA": 0, "shrinkB": 0}
    style = f"arc3,rad={down * bend:.3f}"
    axes.annotate("", (left, end), (left, start), arrowprops=form | {"connectionstyle": style}, zorder=0)
