"""Text as code whose source Python finds, as that of emitted source in a file."""

from __future__ import annotations

import linecache
from itertools import count
from typing import Any

_numbers = count()


def executed(text: str, space: dict[str, Any]) -> dict[str, Any]:
    """The names that running a text defines, among those that it may use."""
    file = f"<emitted {next(_numbers)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), space)
    return space
