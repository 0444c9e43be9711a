"""Plots of iteration domains: points, arrows, tiles, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import polyfuse as pf
from polyfuse.errors import BadArgument
from polyfuse.show import domain_plot
from tests.show.subjects import blur, blur_rows, dense, jacobi, wavefronts

pytest.importorskip("matplotlib")
from matplotlib.collections import LineCollection, PathCollection, QuadMesh
from matplotlib.quiver import Quiver

SIZES = {"T": 4, "N": 7}


def drawn(figure: Any, kind: type) -> list[Any]:
    return [artist for artist in figure.axes[0].collections if isinstance(artist, kind)]


def points(figure: Any) -> list[set[tuple[float, float]]]:
    return [{tuple(map(float, p)) for p in dots.get_offsets()} for dots in drawn(figure, PathCollection)]


def test_every_instance_is_a_point() -> None:
    (found,) = points(domain_plot(jacobi(), "S", sizes=SIZES))
    assert found == {(t, i) for t in range(4) for i in range(1, 6)}


def test_every_dependence_is_an_arrow_from_source_to_sink() -> None:
    (arrows,) = drawn(domain_plot(jacobi(), "S", sizes=SIZES, kinds=("flow",)), Quiver)
    ends = {
        (x, y, x + u, y + v) for (x, y), u, v in zip(arrows.get_offsets(), arrows.U, arrows.V, strict=True)
    }
    inside = range(1, 6)
    assert ends == {(t, i, t + 1, j) for t in range(3) for i in inside for j in (i - 1, i + 1) if j in inside}


def test_labels_name_dimensions_statements_and_kinds() -> None:
    axes = domain_plot(jacobi(), "S", ("i", "t"), sizes=SIZES).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("i", "t", "S")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["flow", "S"]


def test_tiles_are_cells_numbered_in_the_order_they_run() -> None:
    figure = domain_plot(wavefronts(), "S", sizes=SIZES)
    (cells,) = drawn(figure, QuadMesh)
    assert cells.get_array().shape == (5, 4)
    assert cells.get_array().count() == 20
    # t in tiles of 2; i + t = 1 … 5 and 2 … 6 in the first, 3 … 7 and 4 … 8 in the second, in tiles of 4
    assert [text.get_text() for text in figure.axes[0].texts] == ["0", "1", "2", "3", "4"]


def test_neighbouring_tiles_have_different_shades() -> None:
    cells = drawn(domain_plot(wavefronts(), "S", sizes=SIZES), QuadMesh)[0].get_array()
    assert cells[0, 0] != cells[-1, 0]  # i = 1 and i = 5 at t = 0
    assert cells[0, 0] != cells[0, 2]  # t = 0 and t = 2 at i = 1


def test_the_loops_that_make_the_tiles_can_be_named() -> None:
    figure = domain_plot(wavefronts(), "S", sizes=SIZES, tiled_by=("t",))
    assert [text.get_text() for text in figure.axes[0].texts] == ["0", "1"]


def test_tiles_of_every_statement_are_shaded() -> None:
    """R runs a step of i behind S, so that its tiles end elsewhere; each has its strip of a cell."""
    figure = domain_plot(blur_rows(), ("S", "R"), ("t", "i"), tiled_by=("i",))
    first, second = drawn(figure, QuadMesh)
    heights = [{round(float(y), 2) for y in cells.get_coordinates()[:, 0, 1]} for cells in (first, second)]
    assert min(heights[0]) == -0.5
    assert {0.15, 1.15} <= heights[0] & heights[1]  # where the strips meet
    assert max(heights[1]) == 5.5
    tones = [[int(row[0]) for row in cells.get_array()[::2]] for cells in (first, second)]
    assert tones == [[0, 0, 0, 2, 2, 2], [0, 0, 2, 2, 2, 0]]
    assert [text.get_text() for text in figure.axes[0].texts] == ["0", "1", "2"]


def test_statements_on_a_line_have_tiles_in_their_rows() -> None:
    figure = domain_plot(blur_rows(), ("S", "R"), ("i",), tiled_by=("i",))
    spans = [(c.get_coordinates()[0, 0, 1], c.get_coordinates()[-1, 0, 1]) for c in drawn(figure, QuadMesh)]
    assert spans == [(-0.5, 0.5), (0.5, 1.5)]


def test_statements_outside_of_the_tiles_have_no_cells() -> None:
    figure = domain_plot(pf.Schedule(dense()).tile("mac0", i=2, j=2), ("mac0", "relu0"), ("i", "j"))
    assert len(drawn(figure, QuadMesh)) == 1


def test_more_statements_stay_in_their_cells() -> None:
    found = points(domain_plot(dense(), ("zero0", "mac0", "bias0", "relu0"), ("i", "j")))
    assert max(x for each in found for x, _ in each) < 3.5


def test_an_untiled_schedule_and_a_nest_have_no_cells() -> None:
    for what in (jacobi(), pf.Schedule(jacobi())):
        assert not drawn(domain_plot(what, "S", sizes=SIZES), QuadMesh)


def test_what_is_not_plotted_is_held_at_its_least_value_or_where_it_is_put() -> None:
    figure = domain_plot(dense(), "mac0", ("j", "k"), at={"i": 2})
    assert points(figure) == [{(j, k) for j in range(6) for k in range(8)}]
    assert figure.axes[0].get_title() == "mac0 at i = 2"
    assert domain_plot(dense(), "mac0", ("j", "k")).axes[0].get_title() == "mac0 at i = 0"


def test_planes_that_differ_are_said_of_each_statement() -> None:
    figure = domain_plot(dense(), ["zero0", "mac0"], ("i", "j"))
    assert figure.axes[0].get_title() == "zero0; mac0 at k = 0"


def test_each_axis_has_ticks_over_its_own_extent() -> None:
    axes = domain_plot(jacobi(), "S", ("i", "t"), {"T": 4, "N": 14}).axes[0]
    assert max(t for t in axes.get_xticks() if t <= axes.get_xlim()[1]) > 8
    assert max(t for t in axes.get_yticks() if t <= axes.get_ylim()[1]) <= 4


def test_a_pair_that_two_others_imply_is_left_out() -> None:
    (arrows,) = drawn(domain_plot(dense(), "mac0", ("j", "k")), Quiver)
    assert arrows.N == 6 * 7  # from each k to the next; the sum over k has 6 * 28 pairs
    assert set(arrows.V) == {1}


def test_statements_on_a_line_have_rows() -> None:
    figure = domain_plot(blur(), ("blur", "edge"), ("i",))
    assert points(figure) == [{(i, 0.0) for i in range(6)}, {(i, 1.0) for i in range(5)}]
    assert drawn(figure, Quiver)[0].N == 10
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["blur", "edge"]


def test_statements_in_a_plane_stand_apart() -> None:
    first, second = points(domain_plot(dense(), ("bias0", "relu0")))
    assert len(first) == len(second) == 24
    assert not first & second


REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("unknown statement 'R'; expected one of S", lambda: domain_plot(jacobi(), "R", sizes=SIZES)),
    ("name a statement; expected one of", lambda: domain_plot(jacobi(), ())),
    ("one or two dimensions, not 3", lambda: domain_plot(dense(), "mac0", ("i", "j", "k"))),
    ("one or two dimensions, not 2", lambda: domain_plot(dense(), "mac0", ("i", "i"))),
    ("no dimension 'k'; it has i, j", lambda: domain_plot(dense(), "bias0", ("i", "k"))),
    ("unknown dimension 'z'; expected one of i, j, k", lambda: domain_plot(dense(), "mac0", at={"z": 1})),
    ("depends on T, N; give numbers: sizes={'T': 8, 'N': 8}", lambda: domain_plot(jacobi(), "S")),
    ("depends on N; give numbers", lambda: domain_plot(jacobi(), "S", sizes={"T": 4})),
    (
        "unknown symbolic size 'M'; expected one of T, N",
        lambda: domain_plot(jacobi(), "S", sizes={**SIZES, "M": 1}),
    ),
    ("no instance with {'T': 4, 'N': 2}", lambda: domain_plot(jacobi(), "S", sizes={"T": 4, "N": 2})),
    ("no instance at {'k': 8}", lambda: domain_plot(dense(), "mac0", at={"k": 8})),
    ("more than the 2500 that a plot shows", lambda: domain_plot(jacobi(), "S", sizes={"T": 100, "N": 100})),
    ("unknown kind of dependence 'fluss'", lambda: domain_plot(jacobi(), "S", sizes=SIZES, kinds=("fluss",))),
    ("no loop 'z' around", lambda: domain_plot(wavefronts(), "S", sizes=SIZES, tiled_by=("z",))),
    ("a nest has no tiles", lambda: domain_plot(jacobi(), "S", sizes=SIZES, tiled_by=("t",))),
]


@pytest.mark.parametrize(("message", "plot"), REFUSED, ids=[message for message, _ in REFUSED])
def test_what_is_no_picture_is_refused(message: str, plot: Callable[[], object]) -> None:
    with pytest.raises(BadArgument) as refused:
        plot()
    assert message in str(refused.value)


def test_an_unbounded_domain_is_refused() -> None:
    endless = pf.statement("{ S[i, j] : i >= 0 and 0 <= j < 3 }", "s = 0")
    nest = pf.Nest.of([pf.Tensor("s", (), "float32", "output")], [endless])
    with pytest.raises(BadArgument, match="not bounded"):
        domain_plot(nest, "S")


def test_a_violation_is_one_red_arrow_between_its_instances() -> None:
    violation = pf.Schedule(jacobi()).why_not("tile", "S", t=3, i=4)
    assert violation is not None
    figure = domain_plot(jacobi(), violation=violation, sizes=SIZES, kinds=())
    (arrow,) = drawn(figure, Quiver)
    (x, y), u, v = arrow.get_offsets()[0], arrow.U[0], arrow.V[0]
    assert ((x, y), (x + u, y + v)) == (violation.source.point, violation.sink.point)
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == [f"refused: {violation.source} → {violation.sink}", "S"]


def test_the_legend_of_a_violation_is_within_the_figure(tmp_path: Path) -> None:
    violation = pf.Schedule(jacobi()).why_not("tile", "S", t=3, i=4)
    figure = domain_plot(jacobi(), violation=violation, sizes=SIZES)
    figure.savefig(tmp_path / "violation.png")
    assert figure.axes[0].get_legend().get_window_extent().x1 <= figure.bbox.x1


def test_a_violation_is_drawn_in_the_planes_of_its_instances() -> None:
    violation = pf.Schedule(dense()).fuse("bias0", "relu0", at="j").why_not("shift", "relu0", "j", -1)
    figure = domain_plot(dense(), violation=violation)
    assert figure.axes[0].get_title() == "bias0, relu0"
    with pytest.raises(BadArgument, match="is not in the plot"):
        domain_plot(dense(), "mac0", violation=violation)


def test_tiles_have_outlines() -> None:
    figure = domain_plot(wavefronts(), "S", sizes=SIZES, tiled_by=("t",))
    (outlines,) = drawn(figure, LineCollection)
    pieces = {tuple(tuple(map(float, end)) for end in piece) for piece in outlines.get_segments()}
    assert ((1.5, 0.5), (1.5, 1.5)) in pieces  # between t = 1 and t = 2
    assert ((0.5, 0.5), (0.5, 1.5)) not in pieces
