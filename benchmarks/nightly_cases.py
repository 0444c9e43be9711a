"""Which cases `make test` leaves to `make nightly`: measured, and written to tests/nightly.txt.

    python -m pytest -n 2 --dist worksteal -p benchmarks.nightly_cases          runs every test, writes build/nightly/
    python -m benchmarks.nightly_cases [--short SECONDS] [--dear SECONDS]       reads it, writes tests/nightly.txt

The first needs `coverage`, which is no part of the dev extra; with `-m "not nightly"` it runs daily cases alone, and
the second then adds to the list what no longer has to be daily. A case runs daily if

    it is short              it takes less CPU time than --short,
    or stands for others     it is the shortest case of its test function, and takes less than --dear or is in ALWAYS,
    or is asked for          its function is in WHOLE,
    or is alone on a line    it covers a line of polyfuse/ that no case chosen before covers; those that cover most such
                             lines a second are chosen first.

So every line that all cases cover together is covered daily, and every test function runs daily but for those whose
shortest case is dear and covers what others do.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from pathlib import Path

import pytest

from tests.support.nightly import LIST, function_of, listed

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "build" / "nightly"

SHORT = 0.1
DEAR = 2.0

ALWAYS = (
    "tests/codegen/cpu/test_parallel.py::test_joined_layers_compute_what_they_do_apart",
    "tests/codegen/lowering/test_partition_loops.py::test_random_schedules_with_full_tiles_apart",
    "tests/codegen/test_operator_types.py::test_each_operator_has_the_type_that_other_rules_give_it",
    "tests/codegen/test_seams.py::test_each_of_them_is_needed",
    "tests/codegen/test_seams.py::test_few_modules_know_numba_cuda",
    "tests/docs/test_extending.py::test_the_diffs_apply_and_what_they_add_works",
    "tests/frontend/onnx/test_from_onnx.py::test_one_compile_serves_every_batch",
    "tests/frontend/python/numpy/test_types.py::test_operations_on_the_cpu",
    "tests/random/test_random_plans.py::test_random_plans",
    "tests/random/test_random_programs.py::test_random_verbs_on_random_programs",
    "tests/rewrite/gradient/test_reverse.py::test_a_compiled_gradient_of_loops",
    "tests/runtime/cpu/test_fork.py::test_one_that_is_forked_before_any_kernel_starts_its_own_threads",
    "tests/runtime/store/test_cache.py::test_a_second_process_loads_it_and_unpickles_nothing",
    "tests/runtime/store/test_store.py::test_many_processes_at_once",
    "tests/runtime/test_executable.py::test_fused_layers_of_one_shape_are_one_code_and_three_launches",
    "tests/schedule/test_rewriting.py::test_a_network_with_batch_norm_compiles_by_its_own_schedule",
    "tests/strategy/cpu/gemm/test_schedule.py::test_any_product_equals_the_oracle",
    "tests/strategy/cuda/gemm/test_warp_specialized.py::test_nothing_reads_sums_before_the_wait_for_them",
    "tests/strategy/passes/test_wavefront.py::test_machine_code_computes_what_the_oracle_does",
    "tests/strategy/test_force.py::test_a_pass_that_compares_plans_is_taken_or_left_out",
    "tests/strategy/test_force.py::test_what_is_forced_is_in_the_cache_key",
    "tests/strategy/test_targets_apart.py::test_a_plan_stays_in_its_targets_folder",
    "tests/test_called_back.py::test_isl_is_given_no_function_that_could_raise",
    "tests/tune/test_search.py::test_the_executable_has_the_best_schedule",
)
"""Dear test functions whose shortest case runs daily, because no shorter one asks what they ask."""

WHOLE = ("tests/test_examples.py::test_a_newcomer_finds_the_answer",)
"""Test functions all of whose cases run daily: each of a newcomer's tasks is one that no other case does."""

HEAD = """\
# What `make test` leaves to `make nightly`: long cases, without which the same lines of polyfuse/ are covered. A test
# function stands at the margin, its cases below it; without any, it is left out whole. Written by
# `python -m benchmarks.nightly_cases`, which says how cases are chosen.
"""


@dataclass(frozen=True)
class Measured:
    """A case, its CPU time in seconds, its processes' included, and the lines that it alone ran, as numbers."""

    case: str
    seconds: float
    lines: frozenset[int]

    @property
    def function(self) -> str:
        """The test function of the case, with its file."""
        return function_of(self.case)[0]


# -- measuring: a plugin of pytest -------------------------------------------------------------------------------------


