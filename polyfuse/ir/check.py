"""The invariants of a nest, each with the instance that breaks it.

- every subscript lies inside its tensor:        access(domain) is a subset of the tensor's elements
- a temporary is written before it is read:      every read has an earlier write of the same element
- only outputs, inouts and temporaries are written
- no half (float16, bfloat16) is reduced into: every step would round; no fractions are added up in integers, and
  nothing in truth values
- a gathered tensor is rows of an input or a constant, chosen by an input of integers (polyfuse.ir.gather)
- << >> & | ^ are of integers
- numbers fit the integers that they meet or are stored to, and no integer has a negative number as its power
- no factor of an index or a size is beyond 2**20, no number beyond 2**40, so that index arithmetic fits 64 bits

An element of a temporary may be assigned more than once, as a variable is: anti and output dependences are exact for
temporaries too, and a buffer for one is proven from its flow. What that costs in order, `rewrite.expand` wins back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container
from functools import reduce
from itertools import accumulate

import islpy as isl
import sympy
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from polyfuse.errors import InvalidNest, quantity
from polyfuse.ir.access import Access
from polyfuse.ir.dependences import access_relations, earlier
from polyfuse.ir.gather import check_gathered
from polyfuse.ir.nest_data import NestData
from polyfuse.ir.number_types import NUMBER_TYPES, Type, computed_in, is_integer, is_number, is_real, joined
from polyfuse.ir.scalar import (
    DIVIDES,
    AsType,
    BitAnd,
    BitOr,
    BitXor,
    OfIntegers,
    leaf_types,
    type_of,
    whole_number,
)
from polyfuse.ir.statement import RENAMED, Statement
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import Sequence, dates, restrict, statements
from polyfuse.sets import maps_of, param_names, point_of, tuple_names


def check(nest: NestData, touched: Container[str] | None = None) -> None:
    """Raise InvalidNest at the first invariant that does not hold.

    With `touched`, only statements that access one of these tensors are looked at: a rewrite of a valid nest that
    leaves other accesses and their order as they were cannot break another one.
    """
    _names(nest)
    check_gathered(nest)
    valid = set[tuple[object, ...]]()
    for statement in _touching(nest, touched):
        form = _form(nest, statement)
        if form in valid or _is_known(nest, statement):
            continue
        try:
            _written(nest, statement)
            _fits(statement)
            _numbers_fit(nest, statement)
            for access in statement.accesses:
                _in_bounds(nest, statement, access)
        except InvalidNest as error:
            error.statement = statement.name
            raise
        statement.answers[VALID] = _seen(nest, statement)
        valid.add(form)
    _written_before_read(nest, touched)


VALID = ("valid",)
"""The key of what a statement was last found valid with: the context and the tensors that it accesses."""


def _seen(nest: NestData, statement: Statement) -> tuple[object, ...]:
    return nest.context, *map(nest.tensor, statement.tensors)


def _form(nest: NestData, statement: Statement) -> tuple[object, ...]:
    """The one that a statement is equal to but for names, and its tensors without names: equal ones are alike valid."""
    tensors = (nest.tensor(name) for name in statement.tensors)
    return id(statement.answers.get(RENAMED, statement)), *((t.shape, t.dtype, t.role) for t in tensors)


def _is_known(nest: NestData, statement: Statement) -> bool:
    """True if the statement was found valid with the very same tensors, in the nest that this one was made of."""
    before, now = statement.answers.get(VALID, ()), _seen(nest, statement)
    return len(before) == len(now) and all(one is other for one, other in zip(before, now, strict=True))


def _touching(nest: NestData, tensors: Container[str] | None) -> tuple[Statement, ...]:
    """The statements that access some tensors; all of them for None."""
    if tensors is None:
        return nest.statements
    return tuple(s for s in nest.statements if any(tensor in tensors for tensor in s.tensors))


def _names(nest: NestData) -> None:
    tensors = [t.name for t in nest.tensors]
    names = [s.name for s in nest.statements]
    for kind, found in (("tensor", tensors), ("statement", names)):
        double = next((name for name, times in Counter(found).items() if times > 1), None)
        if double is not None:
            raise InvalidNest(f"two {kind}s are named {double!r}")
    if sorted(statements(nest.order)) != sorted(names):
        raise InvalidNest(f"the order runs {statements(nest.order)}, but the statements are {tuple(names)}")
    for tensor in nest.with_role("constant"):
        given = nest.constants.get(tensor.name)
        if given is None:
            raise InvalidNest(f"constant {tensor.name} has no value")
        if given.dtype != tensor.dtype or given.shape != tensor.shape:
            raise InvalidNest(
                f"constant {tensor.name} is {given.dtype}{list(given.shape)}, "
                f"expected {tensor.dtype}{list(tensor.shape)}"
            )


def _written(nest: NestData, statement: Statement) -> None:
    target = nest.tensor(statement.write.tensor)
    if target.role in ("input", "constant", "gathered"):
        raise InvalidNest(f"statement {statement.name} writes {target.name}, which has role {target.role}")
    if target.is_half and statement.op != "=":
        raise InvalidNest(
            f"statement {statement.name}: {statement.op} into {target.name} would round to {target.dtype} at every "
            f"step: combine into a float32 temporary, and store that to {target.name} at the end"
        )
    if target.dtype == "bool" and statement.op in ("+=", "*="):
        raise InvalidNest(
            f"statement {statement.name}: {statement.op} into {target.name}, which holds truth values: use max= for "
            "any, min= for all, or count in an int64 temporary"
        )
    if is_integer(target.dtype) and statement.op in ("+=", "*="):
        _is_of_integers(nest, statement, target)


def _is_of_integers(nest: NestData, statement: Statement, target: Tensor) -> None:
    """A sum of fractions in an integer would be cut off at every step, and depend on their order."""
    reads = [nest.tensor(access.tensor).dtype for access in statement.reads]
    dtype = type_of(statement.body, leaf_types(target.dtype, reads))
    if is_real(dtype):
        what = "fractions" if dtype == "fraction" else f"{dtype} numbers"
        raise InvalidNest(
            f"statement {statement.name}: {statement.op} of {what} into {target.name} would cut off to {target.dtype} "
            f"at every step: combine into a float64 temporary, and store that to {target.name} at the end"
        )


def _numbers_fit(nest: NestData, statement: Statement) -> None:
    """As in NumPy, where 2**40 is no int32, inf is no integer, and 2 ** -1 of integers is none.

    int32 * 2**40   ->   refused          float32 * 2**40, int64 * 2**40, int32 * 1.5   ->   fine
    """
    target = nest.tensor(statement.write.tensor).dtype
    leaf = leaf_types(target, [nest.tensor(access.tensor).dtype for access in statement.reads])

    def visit(part: sympy.Basic, meets: Type) -> None:
        # a maximum of numbers, say, is as large as they are: SymPy has no value for it
        if not part.free_symbols and (isinstance(part, Boolean) or not part.args or part.doit().is_Number):
            fits = isinstance(part, Boolean) or is_number(meets) or not is_integer(meets)
            if not fits and not _fits_integer(part, meets):
                value = part.doit()
                shown = str(value) if value.is_Integer else f"{float(value):g}"
                raise InvalidNest(
                    f"statement {statement.name}: {shown} does not fit {meets}: use a number that fits, or "
                    "float64 values"
                )
            return
        own = type_of(part, leaf)
        if isinstance(part, OfIntegers) and not isinstance(part, DIVIDES) and is_real(own):
            raise InvalidNest(
                f"statement {statement.name}: {type(part).__name__} of {own} numbers: use integers; an index is a "
                "number of the type that is stored"
            )
        inside = meets if is_number(own) else own
        if isinstance(part, AsType):
            inside = part.dtype if is_number(type_of(part.args[0], leaf)) else type_of(part.args[0], leaf)
        if isinstance(part, Relational):
            inside = joined(type_of(arg, leaf) for arg in part.args)
        if isinstance(part, sympy.Pow) and part.args[1] != -1 and not part.args[1].free_symbols:
            base = type_of(part.args[0], leaf)
            if is_integer(base) and own == base and (part.args[1].doit() < 0) == True:  # noqa: E712  a condition of a converted number is no truth value
                raise InvalidNest(
                    f"statement {statement.name}: {base} to the power of {part.args[1].doit()} is no integer: "
                    f"1 / x ** n, or a power of a float64 value"
                )
        if not isinstance(part, BitAnd | BitOr | BitXor):
            _no_truth_values(statement, part, leaf)
        for arg, met in zip(*_met(part, inside, leaf), strict=True):
            if not (
                isinstance(part, Relational) and whole_number(arg) is not None
            ):  # any integer can be compared
                visit(arg, met)

    visit(statement.body, computed_in(target))


def _met(
    part: sympy.Basic, meets: Type, leaf: Callable[[sympy.Symbol], Type]
) -> tuple[list[sympy.Basic], list[Type]]:
    """The operands of an operation, and the type that each meets: in a chain that of the operands up to it.

    int32 * 2**40 * 0.5   ->   int32, int32, float64
    """
    operands = _operands(part)
    if not isinstance(part, sympy.Add | sympy.Mul):
        return operands, [meets] * len(operands)
    first, *rest = (type_of(operand, leaf) for operand in operands)
    if is_number(first):
        first = joined([first, next((own for own in rest if not is_number(own)), meets)])
    return operands, list(accumulate(rest, lambda dtype, own: joined([dtype, own]), initial=first))


def _operands(part: sympy.Basic) -> list[sympy.Basic]:
    """The operands of an operation. The sign of a difference is none: x - 1 of unsigned numbers adds no -1."""

    def unsigned(term: sympy.Basic) -> sympy.Basic:
        negated = isinstance(term, sympy.Mul) and len(term.args) == 2 and term.args[0] == -1
        return term.args[1] if negated else term

    if isinstance(part, sympy.Add):
        return [part.args[0], *map(unsigned, part.args[1:])]
    return [unsigned(part)] if unsigned(part) is not part else list(part.args)


def _no_truth_values(statement: Statement, part: sympy.Basic, leaf: Callable[[sympy.Symbol], Type]) -> None:
    """Differences, quotients of integers, shifts and powers of truth values, which NumPy refuses or has as int8."""
    of_two = isinstance(part, OfIntegers | sympy.Pow) and part.args[1] != -1
    minus = isinstance(part, sympy.Add | sympy.Mul) and len(_operands(part)) < len(part.args)
    minus |= isinstance(part, sympy.Add) and any(
        a is not b for a, b in zip(_operands(part), part.args, strict=True)
    )
    if (of_two or minus) and joined(type_of(arg, leaf) for arg in _operands(part)) == "bool":
        raise InvalidNest(
            f"statement {statement.name}: an operation of numbers on truth values: use int8(x), or & | ^ and not"
        )


def _fits_integer(number: sympy.Basic, dtype: str) -> bool:
    """True if a number, cut off, is a value of an integer type."""
    value = number.doit()
    known = NUMBER_TYPES[dtype]
    return bool(value.is_finite) and bool(known.least - 1 < value) and bool(value < known.largest + 1)


FACTOR, NUMBER = 2**20, 2**40
_LONG = re.compile(r"(?<![A-Za-z_0-9])(\d{7,})( \* )?([A-Za-z_(]?)")
"""A number in isl's text that could be too large, and what it multiplies."""


