"""Narrow indices: compute conditions, and addresses of asynchronous copies, in 32 bits if the values fit.

    bz = cuda.blockIdx.z & 2047
    for n in range(0, 9): pad_ahead(…, x, 3136 * (bz // 56) + 56 * (n // 3) + n - 57, n <= 169 - 3 * (bz % 56))
    ->  …: pad_ahead(…, x, short(3136 * (short(bz) // 56) + …) + n - 57, short(3 * (short(bz) % 56) + n) <= 169)

where short(e) is int64(uint32(e)), or int64(int32(e)) of what may be negative. All inside is arithmetic of 32 bits for
LLVM then, which a sum of 64 bits is not, whatever is known of its terms: such numbers take two registers each.
Conditions compare natural numbers where they can. Of a place numbers stay outside, and so do the variables of loops:
those of loops that are written out are parts of addresses in machine code, others what an address goes on by.

Such copies need nothing else. Others are left as they are: the fewer instructions are before their loads, the more of
these come early, and take 178 registers for 176 that were planned. So is all beside tensor cores, which need few
instructions: LLVM writes out a loop whose passes are short, of float64 numbers all twelve tiles of 192 steps (1200
instructions for 536).

The values that names may have follow from masks and from constant bounds. The lock-step stand-in computes with the same
numbers, so that one that does not fit is a wrong address there too. Arrays of a block have addresses of 32 bits as it
is.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from polyfuse.codegen.cuda.device_ops import DEVICE_OPS
from polyfuse.codegen.looptree.index import binary, terms, total
from polyfuse.codegen.looptree.intervals import Interval, Ranges, interval

AHEAD = ("copy_ahead", "pad_ahead")
"""Copies that go on while their thread does other things."""

PLACES = {"to": "target", "at": "source"}
"""The parameters of copies that say where in an array they begin, and in which."""

PRODUCT = "tile_fma"
"""The operation that has most instructions of a kernel for which this pays."""


def in_short(function: ast.FunctionDef) -> ast.FunctionDef:
    """A kernel with such copies, and its conditions and their places computed in 32 bits where they fit."""
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    called = {each.id for each in calls if isinstance(each, ast.Name)}
    if PRODUCT not in called or called.isdisjoint(AHEAD):
        return function
    made: ast.FunctionDef = _Short(function).visit(function)
    return ast.fix_missing_locations(made)


def _assigned(function: ast.FunctionDef) -> Ranges:
    """Between which numbers the names of a kernel are that are loops' variables, or are assigned once.

    Nothing is known of one that is both, nor of what follows from it.
    """
    stored = Counter(name for node in ast.walk(function) for name in _stores(node))
    looped = _looped(function)
    found: dict[str, Interval] = {}
    for node in ast.walk(function):  # outer loops first, and lines in order
        match node:
            case ast.For(ast.Name(name), ast.Call(args=bounds)) if not stored[name]:
                low, high = (ast.Constant(0), *bounds)[-2:] if len(bounds) < 3 else bounds[:2]
                last = interval(high, found).high
                values = Interval(interval(low, found).low, None if last is None else last - 1)
                found[name] = found[name].around(values) if name in found else values
            case ast.Assign([ast.Name(name)], value) if stored[name] == 1 and name not in looped:
                found[name] = interval(value, found)
    return found


def _looped(function: ast.FunctionDef) -> frozenset[str]:
    """The variables of loops."""
    targets = (node.target for node in ast.walk(function) if isinstance(node, ast.For))
    return frozenset(target.id for target in targets if isinstance(target, ast.Name))


def _stores(node: ast.AST) -> Iterator[str]:
    """The names that a line assigns, not as a loop's variable."""
    match node:
        case ast.Assign([ast.Name(name)]) | ast.AugAssign(ast.Name(name)):
            yield name


