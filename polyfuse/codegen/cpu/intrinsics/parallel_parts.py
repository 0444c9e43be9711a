"""Operations for numba source that run a kernel's parts, which are functions, on this core or on every core.

    for i (cores): S   ->   @Part
                            def k_part(x, y, member, members):
                                for i in range(share_from(…, member), share_from(…, member + 1)): S
                            def k(x, y):
                                on_cores(k_part, get_num_threads(), (x, y))

A function that reads no array, but passes all of them on, is a `Relay`. It gets an array as the address of numba's
record of one: 7 to 13 numbers for each of a region's 300 arrays took LLVM longer than all that reads them.

numba's own parallel loop (`prange`) makes a function of a loop's body too, but infers its types again, compiles it to
machine code for itself and once more within the kernel, and forgets what is constant in it. Machine code by `prange`
and so, seconds of a Zen 4 core: one layer of 512 with bias and ReLU at batch 64 0.62, 0.53; eight 1.06, 0.73; eight of
1024 1.44, 0.97; eight of 64 as one region 2.26, 1.15. Threads are numba's all the same, of any of its layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.compiler import Flags, compile_extra
from numba.core.datamodel.models import OpaqueModel, PrimitiveModel
from numba.core.imputils import lower_constant
from numba.core.registry import cpu_target
from numba.core.types.misc import unliteral
from numba.extending import intrinsic, register_model, typeof_impl

from polyfuse.codegen.cpu.intrinsics.lowering.kernel_passes import KernelCompiler
from polyfuse.codegen.cpu.intrinsics.lowering.line_tables import LineTables
from polyfuse.codegen.cpu.parallel_calls import (
    BYTES,
    NUM_THREADS,
    NUM_THREADS_NAME,
    PARALLEL_FOR,
    PARALLEL_FOR_NAME,
    PIECE,
    WORD,
    start_threads,
)

FASTMATH = {"contract"}
"""a * b + c may become one fused multiply-add; nothing else about a body's arithmetic may change."""

OWNED = frozenset(("on_heap", "turns_of", "team_of"))
"""The intrinsics that make arrays which a function lets go at its end. Without them a function counts no arrays."""


def lowered(function: Callable[..., None], arguments: tuple[types.Type, ...], library: Any) -> Any:
    """A function without a result as LLVM in a library, in one module with all that is there: its descriptor.

    A library that says `with_lines` gets tables of source lines, which change no instruction.
    """
    flags = Flags()
    cpu_target.options.parse_as_flags(flags, {"fastmath": FASTMATH, "error_model": "numpy", "nopython": True})
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.enable_pyobject = False
    flags.nrt = not OWNED.isdisjoint(function.__code__.co_names)
    context = cpu_target.target_context
    if getattr(library, "with_lines", False):
        flags.debuginfo = flags.dbg_directives_only = True
        context = context.subtarget(DIBuilder=LineTables)
    flags.noalias = True  # a call refuses arrays that overlap; else LLVM reloads scalars after each store
    done = compile_extra(
        cpu_target.typing_context,
        context,
        function,
        arguments,
        types.void,
        flags,
        {},
        library=library,
        pipeline_class=KernelCompiler,
    )
    return done.fndesc


class Part:
    """A part of a kernel: LLVM is made of it where it is called, once for each kind of arguments in a library."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self._made: WeakKeyDictionary[Any, dict[tuple[types.Type, ...], Any]] = WeakKeyDictionary()

    def lowered(self, arguments: tuple[types.Type, ...], library: Any) -> Any:
        """Its descriptor for such arguments, in the library of the kernel that calls it."""
        made = self._made.setdefault(library, {})
        if arguments not in made:
            made[arguments] = lowered(self.function, arguments, library)
        return made[arguments]

    def symbols(self, library: Any) -> tuple[str, ...]:
        """The names of what has been made of it in a library."""
        return tuple(known.llvm_func_name for known in self._made.get(library, {}).values())


class Relay(Part):
    """A part that reads none of a kernel's arrays, but passes them on: it may have their addresses instead."""


