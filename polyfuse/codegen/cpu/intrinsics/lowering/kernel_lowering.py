"""Lower a kernel to LLVM with the instructions that emitted source needs, of those that any Python function gets.

    y[i] = x[i]            64 instructions  ->  14: two arrays, their extents, two addresses
    for i in range(n):     97 instructions  ->  26: a start, a count, and a step

numba keeps each variable in memory that it fills with zeros, at its end too, since it may own an array; it takes an
array apart through such memory at each element, and lets a step of a loop be any number. Emitted source owns arrays
only where it asks for memory, and most steps are 1. LLVM finds nearly the same machine code in either, but has to read,
simplify and print all of it first.

Indices are still counted from the end where they may be negative, which none is: without that, LLVM unrolled other
loops (symm took 1.2 times as long on a Zen 3, lu 1.1), and kernels' source has been chosen with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from llvmlite.ir import Constant
from numba.core import ir, types
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering
from numba.core.types.containers import BaseTuple
from numba.core.types.iterators import RangeIteratorType, RangeType
from numba.np.arrayobj import load_item, store_item

from polyfuse.codegen.array_fields import ADDRESS, SHAPE, STRIDES, WORD


class KernelLower(Lower):
    """numba's lowering of one function, with shorter code for elements, loops and variables."""

    def init(self) -> None:
        """Find the tuples that are indices alone: their elements are never put together."""
        super().init()
        self._index_tuples = _only_indices(self.func_ir.blocks.values(), self.fndesc.typemap)
        self._indices: dict[str, list[Any]] = {}
        self._ranges: dict[Any, tuple[Any, Any, Any]] = {}

    def extract_function_arguments(self) -> Any:
        """The arguments; an array whose extents the function states has these as constants.

        A function that threads run gets its arrays from memory, where LLVM does not see what is written there: it took
        the distance of neighbours in z[250, 250, 2] for any number, and made vectors for a distance of one.
        """
        given = super().extract_function_arguments()
        extents = self.func_ir.func_id.func.__annotations__
        self.fnargs = [
            self._with_extents(kind, value, extents[name]) if isinstance(extents.get(name), tuple) else value
            for name, kind, value in zip(self.func_ir.arg_names, self.fndesc.argtypes, given, strict=True)
        ]
        return self.fnargs

    def _with_extents(self, kind: Any, value: Any, extents: tuple[int | None, ...]) -> Any:
        """An array with constant extents, and distances of its elements, but for those that are not stated."""
        assert isinstance(kind, types.Array), "a shape is an array's"
        assert kind.ndim == len(extents), "an extent for each axis"
        size = self.context.get_abi_sizeof(self.context.get_data_type(kind.dtype))
        for axis, extent in enumerate(extents):
            inside = [extent for extent in extents[axis + 1 :] if extent is not None]
            if extent is not None:
                value = self.builder.insert_value(value, WORD(extent), [SHAPE, axis])
            if len(inside) == len(extents) - axis - 1:
                value = self.builder.insert_value(value, WORD(size * prod(inside)), [STRIDES, axis])
        return value

    # -- variables -----------------------------------------------------------------------------------------------

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        """Memory for a variable. It has a value before it is read, and nothing is let go that it held before."""
        if self.context.enable_nrt:
            return super().alloca_lltype(name, lltype, datamodel)
        with self.builder.goto_entry_block():
            return self.builder.alloca(lltype, name=name)

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        """Store a variable's value; the one before owns nothing."""
        if self.context.enable_nrt:
            super().storevar(value, name, argidx)
            return
        self._alloca_var(name, self.typeof(name))
        if name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
        else:
            self.builder.store(value, self.getvar(name))

    def delvar(self, name: str) -> None:
        """End a variable, which owns nothing."""
        if name in self._indices:
            return
        if self.context.enable_nrt:
            super().delvar(name)
        elif name not in self._blk_local_varmap:
            self._singly_assigned_vars.discard(name)

    # -- elements of arrays --------------------------------------------------------------------------------------

    def lower_inst(self, inst: Any) -> None:
        """Lower a statement; an index tuple is kept as its elements."""
        if isinstance(inst, ir.Assign) and inst.target.name in self._index_tuples:
            match inst.value:
                case ir.Var():
                    self._indices[inst.target.name] = self._indices[inst.value.name]
                    return
                case ir.Expr(op="build_tuple"):
                    self._indices[inst.target.name] = [self._index(item.name) for item in inst.value.items]
                    return
        super().lower_inst(inst)

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        """Load an element of an array; anything else is as numba has it."""
        kind, places = self._element_of(value.name, index.name)
        if places is None:
            return super().lower_getitem(resty, expr, value, index, signature)
        loaded = load_item(self.context, self.builder, kind, self._address(kind, value.name, places))
        return self.context.cast(self.builder, loaded, kind.dtype, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        """Store an element of an array; anything else is as numba has it."""
        kind, places = self._element_of(target_var.name, index_var.name)
        if places is None:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        given = self.loadvar(value_var.name)
        value = self.context.cast(self.builder, given, self.typeof(value_var.name), kind.dtype)
        store_item(self.context, self.builder, kind, value, self._address(kind, target_var.name, places))
        return self.context.get_dummy_value()

    def _element_of(self, array: str, index: str) -> tuple[Any, list[Any] | None]:
        """(the type, the indices) of an element of a contiguous array; None for what is no such element."""
        kind = self.typeof(array)
        if not _is_element(kind, self.typeof(index)):
            return kind, None
        if index in self._indices:
            return kind, self._indices[index]
        if isinstance(self.typeof(index), types.Integer):
            return kind, [self._index(index)]
        given, kinds = self.loadvar(index), self.typeof(index)
        parts = (self.builder.extract_value(given, place) for place in range(len(kinds)))
        return kind, [self._long(*each) for each in zip(parts, kinds, strict=True)]

    def _address(self, kind: Any, name: str, places: list[Any]) -> Any:
        """The address of an element: rows in front of it, times the elements of a row, and so on."""
        builder, array = self.builder, self.loadvar(name)
        distance = None
        for axis, (place, signed) in enumerate(places):
            extent = builder.extract_value(array, [SHAPE, axis])
            if signed:
                below = builder.icmp_signed("<", place, Constant(place.type, 0))
                place = builder.select(below, builder.add(place, extent), place)
            distance = place if distance is None else builder.add(builder.mul(distance, extent), place)
        return builder.gep(builder.extract_value(array, ADDRESS), [distance])

    def _index(self, name: str) -> tuple[Any, bool]:
        return self._long(self.loadvar(name), self.typeof(name))

    def _long(self, value: Any, kind: Any) -> tuple[Any, bool]:
        """An index of 64 bits, and whether it may be negative."""
        wide = self.context.cast(self.builder, value, kind, types.intp if kind.signed else types.uintp)
        return wide, kind.signed and not isinstance(wide, Constant)

    # -- loops ---------------------------------------------------------------------------------------------------

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        """Lower an expression."""
        builder = self.builder
        match expr.op:
            case "call" if isinstance(resty, RangeType):
                return self._range(resty, expr)
            case "getiter" if (value := self.loadvar(expr.value.name)) in self._ranges:
                return self._begun(resty, self._ranges[value])
            case "iternext" if isinstance(self.typeof(expr.value.name), RangeIteratorType):
                return self._next(resty, self.loadvar(expr.value.name))
            case "pair_first" | "pair_second" if isinstance(
                self.typeof(expr.value.name).first_type, types.Integer
            ):
                return builder.extract_value(self.loadvar(expr.value.name), int(expr.op == "pair_second"))
        return super().lower_expr(resty, expr)

    def _range(self, kind: RangeType, expr: Any) -> Any:
        """A range: (start, stop, step), kept for the loop that begins with it where the step is 1."""
        wanted = self.fndesc.calltypes[expr].args
        given = [self._cast_var(*each) for each in zip(expr.args, wanted, strict=True)]
        zero, one = (self.context.get_constant(kind.dtype, number) for number in (0, 1))
        start, stop, step = (zero, *given, one) if len(given) == 1 else (*given, one)[:3]
        made = self._struct(kind, (start, stop, step))
        if step == one:
            self._ranges[made] = start, stop, step
        return made

    def _begun(self, kind: Any, values: tuple[Any, Any, Any]) -> Any:
        """Begin a loop with step 1: the next value and the number of values left, in memory."""
        builder, (start, stop, step) = self.builder, values
        with builder.goto_entry_block():
            place, left = builder.alloca(start.type), builder.alloca(start.type)
        zero = Constant(start.type, 0)
        length = builder.sub(stop, start)
        builder.store(start, place)
        builder.store(builder.select(builder.icmp_signed(">", length, zero), length, zero), left)
        return self._struct(kind, (place, stop, step, left))

    def _next(self, pair: Any, loop: Any) -> Any:
        """(a loop's next value, whether there is one).

        Both variables move only where there is one: else the value is a variable of its own, one step behind the place,
        whose bounds and multiples LLVM does not see.
        """
        builder = self.builder
        place, step, left = (builder.extract_value(loop, field) for field in (0, 2, 3))
        count, value = builder.load(left), builder.load(place)
        valid = builder.icmp_signed(">", count, Constant(count.type, 0))
        with builder.if_then(valid):
            builder.store(builder.sub(count, Constant(count.type, 1), flags=["nsw"]), left)
            builder.store(builder.add(value, step), place)
        return self._struct(pair, (value, valid))

    def _struct(self, kind: Any, values: tuple[Any, ...]) -> Any:
        """A structure of some values."""
        made = Constant(self.context.get_value_type(kind), None)
        for place, value in enumerate(values):
            made = self.builder.insert_value(made, value, place)
        return made


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelLowering(BaseNativeLowering):
    """numba's pass that lowers a function, by `KernelLower`."""

    _name = "kernel_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        """Return the class that lowers the function."""
        return KernelLower


def _only_indices(blocks: Iterable[Any], kinds: Mapping[str, Any]) -> frozenset[str]:
    """The variables that are tuples made once, and only copied to each other or read as indices of elements."""
    assigned, found, used = Counter[str](), set[str](), set[str]()
    copies: list[tuple[str, str]] = []
    for inst in (inst for block in blocks for inst in block.body):
        given = inst.value if isinstance(inst, ir.Assign) else inst
        if isinstance(inst, ir.Assign):
            name = inst.target.name
            assigned[name] += 1
            if isinstance(given, ir.Var):
                found.add(name)
                copies.append((name, given.name))
                continue
            if isinstance(given, ir.Expr) and given.op == "build_tuple" and _are_integers(kinds[name]):
                found.add(name)
        if isinstance(given, ir.Expr | ir.Stmt) and not isinstance(given, ir.Del):
            index = _index_of(given, kinds)
            used |= {each.name for each in given.list_vars() if each is not index}
    found = {name for name in found if assigned[name] == 1 and name not in used}
    while any((target in found) != (source in found) for target, source in copies):
        found -= {name for pair in copies for name in pair if not found.issuperset(pair)}
    return frozenset(found)


def _index_of(given: Any, kinds: Mapping[str, Any]) -> Any:
    """The index of an element that an expression or a statement accesses; None if it accesses none."""
    match given:
        case ir.Expr(op="getitem"):
            array, index = given.value, given.index
        case ir.Expr(op="static_getitem"):
            array, index = given.value, given.index_var
        case ir.SetItem():
            array, index = given.target, given.index
        case ir.StaticSetItem():
            array, index = given.target, given.index_var
        case _:
            return None
    return index if index is not None and _is_element(kinds[array.name], kinds[index.name]) else None


def _is_element(array: Any, index: Any) -> bool:
    """True if an index is one integer for each axis of a contiguous array."""
    if not isinstance(array, types.Array) or array.layout != "C":
        return False
    kinds = tuple(index) if isinstance(index, BaseTuple) else (index,)
    return len(kinds) == array.ndim and _are_integers(kinds)


def _are_integers(kinds: Iterable[Any]) -> bool:
    return all(isinstance(kind, types.Integer) for kind in kinds)
