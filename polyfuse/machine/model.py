"""Machines: the cost model's parameters of a target.

    machine ::= units  level*  peak rates  fixed costs          a unit is a core, or an SM of a GPU

All sizes are in bytes, rates in bytes or floating-point operations per second, costs in seconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from polyfuse.errors import TargetUnavailable
from polyfuse.errors.viewed import Viewed
from polyfuse.ir.precision import Math
from polyfuse.machine.functions import FUNCTIONS, Functions
from polyfuse.machine.gpu_limits import Gpu, limits_of
from polyfuse.machine.levels import UNBOUNDED, GiB, KiB, Level, MiB, missing, size_text
from polyfuse.machine.linux_cpu import linux_cpu, usable_cores
from polyfuse.machine.rates import MESH_AT_BASE, ZEN, ZEN4, Exposed, Rates, RowCosts

Kind = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Machine(ABC, Viewed):
    """A target machine as the cost model sees it: a `CpuMachine` or a `GpuMachine`.

    Attributes:
        name: The name shown in reports.
        units: CPU cores, or a GPU's SMs.
        levels: The memory hierarchy, fastest first.
        flops32: Peak float32 FLOP/s of one unit; a multiply-add counts two.
        flops64: Peak float64 FLOP/s of one unit.
        launch_seconds: Seconds of one kernel call.
        chosen_for: The device that this preset stands for, if none was named.
    """

    name: str
    units: int
    levels: tuple[Level, ...]
    flops32: float
    flops64: float
    launch_seconds: float
    chosen_for: str = ""

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """The target, "cpu" or "cuda"."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """What its units are called."""

    @property
    def label(self) -> str:
        """The name, and the device that the preset was chosen for."""
        return f"{self.name}, chosen for {self.chosen_for}" if self.chosen_for else self.name

    def level(self, size: float) -> Level:
        """Return the smallest memory level that holds a working set.

        Args:
            size: Bytes.

        Returns:
            The level; the last one if none holds it.
        """
        return next((level for level in self.levels if size <= level.size), self.levels[-1])

    def bandwidth(self, level: Level, units: float) -> float:
        """Return the bandwidth that some units get together from a memory level.

        Args:
            level: The memory level.
            units: The number of units that access it at the same time.

        Returns:
            Bytes/s; a shared level saturates with `drawn_by` units.
        """
        return self._beside_misses(level, self._own(level, units), units)

    def reading(self, level: Level, units: float) -> float:
        """Return the bandwidth of reads alone, with no write-back traffic.

        Args:
            level: The memory level.
            units: The number of units that access it at the same time.

        Returns:
            Bytes/s.
        """
        return self._beside_misses(level, level.reading * self._own(level, units), units)

    @staticmethod
    def _own(level: Level, units: float) -> float:
        """A level's bandwidth where all that is read comes from there."""
        return level.bandwidth * (units if level.private else min(1.0, units / level.drawn_by))

    def _beside_misses(self, level: Level, own: float, units: float) -> float:
        """A level's bandwidth where part of what is read comes from the last level."""
        if not level.missing:
            return own
        return 1 / ((1 - level.missing) / own + level.missing / self.bandwidth(self.levels[-1], units))

    def peak(self, itemsize: int, units: float) -> float:
        """Return the peak rate of some units.

        Args:
            itemsize: Bytes per element, 4 or 8.
            units: The number of units.

        Returns:
            FLOP/s.
        """
        return (self.flops64 if itemsize > 4 else self.flops32) * units

    @classmethod
    def preset(cls, name: str) -> Self:
        """Return a machine by name.

        Args:
            name: "a100", "h200", "rtx4090", "xeon", "zen5", …, in upper or lower case.

        Returns:
            The machine.

        Raises:
            TargetUnavailable: if there is no such preset, or if it is a GPU where a `CpuMachine` is asked for, or the
                other way round; the message lists those there are.
        """
        presets = {key: machine for key, machine in PRESETS.items() if isinstance(machine, cls)}
        found = presets.get(str(name).lower())
        if found is None:
            raise TargetUnavailable(f"unknown machine {name!r}; expected one of {', '.join(sorted(presets))}")
        return found

    @staticmethod
    def detect() -> CpuMachine:
        """Return a model of this computer's CPU, from Linux's /sys and /proc, with safe defaults. Never raises."""
        return detect_cpu(Path("/sys/devices/system/cpu"), Path("/proc/cpuinfo"))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def __str__(self) -> str:
        levels = ", ".join(f"{x.name}{size_text(x.size)} {x.bandwidth / 1e9:.0f} GB/s" for x in self.levels)
        peak = self.flops32 * self.units / 1e9
        return f"{self.name}: {self.units} {self.unit}, {peak:.0f} GFLOP/s (fp32), {levels}"