class Measuring:
    """Notes each test's CPU time, and its lines in a context of its own, in one pair of files a process."""

    def __init__(self, worker: str) -> None:
        import coverage

        MEASURED.mkdir(parents=True, exist_ok=True)
        self.times = (MEASURED / f"times.{worker}").open("w", encoding="utf-8")
        self.coverage = coverage.Coverage(
            data_file=str(MEASURED / f"lines.{worker}"), source=[str(ROOT / "polyfuse")], config_file=False
        )
        self.coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        start = spent()
        done = yield
        self.times.write(json.dumps([item.nodeid, spent() - start]) + "\n")
        self.coverage.switch_context("")
        return done

    def pytest_sessionfinish(self) -> None:
        self.times.close()
        self.coverage.stop()
        self.coverage.save()


def spent() -> float:
    """CPU seconds of this process and of those that it started and that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def pytest_configure(config: pytest.Config) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    if worker != "alone" or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Measuring(worker))


# -- choosing ----------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.nightly_cases")
    parser.add_argument("--short", type=float, default=SHORT, metavar="SECONDS", help="CPU time")
    parser.add_argument("--dear", type=float, default=DEAR, metavar="SECONDS", help="CPU time")
    options = parser.parse_args()
    found = tuple(measured(MEASURED))
    daily = chosen(found, options.short, options.dear)
    kept = still_listed(LIST.read_text(encoding="utf-8"), {each.case for each in found})
    LIST.write_text(as_text([*(each.case for each in found), *kept], daily), encoding="utf-8")
    for what, some in (("all", found), ("daily", [each for each in found if each.case in daily])):
        lines = len(frozenset().union(*(each.lines for each in some)))
        print(
            f"{what}: {len(some)} cases, {sum(each.seconds for each in some):.0f} s of CPU time, {lines} lines"
        )


def measured(folder: Path) -> Iterator[Measured]:
    """Read the CPU time and the covered lines of each case, as the plugin recorded them."""
    from coverage import CoverageData

    numbers: dict[tuple[str, int], int] = {}
    for times in sorted(folder.glob("times.*")):
        data = CoverageData(str(times.with_name(times.name.replace("times", "lines", 1))))
        data.read()
        ran: dict[str, set[int]] = defaultdict(set)
        for file in data.measured_files():
            inside = str(Path(file)).partition("/polyfuse/")[2]
            for line, contexts in data.contexts_by_lineno(file).items():
                number = numbers.setdefault((inside, line), len(numbers))
                for context in contexts:
                    ran[context].add(number)
        for text in times.read_text(encoding="utf-8").splitlines():
            case, seconds = json.loads(text)
            yield Measured(case, seconds, frozenset(ran[case]))


def chosen(found: tuple[Measured, ...], short: float, dear: float) -> frozenset[str]:
    """The cases that `make test` keeps."""
    shortest: dict[str, Measured] = {}
    for each in found:
        if each.function not in shortest or each.seconds < shortest[each.function].seconds:
            shortest[each.function] = each
    kept = {each.case for each in found if each.seconds < short or each.function in WHOLE}
    kept |= {each.case for each in shortest.values() if each.seconds < dear or each.function in ALWAYS}
    covered = set[int]().union(*(each.lines for each in found if each.case in kept))
    others = [
        (-len(each.lines - covered) / each.seconds, each.case) for each in found if each.case not in kept
    ]
    known = {each.case: each for each in found}
    heapify(others)
    while others:
        # what a case adds only falls as others are chosen: the best is the first that is still worth what it was
        worth, case = heappop(others)
        now = -len(known[case].lines - covered) / known[case].seconds
        if now > worth:
            heappush(others, (now, case))
        elif now < 0:
            kept.add(case)
            covered |= known[case].lines
    return frozenset(kept)


def still_listed(text: str, found: Container[str]) -> list[str]:
    """The cases, and functions listed whole, of the list's text that were not measured: they stay listed.

    >>> still_listed("tests/test_a.py::test_one\\n    3\\n    4\\n", {"tests/test_a.py::test_one[3]"})
    ['tests/test_a.py::test_one[4]']
    """
    named = (
        f"{function}[{each}]" if each else function
        for function, cases in listed(text).items()
        for each in sorted(cases) or [""]
    )
    return [case for case in named if case not in found]


def as_text(cases: Iterable[str], daily: Container[str]) -> str:
    """The list of the cases that are not daily."""
    by_function: dict[str, list[str]] = defaultdict(list)
    for case in sorted(cases):
        by_function[function_of(case)[0]].append(case)
    lines: list[str] = []
    for function, own in by_function.items():
        left = [case for case in own if case not in daily]
        if left:
            lines.append(function)
        if len(left) < len(own):
            lines += [f"    {function_of(case)[1]}" for case in left]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