def _fits(statement: Statement) -> None:
    for part in (statement.domain, *(access.map for access in statement.accesses)):
        for digits, _, follows in _LONG.findall(str(part)):
            if int(digits) > (FACTOR if follows else NUMBER):
                raise InvalidNest(
                    f"statement {statement.name}: {digits} in {part} is too large: factors go up to 2**20, numbers "
                    "up to 2**40, so that index arithmetic fits 64 bits"
                )


def _in_bounds(nest: NestData, statement: Statement, access: Access) -> None:
    tensor = nest.tensor(access.tensor)
    domain = nest.domains[statement.name]
    if not domain.is_subset(access.map.domain()):
        raise InvalidNest(f"statement {statement.name}: {access} is not defined on the whole domain")
    params = tuple(dict.fromkeys((*nest.params, *param_names(domain))))
    try:
        valid = access.map.intersect_range(tensor.elements(params)).domain()
    except isl.Error as error:
        raise InvalidNest(
            f"statement {statement.name}: {access} has {quantity(access.map.dim(isl.dim_type.out), 'subscript')}, "
            f"{tensor.name} has rank {tensor.rank}"
        ) from error
    found = point_of(domain.subtract(valid))
    if found is not None:
        sizes, instance = found
        where = f" with {sizes}" if sizes else ""
        shape = ", ".join(map(str, tensor.shape))
        raise InvalidNest(
            f"statement {statement.name}: {access} is out of bounds of {tensor.name}[{shape}] "
            f"at {statement.name}{list(instance)}{where}"
        )


