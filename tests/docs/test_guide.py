"""The guide's examples give the output that the guide shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.S)


@pytest.mark.parametrize("page", ["01-layers.md", "02-nest.md", "03-dependences.md"])
def test_the_guide_shows_what_its_examples_print(page: str) -> None:
    examples = EXAMPLE.findall((GUIDE / page).read_text(encoding="utf-8"))
    assert examples
    names: dict[str, Any] = {}
    for code, expected in examples:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert printed.getvalue() == expected