class Reference(types.Type):
    """The address of an array, as a relay has it. It owns nothing: who calls a kernel keeps its arrays."""

    def __init__(self, of: types.Array) -> None:
        self.of = of
        super().__init__(f"reference({of})")


@register_model(Reference)
class _ReferenceModel(PrimitiveModel):
    def __init__(self, models: Any, kind: Reference) -> None:
        super().__init__(models, kind, models.lookup(kind.of).get_value_type().as_pointer())


def referred(kinds: Iterable[types.Type]) -> tuple[types.Type, ...]:
    """The types of arguments whose arrays are passed by address."""
    return tuple(Reference(kind) if isinstance(kind, types.Array) else kind for kind in kinds)


class _PartType(types.Type):
    def __init__(self, part: Part) -> None:
        self.part = part
        super().__init__(f"part({part.function.__name__}, {id(part)})")


register_model(_PartType)(OpaqueModel)


@typeof_impl.register(Part)
def _type_of_a_part(part: Part, _: Any) -> _PartType:
    return _PartType(part)


@lower_constant(_PartType)
def _constant_part(context: Any, *_: Any) -> Any:
    return context.get_dummy_value()


@intrinsic
def run(typingctx: Any, part: Any, arguments: Any) -> Any:
    """part(*arguments)."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        kinds, values = _unpacked(context, builder, arguments, args[1])
        status = _called(context, builder, part, kinds, values)
        with builder.if_then(status.is_error, likely=False):
            context.call_conv.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.void(part, arguments), code


@intrinsic
def get_num_threads(typingctx: Any) -> Any:
    """The number of threads a region has. numba's own is an address of this process, which a cache cannot keep."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        return _threads(builder)

    return types.int64(), code


def _threads(builder: ir.IRBuilder) -> Any:
    known = cgutils.get_or_insert_function(builder.module, NUM_THREADS, NUM_THREADS_NAME)
    return builder.sext(builder.trunc(builder.call(known, []), ir.IntType(32)), WORD)


@intrinsic
def on_cores(typingctx: Any, part: Any, members: Any, arguments: Any) -> Any:
    """part(*arguments, member, members) for each member of so many, on numba's threads. Raises MemoryError."""
    start_threads()

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        count = context.cast(builder, args[1], members, types.int64)
        kinds, values = _unpacked(context, builder, arguments, args[2])
        kinds, values = _as_taken(builder, part, kinds, values)
        fields = [*values, count, WORD(0)]
        held = _Held.of([value.type for value in fields])
        with builder.goto_entry_block():  # numba's own way would write zeros first
            record = builder.alloca(held.type)
        slots = held.slots(builder, record)
        for value, slot in zip(fields, slots, strict=True):
            builder.store(value, slot)
        piece = _piece(context, builder.module, part, kinds, held)
        _start(context, builder, piece, builder.bitcast(record, BYTES), count)
        failed = builder.load(slots[-1])
        with builder.if_then(builder.icmp_signed("!=", failed, WORD(0)), likely=False):
            message = "no memory for what a core keeps"
            context.call_conv.return_user_exc(builder, MemoryError, (message,))
        return context.get_dummy_value()

    return types.void(part, members, arguments), code


def _unpacked(
    context: Any, builder: ir.IRBuilder, kind: Any, given: Any
) -> tuple[list[types.Type], list[Any]]:
    """(the types, the values) of a tuple; a number that is known counts as any number."""
    kinds = [unliteral(one) for one in kind]
    values = cgutils.unpack_tuple(builder, given, len(kinds))
    return kinds, [context.cast(builder, *one) for one in zip(values, kind, kinds, strict=True)]


def _as_taken(
    builder: ir.IRBuilder, part: _PartType, kinds: list[types.Type], values: Iterable[Any]
) -> tuple[list[types.Type], list[Any]]:
    """(the types, the values) that a part takes: a relay addresses as they are, any other part the arrays there."""
    if isinstance(part.part, Relay):
        return list(kinds), list(values)
    taken = [_array(builder, *each) for each in zip(kinds, values, strict=True)]
    return [kind for kind, _ in taken], [value for _, value in taken]


