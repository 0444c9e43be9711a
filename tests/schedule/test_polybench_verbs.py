"""Every verb on a PolyBench nest: taken once, with the same results, and refused once, for a reason that is real."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse.analysis.validation import validate
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.schedule import VERBS
from tests.support.execution import memory, run_plain, without_gpu
from tests.support.refusals import depends, refused_tree, witness, wrong
from tests.support.verbs import Call

Prepare = Callable[[pf.Schedule], pf.Schedule]


@dataclass(frozen=True)
class Case:
    """A verb on a kernel's schedule, after some other verbs; `why` is what an invalid one is told."""

    kernel: str
    call: Call
    prepare: Prepare = lambda s: s
    why: str = ""

    def schedule(self) -> pf.Schedule:
        return self.prepare(pf.Schedule(KERNELS[self.kernel].nest))


def call(verb: str, *args: object, **options: object) -> Call:
    return Call(verb, args, options)


def fused(s: pf.Schedule) -> pf.Schedule:
    """Jacobi's two statements in one loop, the second one iteration later."""
    return s.fuse("S0", "S1", at="i", shift={"i": 1})


def product(s: pf.Schedule) -> pf.Schedule:
    """The second product of 2mm in tiles, the contraction's loop around the tile."""
    s = s.distribute("S3", "j").distribute("S3", "i").tile("S3", i=4, j=16)
    return s.interchange("S3", "j_in", "k").interchange("S3", "i_in", "k")


def threads(s: pf.Schedule) -> pf.Schedule:
    """Both statements of Jacobi on the threads of one block."""
    return s.bind("S0", i="thread.x").bind("S1", i="thread.x")


def tiles(s: pf.Schedule) -> pf.Schedule:
    return s.tile("S1", k=4, j=8)


TAKEN = [
    Case("gemm", call("tile", "S1", k=4, j=8)),
    Case("gemm", call("split", "S1", "k", 7)),
    Case("gemm", call("separate", "S1", "k_in"), tiles),
    Case("gemm", call("interchange", "S1", "k", "j")),
    Case("gemm", call("reorder", "S1", "j", "k")),
    Case("seidel-2d", call("skew", "S0", "i", by="_t", factor=2)),
    Case("jacobi-1d", call("shift", "S1", "i", 1), fused),
    Case("mvt", call("reverse", "S0", "j")),
    Case("jacobi-1d", call("affine", S0="[_t, 2*_t + i, 0]", S1="[_t, 2*_t + i + 1, 1]")),
    Case("mvt", call("fuse", "S0", "S1", at="j")),
    Case("mvt", call("sections", "S0", "S1", loop="half")),
    Case("mvt", call("join", "S0", "S1", loop="both")),
    Case("gemm", call("distribute", "S1", "i")),
    Case("mvt", call("move", "S0", behind="S1")),
    Case("gemm", call("bind", "S1", i="cores")),
    Case("syrk", call("bind", "S1", i="dynamic")),
    Case("gemm", call("unroll", "S1", "k_in"), tiles),
    Case("gemm", call("vectorize", "S1", "j")),
    Case("gemm", call("prefetch", "S1", "B", "k"), lambda s: s.vectorize("S1", "j")),
    Case("jacobi-1d", call("stream", "S0"), lambda s: s.vectorize("S0", "i")),
    Case("gemm", call("collapse", "S1", "k_in", "j_in"), tiles),
    Case("2mm", call("microkernel", "S3", "k"), product),
    Case("durbin", call("promote", "total", "S5", at="k")),
    Case("gemm", call("pack", "B", "S1", panel=(1, 4))),
    Case("jacobi-1d", call("synchronised"), threads),
]

