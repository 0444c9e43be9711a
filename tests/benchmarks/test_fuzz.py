"""The fuzzer: cases are counted, a failure is minimised, what hangs or dies is stopped and named."""

from __future__ import annotations

import time
from multiprocessing import Pipe
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from benchmarks import fuzz
from benchmarks.fuzz import Batch, Count, Kept, _heard, _seeds, batch_of, table


@settings(max_examples=100)
@given(st.integers(0, 99))
def even_numbers_agree(number: int) -> None:
    if number % 2:
        event("refused, being odd")


@settings(max_examples=100)
@given(st.integers(0, 10_000))
def small_numbers_agree(number: int) -> None:
    assert number < 700, f"{number} is too large"


class Ended:
    """A process that has ended."""

    exitcode = -11

    def kill(self) -> None:
        """There is nothing to end."""

    def join(self) -> None:
        """It has ended."""


def test_a_batch_counts_its_cases() -> None:
    begun: list[int] = []
    count = batch_of(even_numbers_agree, 7, 20, begun.append)
    assert (count.cases, count.agreed + count.refused, count.failures) == (20, 20, [])
    assert count.refused > 3
    assert begun == list(range(1, 21))


def test_a_failure_is_minimised() -> None:
    (failure,) = batch_of(small_numbers_agree, 7, 50, lambda number: None).failures
    assert "700 is too large" in failure
    assert "number=700" in failure


def test_minimising_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    long, short = (list[int](), list[int]())
    for seconds, begun in ((60, long), (0, short)):
        monkeypatch.setattr(fuzz, "SHRINKING", seconds)
        (failure,) = batch_of(small_numbers_agree, 7, 50, begun.append).failures
        assert "AssertionError" in failure
    assert len(short) < len(long)


@pytest.mark.parametrize(
    ("closed", "said"), [(True, "the process ended with -11"), (False, "not done after 4 s")]
)
def test_a_batch_whose_process_dies_or_hangs(closed: bool, said: str) -> None:
    here, there = Pipe(duplex=False)
    batch = Batch("loops", 7, Ended(), here, time.monotonic())  # type: ignore[arg-type]
    there.send(3)
    assert _heard(batch, 4) is None
    if closed:
        there.close()
    batch.heard -= 4
    count = _heard(batch, 4)
    assert count is not None
    assert (count.cases, count.agreed) == (3, 2)
    assert f"case 3: {said}; again: python -m benchmarks.fuzz --only loops --seed 7" in count.failures[0]


def test_the_table_adds_up() -> None:
    text = table({"loops": Count(5, 3, 1, ["x"]), "types": Count(2, 2)})
    assert text.splitlines()[-1] == "| all | 7 | 5 | 1 | 1 |"


def test_a_later_run_adds_to_the_counts_with_new_seeds(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    first = Kept.read(path, 7)
    first.counts = {"loops": Count(), "types": Count()}
    seeds = _seeds(["loops", "types"], first, 20)
    assert [next(seeds) for _ in range(3)] == [("loops", 7), ("types", 7), ("loops", 8)]
    first.add("loops", Count(20, 19, 1, ["x"]))
    second = Kept.read(path, 7)
    assert second.counts["loops"] == Count(20, 19, 1, ["x"])
    second.counts["types"] = Count()
    assert next(_seeds(["loops", "types"], second, 20)) == ("types", 9)
    second.add("types", Count(20, 20))
    assert next(_seeds(["loops", "types"], second, 20), None) is None
