"""tests/nightly.txt: the cases that `make test` leaves to `make nightly`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.nightly import COLLECTED, LIST, function_of, is_listed, listed

ROOT = Path(__file__).parents[1]

TEXT = """\
# a comment
tests/test_a.py::test_one
    3-float32
    3-[x]
tests/test_a.py::test_two
"""


@pytest.mark.parametrize(
    ("case", "left_out"),
    [
        ("tests/test_a.py::test_one[3-float32]", True),
        ("tests/test_a.py::test_one[3-[x]]", True),
        ("tests/test_a.py::test_one[4-float32]", False),
        ("tests/test_a.py::test_two", True),
        ("tests/test_a.py::test_two[5]", True),
        ("tests/test_b.py::test_one[3-float32]", False),
    ],
)
def test_a_case_is_left_out_by_its_name_or_by_its_functions(case: str, left_out: bool) -> None:
    assert is_listed(case, listed(TEXT)) == left_out


def test_what_is_listed_exists_and_leaves_each_function_a_daily_case(request: pytest.FixtureRequest) -> None:
    """Of the files that this run collected; a run of the whole suite checks the whole list."""
    collected = defaultdict[str, set[str]](set)
    for case in request.config.stash[COLLECTED]:
        function, parameters = function_of(case)
        collected[function].add(parameters)
    files = {function.partition("::")[0] for function in collected}
    for function, cases in listed(LIST.read_text(encoding="utf-8")).items():
        file = function.partition("::")[0]
        assert (ROOT / file).is_file(), function
        if file in files:
            assert function in collected
            assert cases <= collected[function], function
            assert not cases or collected[function] - cases, f"{function} has no daily case"
