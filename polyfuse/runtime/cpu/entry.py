"""The entry of a program: a native function that CPython calls with a call's arrays.

    entry(held, [(input…), None])           ->  new results
    entry(held, [(input…), result(s)])      ->  the results given: an array, or a tuple of several
    either                                  ->  NotImplemented, and nothing has run

The kernels run if every argument is what they were compiled for: exactly an ndarray, of that dtype and shape,
C-contiguous, aligned, and where it is written also writable and without a byte in common with another; a scalar may be
Python's own float or int; one that is a symbolic size has the value that the entry is called for. If one is not,
Python says why, or brings it into that form (polyfuse.runtime.arguments) and calls again. So the checks are few
comparisons in machine code, and a call builds no object but its results. `held` is a tuple that belongs to the
function, so that a call passes nothing but what changes.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.np.arrayobj import make_array
from numba.np.numpy_support import from_dtype

from polyfuse.codegen.cpu.intrinsics.half_conversions import BITS_OF
from polyfuse.codegen.cpu.intrinsics.parallel_parts import Reference
from polyfuse.codegen.cpu.intrinsics.vector_width import in_whole_registers
from polyfuse.codegen.looptree.half_types import held_as
from polyfuse.ir.number_types import ITEMSIZE, NUMBER_TYPES, is_real
from polyfuse.ir.tensor import Limit, Tensor, whole
from polyfuse.runtime.cpu.objects import ALIGNED, CONTIGUOUS, INT, LONG, POINTER, WRITEABLE, Objects
from polyfuse.runtime.interface import ENTRY_ONCE, Interface

DTYPES = tuple(ITEMSIZE)

AS_WRITTEN = ("noinline", "optnone")
"""LLVM's attributes of a function that none of its passes changes; the second asks for the first."""

REPEATED = 4
"""Launches of one kernel from which on LLVM copies it into no entry: 128 layers packed their weights by 128 copies."""


@dataclass(frozen=True)
class Held:
    """Objects owned by an entry's function; `items` is the tuple that the entry reads.

    `numbers` are the values that depend on symbolic sizes. `new_results` and `new_arena` make what they are called
    after, `spare` holds arenas that no call uses now. `owner` is only kept alive. A timed entry writes the clock to
    `stamps`: before the first launch, and after each.
    """

    numbers: Sequence[int]
    new_results: tuple[Callable[[], Any], ...]
    new_arena: Callable[[], Any]
    spare: list[Any]
    constants: tuple[Any, ...]
    owner: object
    stamps: Any = None

    KIND, SEVERAL, REFUSED, NOTHING, FLOAT, INTEGER, NUMBERS, NEW_ARENA, POP, SPARE = range(10)
    FIRST_DTYPE = 10
    FIRST_RESULT = 10 + len(DTYPES)

    def items(self) -> tuple[Any, ...]:
        """The tuple; positions as above, then what makes results, then constants, then stamps."""
        numbers = np.array([*self.numbers, 0], np.int64)  # an array without elements may have no address
        kinds = np.ndarray, tuple, NotImplemented, None, float, int
        memory = numbers, self.new_arena, self.spare.pop, self.spare
        return (
            *kinds,
            *memory,
            *map(np.dtype, DTYPES),
            *self.new_results,
            *self.constants,
            self.stamps,
            self.owner,
        )


@dataclass(frozen=True)
class Lowered:
    """A kernel in LLVM: its symbol and the numba types of its arguments."""

    symbol: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Call:
    """One launch: which kernel, on which tensors, with which bounds of loops behind the sizes."""

    kernel: Lowered
    tensors: tuple[str, ...]
    bounds: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Place:
    """An array in LLVM values: the address of its data, its extents, its size in bytes."""

    data: Any
    shape: tuple[Any, ...]
    nbytes: Any


