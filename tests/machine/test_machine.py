from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from polyfuse.errors import TargetUnavailable
from polyfuse.machine import CpuMachine, GpuMachine, KiB, Machine, MiB, detect_cpu
from polyfuse.machine.rates import MESH, ZEN, ZEN3, ZEN4, ZEN5, Rates


@pytest.mark.parametrize("name", ["a100", "h100", "h200", "rtx4090"])
def test_presets_of_gpus_are_consistent(name: str) -> None:
    machine = GpuMachine.preset(name)
    assert machine == Machine.preset(name)
    assert machine.kind == "cuda"
    assert machine.gpu.shared_static <= machine.gpu.shared_per_block <= machine.gpu.shared_per_sm
    assert [level.size for level in machine.levels] == sorted(level.size for level in machine.levels)
    assert machine.bandwidth(machine.levels[0], machine.sms) == machine.levels[0].bandwidth
    assert str(machine).startswith(f"{name}: {machine.sms} SMs")


def test_an_unknown_preset_names_those_there_are() -> None:
    with pytest.raises(TargetUnavailable, match="h200"):
        Machine.preset("h900")
    with pytest.raises(TargetUnavailable, match=r"unknown machine 3; expected one of .*h200"):
        Machine.preset(3)  # type: ignore[arg-type]


def test_the_presets_of_a_kind_are_its_own() -> None:
    assert isinstance(CpuMachine.preset("XEON"), CpuMachine)
    with pytest.raises(TargetUnavailable, match="unknown machine 'h200'; expected one of xeon, zen4, zen5"):
        CpuMachine.preset("h200")
    with pytest.raises(TargetUnavailable, match="expected one of a100, h100, h200, rtx4090"):
        GpuMachine.preset("zen5")


def test_a_changed_machine_stays_of_its_kind() -> None:
    one = replace(Machine.preset("zen5"), units=1)
    assert isinstance(one, CpuMachine)
    assert isinstance(replace(Machine.preset("h200"), units=1), GpuMachine)
    assert one == pickle.loads(pickle.dumps(one))
    with pytest.raises(TypeError, match="gpu"):
        replace(one, gpu=None)  # type: ignore[call-arg]


def test_detect_describes_a_cpu() -> None:
    machine = Machine.detect()
    assert isinstance(machine, CpuMachine)
    assert machine.kind == "cpu"
    assert machine.cores >= 1
    assert machine.peak(4, 1) == 2 * machine.peak(8, 1)


def test_missing_files_give_safe_values(tmp_path: Path) -> None:
    machine = detect_cpu(tmp_path / "nothing", tmp_path / "neither")
    assert (machine.name, machine.vector_bytes, machine.levels[0].size) == ("cpu", 16, 32 * KiB)


def test_linux_files_are_read(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(
        "model name\t: Some CPU\ncpu MHz\t\t: 2000.0\nflags\t\t: fpu avx2 fma\n\nmodel name\t: other\n"
    )
    for index, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "64K"), ("2", "Unified", "2M")]
    ):
        folder = tmp_path / f"cpu0/cache/index{index}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    machine = detect_cpu(tmp_path, info)
    assert (machine.name, machine.vector_bytes) == ("Some CPU", 32)
    assert [level.size for level in machine.levels[:3]] == [48 * KiB, 2 * MiB, 16 * MiB]
    assert machine.flops32 == 2 * 2 * 8 * 2.0e9


@pytest.mark.parametrize(
    ("vendor", "family", "flags", "rates"),
    [
        ("GenuineIntel", 6, "avx2 avx512f", MESH),
        ("GenuineIntel", 6, "avx2", ZEN),
        ("AuthenticAMD", 26, "avx2 avx512f", ZEN5),
        ("AuthenticAMD", 25, "avx2 avx512f", ZEN4),
        ("AuthenticAMD", 25, "avx2", ZEN3),
        ("AuthenticAMD", 23, "avx2", ZEN),
    ],
)
def test_rates_are_those_of_the_machine_that_is_most_alike(
    tmp_path: Path, vendor: str, family: int, flags: str, rates: Rates
) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(
        f"vendor_id\t: {vendor}\ncpu family\t: {family}\ncpu MHz\t\t: 2600.0\nflags\t\t: {flags}\n"
    )
    found = detect_cpu(tmp_path, info)  # caches by default: an L2 of 1 MiB
    assert found.levels[1].bandwidth == rates.near[1] * max(2.6e9, rates.hertz)
    assert found.foresees == rates.foresees == (rates in (ZEN3, ZEN4, ZEN5))
    assert found.multiply_adds == (1 if rates is ZEN4 else 2)