ILLEGAL = [
    Case("seidel-2d", call("tile", "S0", _t=2, i=3, j=3)),
    Case("seidel-2d", call("interchange", "S0", "i", "j")),
    Case("seidel-2d", call("reorder", "S0", "j", "_t", "i")),
    Case("jacobi-1d", call("shift", "S1", "i", -1), fused),
    Case("trisolv", call("reverse", "S1", "i")),
    Case("jacobi-1d", call("affine", S0="[_t, i, 0]", S1="[_t, i, 1]")),
    Case("jacobi-1d", call("fuse", "S0", "S1", at="i", shift={"i": 0})),
    Case("gemver", call("sections", "S0", "S3", loop="half")),
    Case("jacobi-1d", call("distribute", "S0", "_t")),
    Case("jacobi-1d", call("move", "S0", behind="S1")),
    Case("seidel-2d", call("bind", "S0", i="cores")),
    Case("trisolv", call("bind", "S1", i="dynamic")),
    Case("seidel-2d", call("vectorize", "S0", "j")),
    Case("durbin", call("promote", "total", "S5", at="i")),
    Case("2mm", call("pack", "tmp", "S3", panel=(1, 4)), lambda s: s.fuse("S1", "S3", at="i")),
]

INVALID = [
    Case("gemm", call("split", "S1", "k", 0), why="0"),
    Case("gemm", call("separate", "S1", "k"), why="partial in some tiles"),
    Case("seidel-2d", call("skew", "S0", "i", by="j"), why="j"),
    Case("mvt", call("join", "S1", "S0", loop="both"), why="S0 runs in a kernel before that of S1"),
    Case("gemm", call("unroll", "S1", "k"), why="k"),
    Case("gemm", call("prefetch", "S1", "B", "k"), why="vectorize it first"),
    Case(
        "gemm",
        call("stream", "S1"),
        lambda s: s.vectorize("S1", "j"),
        why=r"only assignments \(=\) can be streamed",
    ),
    Case("gemm", call("collapse", "S1", "k", "j"), why="not known to lie between 0 and a constant"),
    Case("gemm", call("microkernel", "S1", "k"), why="microkernel: "),
    Case("trmm", call("pack", "B", "S1", panel=(1, 4)), why="B is written after pack_B would have copied it"),
    Case("gemm", call("pack", "B", "S0", panel=(1, 4)), why="S0 does not read B"),
]
"""Verbs that cannot break an order: what they are refused for is what they are asked."""


def name(case: Case) -> str:
    return f"{case.call.verb}-{case.kernel}"


def test_every_verb_is_here() -> None:
    assert {case.call.verb for case in TAKEN} == set(VERBS)
    assert {case.call.verb for case in (*ILLEGAL, *INVALID)} == set(VERBS) - {"synchronised"}


@pytest.mark.parametrize("case", TAKEN, ids=name)
def test_a_verb_that_is_taken_keeps_the_results(case: Case) -> None:
    kernel = KERNELS[case.kernel]
    schedule = case.call.on(case.schedule())
    assert schedule.steps[-1].verb == case.call.verb
    tree = without_gpu(schedule.tree)
    validate(kernel.nest, schedule.nest, schedule.tree)
    sizes = {size: 3 if size == "T" else 9 + position for position, size in enumerate(kernel.nest.params)}
    inputs = kernel.inputs(sizes, np.random.default_rng(0))
    arrays = memory(kernel.nest, schedule.nest, tree, {n: np.atleast_1d(a) for n, a in inputs.items()}, sizes)
    run_plain(schedule.nest, tree, arrays, sizes, 0)
    expected = {n: np.array(a) if isinstance(a, np.ndarray) else a for n, a in inputs.items()}
    kernel.nest.python(**expected)
    for tensor in kernel.nest.outputs:
        np.testing.assert_allclose(arrays[tensor.name], expected[tensor.name], rtol=1e-10)


@pytest.mark.parametrize("case", ILLEGAL, ids=name)
def test_a_verb_that_is_illegal_says_which_two_instances(case: Case) -> None:
    schedule = case.schedule()
    with pytest.raises(IllegalSchedule) as refused:
        case.call.on(schedule)
    violation = refused.value.violation
    nest, tree = refused_tree(schedule, case.call)
    assert depends(witness(nest, violation)), violation
    assert wrong(tree, violation), violation


@pytest.mark.parametrize("case", INVALID, ids=name)
def test_a_verb_that_is_asked_for_what_is_not_there_says_so(case: Case) -> None:
    with pytest.raises(InvalidSchedule, match=case.why):
        case.call.on(case.schedule())
