"""Stop isl at a time, in the middle of a call: a timer of the C library asks isl to abort.

    alarm --set--> timer of the C library --runs--> isl_ctx_abort(context)      the operation that runs then fails
          --back--> no timer, and a context that works again

isl asks at each operation whether to go on, but islpy holds Python's lock while isl works: no thread of Python's and no
handler of a signal runs before the call is over. The timer needs neither; it needs the address of isl's own context,
which stands in the memory of islpy's object. A word of that object is believed only if a number that islpy puts into
the context is found behind it, twice. Where there is no such word or no such timer (another system, another islpy), a
thread of Python's stops isl instead, between two calls.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import cache
from importlib import import_module
from threading import Timer
from typing import Any

import islpy as isl

NUMBERS = 0x35A9_17C4_E2D8_60B3, 0x1C64_F93B_0A57_D28E
"""Two limits of operations that nobody else sets, by which isl's context is recognised in memory."""

CONTEXT_BYTES = 1024
"""The part of a context in which its limit of operations is looked for."""

CLOCK_MONOTONIC, SIGEV_THREAD = 1, 2
"""Constants of Linux's time.h and signal.h: the timer's clock, and that it runs a function in a new thread."""

PATIENCE = 1.0
"""Seconds for a timer's thread to begin: only a process that has been forked since waits in vain."""


class _Event(ctypes.Structure):
    """`struct sigevent` of 64 bits."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("padding", ctypes.c_byte * 32),
    )


class _Times(ctypes.Structure):
    """`struct itimerspec` of 64 bits."""

    _fields_ = (
        ("again_seconds", ctypes.c_long),
        ("again_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


def alarm(context: isl.Context, seconds: float) -> Callable[[], None]:
    """Have isl refuse all work from some seconds on; return what takes this back.

    One context serves all threads, so that the work of the others is refused, too.
    """
    return _native(context, seconds) or _between_calls(context, seconds)


def _native(context: isl.Context, seconds: float) -> Callable[[], None] | None:
    """An alarm that interrupts a call of isl; None where there is none."""
    found, library = _address(context), _library()
    if found is None or library is None:
        return None
    event, timer = _Event(found, 0, SIGEV_THREAD, _abort(), None), ctypes.c_void_p()
    if library.timer_create(CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)):
        return None
    whole, nanoseconds = divmod(max(1, round(seconds * 1e9)), 10**9)
    library.timer_settime(timer, 0, ctypes.byref(_Times(0, 0, whole, nanoseconds)), None)

    def back() -> None:
        left = _Times()
        library.timer_settime(timer, 0, ctypes.byref(_Times()), ctypes.byref(left))
        library.timer_delete(timer)
        if not (left.seconds or left.nanoseconds):  # its thread has begun, or will
            _await(context)
        context.resume()

    return back


def _await(context: isl.Context) -> None:
    """Wait until a context is told to abort."""
    start = time.monotonic()
    while not context.aborted() and time.monotonic() < start + PATIENCE:
        time.sleep(1e-3)


def _between_calls(context: isl.Context, seconds: float) -> Callable[[], None]:
    """An alarm that a call of isl does not hear before it is over."""
    timer = Timer(seconds, context.abort)
    timer.daemon = True
    timer.start()

    def back() -> None:
        timer.cancel()
        timer.join()
        context.resume()

    return back


@cache
def _library() -> Any:
    """The C library, if it has these timers."""
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    for name in (None, "librt.so.1"):  # glibc before 2.34 has them in the second
        with suppress(OSError):
            library = ctypes.CDLL(name)
            if all(hasattr(library, f"timer_{each}") for each in ("create", "settime", "delete")):
                return library
    return None


@cache
def _abort() -> int | None:
    """The address of `isl_ctx_abort` in the isl that islpy uses; None if it is not to be seen."""
    with suppress(OSError, AttributeError):
        function = ctypes.CDLL(import_module("islpy._isl").__file__).isl_ctx_abort
        return ctypes.cast(function, ctypes.c_void_p).value
    return None


@cache
def _address(context: isl.Context) -> int | None:
    """The address of isl's own context; None if it cannot be told for certain."""
    if _library() is None or _abort() is None:
        return None
    with suppress(OSError), closing(_Memory()) as memory:
        words = list(_words(context, memory))
        return words[0] if len(words) == 1 else None
    return None


def _words(context: isl.Context, memory: _Memory) -> Iterator[int]:
    """The words of islpy's object behind which the limit of operations is found, at one place for both numbers."""
    kind, limit = type(context), int(context.get_max_operations())
    for offset in range(object.__basicsize__, kind.__basicsize__, 8):
        word = int.from_bytes(memory.read(id(context) + offset, 8), sys.byteorder)
        places = []
        for number in NUMBERS:
            context.set_max_operations(number)
            places.append(memory.read(word, CONTEXT_BYTES).find(number.to_bytes(8, sys.byteorder)))
        context.set_max_operations(limit)
        if places[0] == places[1] >= 0:
            yield word


class _Memory:
    """This process's memory, as a file: what is not there is not read."""

    def __init__(self) -> None:
        self._file = os.open("/proc/self/mem", os.O_RDONLY)

    def read(self, address: int, count: int) -> bytes:
        """The bytes at an address; none where no memory is."""
        try:
            return os.pread(self._file, count, address)
        except (OSError, OverflowError):
            return b""

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
