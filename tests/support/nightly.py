"""tests/nightly.txt: the cases that `make test` leaves to `make nightly`.

A test function stands at the margin, its cases below it; a function without cases is left out whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

LIST = Path(__file__).parents[1] / "nightly.txt"

COLLECTED = pytest.StashKey[frozenset[str]]()
"""Where a run keeps the names of all cases that it collected, those that it leaves out among them."""


def function_of(case: str) -> tuple[str, str]:
    """A case's test function, and its parameters' name.

    >>> function_of("tests/test_halves.py::test_sum[float16-3]")
    ('tests/test_halves.py::test_sum', 'float16-3')
    """
    function, _, parameters = case.partition("[")
    return function, parameters.removesuffix("]")


def listed(text: str) -> Mapping[str, frozenset[str]]:
    """For each test function that the list's text names, its cases; none if it is left out whole.

    >>> listed("# a comment\\ntests/test_halves.py::test_sum\\n    float16-3\\n")
    {'tests/test_halves.py::test_sum': frozenset({'float16-3'})}
    """
    found: dict[str, set[str]] = {}
    function = ""
    for line in text.splitlines():
        if line.startswith("    "):
            found[function].add(line[4:])
        elif line and not line.startswith("#"):
            function = line
            found[function] = set()
    return {name: frozenset(cases) for name, cases in found.items()}


def is_listed(case: str, known: Mapping[str, frozenset[str]]) -> bool:
    """True if the list names a case, or its function without cases."""
    function, parameters = function_of(case)
    return function in known and (not known[function] or parameters in known[function])
