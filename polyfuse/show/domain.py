"""Plots of iteration domains: instances as points, dependences as arrows, tiles shaded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Instance, Violation
from polyfuse.ir import Nest
from polyfuse.ir.given import nest_given
from polyfuse.ir.tree import Loop
from polyfuse.schedule import Schedule
from polyfuse.show.dependence_graph import KINDS
from polyfuse.show.optional import need
from polyfuse.show.sheet import LETTER
from polyfuse.show.slices import Slice, arrows, cut, tile_loops, tiles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = "osD^v"
SHADES = ("#f3ead8", "#dbe7f3", "#e3efdc", "#f1dfe4")
"""Of four neighbouring tiles, two by two, each has its own."""

APART = 0.3
"""The distance of a further statement's marker from its point, so that all instances at one point are visible."""

ARROWS: dict[str, object] = {
    "angles": "xy",
    "scale_units": "xy",
    "scale": 1,
    "units": "inches",
    "width": 0.011,
    "headwidth": 6,
    "headlength": 8,
    "headaxislength": 7,
}
"""Arrows in the plot's own units, their heads in inches: seen in a large plot as in a small one."""

REFUSED = "#c40d20"
"""The colour of what a refused step would break."""

ARROW = 0.8
"""The inches of an arrow in the legend, with the space around it."""

Point = tuple[float, float]


@proving("the view domain_plot")
def domain_plot(
    what: Schedule | Nest,
    statement: str | Sequence[str] = (),
    dims: Sequence[str] | None = None,
    sizes: Mapping[str, int] | None = None,
    at: Mapping[str, int] | None = None,
    kinds: Collection[str] = tuple(KINDS),
    tiled_by: Sequence[str] | None = None,
    violation: Violation | None = None,
) -> Figure:
    """Plot a slice of the iteration domain of one or several statements, with the dependences inside it.

    Transitive dependences are left out. For a schedule, tiles are shaded and numbered in the order in which they run;
    each statement inside the tiled loops has its own part of a cell, and tiles have outlines. The dependence of a
    violation is one red arrow, between the two instances that it names.

    Args:
        what: A schedule or a nest.
        statement: The name of a statement, or several; may be left out with a violation, which has two.
        dims: The plotted dimensions, horizontal first; by default the first two. With one, each statement has a row.
        sizes: Values of symbolic sizes.
        at: Values of the other dimensions; by default each one's least.
        kinds: The kinds of dependences to draw.
        tiled_by: The loops around the first statement whose tiles are shaded; by default all that were tiled.
        violation: A refused step. Sizes and the values of other dimensions are those of its instances, unless they are
            given.

    Returns:
        A matplotlib Figure.

    Raises:
        BadArgument: if the slice is not finite, or a name is unknown.
        TargetUnavailable: if matplotlib is not installed.
    """
    nest = (
        what.nest if isinstance(what, Schedule) else nest_given("domain_plot", what, "a nest or a schedule")
    )
    names = (statement,) if isinstance(statement, str) else tuple(statement)
    ends = (violation.source, violation.sink) if violation is not None else ()
    if violation is not None:
        names = names or tuple(dict.fromkeys(violation.statements))
        sizes = {**violation.sizes, **(sizes or {})}
    dims, sizes, at = _checked(nest, names, dims, sizes or {}, at or {}, kinds)
    held = {
        end.statement: dict(zip(nest.statement(end.statement).dims, end.point, strict=True)) for end in ends
    }
    slices = {name: cut(nest, name, dims, sizes, {**held.get(name, {}), **at}) for name in names}
    places = {name: _place(position, len(names), len(dims)) for position, name in enumerate(names)}
    axes = (
        need("matplotlib.figure")
        .Figure(figsize=_extent(slices.values(), violation), layout="constrained")
        .subplots()
    )
    if isinstance(what, Schedule):
        loops = tile_loops(what.loops(names[0]), tiled_by)
        strips = zip(names, _strips([*places.values()], len(dims)), strict=True)
        shown = [(slices[n], strip) for n, strip in strips if all(n in loop.members for loop in loops)]
        _shade(axes, shown, loops, sizes)
    elif tiled_by is not None:
        raise BadArgument("a nest has no tiles; give a Schedule")
    for pairs in nest.dependences().pairs:
        if pairs.kind in kinds and pairs.source in slices and pairs.sink in slices:
            found = arrows(pairs, slices[pairs.source], slices[pairs.sink], sizes)
            _draw_arrows(axes, pairs.kind, found, places[pairs.source], places[pairs.sink])
    if violation is not None:
        spots = [_spot(end, slices, places) for end in ends]
        _draw_violation(axes, violation, spots)
    for position, name in enumerate(names):
        _draw_points(axes, slices[name], places[name], MARKERS[position % len(MARKERS)])
    _frame(axes, tuple(slices.values()), dims)
    figure: Figure = axes.figure
    return figure