@dataclass(frozen=True, kw_only=True, repr=False)
class CpuMachine(Machine):
    """A CPU.

    Attributes:
        vector_bytes: Bytes of a vector register.
        region_seconds: Seconds that a parallel loop adds to a call.
        vector_registers: Architectural vector registers of a thread.
        multiply_adds: Vector multiply-adds that a core issues per cycle.
        loading: The cost of a vector load, relative to a vector multiply-add.
        loops: The part of peak that loops reach which are not register tiles.
        exposed: The part of a product's data movement that its arithmetic does not hide.
        keeps: The largest result in bytes that is still in a cache when it is read next.
        functions: What functions cost in additions.
        apart: Cycles of loading a number from a row of numbers that lie apart in memory.
        broadcast: Cycles of loading a number into all lanes, one for each row of a register tile's step.
        ahead: Instructions that a core begins before the oldest of them is done; 0 if that is not known.
        row: Cycles that a loop over a row takes besides its vectors.
        at_random: The part of the last cache that keeps what is gone through again and again, lines replaced at random;
            0 if that is not known, and more than it holds comes from memory.
        foresees: True if the hardware prefetchers keep up with rows, so that software prefetching gains nothing.
    """

    vector_bytes: int
    region_seconds: float
    vector_registers: int = 16
    multiply_adds: int = 2
    loading: float = 0.05
    loops: float = 0.5
    exposed: Exposed = ZEN.exposed
    keeps: int = UNBOUNDED
    foresees: bool = False
    functions: Functions = FUNCTIONS
    apart: float = 1.0
    broadcast: float = 0.0
    ahead: int = 0
    row: RowCosts = ZEN.row
    at_random: float = 0.0

    @property
    def kind(self) -> Literal["cpu"]:
        """The target."""
        return "cpu"

    @property
    def unit(self) -> str:
        """What its units are called."""
        return "cores"

    @property
    def cores(self) -> int:
        """The number of CPU cores."""
        return self.units

    @property
    def cycle(self) -> float:
        """Seconds per CPU cycle."""
        return 2 * self.multiply_adds * (self.vector_bytes // 4) / self.flops32

    def level(self, size: float) -> Level:
        """Return the smallest memory level that holds a working set, or the last cache and what it misses of it.

        Args:
            size: Bytes.

        Returns:
            The level; the last one if none holds a part that counts.
        """
        cache = self.levels[-2]
        kept = self.at_random * cache.size
        if not kept or size <= kept:
            return super().level(size)
        part = missing(size, kept)
        return replace(cache, missing=part) if part < NEARLY_ALL else self.levels[-1]

    def keeping(self, size: float) -> Level:
        """Return the smallest memory level that still holds a result when it is read again.

        Args:
            size: Bytes of the result.

        Returns:
            The level; the last one if `size` exceeds `keeps`.
        """
        return self.level(size) if size <= self.keeps else self.levels[-1]

    def in_loops(self, itemsize: int, units: float) -> float:
        """Return the rate of loops that are not register tiles.

        Args:
            itemsize: Bytes per element, 4 or 8.
            units: The number of cores.

        Returns:
            FLOP/s.
        """
        return self.loops * self.peak(itemsize, units)


@dataclass(frozen=True, kw_only=True, repr=False)
class GpuMachine(Machine):
    """A GPU.

    Attributes:
        gpu: Its limits.
        tensor: (format, FLOP/s of one SM) of the tensor cores.
        math: The format to which float32 factors may be rounded (compile's `math=`).
    """

    gpu: Gpu
    tensor: tuple[tuple[str, float], ...] = ()
    math: Math = "ieee"

    @property
    def kind(self) -> Literal["cuda"]:
        """The target."""
        return "cuda"

    @property
    def unit(self) -> str:
        """What its units are called."""
        return "SMs"

    @property
    def sms(self) -> int:
        """The number of a GPU's SMs."""
        return self.units

    def tensor_peak(self, math: str, units: float) -> float:
        """Return the peak rate of the tensor cores of some SMs.

        Args:
            math: Their format.
            units: The number of SMs.

        Returns:
            FLOP/s.
        """
        return dict(self.tensor)[math] * units


# -- CPUs --------------------------------------------------------------------------------------------------------------

NEARLY_ALL = 0.95
"""The part of a working set from which on all of it is taken to come from memory."""

CALL_SECONDS = 3e-9
"""One kernel among others of a call, all in one entry: 32 × Linear(16) + ReLU at batch 2 took 1.30 µs in 96 kernels and
1.08 in 32, where a call of one such layer took 0.35 in three and 0.31 in one (one Zen 5 core, numba 0.68)."""

REGION_SECONDS = 10e-6
"""Seconds that a parallel loop adds to a call to wake threads. On two Zen 5 cores (numba 0.68 over OpenMP): 1.0 µs
when calls follow at once, 4.4 µs a millisecond after the last one, 55 µs after twenty; this is in between."""


def cpu(
    name: str,
    cores: int,
    vector_bytes: int,
    caches: tuple[int, int, int],
    hertz: float,
    rates: Rates = ZEN,
    registers: int | None = None,
) -> CpuMachine:
    """A CPU from its data: L1 and L2 private, L3 shared.

    `caches` holds the bytes of L1 and L2 of one core, and of the whole L3; `hertz` the cycles per second. `registers`
    are the vector registers: by default AVX-512's 32 or AVX2's 16.
    """
    sizes = (*caches[:2], int(rates.share * caches[2]))
    every = zip(("L1", "L2", "L3"), sizes, rates.near, rates.reading, rates.rows, strict=True)
    levels = (
        *(
            Level(name, size, near * hertz, True, 1, reading, rows)
            for name, size, near, reading, rows in every
        ),
        Level("DRAM", UNBOUNDED, rates.dram, private=False, drawn_by=rates.drawn_by),
    )
    flops32 = 2 * rates.multiply_adds * vector_bytes / 4 * hertz
    return CpuMachine(
        name=name,
        units=cores,
        vector_bytes=vector_bytes,
        levels=levels,
        flops32=flops32,
        flops64=flops32 / 2,
        launch_seconds=CALL_SECONDS,
        region_seconds=REGION_SECONDS,
        vector_registers=registers or (32 if vector_bytes == 64 else 16),
        multiply_adds=rates.multiply_adds,
        loading=rates.loading,
        loops=rates.loops,
        exposed=rates.exposed,
        keeps=caches[2] if rates.keeps is None else min(rates.keeps, caches[2]),
        foresees=rates.foresees,
        functions=rates.functions,
        apart=rates.apart,
        broadcast=rates.broadcast,
        ahead=rates.ahead,
        row=rates.row,
        at_random=rates.at_random,
    )


def detect_cpu(sys: Path, cpuinfo: Path) -> CpuMachine:
    """A CPU described by Linux's files, with the cores that this process may use."""
    found = linux_cpu(sys, cpuinfo)
    return cpu(
        found.name,
        usable_cores(),
        found.vector_bytes,
        found.caches,
        found.hertz,
        found.rates,
        found.registers,
    )


# -- GPUs --------------------------------------------------------------------------------------------------------------

LAUNCH_SECONDS = 3e-6
"""One launch through the CUDA driver's Python bindings, as others report it; a graph's node costs about a fifth."""


def gpu(
    name: str,
    sms: int,
    teraflops: tuple[float, float],
    l2: tuple[int, float],
    dram: tuple[int, float],
    gpu: Gpu,
    tensor: tuple[float, float, float],
) -> GpuMachine:
    """A GPU from its data sheet: TFLOP/s in fp32 and fp64 without tensor cores; L2 and DRAM as (bytes, bytes/s).

    `tensor` is the TFLOP/s of its tensor cores for tf32, for bf16 and f16, of dense matrices, and for float64 numbers,
    0 if they have no such instructions worth calling.
    """
    levels = (
        Level("L2", *l2, private=False, drawn_by=sms),
        Level("DRAM", *dram, private=False, drawn_by=sms),
    )
    flops32, flops64 = (1e12 * value / sms for value in teraflops)
    tf32, halves, doubles = tensor
    by_format = {"tf32": tf32, "bf16": halves, "f16": halves, "f64": doubles}
    rates = tuple((name, 1e12 * value / sms) for name, value in by_format.items() if value)
    return GpuMachine(
        name=name,
        units=sms,
        levels=levels,
        flops32=flops32,
        flops64=flops64,
        launch_seconds=LAUNCH_SECONDS,
        gpu=gpu,
        tensor=rates,
    )


PRESETS: Mapping[str, Machine] = {
    "a100": gpu(
        "a100",
        108,
        (19.5, 9.7),
        (40 * MiB, 7.2e12),
        (80 * GiB, 2.04e12),
        replace(limits_of((8, 0), 164 * KiB), grid_barrier_seconds=1.5e-6),
        (156.0, 312.0, 19.5),
    ),
    "h100": gpu(
        "h100",
        132,
        (67.0, 34.0),
        (50 * MiB, 9.0e12),
        (80 * GiB, 3.35e12),
        limits_of((9, 0), 228 * KiB),
        (494.5, 989.5, 67.0),
    ),
    "h200": gpu(
        "h200",
        132,
        (67.0, 34.0),
        (50 * MiB, 9.0e12),
        (141 * GiB, 4.8e12),
        limits_of((9, 0), 228 * KiB),
        (494.5, 989.5, 67.0),
    ),
    "rtx4090": gpu(
        "rtx4090",
        128,
        (82.6, 1.29),
        (72 * MiB, 5.0e12),
        (24 * GiB, 1.01e12),
        limits_of((8, 9), 100 * KiB, 1536, 24),
        (82.6, 165.2, 0.0),
    ),
    "zen5": cpu("zen5", 2, 64, (48 * KiB, 1 * MiB, 32 * MiB), 4.1e9),
    "zen4": cpu("zen4", 2, 64, (32 * KiB, 1 * MiB, 32 * MiB), 3.7e9, ZEN4),
    "xeon": cpu("xeon", 2, 64, (48 * KiB, 2 * MiB, 480 * MiB), MESH_AT_BASE.hertz, MESH_AT_BASE),
}
"""Machines by name.

GPUs: SXM boards; SMs, peak rates (tensor cores' for dense matrices; sums in float32, of float64 numbers in float64),
DRAM and the size of L2 from NVIDIA's data sheets. The rate of L2 is on none of them: A100's is its white paper's 5120
bytes a cycle at 1.41 GHz, H100's and H200's assume as many at 1.76 GHz, the RTX 4090's assumes 2048 at 2.5 GHz.
"zen5", "zen4" and "xeon" are the machines of two cores on which `rates.ZEN`, `ZEN4` and `MESH_AT_BASE` were measured;
CALL_SECONDS and REGION_SECONDS are from the first.
"""
