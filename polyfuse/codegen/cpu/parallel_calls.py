"""The calls by which kernels reach numba's threads, and what these are in a process that was forked from such threads.

    polyfuse_parallel_for(piece, …, threads)    numba_parallel_for(piece, …, threads)    forked: piece(…)
    polyfuse_num_threads()                      get_num_threads()                        forked: 1

fork() copies the thread that calls it and no other, but not what OpenMP knows of the others. GNU's would wait for them
for ever, so numba ends such a process at its first parallel loop, and multiprocessing.Pool.map waits for it. Both calls
therefore look at a number that a fork sets in the child: there a kernel runs as on one core, on the thread that calls
it. numba's other layers start their threads again and stay parallel.

The two functions are machine code that is made once a process, and known to LLVM by name, so that object files that
call them can be loaded in any process.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir

BYTES, WORD = ir.IntType(8).as_pointer(), ir.IntType(64)

PIECE = ir.FunctionType(ir.VoidType(), [BYTES.as_pointer(), WORD.as_pointer(), WORD.as_pointer(), BYTES])
"""A piece of numba's parallel loop: addresses, extents, steps, data."""

PARALLEL_FOR = ir.FunctionType(ir.VoidType(), [BYTES] * 5 + [WORD] * 3)
"""numba's parallel loop: piece, addresses, extents, steps, data, inner dimensions, addresses, threads."""

NUM_THREADS = ir.FunctionType(WORD, [])
"""A C int, which numba declares as a word where it starts a region."""

PARALLEL_FOR_NAME, NUM_THREADS_NAME, FORKED_NAME = (
    "polyfuse_parallel_for",
    "polyfuse_num_threads",
    "polyfuse_forked",
)


class _Calls:
    """The two functions in this process."""

    def __init__(self) -> None:
        self.forked = False
        self._engine: Any = None

    def start(self) -> None:
        """Start numba's threads, and make the functions' names known to LLVM."""
        numba.get_num_threads()
        if self._engine is None:
            target = llvm.Target.from_default_triple().create_target_machine()
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(_module())), target)
            self._engine.finalize_object()
            for name in (PARALLEL_FOR_NAME, NUM_THREADS_NAME):
                llvm.add_symbol(name, self._engine.get_function_address(name))
            self._tell()

    def after_fork(self) -> None:
        """Say in a new process that OpenMP's threads are not there, if they were started before."""
        try:
            layer = numba.threading_layer()
        except ValueError:  # none was: this process starts its own
            return
        self.forked = self.forked or layer == "omp"
        if self._engine is not None:
            self._tell()

    def _tell(self) -> None:
        address = self._engine.get_global_value_address(FORKED_NAME)
        ctypes.c_int64.from_address(address).value = self.forked


_CALLS = _Calls()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_CALLS.after_fork)


def start_threads() -> None:
    """Start numba's threads, and make the names by which kernels call them known to LLVM."""
    _CALLS.start()


def is_forked() -> bool:
    """True if this process was forked from one with OpenMP's threads, so that kernels run on the calling thread."""
    return _CALLS.forked


def _module() -> ir.Module:
    module = ir.Module("parallel_calls")
    forked = ir.GlobalVariable(module, WORD, FORKED_NAME)
    forked.initializer = WORD(0)

    function = ir.Function(module, PARALLEL_FOR, PARALLEL_FOR_NAME)
    theirs = ir.Function(module, PARALLEL_FOR, "numba_parallel_for")
    builder, alone, threads = _branched(function, forked)
    piece, addresses, extents, steps, data, *_ = function.args
    builder.position_at_end(alone)
    kinds = zip((addresses, extents, steps, data), PIECE.args, strict=True)
    builder.call(
        builder.bitcast(piece, PIECE.as_pointer()), [builder.bitcast(one, kind) for one, kind in kinds]
    )
    builder.ret_void()
    builder.position_at_end(threads)
    builder.call(theirs, function.args, tail=True)
    builder.ret_void()

    function = ir.Function(module, NUM_THREADS, NUM_THREADS_NAME)
    theirs = ir.Function(module, NUM_THREADS, "get_num_threads")
    builder, alone, threads = _branched(function, forked)
    builder.position_at_end(alone)
    builder.ret(WORD(1))
    builder.position_at_end(threads)
    builder.ret(builder.call(theirs, [], tail=True))
    return module


def _branched(function: ir.Function, forked: ir.GlobalVariable) -> tuple[ir.IRBuilder, ir.Block, ir.Block]:
    """(what builds a function, its block in a forked process, its block in others)."""
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    alone, threads = function.append_basic_block("alone"), function.append_basic_block("threads")
    builder.cbranch(builder.icmp_signed("!=", builder.load(forked), WORD(0)), alone, threads)
    return builder, alone, threads