def test_a_zen_4_begins_one_whole_vector_a_cycle_and_counts_on_a_part_of_l3() -> None:
    machine = Machine.preset("zen4")
    assert machine.flops32 == 2 * 16 * 3.7e9
    assert machine.cycle == pytest.approx(1 / 3.7e9)
    assert machine.in_loops(4, 2.0) == 2 * 0.75 * machine.flops32
    assert machine.level(16 * MiB).name == "L3"
    assert machine.level(20 * MiB).name == "DRAM", "of 32 MiB, which others use too"
    assert machine.keeps == 32 * MiB
    zen5 = Machine.preset("zen5")
    assert zen5.cycle == pytest.approx(1 / 4.1e9)
    assert zen5.level(28 * MiB).name == "L3"


def test_a_virtual_machines_clock_is_that_of_a_measured_one_of_its_kind(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    known = "vendor_id\t: AuthenticAMD\ncpu family\t: 26\nflags\t: avx2 avx512f\ncpu MHz\t: {}\n"
    info.write_text(known.format(2596.1))
    assert detect_cpu(tmp_path, info).flops32 == Machine.preset("zen5").flops32, "what files say is its base"
    info.write_text(known.format(5000.0))
    assert detect_cpu(tmp_path, info).flops32 == 64 * 5.0e9, "it runs faster than the measured one"
    info.write_text("vendor_id\t: GenuineIntel\nflags\t: avx2 avx512f\ncpu MHz\t: 2600.0\n")
    assert detect_cpu(tmp_path, info).flops32 == 64 * MESH.hertz, "a Xeon runs at 3.7 GHz by what it computes"
    fastest = tmp_path / "cpu0/cpufreq/cpuinfo_max_freq"
    fastest.parent.mkdir(parents=True)
    fastest.write_text("3000000\n")
    info.write_text(known.format(2596.1))
    assert detect_cpu(tmp_path, info).flops32 == 64 * 3.0e9, "what it can reach is known"


def test_one_core_draws_a_part_of_a_servers_memory() -> None:
    xeon = Machine.preset("xeon")
    dram, l2 = xeon.levels[-1], xeon.levels[1]
    assert xeon.bandwidth(dram, 1) == dram.bandwidth / 20
    assert xeon.bandwidth(dram, 40) == dram.bandwidth
    assert xeon.reading(l2, 2) > xeon.bandwidth(l2, 2) == 2 * l2.bandwidth


def test_the_level_is_the_smallest_that_holds_it() -> None:
    machine = Machine.preset("zen5")
    assert machine.level(1).name == "L1"
    assert machine.level(512 * KiB).name == "L2"
    assert machine.level(2**50).name == "DRAM"


def test_a_working_set_beyond_a_measured_last_cache_comes_from_both() -> None:
    """Sums of 16, 24, 32, 48 and 96 MiB ran at 104, 80, 58, 50 and 43 GB/s, where L3 has 100 and memory 42."""
    zen5 = Machine.preset("zen5")
    *near, l3, memory = zen5.levels
    l3, memory = replace(l3, bandwidth=100e9), replace(memory, bandwidth=42e9)
    machine = replace(zen5, levels=(*near, l3, memory), at_random=ZEN5.at_random)
    for size, measured in ((16, 104), (24, 80), (32, 58), (48, 50), (96, 43)):
        level = machine.level(size * MiB)
        assert machine.bandwidth(level, 1) == pytest.approx(1e9 * measured, rel=0.1)
    assert machine.level(16 * MiB) is l3
    assert machine.level(24 * MiB).name == "L3"
    assert machine.level(96 * MiB) is memory
    assert zen5.level(33 * MiB) is zen5.levels[-1], "where that is not measured, nothing of it stays in L3"