def _checked(
    nest: Nest,
    names: tuple[str, ...],
    dims: Sequence[str] | None,
    sizes: Mapping[str, int],
    at: Mapping[str, int],
    kinds: Collection[str],
) -> tuple[tuple[str, ...], Mapping[str, int], dict[str, int]]:
    known = [s.name for s in nest.statements]
    _among("statement", names, known)
    if not names:
        raise BadArgument(f"name a statement; expected one of {', '.join(known)}")
    own = dict.fromkeys(d for name in names for d in nest.statement(name).dims)
    _among("dimension", at, own)
    _among("symbolic size", sizes, nest.params)
    _among("kind of dependence", kinds, KINDS)
    chosen = tuple(dims) if dims is not None else nest.statement(names[0]).dims[:2]
    if len(set(chosen)) != len(chosen) or len(chosen) not in (1, 2):
        raise BadArgument(
            f"a plot has one or two dimensions, not {len(chosen)} ({', '.join(chosen)}); choose from {', '.join(own)}"
        )
    return chosen, sizes, dict(at)


def _among(what: str, given: Collection[str], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            raise BadArgument(f"unknown {what} {name!r}; expected one of {', '.join(known) or 'none'}")


def _place(position: int, count: int, dims: int) -> Point:
    """Return the position of a statement's points: a row of its own on a line, slightly offset in a plane."""
    apart = min(APART, 2 * APART / count)  # all of them in their cell
    return (0.0, float(position)) if dims == 1 else (apart * position, apart * position)


def _moved(point: Sequence[int], place: Point) -> Point:
    x, y = (*point, 0)[:2]
    return x + place[0], y + place[1]


def _extent(slices: Iterable[Slice], violation: Violation | None) -> tuple[float, float]:
    """The size of the figure in inches, so that points are about as far apart in every plot and labels have room."""
    label = 1.0 if violation is None else max(1.0, ARROW + LETTER * len(_refused(violation)))
    points = [_moved(point, (0.0, 0.0)) for found in slices for point in found.points()]
    width, height = (max(side) - min(side) for side in zip(*points, strict=True))
    return min(max(0.45 * width, 3.0), 12.0) + 0.8 + label, min(max(0.45 * height, 2.0), 12.0) + 0.9


def _draw_points(axes: Any, instances: Slice, place: Point, marker: str) -> None:
    x, y = zip(*(_moved(p, place) for p in instances.points()), strict=True)
    axes.scatter(x, y, s=14, marker=marker, color="black", label=instances.statement, zorder=3)


def _draw_arrows(
    axes: Any, kind: str, ends: list[tuple[tuple[int, ...], tuple[int, ...]]], source: Point, sink: Point
) -> None:
    lines = [(*_moved(a, source), *_moved(b, sink)) for a, b in ends]
    lines = [(x, y, u - x, v - y) for x, y, u, v in lines if (x, y) != (u, v)]
    if lines:
        label = "_" if kind in axes.get_legend_handles_labels()[1] else kind
        axes.quiver(*zip(*lines, strict=True), color=KINDS[kind], alpha=0.8, label=label, zorder=2, **ARROWS)


def _spot(end: Instance, slices: Mapping[str, Slice], places: Mapping[str, Point]) -> Point:
    """The place of an instance in the plot."""
    drawn = slices.get(end.statement)
    point = None if drawn is None else drawn.plotted(end.point)
    if drawn is None or point not in drawn.points() or any(end.point[d] != v for d, v in drawn.at.items()):
        plane = "" if drawn is None else ", ".join(f"{name} = {value}" for name, value in drawn.held.items())
        where = f"in the plane {plane}" if plane else "in the plot"
        raise BadArgument(
            f"the violation's instance {end} is not {where}; leave out at= and sizes=, or name its own"
        )
    assert point is not None, "a drawn statement has plotted coordinates"
    return _moved(point, places[end.statement])


def _refused(violation: Violation) -> str:
    return f"refused: {violation.source} → {violation.sink}"


def _draw_violation(axes: Any, violation: Violation, spots: Sequence[Point]) -> None:
    """The dependence that a step would break: one arrow, or a ring where both instances are at one point."""
    (x, y), (u, v) = spots
    label = _refused(violation)
    if (x, y) != (u, v):
        form = {**ARROWS, "width": 0.03}
        axes.quiver([x], [y], [u - x], [v - y], color=REFUSED, label=label, zorder=5, **form)
    ring = {"facecolors": "none", "edgecolors": REFUSED, "linewidths": 2, "zorder": 6}
    axes.scatter([x, u], [y, v], s=70, label=label if (x, y) == (u, v) else "_", **ring)


def _shade(
    axes: Any,
    shown: Sequence[tuple[Slice, tuple[float, float]]],
    loops: Sequence[Loop],
    sizes: Mapping[str, int],
) -> None:
    """Cells around the points, neighbouring tiles in different shades, each tile's number in the order they run.

    Each statement has its strip of a cell, from one height to another, since tiles of one may end where another's go
    on.
    """
    if not loops:
        return
    corners: dict[tuple[int, ...], Point] = {}
    for instances, (low, high) in shown:
        points = {_moved(point, (0.0, 0.0)): date for point, date in tiles(instances, loops, sizes).items()}
        _draw_cells(axes, points, low, high)
        for (x, y), date in points.items():
            corners[date] = min(corners.get(date, (x, y + low)), (x, y + low))
    for number, (_, (x, y)) in enumerate(sorted(corners.items())):
        axes.text(
            x - 0.45, y + 0.05, str(number), ha="left", va="bottom", fontsize=8, weight="bold", zorder=4
        )


def _draw_cells(axes: Any, points: Mapping[Point, tuple[int, ...]], low: float, high: float) -> None:
    """A cell around each point in the shade of its tile, as high as a strip."""
    xs, ys = (range(int(min(side)), int(max(side)) + 1) for side in zip(*points, strict=True))
    rows = [[_tone(points.get((x, y))) for x in xs] for y in ys]
    edges = [*(y + low for y in ys), ys[-1] + high]
    if high - low < 1 and len(ys) > 1:  # nothing between one row's strip and the next one's
        rows = [row for each in rows for row in (each, [-1] * len(xs))][:-1]
        edges = [y + end for y in ys for end in (low, high)]
    cells = np.ma.masked_less(rows, 0)
    columns = [*(x - 0.5 for x in xs), xs[-1] + 0.5]
    colours = need("matplotlib.colors").ListedColormap(SHADES)
    axes.pcolormesh(columns, edges, cells, cmap=colours, vmin=0, vmax=len(SHADES) - 1, zorder=0)
    pieces = []
    for (x, y), date in points.items():
        left, right, below, above = x - 0.5, x + 0.5, y + low, y + high
        sides = {
            (x + 1, y): ((right, below), (right, above)),
            (x - 1, y): ((left, below), (left, above)),
            (x, y + 1): ((left, above), (right, above)),
            (x, y - 1): ((left, below), (right, below)),
        }
        pieces += [side for other, side in sides.items() if points.get(other) != date]
    outlines = need("matplotlib.collections").LineCollection
    axes.add_collection(outlines(pieces, colors="#444444", linewidths=0.8, zorder=1))


def _strips(places: Sequence[Point], dims: int) -> list[tuple[float, float]]:
    """The part of a cell around each statement's point: they meet halfway between two points."""
    heights = [y for _, y in places]
    borders = [(below + above) / 2 for below, above in pairwise(heights)]
    top = 0.5 if dims == 2 else heights[-1] + 0.5
    return list(zip([-0.5, *borders], [*borders, top], strict=True))


def _tone(date: Sequence[int] | None) -> int:
    """The shade of a tile, by the parities of its dates; -1 if there is none."""
    return -1 if date is None else 2 * (sum(date[0::2]) % 2) + sum(date[1::2]) % 2


def _frame(axes: Any, slices: tuple[Slice, ...], dims: Sequence[str]) -> None:
    integers = need(
        "matplotlib.ticker"
    ).MaxNLocator  # one an axis: a locator knows the axis it was given to last
    axes.set_xlabel(dims[0])
    axes.xaxis.set_major_locator(integers(integer=True))
    if len(dims) == 2:
        axes.set_ylabel(dims[1])
        axes.yaxis.set_major_locator(integers(integer=True))
        axes.set_aspect("equal")
    else:
        axes.set_yticks(range(len(slices)), [found.statement for found in slices])
        axes.margins(y=0.4)
    axes.set_title(_title(slices))
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(map(_mark, handles), labels, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def _mark(drawn: Any) -> Any:
    """What stands in the legend: for arrows an arrow, for points theirs."""
    if not isinstance(drawn, need("matplotlib.quiver").Quiver):
        return drawn
    line = need("matplotlib.lines").Line2D
    return line([], [], linestyle="", marker=r"$\rightarrow$", markersize=16, color=drawn.get_facecolor()[0])


def _title(slices: tuple[Slice, ...]) -> str:
    """The statements and where the plane lies: "S0, S1 at j = 4"; statements in different planes say so each."""
    planes = [", ".join(f"{name} = {value}" for name, value in found.held.items()) for found in slices]
    if len(set(planes)) == 1:
        return ", ".join(found.statement for found in slices) + (f" at {planes[0]}" if planes[0] else "")
    named = (
        found.statement + (f" at {plane}" if plane else "")
        for found, plane in zip(slices, planes, strict=True)
    )
    return "; ".join(named)
