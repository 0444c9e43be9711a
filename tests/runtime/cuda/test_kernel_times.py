"""The model's time of each launch on a GPU: what an SM holds, and where the time goes."""

import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.machine import Machine
from polyfuse.runtime.report import Report
from polyfuse.strategy.cost.occupancy import occupancy


def report(nest: pf.Nest) -> Report:
    return pf.compile(nest, target="cuda", machine="h200", device="none").report()


def test_each_launch_has_a_line() -> None:
    said = report(cases.dense(384, 384, 384, batch=64))
    assert len(said.kernel_times) == said.launches == 2
    for each in said.kernel_times:
        assert f"  {each}" in str(said).splitlines()
        assert min(each.cost.compute, each.cost.memory, each.cost.waiting) > 0
        assert each.registers is not None
        assert each.shared_bytes > 0
    assert sum(each.cost.total for each in said.kernel_times) == pytest.approx(said.predicted_seconds)


def test_without_a_tile_of_results_no_registers_are_planned() -> None:
    (each,) = report(cases.pointwise(nn.ReLU(), 4096, 1024)).kernel_times
    assert each.registers is None
    assert "registers not planned" in str(each)
    assert each.blocks * each.threads * 4 == 4096 * 1024, "16 bytes a thread"
    assert each.waves == -(-each.blocks // (132 * each.occupancy.blocks))


def test_a_cpu_has_none() -> None:
    assert pf.compile(cases.pointwise(nn.ReLU()), target="cpu").report().kernel_times == ()


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "limit"),
    [
        (256, 128, 20480, 2, "registers"),
        (256, 32, 0, 8, "threads"),
        (64, 32, 100 * 1024, 2, "shared memory"),
        (32, 16, 0, 32, "blocks"),
        (1024, 65, 0, 0, "registers"),
    ],
)
def test_what_limits_the_blocks_of_an_sm(
    threads: int, registers: int, shared: int, blocks: int, limit: str
) -> None:
    gpu = Machine.preset("h200").gpu
    assert gpu is not None
    found = occupancy(gpu, threads, registers, shared)
    assert (found.blocks, found.limit) == (blocks, limit)
