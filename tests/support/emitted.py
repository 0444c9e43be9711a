"""Emitted source in tests: as code whose source Python finds, and as text without line breaks in calls."""

from __future__ import annotations

import linecache
import re
from itertools import count
from typing import Any

_numbers = count()


def in_one_line(source: str) -> str:
    """Source with each call in one line.

    >>> in_one_line("f(\\n    x=1, y=2,\\n    z=3,\\n)")
    'f(x=1, y=2, z=3)'
    """
    return re.sub(r",\s+\)", ")", re.sub(r"\(\s+", "(", re.sub(r",\s+", ", ", source)))


def executed(text: str, space: dict[str, Any]) -> dict[str, Any]:
    """The names that running a text defines, among those that it may use."""
    file = f"<emitted {next(_numbers)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), space)
    return space