def _array(builder: ir.IRBuilder, kind: types.Type, value: Any) -> tuple[types.Type, Any]:
    """The array at an address."""
    return (kind.of, builder.load(value)) if isinstance(kind, Reference) else (kind, value)


def _called(
    context: Any, builder: ir.IRBuilder, part: _PartType, kinds: list[types.Type], values: Any
) -> Any:
    """Call a part: how it ended."""
    kinds, values = _as_taken(builder, part, kinds, values)
    arguments = tuple(kinds)
    known = part.part.lowered(arguments, context.active_code_library)
    status, _ = context.call_internal_no_propagate(builder, known, types.void(*arguments), values)
    return status


@dataclass(frozen=True)
class _Held:
    """How values lie in what a region's threads get the address of: `kinds` are theirs, in order.

    Addresses are an array: as a structure's fields they would each have the type of one of numba's records, and LLVM's
    text has a structure's type wherever a field is found. For 128 layers that was 5 MB.
    """

    kinds: tuple[ir.Type, ...]
    type: ir.LiteralStructType

    @staticmethod
    def of(kinds: Sequence[ir.Type]) -> _Held:
        """Return the layout of values of these types."""
        addresses = sum(isinstance(kind, ir.PointerType) for kind in kinds)
        others = (kind for kind in kinds if not isinstance(kind, ir.PointerType))
        return _Held(tuple(kinds), ir.LiteralStructType([ir.ArrayType(BYTES, addresses), *others]))

    def slots(self, builder: ir.IRBuilder, record: Any) -> list[Any]:
        """The address of each value in a record."""
        found, addresses, others = [], 0, 1
        for kind in self.kinds:
            if isinstance(kind, ir.PointerType):
                slot = cgutils.gep_inbounds(builder, record, 0, 0, addresses)
                found.append(builder.bitcast(slot, kind.as_pointer()))
                addresses += 1
            else:
                found.append(cgutils.gep_inbounds(builder, record, 0, others))
                others += 1
        return found


def _piece(
    context: Any, module: ir.Module, part: _PartType, kinds: list[types.Type], held: _Held
) -> ir.Function:
    """The function that a thread calls: the part, for the members that the thread has, with what `data` holds.

    A member is told by an address, which the library moves on by a byte for each: nothing is there.
    """
    piece = ir.Function(module, PIECE, module.get_unique_name("piece"))
    piece.linkage = "internal"
    addresses, extents, _, data = piece.args
    builder = ir.IRBuilder(piece.append_basic_block())
    fields = held.slots(builder, builder.bitcast(data, held.type.as_pointer()))
    *values, members = [builder.load(field) for field in fields[:-1]]
    first = builder.sub(*(builder.ptrtoint(one, WORD) for one in (builder.load(addresses), data)))
    with cgutils.for_range(builder, builder.load(extents)) as loop:
        member = builder.add(first, loop.index)
        status = _called(
            context, builder, part, [*kinds, types.int64, types.int64], [*values, member, members]
        )
        with builder.if_then(status.is_error, likely=False):
            builder.store(WORD(1), fields[-1])
    builder.ret_void()
    return piece


def _start(context: Any, builder: ir.IRBuilder, piece: ir.Function, data: Any, members: Any) -> None:
    """Have numba's threads run a piece for each member. Other threads of Python may run in the meantime."""
    known = cgutils.get_or_insert_function(builder.module, PARALLEL_FOR, PARALLEL_FOR_NAME)
    once = [cgutils.alloca_once_value(builder, value) for value in (data, members, WORD(1))]
    pointers = [builder.bitcast(one, BYTES) for one in (piece, *once)]
    python = context.get_python_api(builder)
    lock = python.gil_ensure()
    state = python.save_thread()
    builder.call(known, [*pointers, data, WORD(0), WORD(1), _threads(builder)])
    python.restore_thread(state)
    python.gil_release(lock)
