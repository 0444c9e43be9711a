"""The loops that array expressions become: stores, temporaries and reductions, written as Python statements.

y[1:-1] = x[1:-1] + 1     ->   for i0 in range(N - 2): y[i0 + 1] = x[i0 + 1] + 1
y[1:] = y[:-1]            ->   the same loop backwards: nothing is stored before it is read
y[1:-1] = y[:-2] + y[2:]  ->   through a temporary: no order of the loop reads all before it stores
s = np.sum(A, axis=1)     ->   for i0 …: s[i0] = 0.0; for r0 …: s[i0] += A[i0, r0]
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import islpy as isl
import numpy as np

from polyfuse.frontend.python.aliases import Aliases
from polyfuse.frontend.python.numpy.complex_numbers import (
    applied,
    as_complex,
    chosen,
    pair,
    parts,
    shared_terms,
)
from polyfuse.frontend.python.numpy.geometry import Geometry
from polyfuse.frontend.python.numpy.syntax import (
    constant,
    data_bounds,
    element,
    loop,
    minus,
    name,
    number,
    placed,
    stored,
)
from polyfuse.frontend.python.numpy.values import (
    BOOL,
    Array,
    Index,
    Scalar,
    as_number,
    as_test,
    common_type,
    reshaped,
    stored_type,
)
from polyfuse.frontend.python.parameters import DTYPES
from polyfuse.frontend.python.scope import Scope
from polyfuse.frontend.python.scope_names import MISSING, Names, outer_value
from polyfuse.ir.number_types import (
    HALVES,
    ITEMSIZE,
    NUMBER_TYPES,
    is_complex,
    is_integer,
    is_number,
    is_real,
    part_type,
    sum_type,
)

NOTES = {dtype: note for note, dtype in DTYPES.items()}

CALLED: dict[str, object] = {
    "max": builtins.max,
    "min": builtins.min,
    "abs": builtins.abs,
    "float": builtins.float,
    "range": builtins.range,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": math.erf,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": math.atan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "floor": np.floor,
    "ceil": np.ceil,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "empty": np.empty,
    **{dtype: np.dtype(dtype).type for dtype in ITEMSIZE},
}
"""The functions that lowered statements call, by the name they get where it is free."""


@dataclass(frozen=True)
class Reduction:
    """How values become one: the operator, and the number it begins with (None: the first value)."""

    name: str
    begin: int | None


SUM, PRODUCT = Reduction("+", 0), Reduction("*", 1)
MAXIMUM, MINIMUM = Reduction("max", None), Reduction("min", None)


@dataclass
class Program:
    """What has been lowered so far, and where the next statement stands.

    `taken` are the names that are in use; `added` the names that lowered statements need from outside; `notes` say
    where a temporary was needed to keep NumPy's order of reads and stores. `parameters` are the arrays that are given,
    `storages` those that were made, `pairs` those of both that hold complex numbers, with their real and
    imaginary parts along a last axis, `placed` those whose numbers are places of other arrays. `assumed` are the
    equalities of sizes that NumPy checks. `hint` is the name that the next array made gets, if it is free.
    """

    names: Names
    context: isl.Set
    taken: set[str]
    parameters: set[str]
    scope: Scope = ()
    block: list[ast.stmt] = field(default_factory=list)
    aliases: Aliases = field(default_factory=Aliases)
    added: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    place: ast.AST = field(default_factory=ast.Pass)
    indices: dict[str, str] = field(default_factory=dict)
    storages: set[str] = field(default_factory=set)
    pairs: set[str] = field(default_factory=set)
    placed: set[str] = field(default_factory=set)
    assumed: list[ast.stmt] = field(default_factory=list)
    hint: str | None = None

    @property
    def geometry(self) -> Geometry:
        """What is known at this place."""
        return Geometry(self.names, self.scope, self.context)

    def emit(self, statement: ast.stmt) -> None:
        """Append a statement; new parts of it get the place in the source that is lowered now."""
        self.block.append(placed(statement, self.place))

    def fresh(self, stem: str) -> str:
        """A name that is not in use: the stem, or with a number."""
        found, count = stem, 0
        while found in self.taken:
            count += 1
            found = f"{stem}_{count}"
        self.taken.add(found)
        return found

    def index(self, text: str) -> str:
        """The name of an index of a loop that no other lowered loop is inside of: i0, or another if that is taken."""
        if text not in self.indices:
            self.indices[text] = self.fresh(text)
        return self.indices[text]

    def equal(self, left: ast.expr, right: ast.expr) -> bool:
        """True if two extents are equal where NumPy raises an error if they are not.

        Sizes that may be equal are assumed to be: a call with others is refused, as NumPy's is.
        """
        if self.geometry.same(left, right):
            return True
        used = {part.id for side in (left, right) for part in ast.walk(side) if isinstance(part, ast.Name)}
        if self.scope or not used <= set(self.names.sizes):
            return False
        test = placed(ast.Compare(left, [ast.Eq()], [right]), self.place)
        affine = self.geometry.here().affine
        if not affine.is_condition(test):
            return False
        context = self.context.intersect(affine.condition(test).params())
        if context.is_empty():
            return False
        self.context = context
        self.assumed.append(placed(ast.Assert(test), self.place))
        return True

    def function(self, text: str) -> ast.expr:
        """The name by which a lowered statement calls a function of CALLED."""
        wanted = CALLED[text]
        own = {*self.names.locals, *self.names.tensors, *self.names.sizes}
        if text not in own and outer_value(self.names.source, text) is wanted:
            return name(text)
        for known, value in self.added.items():
            if value is wanted:
                return name(known)
        found = text
        while found in self.taken or outer_value(self.names.source, found) is not MISSING:
            found += "_"
        self.taken.add(found)
        self.added[found] = wanted
        return name(found)

    def call(self, text: str, *args: ast.expr) -> ast.expr:
        """A call of a function of CALLED."""
        return ast.Call(self.function(text), list(args), [])

    def refuse(self, why: str, allowed: str, node: ast.AST | None = None) -> NoReturn:
        """Raise NotAffine at a node, or at the expression that is lowered now."""
        self.names.source.refuse(node or self.place, why, allowed)

    # temporaries

    def named(self, stem: str) -> str:
        """A name for what is made now: that of the variable it is assigned to, if nothing else has that yet."""
        wanted, self.hint = self.hint, None
        if (
            wanted is not None
            and wanted not in self.storages | self.parameters
            and wanted not in self.names.sizes
        ):
            self.taken.add(wanted)
            return wanted
        return self.fresh(wanted or stem)

    def array(self, shape: Sequence[ast.expr], dtype: str, stem: str) -> Array:
        """A new array without values. One whose shape depends on indices of loops gets its largest shape's memory."""
        dtype = stored_type(dtype)
        tensor = self.named(stem)
        self.storages.add(tensor)
        extents = [self._extent(part) for part in shape]
        if is_complex(dtype):
            self.pairs.add(tensor)
            extents.append(number(2))
        shapes = ast.Tuple(extents, ast.Load())
        self.emit(
            ast.Assign(
                [ast.Name(tensor, ast.Store())],
                ast.Call(self.function("empty"), [shapes, ast.Constant(part_type(dtype))], []),
            )
        )
        return stored_array(tensor, shape, dtype)

    def _extent(self, extent: ast.expr) -> ast.expr:
        found = {part.id for part in ast.walk(extent) if isinstance(part, ast.Name)}
        if found <= set(self.names.sizes):
            return extent
        largest = self.geometry.largest(extent)
        if largest is None:
            self.refuse(
                f"the extent {ast.unparse(extent)} of a temporary array has no affine largest value",
                "shapes that are affine in sizes and indices",
            )
        return largest

    def kept(self, value: Array, stem: str) -> Array:
        """An array with the values of an expression now, in memory of its own."""
        if value.mask is not None:
            self.refuse(
                "how many elements a mask selects is not known", "the mask as a condition: np.where(m, a, b)"
            )
        made = self.array(value.shape, value.dtype, stem)
        self.store(made, value)
        return made

    def cast(self, node: ast.expr, dtype: str) -> ast.expr:
        """An element converted to a type."""
        if is_complex(dtype):
            return pair(*(self.cast(part, part_type(dtype)) for part in parts(node)))
        return self.call(dtype, node)

    def converted(self, value: Array | Scalar, dtype: str) -> Array | Scalar:
        """A value converted to a type, element by element."""
        if value.dtype == dtype:
            return value
        if dtype == BOOL:
            return self.elementwise(lambda x: as_test(x, value.dtype), BOOL, [value])
        if is_complex(value.dtype) and not is_complex(dtype):
            self.refuse(f"complex numbers as {dtype}", "x.real, abs(x)")
        if is_complex(dtype):
            return self.elementwise(lambda x: self.cast(as_complex(x, value.dtype), dtype), dtype, [value])
        return self.elementwise(lambda x: self.cast(x, dtype), dtype, [value])

    def variable(self, value: Scalar, stem: str) -> Scalar:
        """A variable with the value of an expression now."""
        if is_complex(value.dtype):
            own = [self.fresh(f"{stem}_{part}") for part in ("real", "imag")]
            for variable, part in zip(own, parts(value.node), strict=True):
                self.set(variable, part, part_type(value.dtype))
            return Scalar(pair(*map(name, own)), value.dtype)
        found = self.fresh(stem)
        self.set(found, value.node, value.dtype)
        return Scalar(name(found), value.dtype)

    def set(self, variable: str, value: ast.expr, dtype: str) -> None:
        """variable = value, with a declared type where the type is not weak."""
        target = ast.Name(variable, ast.Store())
        if dtype in NOTES:
            self.emit(ast.AnnAssign(target, ast.Constant(NOTES[dtype]), value, 1))
        else:
            self.emit(ast.Assign([target], value))

    # stores

    def store(self, target: Array, value: Array | Scalar) -> None:
        """target[...] = value, for arrays that broadcast to the target's shape: all reads before all stores."""
        made = self.broadcast(value, target.shape)
        if made.mask is not None and self.mask_text(made) != self.mask_text(target):
            self.refuse(
                "the elements that a mask selects are assigned to others: how many there are is not known",
                "the same mask on both sides: x[m] = y[m]",
            )
        loops, index = self.loops("i", target.shape)
        left, right = target.element(index), made.element(index)
        right = self.fitting(right, made.dtype, target.dtype)
        if target.mask is not None:
            test = as_test(target.mask.element(index), target.mask.dtype)
            right = chosen(test, right, left, [target.dtype, target.dtype])
        reads = self._reads(right, target.storage)
        place = _subscripts(left)
        if is_complex(target.dtype):  # both parts are stored at once: the last subscript chooses between them
            place, reads = _subscripts(parts(left)[0])[:-1], [one[:-1] for one in reads]
        order = self.geometry.order_of(loops, place, reads) if reads else (False,) * len(loops)
        if order is None:
            self._store_through_temporary(target, value, made)
            return
        self.emit_nest(loops, self.assigned(left, right), order)

    def fitting(self, value: ast.expr, dtype: str, target: str) -> ast.expr:
        """An element of one type as it is stored to an array of another."""
        if is_complex(target):
            return as_complex(value, dtype)
        if is_complex(dtype):
            self.refuse(
                f"complex numbers are stored to {target} numbers", "x.real, abs(x), or a complex array"
            )
        return value if target == BOOL else as_number(value, dtype)

    def assigned(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        """The assignments of an element or a variable: two of a complex number, which read all before they store.

        z = z * z    ->   real = …z_real, z_imag…;  z_imag = …;  z_real = real
        """
        if not isinstance(value, ast.Tuple):
            return [ast.Assign([stored(target)], value)]
        places, new = parts(target), parts(value)
        shared, (real, imaginary) = shared_terms(new, self.fresh)
        first, second = (
            ast.Assign([stored(place)], part) for place, part in zip(places, (real, imaginary), strict=True)
        )
        if ast.unparse(first.targets[0]) == ast.unparse(real):
            return [*shared, second]
        if not _reads_part(imaginary, places[0]):
            return [*shared, first, second]
        kept = self.fresh("real")
        first.targets = [ast.Name(kept, ast.Store())]
        return [*shared, first, second, ast.Assign([stored(places[0])], name(kept))]

    def scan(self, target: Array, value: Array) -> None:
        """target[...] = value from the first element to the last, where an element may read those before it."""
        loops, index = self.loops("i", target.shape)
        self.emit_nest(loops, self.assigned(target.element(index), value.element(index)))

    def _store_through_temporary(self, target: Array, value: Array | Scalar, made: Array) -> None:
        text = ast.unparse(self.place).split("\n")[0]
        line = self.names.source.first + getattr(self.place, "lineno", 1) - 1
        if isinstance(value, Scalar):
            kept: Array | Scalar = self.variable(value, "value")
            self.notes.append(
                f"line {line}: {text}: the value is read once, before {target.storage} is changed"
            )
        else:
            kept = self.kept(replace(made, mask=None), "copy")
            self.notes.append(
                f"line {line}: {text}: through a temporary array, since no order of the loops reads every element of "
                f"{target.storage} before it is stored"
            )
        self.store(target, kept)

    def _reads(self, value: ast.expr, tensor: str | None) -> list[list[ast.expr]]:
        """The subscripts with which an expression reads a tensor."""
        parts = (part for part in ast.walk(value) if isinstance(part, ast.Subscript))
        found = [
            _subscripts(part)
            for part in parts
            if isinstance(part.value, ast.Name) and part.value.id == tensor
        ]
        return [[self.aliases.written_out(part) for part in one] for one in found]

    def loops(self, stem: str, shape: Sequence[ast.expr]) -> tuple[list[tuple[str, ast.expr]], Index]:
        """(the loops over a shape, the index of an element); a dimension of extent 1 needs none.

        Between bounds that are data a loop begins at the first of them.
        """
        loops, index = [], []
        for position, extent in enumerate(shape):
            if constant(extent) == 1:
                index.append(number(0))
                continue
            variable = self.index(f"{stem}{position}")
            loops.append((variable, extent))
            bounds = data_bounds(extent)
            index.append(name(variable) if bounds is None else minus(name(variable), bounds[0]))
        return loops, tuple(index)

    def emit_nest(
        self,
        loops: Sequence[tuple[str, ast.expr]],
        body: list[ast.stmt],
        order: Sequence[bool] | None = None,
    ) -> None:
        """Emit loops, outermost first, around some statements; those that `order` says run backwards."""
        for (variable, extent), backwards in reversed(
            list(zip(loops, order or (False,) * len(loops), strict=True))
        ):
            made = loop(variable, extent, body, backwards)
            made.iter.func = self.function("range")  # type: ignore[attr-defined]  # loop() made it of a call
            body = [made]
        for statement in body:
            self.emit(statement)

    # shapes

    def broadcast(self, value: Array | Scalar, shape: tuple[ast.expr, ...]) -> Array:
        """A value seen in a larger shape: dimensions of extent 1 and missing ones repeat."""
        if isinstance(value, Scalar):
            node, dtype = value.node, value.dtype
            return Array(shape, dtype, lambda index: node)
        kept = value
        if value.rank > len(shape) and all(constant(e) == 1 for e in value.shape[: value.rank - len(shape)]):
            extra = value.rank - len(shape)
            kept = reshaped(value, value.shape[extra:], lambda index: (number(0),) * extra + index)
        if kept.rank > len(shape):
            self.refuse(_unlike(value.shape, shape), "arrays that broadcast: equal extents, or 1")
        missing = len(shape) - kept.rank
        repeats = []
        for own, wanted in zip(kept.shape, shape[missing:], strict=True):
            repeats.append(constant(own) == 1 and constant(wanted) != 1)
            if not repeats[-1] and not self.geometry.same(own, wanted):
                self.refuse(
                    _unlike(value.shape, shape), "arrays that broadcast: equal extents, or 1; assert N == M"
                )
        return reshaped(
            kept,
            shape,
            lambda index: tuple(
                number(0) if repeat else part for part, repeat in zip(index[missing:], repeats, strict=True)
            ),
        )

    def common_shape(self, values: Sequence[Array | Scalar]) -> tuple[ast.expr, ...]:
        """The shape to which arrays broadcast. Raises NotAffine if two extents may differ."""
        shape: list[ast.expr] = []
        for value in values:
            if isinstance(value, Scalar):
                continue
            shape = [number(1)] * (value.rank - len(shape)) + shape
            for position, own in enumerate(value.shape, len(shape) - value.rank):
                known = shape[position]
                if constant(known) == 1:
                    shape[position] = own
                elif constant(own) != 1 and not self.geometry.same(own, known):
                    shapes = [v.shape for v in values if isinstance(v, Array)]
                    self.refuse(
                        " and ".join(shape_text(one) for one in shapes)
                        + ": these shapes are not known to broadcast",
                        "arrays that broadcast: equal extents, or 1; assert N == M says that two sizes are equal",
                    )
        return tuple(shape)

    def elementwise(
        self, make: Callable[..., ast.expr], dtype: str, values: Sequence[Array | Scalar]
    ) -> Array | Scalar:
        """A function of elements, for arrays that broadcast; a number if all are numbers."""
        arrays = [value for value in values if isinstance(value, Array)]
        values = self.in_parts(values)
        if not arrays:
            numbers = self.distinct(values)
            return Scalar(make(*(value.node for value in numbers if isinstance(value, Scalar))), dtype)
        shape = self.common_shape(values)
        mask = self._common_mask(arrays)
        seen = [self.broadcast(value, shape) for value in self.distinct(values)]
        return Array(shape, dtype, lambda index: make(*(one.element(index) for one in seen)), mask=mask)

    def distinct(self, values: Sequence[Array | Scalar]) -> Sequence[Array | Scalar]:
        """Operands of several types, or integers: what is written as weak numbers is converted to the type it has.

        np.full(N, 0.1) * y with y: float32     ->   float64(0.1) * y[i]
        k * np.arange(N) with k: int64          ->   k[i] * int64(i)          an index alone has the target's type
        """
        strong = [value.dtype for value in values if value.dtype != BOOL and not is_number(value.dtype)]
        same = len(set(strong)) < 2 and all(map(is_real, strong))
        return values if same or len(strong) < 2 else [self._strong(value) for value in values]

    def in_parts(self, values: Sequence[Array | Scalar]) -> Sequence[Array | Scalar]:
        """Operands of which one is complex: integers become numbers of its parts' type, which do not wrap."""
        if not any(is_complex(value.dtype) for value in values):
            return values
        dtype = part_type(common_type([value.dtype for value in values]))
        dtype = "float64" if is_number(dtype) else dtype
        return [
            self.converted(value, dtype) if is_integer(value.dtype) and not is_number(value.dtype) else value
            for value in values
        ]

    def _strong(self, value: Array | Scalar) -> Array | Scalar:
        if value.dtype == BOOL or is_number(value.dtype):
            return value

        def typed(node: ast.expr) -> ast.expr:
            if isinstance(node, ast.Tuple):
                return pair(*(part if constant(part) == 0 else typed(part) for part in parts(node)))
            known = any(isinstance(part, ast.Subscript | ast.Call) for part in ast.walk(node))
            return node if known else self.cast(node, part_type(value.dtype))

        if isinstance(value, Scalar):
            return Scalar(typed(value.node), value.dtype)
        return replace(value, element=lambda index: typed(value.element(index)))

    def _common_mask(self, arrays: Sequence[Array]) -> Array | None:
        """The mask of the arrays that have one. Raises NotAffine for two masks."""
        masks = {self.mask_text(array): array.mask for array in arrays}
        if len(masks) > 1:
            if "" in masks and len(masks) == 2 and all(a.mask or not a.rank for a in arrays):
                masks.pop("")
            else:
                self.refuse("arrays of elements that different masks select", "one mask in an expression")
        return next(iter(masks.values()))

    def mask_text(self, array: Array) -> str:
        """A mask as text, which is equal for equal masks; empty without one."""
        if array.mask is None:
            return ""
        _, index = self.loops("i", array.mask.shape)
        return ast.unparse(array.mask.element(index))

    # reductions

    def reduced(
        self,
        how: Reduction,
        value: Array,
        axes: Sequence[int],
        stem: str,
        dtype: str | None = None,
        into: Array | None = None,
    ) -> Array | Scalar:
        """The array without some axes, over which its elements are combined; a number if none is left."""
        dtype = dtype or self.type_of_reduction(how, value.dtype)
        if dtype in HALVES:  # NumPy rounds the result, not each step
            made = self.converted(self.reduced(how, value, axes, stem, "float32"), dtype)
            return self.variable(made, stem) if isinstance(made, Scalar) else made
        if dtype == BOOL and how.begin is not None:
            self.refuse(
                "a sum or product of conditions as one condition", "np.any, np.all; .astype(np.int64)"
            )
        rest = [axis for axis in range(value.rank) if axis not in axes]
        outer, kept = self.loops("i", [value.shape[axis] for axis in rest])
        inner, gone = self.loops("r", [value.shape[axis] for axis in axes])

        def at(reduced_index: Sequence[ast.expr]) -> ast.expr:
            places = dict(zip((*rest, *axes), (*kept, *reduced_index), strict=True))
            index = tuple(places[axis] for axis in range(value.rank))
            node = value.element(index)
            node = self.fitting(node, value.dtype, dtype)
            if value.mask is None:
                return node
            test = as_test(value.mask.element(index), BOOL)
            return chosen(test, node, self._neutral(how, dtype), [dtype, "integer"])

        if is_complex(value.dtype) and how not in (SUM, PRODUCT):
            self.refuse("an order of complex numbers", "sum, prod and mean; of x.real, abs(x)")
        if how.begin is not None or any(data_bounds(value.shape[axis]) for axis in axes):
            begin = self._neutral(how, dtype)
        else:
            begin = at([number(0)] * len(axes))
        if how.begin is not None and (is_real(dtype) or is_complex(dtype)):
            begin = number(float(how.begin))
        if is_complex(dtype):
            begin = pair(begin, number(0.0))
        if not rest:
            self.hint = None
            total = self.variable(Scalar(begin, dtype), stem)
            self.emit_nest(inner, self._combined(how, total.node, at(gone)))
            return total
        shape = tuple(value.shape[axis] for axis in rest)
        whole = at(gone)
        free = into is not None and not self._reads(ast.Tuple([whole, begin]), into.storage)
        fits = free and into is not None and into.mask is None and self._same_shape(into.shape, shape)
        fits = fits and into is not None and (not into.adds or how is SUM)
        target = into if fits and into is not None and into.dtype == dtype else self.array(shape, dtype, stem)
        place = target.element(kept)
        body: list[ast.stmt] = [] if target.adds else self.assigned(place, begin)
        for statement in self._nested(inner, self._combined(how, place, whole)):
            body.append(statement)
        self.emit_nest(outer, body)
        return target

    def _neutral(self, how: Reduction, dtype: str) -> ast.expr:
        """What changes no result: where a maximum has no element at all, it is this, and NumPy raises an error."""
        if how.begin is not None:
            return number(how.begin)
        known = NUMBER_TYPES[dtype]
        least = how is MAXIMUM
        if is_real(dtype):
            return number(-math.inf if least else math.inf)
        if dtype == BOOL:
            return number(int(not least))
        return number(known.least if least else known.largest)

    def _nested(self, loops: Sequence[tuple[str, ast.expr]], body: list[ast.stmt]) -> list[ast.stmt]:
        outside, self.block = self.block, []
        self.emit_nest(loops, body)
        made, self.block = self.block, outside
        return made

    def _combined(self, how: Reduction, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        if how.name in ("max", "min"):
            return [ast.Assign([stored(target)], self.call(how.name, target, value))]
        if how is PRODUCT and isinstance(target, ast.Tuple):
            types = ["complex128", "complex128"]
            return self.assigned(target, applied(ast.Mult(), target, value, types))
        return self.updated(target, ast.Add() if how.name == "+" else ast.Mult(), value)

    def updated(self, target: ast.expr, op: ast.operator, value: ast.expr) -> list[ast.stmt]:
        """target op= value, where the value reads nothing of the target; both parts of a complex sum."""
        if not isinstance(target, ast.Tuple):
            return [ast.AugAssign(stored(target), op, value)]
        shared, new = shared_terms(parts(value), self.fresh)
        return [*shared, *(ast.AugAssign(stored(t), op, v) for t, v in zip(parts(target), new, strict=True))]

    def _same_shape(self, left: Sequence[ast.expr], right: Sequence[ast.expr]) -> bool:
        return len(left) == len(right) and all(map(self.geometry.same, left, right))

    @staticmethod
    def type_of_reduction(how: Reduction, dtype: str) -> str:
        """NumPy's type of a sum: integers and conditions are added in 64 bits."""
        found = common_type([stored_type(dtype)])
        if is_complex(found):
            return found
        return sum_type(found) if how.begin is not None else found  # type: ignore[arg-type]  # a type of nests


def stored_array(tensor: str, shape: Sequence[ast.expr], dtype: str) -> Array:
    """The whole of an array in memory. Complex numbers are pairs along a last axis."""

    def at(index: Index) -> ast.expr:
        if is_complex(dtype):
            return pair(*(element(tensor, (*index, number(part))) for part in (0, 1)))
        return element(tensor, index)

    return Array(tuple(shape), dtype, at, tensor)


def _reads_part(value: ast.expr, place: ast.expr) -> bool:
    """True if an expression may read the real part of a complex number that it is assigned to."""
    if isinstance(place, ast.Name):
        return any(isinstance(part, ast.Name) and part.id == place.id for part in ast.walk(value))
    found = (part for part in ast.walk(value) if isinstance(part, ast.Subscript))
    own = ast.unparse(place.value) if isinstance(place, ast.Subscript) else ""
    return any(ast.unparse(part.value) == own and constant(_subscripts(part)[-1]) != 1 for part in found)


def _subscripts(node: ast.expr) -> list[ast.expr]:
    if not isinstance(node, ast.Subscript):
        return []
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def shape_text(shape: Sequence[ast.expr]) -> str:
    """A shape as NumPy writes it: (N - 2, 3)."""
    return f"({', '.join(map(ast.unparse, shape))}{',' if len(shape) == 1 else ''})"


def _unlike(own: Sequence[ast.expr], wanted: Sequence[ast.expr]) -> str:
    return f"an array of shape {shape_text(own)} is not known to broadcast to {shape_text(wanted)}"
