"""Machines: the cost model's parameters of a target.

    machine ::= units  level*  peak rates  fixed costs          a unit is a core, or an SM of a GPU

All sizes are in bytes, rates in bytes or floating-point operations per second, costs in seconds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Literal

from polyfuse.errors import TargetUnavailable
from polyfuse.ir.precision import Math
from polyfuse.machine.rates import MESH, ZEN, ZEN4, Exposed, Rates, rates_of

KiB, MiB, GiB = 2**10, 2**20, 2**30

UNBOUNDED = 2**62
"""The size of a level that holds whatever there is."""


GRID_BARRIER_SECONDS = 1.2e-6
"""One barrier of all blocks of a Hopper GPU, a way to L2 and back for an addition and one for what waits, and two
barriers of a block: an assumption, in the order of what others report for cooperative groups, and not a measurement."""


@dataclass(frozen=True)
class Level:
    """One level of the memory hierarchy.

    Attributes:
        name: The name shown in reports.
        size: Bytes that one unit can use.
        bandwidth: Bytes/s of reads and writes together: of one unit if `private`, else of all units.
        private: True if each unit has its own.
        drawn_by: The number of units that saturate a shared level's bandwidth.
        reading: The bandwidth of reads alone, relative to `bandwidth`.
        rows: The bandwidth of about a dozen rows read at once, relative to `bandwidth`.
    """

    name: str
    size: int
    bandwidth: float
    private: bool
    drawn_by: int = 1
    reading: float = 1.0
    rows: float = 1.0


@dataclass(frozen=True)
class Gpu:
    """The limits and costs of a GPU.

    Attributes:
        compute_capability: (major, minor).
        registers_per_sm: 32-bit registers of an SM.
        shared_per_block: Bytes of shared memory that a launch can request per block.
        shared_per_sm: Bytes of shared memory of an SM.
        max_threads_per_block: Threads of a block.
        max_threads_per_sm: Threads resident on an SM.
        barrier_seconds: Seconds of a block's barrier.
        shared_static: Bytes of shared memory that a block has without a request at launch.
        max_blocks_per_sm: Blocks resident on an SM.
        grid_barrier_seconds: Seconds of a barrier of all blocks; None if blocks run one after the other.
        meeting_cycles: Cycles in which the tensor cores are idle between two tiles of a block: the last products
            drain, a barrier, the next descriptors. An assumption, not measured.
        cluster: The largest number of blocks in a cluster; 1 if there are no clusters.
    """

    compute_capability: tuple[int, int]
    registers_per_sm: int
    shared_per_block: int
    shared_per_sm: int
    max_threads_per_block: int
    max_threads_per_sm: int
    barrier_seconds: float
    shared_static: int = 48 * KiB
    max_blocks_per_sm: int = 32
    grid_barrier_seconds: float | None = GRID_BARRIER_SECONDS
    meeting_cycles: int = 100
    cluster: int = 1

    def meeting_seconds(self, times: int) -> float:
        """Return the seconds of a number of grid barriers."""
        if self.grid_barrier_seconds is None:
            return inf if times else 0.0
        return times * self.grid_barrier_seconds


@dataclass(frozen=True)
class Machine:
    """A target machine as the cost model sees it.

    Attributes:
        name: The name shown in reports.
        kind: "cpu" or "cuda".
        units: CPU cores, or a GPU's SMs.
        vector_bytes: Bytes of a CPU's vector register.
        levels: The memory hierarchy, fastest first.
        flops32: Peak float32 FLOP/s of one unit; a multiply-add counts two.
        flops64: Peak float64 FLOP/s of one unit.
        launch_seconds: Seconds of one kernel call.
        region_seconds: Seconds that a parallel loop adds to a call; a GPU's launch includes it.
        gpu: A GPU's limits; None for a CPU.
        vector_registers: Architectural vector registers of a CPU thread.
        multiply_adds: Vector multiply-adds that a CPU core issues per cycle.
        tensor: (format, FLOP/s of one unit) of the tensor cores.
        math: The format to which float32 factors may be rounded (compile's `math=`).
        loading: The cost of a CPU's vector load, relative to a vector multiply-add.
        loops: The part of peak that a CPU's loops reach which are not register tiles.
        exposed: The part of a product's data movement that its arithmetic does not hide.
        keeps: The largest result in bytes that is still in a cache when it is read next.
        foresees: True if the hardware prefetchers keep up with rows, so that software prefetching gains nothing.
        chosen_for: The device that this preset stands for, if none was named.
    """

    name: str
    kind: Literal["cpu", "cuda"]
    units: int
    vector_bytes: int
    levels: tuple[Level, ...]
    flops32: float
    flops64: float
    launch_seconds: float
    region_seconds: float = 0.0
    gpu: Gpu | None = None
    vector_registers: int = 16
    multiply_adds: int = 2
    tensor: tuple[tuple[str, float], ...] = ()
    math: Math = "ieee"
    loading: float = 0.05
    loops: float = 0.5
    exposed: Exposed = ZEN.exposed
    keeps: int = UNBOUNDED
    foresees: bool = False
    chosen_for: str = ""

    @property
    def label(self) -> str:
        """The name, and the device that the preset was chosen for."""
        return f"{self.name}, chosen for {self.chosen_for}" if self.chosen_for else self.name

    @property
    def cores(self) -> int:
        """The number of CPU cores."""
        return self.units

    @property
    def sms(self) -> int:
        """The number of a GPU's SMs."""
        return self.units

    @property
    def cycle(self) -> float:
        """Seconds per CPU cycle."""
        return 2 * self.multiply_adds * (self.vector_bytes // 4) / self.flops32

    def level(self, size: float) -> Level:
        """Return the smallest memory level that holds a working set.

        Args:
            size: Bytes.

        Returns:
            The level; the last one if none holds it.
        """
        return next((level for level in self.levels if size <= level.size), self.levels[-1])

    def keeping(self, size: float) -> Level:
        """Return the smallest memory level that still holds a result when it is read again.

        Args:
            size: Bytes of the result.

        Returns:
            The level; the last one if `size` exceeds `keeps`.
        """
        return self.level(size) if size <= self.keeps else self.levels[-1]

    def bandwidth(self, level: Level, units: float) -> float:
        """Return the bandwidth that some units get together from a memory level.

        Args:
            level: The memory level.
            units: The number of units that access it at the same time.

        Returns:
            Bytes/s; a shared level saturates with `drawn_by` units.
        """
        return level.bandwidth * (units if level.private else min(1.0, units / level.drawn_by))

    def reading(self, level: Level, units: float) -> float:
        """Return the bandwidth of reads alone, with no write-back traffic.

        Args:
            level: The memory level.
            units: The number of units that access it at the same time.

        Returns:
            Bytes/s.
        """
        return level.reading * self.bandwidth(level, units)

    def peak(self, itemsize: int, units: float, math: Math = "ieee") -> float:
        """Return the peak rate of some units.

        Args:
            itemsize: Bytes per element, 4 or 8.
            units: The number of units.
            math: The tensor cores' format; "ieee" for none.

        Returns:
            FLOP/s.
        """
        if math != "ieee":
            return dict(self.tensor)[math] * units
        return (self.flops64 if itemsize > 4 else self.flops32) * units

    def in_loops(self, itemsize: int, units: float) -> float:
        """Return the rate of a CPU's loops that are not register tiles.

        Args:
            itemsize: Bytes per element, 4 or 8.
            units: The number of cores.

        Returns:
            FLOP/s.
        """
        return self.loops * self.peak(itemsize, units)

    @staticmethod
    def preset(name: str) -> Machine:
        """Return a machine by name.

        Args:
            name: "a100", "h200", "rtx4090", "xeon", "zen5", …, in upper or lower case.

        Returns:
            The machine.

        Raises:
            TargetUnavailable: if there is no such preset; the message lists them.
        """
        found = PRESETS.get(str(name).lower())
        if found is None:
            raise TargetUnavailable(f"unknown machine {name!r}; expected one of {', '.join(sorted(PRESETS))}")
        return found

    @staticmethod
    def detect() -> Machine:
        """Return a model of this computer's CPU, from Linux's /sys and /proc, with safe defaults. Never raises."""
        return detect_cpu(Path("/sys/devices/system/cpu"), Path("/proc/cpuinfo"))

    def __str__(self) -> str:
        unit = "cores" if self.kind == "cpu" else "SMs"
        levels = ", ".join(f"{x.name}{_size(x.size)} {x.bandwidth / 1e9:.0f} GB/s" for x in self.levels)
        peak = self.flops32 * self.units / 1e9
        return f"{self.name}: {self.units} {unit}, {peak:.0f} GFLOP/s (fp32), {levels}"


def _size(size: int) -> str:
    for name, unit in (("GiB", GiB), ("MiB", MiB), ("KiB", KiB)):
        if unit <= size < UNBOUNDED:
            return f" {size / unit:g} {name}"
    return "" if size == UNBOUNDED else f" {size} B"


# -- CPUs --------------------------------------------------------------------------------------------------------------

CALL_SECONDS = 0.5e-6
"""One kernel among others of a call: 8 × Linear(64) + ReLU at batch 1 took 23 µs in 24 kernels and 9.9 µs in one (one
Zen 5 core, numba 0.68; a bare numba dispatcher with four arrays takes 0.2 µs of that)."""

REGION_SECONDS = 10e-6
"""What a parallel loop adds to a call: the threads have to wake up. On two Zen 5 cores (numba 0.68 over OpenMP): 1.0 µs
when calls follow at once, 4.4 µs a millisecond after the last one, 55 µs after twenty; this is in between."""


DEFAULT_CACHES = (32 * KiB, 1 * MiB, 16 * MiB)
DEFAULT_HERTZ = 3.0e9


def cpu(
    name: str,
    cores: int,
    vector_bytes: int,
    caches: tuple[int, int, int],
    hertz: float,
    rates: Rates = ZEN,
    registers: int | None = None,
) -> Machine:
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
    return Machine(
        name,
        "cpu",
        cores,
        vector_bytes,
        levels,
        flops32,
        flops32 / 2,
        CALL_SECONDS,
        REGION_SECONDS,
        vector_registers=registers or (32 if vector_bytes == 64 else 16),
        multiply_adds=rates.multiply_adds,
        loading=rates.loading,
        loops=rates.loops,
        exposed=rates.exposed,
        keeps=caches[2] if rates.keeps is None else min(rates.keeps, caches[2]),
        foresees=rates.foresees,
    )


def detect_cpu(sys: Path, cpuinfo: Path) -> Machine:
    """A CPU described by Linux's files; every value that is missing or unreadable gets a safe default.

    Its clock is the fastest that the files name, or that a measured machine of its kind had: a virtual machine's files
    name its processor's base, by which arithmetic and caches would be priced too high beside memory.
    """
    info = _first_processor(cpuinfo)
    flags = set(info.get("flags", info.get("Features", "")).split())
    vector = 64 if "avx512f" in flags else 32 if "avx2" in flags else 16
    hertz = _number(info.get("cpu MHz", ""), DEFAULT_HERTZ / 1e6) * 1e6
    if hertz < 1e8:
        hertz = DEFAULT_HERTZ
    fastest = _number(_read(sys / "cpu0/cpufreq/cpuinfo_max_freq"), 0.0) * 1e3
    registers = 32 if vector == 64 or "asimd" in flags else 16  # AVX-512, NEON of 64-bit ARM; AVX2, SSE
    caches = _caches(sys)
    rates = rates_of(info.get("vendor_id", ""), vector, caches[1], info.get("cpu family", ""))
    return cpu(
        info.get("model name", "cpu"),
        usable_cores(),
        vector,
        caches,
        max(hertz, fastest or rates.hertz),
        rates,
        registers,
    )


def usable_cores() -> int:
    """The cores this process may run on, or fewer if NUMBA_NUM_THREADS says that kernels get fewer threads."""
    try:
        cores = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        cores = os.cpu_count() or 1
    threads = os.environ.get("NUMBA_NUM_THREADS", "")
    return max(1, min(cores, int(threads)) if threads.isdecimal() else cores)


def _first_processor(cpuinfo: Path) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for line in _read(cpuinfo).splitlines():
        key, colon, value = line.partition(":")
        if not colon and found:
            break
        if colon:
            found.setdefault(key.strip(), value.strip())
    return found


def _caches(sys: Path) -> tuple[int, int, int]:
    sizes = dict(zip((1, 2, 3), DEFAULT_CACHES, strict=True))
    for index in range(8):
        folder = sys / f"cpu0/cache/index{index}"
        level, size = _read(folder / "level").strip(), _read(folder / "size").strip()
        if level in ("1", "2", "3") and _read(folder / "type").strip() != "Instruction":
            unit = {"K": KiB, "M": MiB}.get(size[-1:], 1)
            sizes[int(level)] = int(_number(size.rstrip("KM"), 0.0) * unit) or sizes[int(level)]
    return sizes[1], sizes[2], sizes[3]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _number(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default


# -- GPUs --------------------------------------------------------------------------------------------------------------

LAUNCH_SECONDS = 3e-6
"""One launch through the CUDA driver's Python bindings, as others report it; a graph's node costs about a fifth."""

BARRIER_SECONDS = 20e-9
"""One barrier of a block: some 30 cycles, an order of magnitude and not a measurement."""


def gpu(
    name: str,
    sms: int,
    teraflops: tuple[float, float],
    l2: tuple[int, float],
    dram: tuple[int, float],
    gpu: Gpu,
    tensor: tuple[float, float, float],
) -> Machine:
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
    return Machine(name, "cuda", sms, 128, levels, flops32, flops64, LAUNCH_SECONDS, 0.0, gpu, tensor=rates)


def _limits(
    capability: tuple[int, int], shared_per_sm: int, threads_per_sm: int = 2048, blocks_per_sm: int = 32
) -> Gpu:
    """The limits of a compute capability (CUDA C++ Programming Guide, table of technical specifications)."""
    return Gpu(
        capability,
        65536,
        shared_per_sm - 1 * KiB,
        shared_per_sm,
        1024,
        threads_per_sm,
        BARRIER_SECONDS,
        max_blocks_per_sm=blocks_per_sm,
        cluster=8 if capability >= (9, 0) else 1,
    )


PRESETS: Mapping[str, Machine] = {
    "a100": gpu(
        "a100",
        108,
        (19.5, 9.7),
        (40 * MiB, 7.2e12),
        (80 * GiB, 2.04e12),
        replace(_limits((8, 0), 164 * KiB), grid_barrier_seconds=1.5e-6),
        (156.0, 312.0, 19.5),
    ),
    "h100": gpu(
        "h100",
        132,
        (67.0, 34.0),
        (50 * MiB, 9.0e12),
        (80 * GiB, 3.35e12),
        _limits((9, 0), 228 * KiB),
        (494.5, 989.5, 67.0),
    ),
    "h200": gpu(
        "h200",
        132,
        (67.0, 34.0),
        (50 * MiB, 9.0e12),
        (141 * GiB, 4.8e12),
        _limits((9, 0), 228 * KiB),
        (494.5, 989.5, 67.0),
    ),
    "rtx4090": gpu(
        "rtx4090",
        128,
        (82.6, 1.29),
        (72 * MiB, 5.0e12),
        (24 * GiB, 1.01e12),
        _limits((8, 9), 100 * KiB, 1536, 24),
        (82.6, 165.2, 0.0),
    ),
    "zen5": cpu("zen5", 2, 64, (48 * KiB, 1 * MiB, 32 * MiB), 4.1e9),
    "zen4": cpu("zen4", 2, 64, (32 * KiB, 1 * MiB, 32 * MiB), 3.7e9, ZEN4),
    "xeon": cpu("xeon", 2, 64, (48 * KiB, 2 * MiB, 480 * MiB), 2.6e9, MESH),
}
"""Machines by name.

GPUs: SXM boards; SMs, peak rates (tensor cores' for dense matrices; sums in float32, of float64 numbers in float64),
DRAM and the size of L2 from NVIDIA's data sheets. The rate of L2 is on none of them: A100's is its white paper's 5120
bytes a cycle at 1.41 GHz, H100's and H200's assume as many at 1.76 GHz, the RTX 4090's assumes 2048 at 2.5 GHz. "zen5",
"zen4" and "xeon" are the machines of two cores on which `rates.ZEN`, `ZEN4` and `MESH` were measured; CALL_SECONDS and
REGION_SECONDS are from the first.
"""
