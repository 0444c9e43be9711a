"""Turn a GPU driver's failures into errors that name the kernel, its statements or the buffer.

    launch refused         ->  DeviceFailure: the kernel, its statements, grid and block
    found by a later wait  ->  DeviceFailure: every kernel of the call, with its statements
    no memory              ->  OutOfDeviceMemory: what was asked for, for which buffer, what is free, what would help

A kernel runs after its launch has returned, so what goes wrong inside it is found by whatever the host asks for next.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from polyfuse.errors import DeviceFailure, OutOfDeviceMemory

NO_MEMORY = "OUT_OF_MEMORY"
"""In every name that the driver and its libraries have for it."""

LATER = (
    "ILLEGAL_ADDRESS",
    "LAUNCH_FAILED",
    "LAUNCH_TIMEOUT",
    "ILLEGAL_INSTRUCTION",
    "MISALIGNED_ADDRESS",
    "INVALID_ADDRESS_SPACE",
    "INVALID_PC",
    "HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ASSERT",
    "ECC_UNCORRECTABLE",
)
"""The driver's errors of a kernel that ran and failed; it then says so to every call of the process, and the process
has to start anew ("CUDA Driver API", `CUresult`)."""


def launch_failed(
    entry: str,
    statements: tuple[str, ...],
    grid: tuple[int, ...],
    block: tuple[int, ...],
    shared_bytes: int,
    error: object,
) -> DeviceFailure:
    """The error of a launch that the driver refused."""
    if NO_MEMORY in str(error):
        return OutOfDeviceMemory(
            f"no device memory left to launch {_kernel(entry, statements)}: {error}", (entry,)
        )
    shape = f"grid {_extents(grid)}, block {_extents(block)} ({prod(block)} threads), {shared_bytes} bytes of shared"
    return DeviceFailure(
        f"{_kernel(entry, statements)} could not be launched, {shape} memory: {error}{_earlier(error)}",
        (entry,),
    )


def step_failed(what: str, error: object) -> DeviceFailure:
    """The error of anything else: a copy, a capture, a wait."""
    kind = OutOfDeviceMemory if NO_MEMORY in str(error) else DeviceFailure
    return kind(f"{what} failed: {error}")


def call_failed(error: DeviceFailure, kernels: Iterable[tuple[str, tuple[str, ...]]]) -> DeviceFailure:
    """The error with the kernels of the call in which it was found, each with its statements."""
    named: dict[str, tuple[str, ...]] = {}
    for entry, statements in kernels:
        named[entry] = tuple(dict.fromkeys((*named.get(entry, ()), *statements)))
    listed = "; ".join(_kernel(entry, statements) for entry, statements in named.items()) or "none"
    which = (
        " Which one it is says compute-sanitizer, with the program as its argument."
        if _is_later(error)
        else ""
    )
    return DeviceFailure(f"{error}. The kernels of this call: {listed}.{_fatal(error)}{which}", tuple(named))


def no_memory(
    nbytes: int, use: str, device: str, free: tuple[int, int] | None, error: object
) -> OutOfDeviceMemory:
    """The error of an allocation of so many bytes for a use; `free` are the device's free bytes, and all it has."""
    have = f": {_size(free[0])} of {_size(free[1])} are free" if free is not None else ""
    return OutOfDeviceMemory(
        f"no {_size(nbytes)} ({nbytes} bytes) left on {device} for {use}{have} ({error}). Smaller sizes (a batch in "
        "parts), arrays given with out= that are used again, letting go of other executables and of what another "
        "library keeps (torch.cuda.empty_cache()), or fewer streams would help: each stream and each set of sizes has "
        "temporaries and weights of its own"
    )


def _kernel(entry: str, statements: tuple[str, ...]) -> str:
    return f"kernel {entry!r} (statements {', '.join(statements) or 'not known'})"


def _extents(extents: tuple[int, ...]) -> str:
    return " × ".join(map(str, extents))


def _earlier(error: object) -> str:
    if not _is_later(error):
        return ""
    return f"; kernels fail asynchronously after their launch: it may have been an earlier kernel.{_fatal(error)}"


def _fatal(error: object) -> str:
    return " The process has to be started anew to use the GPU again." if _is_later(error) else ""


def _is_later(error: object) -> bool:
    return any(name in str(error) for name in LATER)


def _size(nbytes: int) -> str:
    """A size to read.

    >>> _size(3 << 30), _size(1536), _size(12)
    ('3.0 GiB', '1.5 KiB', '12 B')
    """
    for name, unit in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= unit:
            return f"{nbytes / unit:.1f} {name}"
    return f"{nbytes} B"
