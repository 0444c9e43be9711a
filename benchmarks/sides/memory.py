"""How much memory a process holds, as Linux counts it: resident now, and the most of a call."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

PROCESS = Path("/proc/self")


class NotCounted(Exception):
    """This system does not say what a process holds."""


def of(call: Callable[[], object], before: int) -> dict[str, int]:
    """Bytes of one call, the process warm.

    `call_bytes`: the most that was resident during the call, beyond what was before it (results, temporaries that are
    not kept). `kept_bytes`: what was resident before the call, beyond `before` (weights, packed copies, arenas, machine
    code), the libraries' caches of freed memory given back first where they are malloc's.
    """
    call()
    gc.collect()
    give_back()
    start = resident()
    (PROCESS / "clear_refs").write_text("5")  # proc(5): resets the peak
    call()
    peak = _status("VmHWM")
    return {"call_bytes": peak - start, "kept_bytes": start - before}


def resident() -> int:
    """Bytes in memory now; 0 where the system does not say."""
    return _status("VmRSS") if PROCESS.exists() else 0


def give_back() -> None:
    """What malloc keeps of freed memory goes back to the system, where it is GNU's."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        return


def _status(key: str) -> int:
    for line in (PROCESS / "status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return 1024 * int(line.split()[1])
    raise NotCounted(f"there is no {key} in {PROCESS / 'status'}")
