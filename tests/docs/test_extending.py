"""The diffs of docs/dev/extending.md apply to the package, and what they add works.

A ```diff block holds hunks with their files; a ```py block after it uses what was added. All diffs are applied to one
copy of the package, and all uses run in one process there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dev" / "extending.md").read_text(encoding="utf-8")
TOPICS = ("layer", "verb", "rewrite", "pass", "tile", "device operation", "target")


@dataclass(frozen=True)
class Hunk:
    """Lines of a file before and after; a new file has no lines before."""

    path: str
    before: str
    after: str


def blocks(language: str, text: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def hunks(diff: str) -> Iterator[Hunk]:
    """The hunks of a diff, without line numbers.

    >>> list(hunks("--- a/x.py\\n+++ b/x.py\\n@@\\n one\\n-two\\n+three\\n"))
    [Hunk(path='x.py', before='one\\ntwo\\n', after='one\\nthree\\n')]
    """
    for part in re.split(r"^--- .*\n(?=\+\+\+ )", diff, flags=re.MULTILINE)[1:]:
        first, _, body = part.partition("\n")
        for hunk in re.split(r"^@@\n", body, flags=re.MULTILINE)[1:]:
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] or "\n" for line in lines if line[0] != "+")
            after = "".join(line[1:] or "\n" for line in lines if line[0] != "-")
            yield Hunk(first.removeprefix("+++ b/"), before, after)


def apply(hunk: Hunk, root: Path) -> None:
    """Change a file below `root`, or make it; the lines before must stand in it exactly once."""
    path = root / hunk.path
    if not hunk.before:
        assert not path.exists(), hunk.path
        path.parent.mkdir(exist_ok=True)
        path.write_text(hunk.after, encoding="utf-8")
        return
    text = path.read_text(encoding="utf-8")
    assert text.count(hunk.before) == 1, (
        f"{hunk.path} has these lines {text.count(hunk.before)} times:\n{hunk.before}"
    )
    path.write_text(text.replace(hunk.before, hunk.after), encoding="utf-8")


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_has_a_diff_and_a_use(topic: str) -> None:
    (section,) = [
        one for one in re.split(r"^## ", PAGE, flags=re.MULTILINE) if re.match(rf"… an? {topic}\b", one)
    ]
    assert blocks("diff", section)
    assert blocks("py", section)


def test_the_diffs_apply_and_what_they_add_works(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "polyfuse", tmp_path / "polyfuse")  # with its bytecode, whose times are kept
    for diff in blocks("diff"):
        for hunk in hunks(diff):
            apply(hunk, tmp_path)
    script = tmp_path / "uses.py"
    script.write_text("\n\n".join(blocks("py")), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "POLYFUSE_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "s = pf.Schedule(nest)\ns = s.cyclic('softsign0', 'i', 2)\n"


def test_a_hunk_whose_lines_are_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("one\none\n", encoding="utf-8")
    for before, times in (("one\n", 2), ("two\n", 0)):
        with pytest.raises(AssertionError, match=f"x.py has these lines {times} times"):
            apply(Hunk("x.py", before, ""), tmp_path)
