"""Nests and schedules as HTML, and how a notebook comes to show them."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree

import pytest

import polyfuse as pf
from polyfuse import show
from polyfuse.errors import BadArgument
from polyfuse.show.pages import page
from tests.show.subjects import dense, fused, jacobi


def test_a_nest_as_tables(golden: Callable[[str, str], None]) -> None:
    golden("show/jacobi.html", show.html(jacobi()))


def test_a_nest_without_symbolic_sizes_names_no_set_of_them() -> None:
    assert "nest jacobi</b> over [T, N]" in show.html(jacobi())
    assert " over " not in "".join(ElementTree.fromstring(show.html(dense())).itertext())


def test_a_schedule_as_a_tree_that_folds(golden: Callable[[str, str], None]) -> None:
    golden("show/fused.html", show.html(fused()))


@pytest.mark.parametrize("what", [jacobi(), dense(), fused()])
def test_the_elements_are_balanced_and_text_is_escaped(what: pf.Nest | pf.Schedule) -> None:
    text = "".join(ElementTree.fromstring(show.html(what)).itertext())
    assert what.name in text if isinstance(what, pf.Nest) else what.trace() in text


def test_a_tree_nests_as_its_loops_do() -> None:
    root = ElementTree.fromstring(show.html(fused()))
    path = "/".join(["details"] * 3)
    assert [x.text for x in root.findall(f"{path}/summary/code") if not x.get("style")] == ["for k"]


def test_a_page_is_a_document() -> None:
    assert page(jacobi()).startswith("<!DOCTYPE html>\n<meta charset")


@pytest.fixture
def shell() -> object:
    return pytest.importorskip("IPython.core.interactiveshell").InteractiveShell.instance()


def test_in_a_notebook_values_show_themselves(shell: object) -> None:
    show.notebook()
    formats = shell.display_formatter.format  # type: ignore[attr-defined]
    nest, _ = formats(jacobi())
    assert nest["text/html"] == jacobi()._repr_html_()
    assert nest["text/latex"] == f"$${show.latex(jacobi())}$$"
    assert formats(fused())[0]["text/html"] == fused()._repr_html_()
    assert set(formats(jacobi().statements[0])[0]) == {"text/plain", "text/latex"}
    pytest.importorskip("matplotlib")
    assert formats(show.tree_picture(fused()))[0]["image/svg+xml"].startswith("<?xml")


def test_outside_of_ipython_there_is_nothing_to_register_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyfuse.show.notebook_views._shell", lambda: None)
    with pytest.raises(BadArgument, match="not an IPython session"):
        show.notebook()