class _Short(ast.NodeTransformer):
    """`numbers` are the values of names, `looped` the variables of loops, `tensors` the arrays in memory."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.numbers, self.looped = _assigned(function), _looped(function)
        self.tensors = {each.arg for each in function.args.args}

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Of a copy the places in tensors are apart."""
        if not isinstance(node.func, ast.Name) or node.func.id not in AHEAD:
            return node
        given = DEVICE_OPS[node.func.id].named(node.args)
        args = [
            self._place(part)
            if name in PLACES and self._is_tensor(given[PLACES[name]])
            else self._within(part)
            for name, part in given.items()
        ]
        return ast.Call(node.func, args, [])

    def visit_If(self, node: ast.If) -> ast.If:
        """The condition, and then what is inside."""
        node.test = self._within(node.test)
        return self.generic_visit(node)  # type: ignore[return-value]

    def _is_tensor(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.tensors

    def _place(self, node: ast.expr) -> ast.expr:
        """An index with its thread-dependent part in 32 bits; constants and loop variables are added to it."""
        parts: dict[bool, list[ast.expr]] = {True: [], False: []}
        for atom, factor in terms(node):
            beside = isinstance(atom, ast.Constant) or (isinstance(atom, ast.Name) and atom.id in self.looped)
            parts[beside].append(binary(ast.Mult(), ast.Constant(factor), atom))
        if not parts[False]:
            return node
        return total([self._short(total(parts[False])), *parts[True]])

    def _within(self, node: ast.expr) -> ast.expr:
        """An expression with short conditions, quotients and remainders, but those by powers of two, which are bits."""
        match node:
            case ast.Compare(left, ops, others):
                sides = self._natural(left, *others) if len(others) == 1 else (left, *others)
                first, *rest = (side if isinstance(side, ast.Name) else self._short(side) for side in sides)
                return ast.Compare(first, ops, rest)
            case ast.BoolOp(op, values):
                return ast.BoolOp(op, [self._within(value) for value in values])
            case ast.BinOp(left, ast.FloorDiv() | ast.Mod() as op, ast.Constant(value=int(by))) if by & (
                by - 1
            ):
                low = interval(left, self.numbers).low
                natural = low is not None and low >= 0
                return ast.BinOp(self._short(left) if natural else self._within(left), op, node.right)
            case ast.BinOp(left, op, right):
                return ast.BinOp(self._within(left), op, self._within(right))
            case ast.UnaryOp(op, operand):
                return ast.UnaryOp(op, self._within(operand))
        return node

    def _natural(self, left: ast.expr, right: ast.expr) -> tuple[ast.expr, ast.expr]:
        """Two sides without negative terms, where both are natural then: tz < 125 - 8 * by  ->  tz + 8 * by < 125.

        Two natural numbers LLVM compares in 32 bits, one that may be negative with another in 64.
        """
        bounds = (interval(side, self.numbers) for side in (left, right))
        if any(each.low is None or each.high is None for each in bounds):
            return left, right  # nothing is taken away from both sides of what may be no number: x != x
        parts: dict[bool, list[ast.expr]] = {True: [ast.Constant(0)], False: [ast.Constant(0)]}
        for atom, factor in terms(binary(ast.Sub(), right, left)):
            parts[factor > 0].append(binary(ast.Mult(), ast.Constant(abs(factor)), atom))
        found = total(parts[False]), total(parts[True])
        lows = [interval(side, self.numbers).low for side in found]
        return found if all(low is not None and low >= 0 for low in lows) else (left, right)

    def _short(self, node: ast.expr) -> ast.expr:
        """A number that is computed in 32 bits, if it fits there."""
        every, inner = interval(node, self.numbers), self._within(node)
        if isinstance(node, ast.Constant) or every.low is None or every.high is None:
            return inner
        if every.low >= 0 and every.high < 2**32:
            return _as(inner, "uint32")
        return _as(inner, "int32") if every.low >= -(2**31) and every.high < 2**31 else inner


def _as(node: ast.expr, dtype: str) -> ast.expr:
    """int64(dtype(e))"""
    short = ast.Call(ast.Name(dtype, ast.Load()), [node], [])
    return ast.Call(ast.Name("int64", ast.Load()), [short], [])