def _written_before_read(nest: NestData, touched: Container[str] | None) -> None:
    """Every element of a temporary that is read, or accumulated on, has been assigned before."""
    temporaries = {
        t.name
        for t in nest.with_role("temporary")
        if (touched is None or t.name in touched) and not _is_written_ahead(nest, t)
    }
    users = _touching(nest, temporaries)
    order = restrict(nest.order, frozenset(s.name for s in users))
    if order is None:
        return
    accesses = access_relations(users, users, temporaries)
    reads, assigns = (
        relation.intersect_params(nest.context)
        for relation in (accesses.reads.union(accesses.accumulates), accesses.assigns)
    )
    writers = earlier(assigns, reads, dates(order, nest.domains))
    for part in maps_of(reads.subtract(writers.reverse().apply_range(assigns))):
        where = point_of(part.domain())
        if where is not None:
            reader, tensor = tuple_names(part)
            raise InvalidNest(
                f"{reader}{list(where[1])} reads {tensor} before any statement has written it", reader
            )


def _is_written_ahead(nest: NestData, tensor: Tensor) -> bool:
    """True if statements in earlier parts of the order assign all that is read, which most temporaries' do.

    { y = 0; for i: y[i] += … }   ->   True, and no dates are needed to know it
    """
    places = nest.order.places if isinstance(nest.order, Sequence) else {}
    written = [
        (places.get(s.name, 0), _elements(nest, s, s.write))
        for s in nest.writers(tensor.name)
        if not s.is_reduction
    ]
    for s in dict.fromkeys((*nest.readers(tensor.name), *nest.writers(tensor.name))):
        ahead = [elements for place, elements in written if place < places.get(s.name, 0)]
        for access in (*s.reads, *([s.write] if s.is_reduction else [])):
            if access.tensor != tensor.name:
                continue
            if not ahead or not _elements(nest, s, access).is_subset(reduce(isl.Set.union, ahead)):
                return False
    return True


def _elements(nest: NestData, statement: Statement, access: Access) -> isl.Set:
    return access.map.intersect_domain(nest.domains[statement.name]).range()
