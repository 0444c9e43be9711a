"""Dependence graphs and schedule trees."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import islpy as isl
import pytest
from hypothesis import given, settings

import polyfuse as pf
from polyfuse import show
from polyfuse.errors import TargetUnavailable
from polyfuse.ir import Nest
from polyfuse.ir.dependences import Pairs
from polyfuse.show import dependence_graph, dependence_plot, domain_plot, tree_picture
from polyfuse.show.distances import distances
from polyfuse.show.labels import rows
from tests.show.subjects import blur, dense, fused, jacobi, threads
from tests.support.nests import nests

pytest.importorskip("matplotlib")
pytest.importorskip("graphviz")
from matplotlib.text import Annotation

from tests.support.examples import examples


@pytest.mark.parametrize(("name", "nest"), [("jacobi", jacobi), ("dense", dense)])
def test_the_graph_in_dot(name: str, nest: Callable[[], Nest], golden: Callable[[str, str], None]) -> None:
    golden(f"show/{name}.dot", dependence_graph(nest()).source)


def test_the_graph_as_a_picture_has_a_box_a_statement_and_an_arrow_an_edge() -> None:
    axes = dependence_plot(dense()).axes[0]
    arrows = [text for text in axes.texts if isinstance(text, Annotation)]
    texts = [text for text in axes.texts if not isinstance(text, Annotation)]
    assert [text.get_text() for text in sorted(texts, key=lambda text: text.get_position()[1])] == [
        "zero0: y0[i, j] = 0.0",
        "zero0 (0, 0)   ",
        "zero0 (0, 0)   ",
        "mac0: y0[i, j] += x[i, k] * w0[k, j]    ↻ reduction (0, 0, ≥1)",
        "zero0 (0, 0)   ",
        "mac0 (0, 0)   ",
        "bias0: z0[i, j] = y0[i, j] + b0[j]",
        "bias0 (0, 0)   ",
        "relu0: out[i, j] = max(z0[i, j], 0)",
    ]
    assert len(arrows) == 5
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["flow", "output"]


def test_equal_layers_are_drawn_once() -> None:
    layers = [layer for _ in range(5) for layer in (pf.nn.Linear(8, 8), pf.nn.ReLU())]
    nest = pf.lower(pf.nn.Sequential(*layers, pf.nn.Linear(8, 3)), batch=4)
    texts = [text.get_text().strip() for text in dependence_plot(nest).axes[0].texts]
    assert texts.count("× 5") == 1
    assert texts.count("next: relu0 (0, *)") == 1
    assert sum(text.startswith(("mac0:", "mac1:", "mac5:")) for text in texts) == 2
    assert "relu4 (0, *)" in texts  # from the last of the five to what is no repetition
    tree = [text.get_text() for text in tree_picture(nest).axes[0].texts]
    assert tree[1] == "× 5"
    assert [text for text in tree if text.startswith("mac")] == [
        "mac0    y0[i, j] += x[i, k] * w0[k, j]",
        "mac5    y5[i, j] += a4[i, k] * w5[k, j]",
    ]


@pytest.mark.parametrize(
    ("relation", "found"),
    [
        ("{ S[t, i] -> S[1 + t, i - 1]; S[t, i] -> S[1 + t, 1 + i] }", "(1, -1), (1, 1)"),
        ("[N] -> { S[i, k] -> S[i, l] : k < l < N }", "(0, ≥1)"),
        ("{ S[i, k] -> R[i, l, m] : 0 <= i < 4 and 0 <= k, l, m < 64 }", "(0, *)"),
        ("{ S[i] -> S[j] : 0 <= i, j < 40 and i - 2 <= j <= i + 4 }", "(-2…4)"),
        ("{ S[i] -> S[j] : 0 <= j < i < 40 }", "(≤-1)"),
        ("{ S[] -> S[i] }", ""),
    ],
)
def test_distances(relation: str, found: str) -> None:
    assert distances(Pairs("flow", "S", "S", isl.Map(relation))) == found


def test_arrows_point_from_source_to_sink() -> None:
    (arrow,) = [text for text in dependence_plot(blur()).axes[0].texts if isinstance(text, Annotation)]
    (_, start), (_, end) = arrow.get_position(), arrow.xy
    assert start < end  # rows are counted from the top


def test_a_nest_without_arrows_has_no_legend() -> None:
    assert dependence_plot(jacobi()).axes[0].get_legend() is None


def test_the_tree_has_a_box_a_loop_and_statement_with_places_and_buffers() -> None:
    axes = tree_picture(fused()).axes[0]
    assert [text.get_text() for text in axes.texts] == [
        "sequential",
        "for i: 4 @ cores    i: mac0, zero0, bias0, relu0",
        "for j: 6 [y0 in local]    j: mac0, zero0, bias0, relu0",
        "zero0    y0[i, j] = 0.0",
        "for k: 8    k: mac0",
        "mac0    y0[i, j] += x[i, k] * w0[k, j]",
        "bias0    z0[i, j] = y0[i, j] + b0[j]",
        "relu0    out[i, j] = max(z0[i, j], 0)",
    ]
    assert len(axes.lines) == len(axes.texts) - 1
    assert len({text.get_bbox_patch().get_facecolor() for text in axes.texts}) == 3


def test_boxes_stand_right_of_the_loop_they_are_in() -> None:
    lefts = [round(text.get_position()[0], 2) for text in tree_picture(fused()).axes[0].texts]
    assert lefts == [0.13, 0.58, 1.03, 1.48, 1.48, 1.93, 1.48, 1.48]


def test_barriers_are_rows() -> None:
    s = threads()
    assert [row.text for row in rows(s.nest, s.tree)].count("barrier") == 2
    texts = [text.get_text() for text in tree_picture(s).axes[0].texts]
    assert texts.count("barrier") == 2
    assert any(text.startswith("for k: 2 × 4 [x_shared in shared]") for text in texts)


def test_a_nest_shows_its_original_order() -> None:
    nest = blur()
    plain, same = tree_picture(nest), tree_picture(pf.Schedule(nest))
    assert [t.get_text() for t in plain.axes[0].texts] == [t.get_text() for t in same.axes[0].texts]


@pytest.mark.parametrize(
    ("library", "picture"),
    [
        ("matplotlib", lambda: tree_picture(blur())),
        ("matplotlib", lambda: dependence_plot(blur())),
        ("matplotlib", lambda: domain_plot(blur(), "blur")),
        ("graphviz", lambda: dependence_graph(blur())),
    ],
)
def test_a_missing_library_is_named_with_what_installs_it(
    library: str, picture: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == library]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TargetUnavailable, match=rf"needs {library}.*pip install 'polyfuse\[plot\]'"):
        picture()


def test_importing_show_imports_nothing_that_draws() -> None:
    code = "import sys, polyfuse.show; print({'matplotlib', 'graphviz', 'IPython'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"


@given(nests())
@settings(max_examples=examples(10))
def test_every_nest_can_be_shown(nest: Nest) -> None:
    assert show.latex(nest).count("\n") == len(nest.statements) + 1
    assert all(s.name in show.html(nest) for s in nest.statements)
    assert len(tree_picture(nest).axes[0].texts) > len(nest.statements)
    dependence_plot(nest)
    for s in nest.statements:
        sizes = dict.fromkeys(nest.params, 4)
        dots = domain_plot(nest, s.name, s.dims[:2], sizes).axes[0].collections[-1]
        assert len(dots.get_offsets()) >= 1
