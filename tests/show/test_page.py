"""The guide's page on pictures: its images are those that its blocks draw, its formulas those that they print.

`make golden` writes the images anew. They are compared by their texts: paths differ with matplotlib's version.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.test_docs import blocks

PAGE = Path(__file__).parent.parent.parent / "docs" / "guide" / "12-seeing.md"
IMAGES = PAGE.parent / "seeing"
FORMULA = re.compile(r"^\$\$\n(.*?)^\$\$$", re.MULTILINE | re.DOTALL)


def words(image: Path) -> list[str]:
    """Every text in an SVG."""
    return [
        "".join(text.itertext()) for text in ElementTree.parse(image).iter("{http://www.w3.org/2000/svg}text")
    ]


def test_the_images_are_what_the_page_draws(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    text = PAGE.read_text(encoding="utf-8")
    space: dict[str, object] = {}
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "polyfuse"}):
        for block in blocks(text):
            exec(block.code, space)
    drawn = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert drawn == sorted(re.findall(r"\(seeing/(.*?\.svg)\)", text))
    for name in drawn:
        if request.config.getoption("--update-golden"):
            IMAGES.mkdir(exist_ok=True)
            shutil.copy(tmp_path / name, IMAGES / name)
        assert words(IMAGES / name) == words(tmp_path / name)


def test_formulas_are_printed_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    outputs = [block.output for block in blocks(text)]
    found = FORMULA.findall(text)
    assert found
    assert all(formula in outputs for formula in found)
