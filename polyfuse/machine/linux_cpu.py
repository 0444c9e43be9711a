"""This computer's CPU as Linux describes it in /sys and /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from polyfuse.machine.levels import KiB, MiB
from polyfuse.machine.rates import Rates, rates_of

DEFAULT_CACHES = (32 * KiB, 1 * MiB, 16 * MiB)
DEFAULT_HERTZ = 3.0e9


@dataclass(frozen=True)
class LinuxCpu:
    """What the files say of a CPU; `registers` are its vector registers."""

    name: str
    vector_bytes: int
    caches: tuple[int, int, int]
    hertz: float
    rates: Rates
    registers: int


def linux_cpu(sys: Path, cpuinfo: Path) -> LinuxCpu:
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
    return LinuxCpu(
        info.get("model name", "cpu"), vector, caches, max(hertz, fastest or rates.hertz), rates, registers
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
