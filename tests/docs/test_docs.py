"""The documentation is true: every Python block of a page is run, in order, and prints what the page shows.

In a page,

    ```python            run, with what the page's blocks before it defined; ```py is only shown
    ```

    <!-- output: 12 lines -->
    ```text              what the block printed; "…" stands for any text in a line, a line "…" for any lines
    ```

The comment says how many lines `make golden` keeps when it writes the output anew; without it, all of them. Pages are
run as on the machine preset "zen5" without a GPU, so that what they show does not depend on where they are built.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import polyfuse as pf

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    *sorted((ROOT / "docs").glob("guide/*.md")),
    *sorted((ROOT / "docs").glob("dev/*.md")),
]
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n"
    r"(?P<shown>\n(?:<!-- output: (?P<lines>\d+) lines -->\n)?```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A block of code, the output shown below it (None if none is shown), and where both stand."""

    code: str
    output: str | None
    lines: int | None
    line: int
    span: tuple[int, int]


def blocks(text: str) -> Iterator[Block]:
    for match in BLOCK.finditer(text):
        lines = int(match["lines"]) if match["lines"] else None
        line = text[: match.start("code")].count("\n") + 1
        yield Block(match["code"], match["output"], lines, line, match.span("output"))


def pattern(shown: str) -> re.Pattern[str]:
    """What output a page's text allows.

    >>> bool(pattern("a … c").fullmatch("a b c")), bool(pattern("a\\n…\\nd").fullmatch("a\\nb\\nc\\nd"))
    (True, True)
    >>> bool(pattern("a …").fullmatch("a b\\nc")), bool(pattern("a").fullmatch("b"))
    (False, False)
    """
    parts = []
    for line in shown.rstrip("\n").split("\n"):
        elided = line.strip() == "…"
        parts.append(
            r"(?:.*\n)*?.*\n?" if elided else ".*".join(map(re.escape, line.rstrip().split("…"))) + r"\n?"
        )
    return re.compile("".join(parts))


def shortened(text: str, lines: int | None) -> str:
    """The first lines of an output, with an ellipsis for the others."""
    every = text.rstrip("\n").split("\n")
    kept = every if lines is None or len(every) <= lines else [*every[:lines], "…"]
    return "".join(f"{line}\n" for line in kept)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_page_prints_what_it_shows(
    page: Path, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = page.read_text(encoding="utf-8")
    if "build_kernels" in text or "simulator" in text:
        pytest.importorskip("numba.cuda")
    update = request.config.getoption("--update-golden")
    monkeypatch.setattr(pf.Machine, "detect", staticmethod(lambda: pf.Machine.preset("zen5")))
    monkeypatch.setattr("polyfuse.compiler.available", lambda: False)
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {"__name__": "page"}
    edits = []
    for block in blocks(text):
        printed = io.StringIO()
        # as many newlines before as there are in the page, so that tracebacks show its line numbers
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, space)
        found = "\n".join(line.rstrip() for line in printed.getvalue().rstrip("\n").split("\n"))
        if block.output is None or pattern(block.output).fullmatch(found):
            continue
        if not update:
            pytest.fail(
                f"{page.name}, line {block.line}: the block prints\n{found}\nand not\n{block.output}",
                pytrace=False,
            )
        edits.append((block.span, shortened(found, block.lines)))
    for (start, stop), output in reversed(edits):
        text = text[:start] + output + text[stop:]
    if edits:
        page.write_text(text, encoding="utf-8")


def test_the_readme_starts_with_the_two_commands_and_shows_the_example() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert 0 < text.index("make demo") < text.index("make test") < text.index("```python")
    assert len(list(blocks(text))) >= 2
