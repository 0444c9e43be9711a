"""Values that a notebook shows as HTML.

`polyfuse.show.views` has the view of each type. It is imported when a notebook asks for one: what computes does not
import what draws.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from importlib import import_module


class Viewed:
    """A value with a view in `polyfuse.show.views`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """The value as HTML, for IPython."""
        found: str = import_module("polyfuse.show.views").view(self)
        return found


MOST = 100
"""Letters of a list in a short text."""


def shorter(text: str, most: int = MOST) -> str:
    """Return a text, cut where it is long.

    >>> shorter("mac0, bias0, relu0", 12)
    'mac0, bias0…'
    """
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def equal_but_for_numbers(texts: Iterable[str]) -> list[tuple[str, int]]:
    """Return texts that differ in the numbers of names alone as the first of them, and how many there are.

    >>> equal_but_for_numbers(["pack_w0 of 8", "relu0 of 8", "pack_w1 of 8", "pack_w2 of 9"])
    [('pack_w0 of 8', 2), ('relu0 of 8', 1), ('pack_w2 of 9', 1)]
    """
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for text in texts:
        form = without_numbers(text)
        first.setdefault(form, text)
        counts[form] += 1
    return [(text, counts[form]) for form, text in first.items()]


def without_numbers(text: str) -> str:
    """Return a text without the numbers at the ends of names.

    >>> without_numbers("mac12 sums 8 terms in y12_parts")
    'mac# sums 8 terms in y#_parts'
    """
    return re.sub(r"(?<=[A-Za-z_])\d+(?![A-Za-z0-9])", "#", text)