def add_entry(
    context: Any,
    module: ir.Module,
    name: str,
    interface: Interface,
    calls: Sequence[Call],
    timed: bool = False,
) -> None:
    """Add an entry to a module: check the inputs, take or make the results, launch, answer.

    LLVM leaves the entry that is called once as it is: of 128 layers, it took 3.3 s to improve what runs for 0.1 ms.
    """
    kind = ir.FunctionType(POINTER, [POINTER, POINTER.as_pointer(), LONG])
    function = ir.Function(module, kind, name)
    if name == ENTRY_ONCE:
        for attribute in AS_WRITTEN:
            function.attributes.add(attribute)
    in_whole_registers(function)  # and for the kernels that LLVM inlines into it: not for large ones
    entry = _Entry(context, function, interface)
    entry.check_inputs()
    results = entry.results()
    arena = entry.arena(results)
    failed = entry.launch(calls, timed)
    entry.answer(results, arena, failed)


class _Entry:
    """Builds one entry."""

    def __init__(self, context: Any, function: ir.Function, interface: Interface) -> None:
        self.context, self.interface, self.function = context, interface, function
        self.held, arguments, _ = function.args  # the runtime itself calls it, with two arguments
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        self.objects = Objects(self.builder)
        self.given, self.out = (self.objects.element(arguments, position) for position in range(2))
        self.numbers = self.objects.longs(self._held(Held.NUMBERS), "data")
        self.places: dict[str, _Place] = {}
        self.records: dict[tuple[str, Any], Any] = {}
        self.forms: dict[tuple[Any, ...], Any] = {}
        self.launchers: dict[tuple[object, ...], ir.Function] = {}
        self.refused = function.append_basic_block("refused")
        self.raised = function.append_basic_block("raised")
        with self.builder.goto_block(self.refused):
            refusal = self._held(Held.REFUSED)
            self.objects.call("Py_IncRef", refusal)
            self.builder.ret(refusal)
        with self.builder.goto_block(self.raised):
            self.builder.ret(POINTER(None))

    # -- arguments -----------------------------------------------------------------------------------------------

    def check_inputs(self) -> None:
        """Refuse unless all inputs are as the kernels need them; find where they and the constants lie."""
        inputs = self.interface.inputs
        self._need(self._same(self.objects.length(self.given), LONG(len(inputs))))
        for position, tensor in enumerate(inputs):
            value = self.objects.item(self.given, position)
            scalar = tensor.rank == 0 and tensor.role == "input"
            place = self._scalar(value, tensor) if scalar else self._checked(value, tensor)
            self.places[tensor.name] = place
            if scalar and tensor.name in self.interface.sizes:
                value = self._number(self.interface.sizes.index(tensor.name))
                self._need(self._same(self._integer(place, tensor), value))
        first = Held.FIRST_RESULT + len(self.interface.results)
        for position, tensor in enumerate(self.interface.constants):
            self.places[tensor.name] = self._place(tensor, self._held(first + position))
        self._need_apart([tensor.name for tensor in inputs if tensor.role == "inout"])
        for name, limit in self.interface.indices:
            self._need_below(next(tensor for tensor in inputs if tensor.name == name), limit)

    def _need_below(self, index: Tensor, limit: Limit) -> None:
        """Refuse an array of integers with one, in the box of a limit, that is negative or not below the extent."""
        builder, place, kind = self.builder, self.places[index.name], self._element(index)
        with builder.goto_entry_block():
            wrong = builder.alloca(LONG)
        builder.store(LONG(0), wrong)
        data = builder.bitcast(place.data, kind.as_pointer())
        rows = self._extent(limit.extent)
        with ExitStack() as loops:
            at = LONG(0)
            for first, end, step in self._runs(index, limit):
                loop = loops.enter_context(cgutils.for_range(builder, end, first))
                at = builder.add(at, builder.mul(loop.index, step))
            row = self._long(builder.load(builder.gep(data, [at])), index)
            above = builder.zext(builder.icmp_unsigned(">=", row, rows), LONG)  # of a negative one too
            builder.store(builder.or_(builder.load(wrong), above), wrong)
        self._need(self._same(builder.load(wrong), LONG(0)))

    def _runs(self, index: Tensor, limit: Limit) -> list[tuple[Any, Any, Any]]:
        """Loops over a box: first, end and distance in elements; the axes behind the last that is cut are one run.

        x[16, 8, 4] in [0:16, 3:4, 0:4]   ->   (0, 16, 32), (12, 16, 1)
        """
        shape, box = self.places[index.name].shape, limit.box or whole(index)
        cut = [
            axis for axis, (ends, size) in enumerate(zip(box, index.shape, strict=True)) if ends != (0, size)
        ]
        last = max(cut, default=0)
        found = []
        for axis, size in enumerate(shape[: last + 1]):
            first, end = (self._least(self._extent(place), size) for place in box[axis])
            step = reduce(self._times, shape[axis + 1 :], LONG(1))
            if axis == last:
                first, end, step = self._times(first, step), self._times(end, step), LONG(1)
            found.append((first, end, step))
        return found

    def results(self) -> list[Any]:
        """The results as objects, each a reference of our own: those given, checked, or new ones."""
        tensors, builder = self.interface.results, self.builder
        nothing = self._same(self.out, self._held(Held.NOTHING))
        if not tensors:
            self._need(nothing)
            return []
        given, new, found = (self.function.append_basic_block(n) for n in ("given", "new", "results"))
        builder.cbranch(nothing, new, given)
        builder.position_at_end(given)
        theirs = self._given_results(len(tensors))
        for tensor, array in zip(tensors, theirs, strict=True):
            self.places[tensor.name] = self._checked(array, tensor)
        self._need_apart([tensor.name for tensor in tensors])
        for array in theirs:
            self.objects.call("Py_IncRef", array)
        ends = [(theirs, builder.block)]
        builder.branch(found)
        builder.position_at_end(new)
        ours: list[Any] = []
        failed = self.raised
        for position in range(len(tensors)):
            ours.append(self._made(self.objects.called(self._held(Held.FIRST_RESULT + position)), failed))
            failed = self._without(ours[-1], failed)
        ends.append((ours, builder.block))
        builder.branch(found)
        builder.position_at_end(found)
        arrays = [self._joined([(end[n], block) for end, block in ends]) for n in range(len(tensors))]
        for tensor, array in zip(tensors, arrays, strict=True):
            self.places[tensor.name] = self._place(tensor, array)
        return arrays

    def _given_results(self, count: int) -> list[Any]:
        if count == 1:
            return [self.out]
        self._need(self._same(self.objects.type(self.out), self._held(Held.SEVERAL)))
        self._need(self._same(self.objects.length(self.out), LONG(count)))
        return [self.objects.item(self.out, position) for position in range(count)]

    def arena(self, results: Sequence[Any]) -> Any:
        """An arena that no other call uses, with every temporary in its place; None if there are none.

        Where there is no memory for one, the results are let go.
        """
        if not self.interface.temporaries:
            return None
        builder = self.builder
        none, found = self.function.append_basic_block("none"), self.function.append_basic_block("arena")
        spare = self.objects.called(self._held(Held.POP))
        start = builder.block
        builder.cbranch(self._same(spare, POINTER(None)), none, found)
        builder.position_at_end(none)
        self.objects.call("PyErr_Clear")
        failed = reduce(lambda block, array: self._without(array, block), results, self.raised)
        new = self._made(self.objects.called(self._held(Held.NEW_ARENA)), failed)
        last = builder.block
        builder.branch(found)
        builder.position_at_end(found)
        arena = self._joined([(spare, start), (new, last)])
        data = self.objects.field(arena, "data")
        behind = len(self.interface.sizes) + len(self.interface.extents)
        for position, tensor in enumerate(self.interface.temporaries):
            offset = self._number(behind + position)
            self.places[tensor.name] = self._at(tensor, builder.gep(data, [offset]))
        return arena

    def _checked(self, array: Any, tensor: Tensor) -> _Place:
        """Refuse an object that is not the array a kernel needs for a tensor."""
        objects = self.objects
        self._need(self._same(objects.type(array), self._held(Held.KIND)))
        self._need(
            self._same(
                objects.field(array, "descr"), self._held(Held.FIRST_DTYPE + DTYPES.index(tensor.dtype))
            )
        )
        self._need(self._same(objects.field(array, "nd", INT), INT(tensor.rank)))
        flags = INT(CONTIGUOUS | ALIGNED | (0 if tensor.role == "input" else WRITEABLE))
        self._need(self._same(self.builder.and_(objects.field(array, "flags", INT), flags), flags))
        place = self._place(tensor, array)
        extents = objects.longs(array, "dimensions")
        for axis, extent in enumerate(place.shape):
            self._need(self._same(objects.element(extents, axis), extent))
        return place

    def _scalar(self, value: Any, tensor: Tensor) -> _Place:
        """A scalar's place: in the array that was given, or on the stack for a number of Python's that it holds."""
        builder = self.builder
        number, array, found = (self.function.append_basic_block(n) for n in ("number", "array", "scalar"))
        with builder.goto_entry_block():
            slot = builder.alloca(self._element(tensor))
        exact = Held.FLOAT if is_real(tensor.dtype) else Held.INTEGER
        builder.cbranch(self._same(self.objects.type(value), self._held(exact)), number, array)
        builder.position_at_end(number)
        builder.store(self._converted(value, tensor), slot)
        ends = [(builder.bitcast(slot, POINTER), builder.block)]
        builder.branch(found)
        builder.position_at_end(array)
        ends.append((self._checked(value, tensor).data, builder.block))
        builder.branch(found)
        builder.position_at_end(found)
        return self._at(tensor, self._joined(ends))

    def _converted(self, value: Any, tensor: Tensor) -> Any:
        """A Python float or int as an element; an int that is too long is refused, and so is -1, which says that."""
        builder, kind = self.builder, self._element(tensor)
        if tensor.is_half:
            number = builder.fptrunc(self.objects.call("PyFloat_AsDouble", value), ir.FloatType())
            return BITS_OF[tensor.dtype](builder, number)
        if is_real(tensor.dtype):
            number = self.objects.call("PyFloat_AsDouble", value)
            return number if number.type == kind else builder.fptrunc(number, kind)
        number = self.objects.call("PyLong_AsLongLong", value)
        failed = self._same(number, LONG(-1))
        with builder.if_then(failed, likely=False):
            self.objects.call("PyErr_Clear")
        self._need(builder.not_(failed))
        if tensor.dtype == "bool":
            self._need(builder.icmp_unsigned("<=", number, LONG(1)))
        if kind == LONG:
            if not NUMBER_TYPES[tensor.dtype].signed:
                self._need(builder.icmp_signed(">=", number, LONG(0)))
            return number
        short = builder.trunc(number, kind)
        self._need(self._same(self._long(short, tensor), number))
        return short

    def _long(self, value: Any, tensor: Tensor) -> Any:
        """An element of an integer tensor as 64 bits."""
        if value.type == LONG:
            return value
        known = NUMBER_TYPES[tensor.dtype]
        return self.builder.sext(value, LONG) if known.signed else self.builder.zext(value, LONG)

    def _integer(self, place: _Place, tensor: Tensor) -> Any:
        """The value of an integer scalar."""
        kind = self._element(tensor)
        value = self.builder.load(self.builder.bitcast(place.data, kind.as_pointer()))
        return self._long(value, tensor)

    def _element(self, tensor: Tensor) -> Any:
        return self.context.get_data_type(from_dtype(np.dtype(held_as(tensor.dtype))))

    def _place(self, tensor: Tensor, array: Any) -> _Place:
        return self._at(tensor, self.objects.field(array, "data"))

    def _at(self, tensor: Tensor, data: Any) -> _Place:
        shape = tuple(self._extent(size) for size in tensor.shape)
        nbytes = LONG(tensor.itemsize)
        for extent in shape:
            nbytes = self._times(nbytes, extent)
        return _Place(data, shape, nbytes)

    def _extent(self, size: int | str) -> Any:
        if isinstance(size, int):
            return LONG(size)
        return self._number(len(self.interface.sizes) + self.interface.extents.index(size))

    def _need_apart(self, names: Sequence[str]) -> None:
        """Refuse arrays of which one has a byte in common with any other; one without elements has none.

        In loops over all places: code for each pair is too much where 8 results lie beside 512 constants, and a loop
        for each name where 128 weights are packed.
        """
        if not names:
            return
        builder, count = self.builder, len(self.places)
        with builder.goto_entry_block():
            begins, ends = (builder.alloca(ir.ArrayType(LONG, count)) for _ in range(2))
            meet = builder.alloca(LONG)
        for position, name in enumerate(dict.fromkeys((*names, *self.places))):
            for table, bound in zip((begins, ends), self._bounds(self.places[name]), strict=True):
                builder.store(bound, builder.gep(table, [LONG(0), LONG(position)]))
        builder.store(LONG(0), meet)
        with cgutils.for_range(builder, LONG(len(names))) as own:
            start, stop = (builder.load(builder.gep(t, [LONG(0), own.index])) for t in (begins, ends))
            with cgutils.for_range(builder, LONG(count)) as other:
                begin, end = (builder.load(builder.gep(t, [LONG(0), other.index])) for t in (begins, ends))
                shared = [
                    builder.icmp_unsigned("!=", start, stop),
                    builder.icmp_unsigned("!=", begin, end),
                    builder.icmp_unsigned("<", begin, stop),
                    builder.icmp_unsigned("<", start, end),
                    builder.icmp_unsigned("!=", own.index, other.index),
                ]
                found = builder.zext(reduce(builder.and_, shared), LONG)
                builder.store(builder.or_(builder.load(meet), found), meet)
        self._need(self._same(builder.load(meet), LONG(0)))

    def _bounds(self, place: _Place) -> tuple[Any, Any]:
        start = self.builder.ptrtoint(place.data, LONG)
        return start, self.builder.add(start, place.nbytes)

    # -- launches ------------------------------------------------------------------------------------------------

    def launch(self, calls: Sequence[Call], timed: bool) -> Any:
        """Run the kernels in order, other Python threads beside them; whether one had no memory."""
        builder, thread = self.builder, self.objects.call("PyEval_SaveThread")
        launched = Counter(map(self._alike, calls))
        stamp = self._clock() if timed else lambda position: None
        done = self.function.append_basic_block("done")
        ends = []
        stamp(0)
        for position, call in enumerate(calls):
            failed = self._again(call) if launched[self._alike(call)] >= REPEATED else self._run(call)
            stamp(position + 1)
            ends.append((failed, builder.block))
            following = self.function.append_basic_block("launch")
            builder.cbranch(failed, done, following)
            builder.position_at_end(following)
        ends.append((ir.IntType(1)(0), builder.block))
        builder.branch(done)
        builder.position_at_end(done)
        failed = self._joined(ends)
        self.objects.call("PyEval_RestoreThread", thread)
        return failed

    def _clock(self) -> Callable[[int], None]:
        """Return what stores the nanoseconds of the system's clock at a position of the stamps."""
        builder = self.builder
        kind = ir.FunctionType(INT, [INT, LONG.as_pointer()])
        read = cgutils.get_or_insert_function(self.function.module, kind, "clock_gettime")
        position = Held.FIRST_RESULT + len(self.interface.results) + len(self.interface.constants)
        stamps = self.objects.longs(self._held(position), "data")
        with builder.goto_entry_block():
            now = builder.alloca(LONG, 2)  # seconds, and nanoseconds beyond them

        def stamp(place: int) -> None:
            builder.call(read, [INT(time.CLOCK_MONOTONIC), now])
            seconds, beyond = (builder.load(builder.gep(now, [LONG(part)])) for part in range(2))
            value = builder.add(builder.mul(seconds, LONG(10**9)), beyond)
            builder.store(value, builder.gep(stamps, [LONG(place)]))

        return stamp

    def _alike(self, call: Call) -> tuple[object, ...]:
        """What two launches have in common that are the same but for where their arrays lie."""
        shapes = [tuple(map(str, self.places[name].shape)) for name in call.tensors]
        return call.kernel.symbol, call.bounds, *shapes

    def _again(self, call: Call) -> Any:
        """Call a kernel that is launched repeatedly by a function of its arrays' addresses; whether it failed.

        Of 128 layers' packed weights the entry would have two arrays' records for each: 160 instructions.
        """
        data = [self.places[name].data for name in call.tensors]
        sizes = [self._number(position) for position in range(len(self.interface.sizes))]
        alike = self._alike(call)
        if alike not in self.launchers:
            constant = all(
                isinstance(n, ir.Constant) for name in call.tensors for n in self.places[name].shape
            )
            by_value = not any(isinstance(kind, Reference) for kind in call.kernel.arguments)
            if not (constant and by_value):
                return self._run(call)
            self.launchers[alike] = self._launcher(call, [value.type for value in (*data, *sizes)])
        return self.builder.call(self.launchers[alike], [*data, *sizes])

    def _launcher(self, call: Call, kinds: Sequence[ir.Type]) -> ir.Function:
        """A function that launches a kernel on arrays at some addresses."""
        module = self.function.module
        name = module.get_unique_name(f"{self.function.name}_launch")
        function = ir.Function(module, ir.FunctionType(ir.IntType(1), kinds), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        builder = ir.IRBuilder(function.append_basic_block("launch"))
        data, sizes = function.args[: len(call.tensors)], function.args[len(call.tensors) :]
        arrays = [
            self._array(builder, replace(self.places[name], data=each), kind, None)._getvalue()
            for name, kind, each in zip(call.tensors, call.kernel.arguments, data, strict=False)
        ]
        builder.ret(self._called(builder, call.kernel, [*arrays, *sizes, *map(LONG, call.bounds)]))
        return function

    def _run(self, call: Call) -> Any:
        """Call a kernel; whether it failed."""
        kinds = call.kernel.arguments
        values = [self._argument(name, kind) for name, kind in zip(call.tensors, kinds, strict=False)]
        values += [self._number(position) for position in range(len(self.interface.sizes))]
        return self._called(self.builder, call.kernel, [*values, *map(LONG, call.bounds)])

    def _called(self, builder: ir.IRBuilder, kernel: Lowered, values: Sequence[Any]) -> Any:
        """Call a kernel by numba's convention; whether it failed."""
        kinds, convention, module = kernel.arguments, self.context.call_conv, self.function.module
        function = module.globals.get(kernel.symbol) or ir.Function(
            module, convention.get_function_type(types.void, kinds), kernel.symbol
        )
        status, _ = convention.call_function(builder, function, types.void, kinds, values)
        return status.is_error

    def _argument(self, name: str, kind: Any) -> Any:
        """A tensor as numba's code takes it: an array, or the address of one, which all launches share."""
        if not isinstance(kind, Reference):
            return self._array(self.builder, self.places[name], kind, None)._getvalue()
        if (name, kind) not in self.records:
            with self.builder.goto_entry_block():  # numba's own way would write zeros first
                record = self.builder.alloca(self.context.get_value_type(kind.of))
            self._record(self.places[name], kind.of, record)
            self.records[name, kind] = record
        return self.records[name, kind]

    def _record(self, place: _Place, kind: Any, record: Any) -> None:
        """Write an array to a record: where it lies, in a copy of all the rest if its shape is constant."""
        if not all(isinstance(extent, ir.Constant) for extent in place.shape):
            self._array(self.builder, place, kind, record)
            return
        extents = kind, *(extent.constant for extent in place.shape)
        if extents not in self.forms:
            self.forms[extents] = self._form(place.shape or (LONG(1),), kind)
        size = self.context.get_abi_sizeof(record.type.pointee)
        cgutils.raw_memcpy(self.builder, record, self.forms[extents], LONG(size), 1)
        array = make_array(kind)(self.context, self.builder, ref=record)
        array.data = self.builder.bitcast(place.data, array.data.type)

    def _form(self, shape: tuple[Any, ...], kind: Any) -> Any:
        """A constant record of an array of constant shape that lies nowhere."""
        itemsize, module = (
            self.context.get_abi_sizeof(self.context.get_data_type(kind.dtype)),
            self.function.module,
        )
        extents = [extent.constant for extent in shape]
        strides = [itemsize * math.prod(extents[axis + 1 :]) for axis in range(len(extents))]
        known = {"nitems": LONG(math.prod(extents)), "itemsize": LONG(itemsize)}
        known |= {"shape": self._numbers(shape), "strides": self._numbers(list(map(LONG, strides)))}
        form, model = self.context.get_value_type(kind), self.context.data_model_manager.lookup(kind)
        fields = [ir.Constant(element, None) for element in form.elements]
        for name, value in known.items():
            fields[model.get_field_position(name)] = value
        variable = ir.GlobalVariable(module, form, module.get_unique_name("array"))
        variable.initializer, variable.global_constant = ir.Constant(form, fields), True
        variable.linkage = "internal"
        return variable

    def _array(self, builder: ir.IRBuilder, place: _Place, kind: Any, record: Any) -> Any:
        """A place as an array, in the record at an address if there is one; a scalar has one element."""
        element = self.context.get_data_type(kind.dtype)
        shape = place.shape or (LONG(1),)
        itemsize = LONG(self.context.get_abi_sizeof(element))
        strides = [itemsize]
        for extent in reversed(shape[1:]):
            strides.insert(0, self._times(strides[0], extent))
        array = make_array(kind)(self.context, builder, ref=record)
        array.meminfo = array.parent = POINTER(None)
        array.data = builder.bitcast(place.data, element.as_pointer())
        array.nitems, array.itemsize = reduce(self._times, shape), itemsize
        array.shape, array.strides = self._numbers(shape), self._numbers(strides)
        return array

    def _numbers(self, values: Sequence[Any]) -> Any:
        """Numbers as one LLVM array, a constant if all are."""
        if all(isinstance(value, ir.Constant) for value in values):
            return ir.Constant(ir.ArrayType(LONG, len(values)), list(values))
        return cgutils.pack_array(self.builder, values, LONG)

    def answer(self, results: list[Any], arena: Any, failed: Any) -> None:
        """Give the arena back and return the results: one by itself, several as a tuple, none as None."""
        builder, objects = self.builder, self.objects
        if arena is not None:
            objects.call("PyList_Append", self._held(Held.SPARE), arena)
            objects.call("Py_DecRef", arena)
        with builder.if_then(failed, likely=False):
            for array in results:
                objects.call("Py_DecRef", array)
            builder.ret(objects.call("PyErr_NoMemory"))
        if len(results) == 1:
            builder.ret(results[0])
            return
        answer = objects.tuple(results) if results else self._held(Held.NOTHING)
        if not results:
            objects.call("Py_IncRef", answer)
        for array in results:
            objects.call("Py_DecRef", array)
        builder.ret(answer)

    # -- pieces --------------------------------------------------------------------------------------------------

    def _same(self, one: Any, other: Any) -> Any:
        return self.builder.icmp_unsigned("==", one, other)

    def _times(self, one: Any, other: Any) -> Any:
        """A product, which is known where both factors are: LLVM is not asked for those of constant shapes."""
        known = isinstance(one, ir.Constant) and isinstance(other, ir.Constant)
        return LONG(one.constant * other.constant) if known else self.builder.mul(one, other)

    def _least(self, one: Any, other: Any) -> Any:
        """The smaller of two numbers, known where both are."""
        if isinstance(one, ir.Constant) and isinstance(other, ir.Constant):
            return LONG(min(one.constant, other.constant))
        return self.builder.select(self.builder.icmp_signed("<", one, other), one, other)

    def _need(self, condition: Any) -> None:
        following = self.function.append_basic_block("checked")
        self.builder.cbranch(condition, following, self.refused)
        self.builder.position_at_end(following)

    def _made(self, value: Any, failed: ir.Block) -> Any:
        """A new object; where making it raised, the block `failed` goes on with the exception."""
        following = self.function.append_basic_block("made")
        self.builder.cbranch(self._same(value, POINTER(None)), failed, following)
        self.builder.position_at_end(following)
        return value

    def _without(self, value: Any, failed: ir.Block) -> ir.Block:
        """A block that lets an object go, and those made before it after that: one for each, however many follow."""
        block = self.function.append_basic_block("without")
        with self.builder.goto_block(block):
            self.objects.call("Py_DecRef", value)
            self.builder.branch(failed)
        return block

    def _joined(self, ends: Sequence[tuple[Any, Any]]) -> Any:
        """The value that came with the block we came from."""
        joined = self.builder.phi(ends[0][0].type)
        for value, block in ends:
            joined.add_incoming(value, block)
        return joined

    def _held(self, position: int) -> Any:
        return self.objects.item(self.held, position)

    def _number(self, position: int) -> Any:
        return self.objects.element(self.numbers, position)
