from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

import polyfuse as pf
from polyfuse.show.explorer import Explorer
from tests.show.explorer.explored_nets import many_layers, two_layers

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "explorer"
BUNDLE = ROOT / "polyfuse" / "show" / "explorer" / "app.js"


def sources_hash() -> str:
    """The hash of what the bundle is built from, as `explorer/vite.config.js` computes it."""
    names = ["package-lock.json", "package.json", "vite.config.js"]
    names += [f"src/{path.name}" for path in sorted((SOURCES / "src").iterdir())]
    found = hashlib.sha256()
    for name in names:
        found.update(name.encode() + b"\0" + (SOURCES / name).read_bytes() + b"\0")
    return found.hexdigest()


def test_the_bundle_is_built_from_the_sources() -> None:
    first = BUNDLE.read_text(encoding="utf-8").split("\n", 1)[0]
    assert sources_hash() in first, "run `make explorer`: explorer/ has changed since the bundle was built"


def test_the_lock_file_names_no_hosts() -> None:
    assert '"resolved"' not in (SOURCES / "package-lock.json").read_text(encoding="utf-8")


def test_the_page_is_one_file_that_asks_for_nothing() -> None:
    page = two_layers().html()
    assert page.count("<script") == page.count("</script>") == 2
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#)""", page.split('id="data">')[0])
    script = BUNDLE.read_text(encoding="utf-8")
    assert not re.search(r"\bfetch\(|XMLHttpRequest|import\(|WebSocket", script)
    assert set(re.findall(r"https?://[^\"'` )]+", script)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1998/Math/MathML",
        "http://www.w3.org/1999/xhtml",
    }


def test_the_page_holds_the_data() -> None:
    page = two_layers().html()
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert text is not None
    assert json.loads(text[1]) == json.loads(two_layers().json())


def test_names_cannot_leave_the_script_or_the_title() -> None:
    data = {**two_layers().data, "nest": {"name": "</script><b>", "context": "", "sizes": {}}}
    page = Explorer(data).html()
    assert "</script><b>" not in page
    assert "<title>polyfuse explorer: &lt;/script&gt;&lt;b&gt;</title>" in page


def test_a_page_of_500_statements_is_small() -> None:
    assert len(many_layers().data["statements"]) >= 500
    assert len(many_layers().html().encode()) < 5_000_000


def test_it_is_written_to_a_file_and_shown_in_a_notebook(tmp_path: Path) -> None:
    two_layers().save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == two_layers().html()
    assert (
        two_layers()._repr_html_().startswith('<iframe title="polyfuse explorer" srcdoc="&lt;!DOCTYPE html')
    )
    assert repr(two_layers()).startswith("<Explorer of sequential: 8 statements, 28 steps")
    with pytest.raises(pf.BadArgument, match="cannot write"):
        two_layers().save(tmp_path / "none" / "page.html")
