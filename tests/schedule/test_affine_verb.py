"""The verb `affine`: dates of statements, all at once."""

from __future__ import annotations

import pytest

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.schedule import Schedule
from tests.support.loop_programs import jacobi_1d, mean, trisolv
from tests.support.programs import pair


def test_a_stencil_becomes_a_permutable_band() -> None:
    s = Schedule(jacobi_1d(8, 3)).affine(S="[t, 2t + i, 0]", R="[t, 2t + i + 1, 1]")
    assert s.dump("tree").splitlines() == [
        "for t:    { S[t, i] -> [t]; R[t, i] -> [t] }",
        "  for i:    { S[t, i] -> [2t + i]; R[t, i] -> [1 + 2t + i] }",
        "    S: B[i] = 0.25 * (A[-1 + i] + 2 * A[i] + A[1 + i])",
        "    R: A[i] = 0.25 * (B[-1 + i] + 2 * B[i] + B[1 + i])",
    ]
    assert s.interchange("S", "t", "i").loops("S")[0].name == "i"


def test_neighbours_become_one_part() -> None:
    s = Schedule(mean()).affine(I="[0, 0]", S="[0, 1, i]", M="[0, 2]")
    assert [loop.name for loop in s.loops("S")] == ["once", "i"]
    assert "s = s.affine(I='[0, 0]', S='[0, 1, i]', M='[0, 2]')" in s.trace()


def test_a_part_inside_a_loop_is_dated_from_there() -> None:
    s = Schedule(trisolv()).affine(S="[0 - j]")
    assert [loop.name for loop in s.loops("S")] == ["i", "j"]


def test_a_broken_dependence_is_refused_with_two_instances() -> None:
    with pytest.raises(IllegalSchedule, match="dependence"):
        Schedule(jacobi_1d()).affine(S="[t, i, 0]", R="[t, i, 1]")


@pytest.mark.parametrize(
    ("dates", "message"),
    [
        ({}, "at least one"),
        ({"X": "[t]"}, "unknown statement 'X'"),
        ({"S": "[t, i * i]", "R": "[t, i]"}, "cannot read"),
        ({"S": "[t, i]", "R": "[t, i]"}, "share all dates"),
        ({"S": "[t, i]", "R": "[t, i, 1]"}, "one more"),
    ],
)
def test_bad_dates_are_explained(dates: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSchedule, match=message):
        Schedule(jacobi_1d()).affine(**dates)


def test_statements_with_others_between_them_have_no_common_place() -> None:
    with pytest.raises(InvalidSchedule, match="not all the statements"):
        Schedule(trisolv()).affine(I="[0]", D="[1]")


def test_bound_loops_are_not_replaced() -> None:
    s = Schedule(jacobi_1d()).bind("S", i="cores")
    with pytest.raises(InvalidSchedule, match="bound"):
        s.affine(S="[t, 2t + i, 0]", R="[t, 2t + i + 1, 1]")


def test_instances_that_share_a_date_are_refused() -> None:
    with pytest.raises(InvalidSchedule, match=r"S\[0, 0\] and S\[0, 1\] share all dates"):
        Schedule(pair()).affine(S="[i]")
