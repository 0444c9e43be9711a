"""Atomic operations on an array of int64 numbers, for numba source in which cores wait for each other.

    taken = fetch_add(words, at, 1)
    while load(words, at) < 3: pause()

What a core stored in other arrays before it called `store` is seen by a core whose `load` gives that number (release
and acquire).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from polyfuse.codegen.array_fields import ADDRESS

WORDS = 8
"""int64 numbers in a line of cache."""

WORD = ir.IntType(64)


@intrinsic
def load(typingctx: Any, words: Any, at: Any) -> Any:
    """The number at a place."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_word(builder, args), "acquire", 8)

    return types.int64(words, types.int64), code


@intrinsic
def store(typingctx: Any, words: Any, at: Any, value: Any) -> Any:
    """words[at] = value."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[2], _word(builder, args), "release", 8)
        return context.get_dummy_value()

    return types.void(words, types.int64, types.int64), code


@intrinsic
def fetch_add(typingctx: Any, words: Any, at: Any, value: Any) -> Any:
    """The number at a place, which is that much more from now on."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _word(builder, args), args[2], "acq_rel")

    return types.int64(words, types.int64, types.int64), code


@intrinsic
def replaced(typingctx: Any, words: Any, at: Any, old: Any, new: Any) -> Any:
    """Store `new` at a place if it holds `old`; return True if it did."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        word = _word(builder, args)
        return builder.extract_value(builder.cmpxchg(word, args[2], args[3], "acq_rel", "acquire"), 1)

    return types.boolean(words, types.int64, types.int64, types.int64), code


@intrinsic
def pause(typingctx: Any) -> Any:
    """Leave the core's other thread some time, where it has one."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        if builder.module.triple.startswith("x86"):
            name = "llvm.x86.sse2.pause"
            known = builder.module.globals.get(name)
            builder.call(known or ir.Function(builder.module, ir.FunctionType(ir.VoidType(), []), name), [])
        return context.get_dummy_value()

    return types.void(), code


def _word(builder: ir.IRBuilder, args: Any) -> Any:
    """A pointer to the number."""
    return builder.gep(builder.extract_value(args[0], ADDRESS), [args[1]])
