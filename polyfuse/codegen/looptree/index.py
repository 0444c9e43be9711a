"""isl's index expressions as Python's."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce

import islpy as isl

Environment = Mapping[str, ast.expr]
"""The expressions that identifiers in isl's output stand for."""

_OP = isl.ast_expr_op_type
_BINARY: dict[object, type[ast.operator]] = {
    _OP.add: ast.Add,
    _OP.sub: ast.Sub,
    _OP.mul: ast.Mult,
    _OP.div: ast.FloorDiv,
    _OP.fdiv_q: ast.FloorDiv,
    _OP.pdiv_q: ast.FloorDiv,
    _OP.pdiv_r: ast.Mod,
    _OP.zdiv_r: ast.Mod,
}
_COMPARE: dict[object, type[ast.cmpop]] = {
    _OP.eq: ast.Eq,
    _OP.le: ast.LtE,
    _OP.lt: ast.Lt,
    _OP.ge: ast.GtE,
    _OP.gt: ast.Gt,
}
_JOIN: dict[object, type[ast.boolop]] = {
    _OP.and_: ast.And,
    _OP.and_then: ast.And,
    _OP.or_: ast.Or,
    _OP.or_else: ast.Or,
}


def to_python(expression: isl.AstExpr, names: Environment) -> ast.expr:
    """An isl AST expression as a Python expression; integer division is floor division, as isl means it."""
    kind = expression.get_type()
    if kind == isl.ast_expr_type.int:
        return ast.Constant(int(expression.get_val().to_python()))
    if kind == isl.ast_expr_type.id:
        name = expression.get_id().get_name()
        return names.get(name, ast.Name(name))
    op = expression.get_op_type()
    args = [to_python(expression.get_op_arg(p), names) for p in range(expression.get_op_n_arg())]
    if op in _BINARY:
        return binary(_BINARY[op](), args[0], args[1])
    if op in _COMPARE:
        return ast.Compare(args[0], [_COMPARE[op]()], [args[1]])
    if op in _JOIN:
        return _joined(_JOIN[op], args)
    if op == _OP.minus:
        return ast.UnaryOp(ast.USub(), args[0])
    if op in (_OP.min, _OP.max):
        return ast.Call(ast.Name("min" if op == _OP.min else "max"), args, [])
    if op in (_OP.cond, _OP.select):
        return ast.IfExp(*args)
    raise NotImplementedError(f"isl expression {expression.to_C_str()}")


def _joined(op: type[ast.boolop], args: list[ast.expr]) -> ast.expr:
    """a and b and c, where isl says (a and b) and c."""
    flat = [
        part
        for arg in args
        for part in (arg.values if isinstance(arg, ast.BoolOp) and isinstance(arg.op, op) else [arg])
    ]
    return ast.BoolOp(op(), flat)


def binary(op: ast.operator, left: ast.expr, right: ast.expr) -> ast.expr:
    """`left op right`, with constants folded and neutral elements dropped."""
    both = isinstance(left, ast.Constant) and isinstance(right, ast.Constant)
    if both:
        return ast.Constant(eval(ast.unparse(ast.BinOp(left, op, right)), {"__builtins__": {}}))
    if isinstance(op, ast.Add | ast.Sub) and is_number(right, 0):
        return left
    if isinstance(op, ast.Add) and is_number(left, 0):
        return right
    if isinstance(op, ast.Mult) and is_number(left, 1):
        return right
    if isinstance(op, ast.Mult) and (is_number(left, 0) or is_number(right, 0)):
        return ast.Constant(0)
    if isinstance(op, ast.Mult | ast.FloorDiv) and is_number(right, 1):
        return left
    if isinstance(op, ast.Mod) and isinstance(right, ast.Constant):
        left = _without_multiples(left, right.value)
        if is_number(left, 0):
            return left
    return ast.BinOp(left, op, right)


def _without_multiples(node: ast.expr, of: object) -> ast.expr:
    """The terms that decide a remainder: 64*x + 8*y + t  ->  t, for a remainder by 4."""
    match node:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            return binary(op, _without_multiples(left, of), _without_multiples(right, of))
        case ast.BinOp(left=ast.Constant(value=int(factor)), op=ast.Mult()):
            return ast.Constant(0) if isinstance(of, int) and of and factor % of == 0 else node
    return node


def in_bits(node: ast.expr) -> ast.expr:
    """An index with shifts and masks for powers of two: x // 8 + x % 8  ->  (x >> 3) + (x & 7).

    Both are Python's for negative numbers too; numba divides towards zero and corrects that, in nine instructions of a
    GPU.
    """
    return _InBits().visit(node)  # type: ignore[no-any-return]


class _InBits(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.BinOp:
        left, right = self.visit(node.left), self.visit(node.right)
        match node.op, right:
            case ast.FloorDiv(), ast.Constant(value=int(by)) if by > 0 and by & (by - 1) == 0:
                whole, rest = _multiples(left, by)
                shifted = ast.BinOp(rest, ast.RShift(), ast.Constant(by.bit_length() - 1))
                return shifted if is_number(whole, 0) else ast.BinOp(whole, ast.Add(), shifted)
            case ast.Mod(), ast.Constant(value=int(by)) if by > 0 and by & (by - 1) == 0:
                return ast.BinOp(left, ast.BitAnd(), ast.Constant(by - 1))
        return ast.BinOp(left, node.op, right)


def _multiples(node: ast.expr, of: int) -> tuple[ast.expr, ast.expr]:
    """A sum as a quotient and what is left: 32*x + 4*y + t of 8  ->  4*x, 4*y + t."""
    zero = ast.Constant(0)
    match node:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            parts = _multiples(left, of), _multiples(right, of)
            whole, rest = (binary(op, *pair) for pair in zip(*parts, strict=True))
            return whole, rest
        case ast.BinOp(left=ast.Constant(value=int(factor)), op=ast.Mult(), right=right) if factor % of == 0:
            return binary(ast.Mult(), ast.Constant(factor // of), right), zero
        case ast.Constant(value=int(number)):
            return ast.Constant(number // of), ast.Constant(number % of)
    return zero, node


def expanded(node: ast.expr) -> ast.expr:
    """A sum without products of sums: (x + 4*y - 1) * 64 + y  ->  64*x + 257*y + -64.

    Accesses that differ by numbers have addresses that do: one in a register, the others in the instructions.
    """
    return _sum(terms(node))


def _sum(found: Sequence[tuple[ast.expr, int]]) -> ast.expr:
    return total([binary(ast.Mult(), ast.Constant(factor), atom) for atom, factor in found])


def rejoined(node: ast.expr) -> ast.expr:
    """A sum in which quotients and remainders are what they are of: 6*(n % 3) + 18*(n // 3) - 5*n  ->  n.

    A sum without such pairs is as it was.
    """
    parts = {ast.unparse(atom): (atom, factor) for atom, factor in terms(node)}
    for text, (atom, factor) in list(parts.items()):
        match atom:
            case ast.BinOp(left=whole, op=ast.Mod(), right=ast.Constant(value=int(by))):
                quotient = ast.unparse(ast.BinOp(whole, ast.FloorDiv(), atom.right))
                if by > 0 and parts.get(quotient, (atom, 0))[1] == by * factor:
                    others = [(atom, n) for key, (atom, n) in parts.items() if key not in (text, quotient)]
                    return rejoined(expanded(_sum([*others, (whole, factor)])))
    return node


def flat(outer: ast.expr, inner: ast.expr, size: int) -> ast.expr:
    """The place along one axis of what lies at two places along two, of which the inner one has `size` elements.

    Quotients and remainders by the size are left out where they make up for each other.

    >>> one, other = "5*i - (24*i - k + 55) // 56", "(k - 24*i + 280) % 56"
    >>> ast.unparse(flat(*(ast.parse(text, mode="eval").body for text in (one, other)), 56))
    '256 * i + k'
    """
    place = ast.BinOp(ast.BinOp(outer, ast.Mult(), ast.Constant(size)), ast.Add(), inner)
    whole: list[tuple[ast.expr, int]] = []
    quotients: Counter[tuple[tuple[str, int], ...]] = Counter()
    for atom, factor in terms(place):
        match atom:
            case ast.BinOp(
                left=of, op=ast.FloorDiv() | ast.Mod() as op, right=ast.Constant(value=int(by))
            ) if by == size:
                if isinstance(op, ast.Mod):
                    whole += [(part, factor * times) for part, times in terms(of)]
                times = -size * factor if isinstance(op, ast.Mod) else factor
                multiples, rest, sign = _quotient(of, size)
                whole += [(part, times * number) for part, number in multiples]
                quotients[rest] += sign * times
            case _:
                whole.append((atom, factor))
    if any(quotients.values()):
        return place
    return expanded(_sum(whole))


def _quotient(of: ast.expr, by: int) -> tuple[list[tuple[ast.expr, int]], tuple[tuple[str, int], ...], int]:
    """x // by as a sum of terms and one more quotient, of a rest with factors below `by`, or minus that: its sign.

    Of x // by = -((by - 1 - x) // by) that with the smaller factors, so that one quotient has one rest.
    """
    found = []
    for sign, value in ((1, of), (-1, ast.BinOp(ast.Constant(by - 1), ast.Sub(), of))):
        parts = terms(value)
        rest = tuple(sorted((ast.unparse(atom), factor % by) for atom, factor in parts if factor % by))
        multiples = [(atom, sign * (factor // by)) for atom, factor in parts]
        found.append((multiples, rest, sign))
    return min(found, key=lambda one: ([factor for text, factor in one[1] if text != "1"], one[1]))


def total(parts: Sequence[ast.expr]) -> ast.expr:
    """The sum of one or more expressions: a, b, 0  ->  a + b."""
    return reduce(lambda found, part: binary(ast.Add(), found, part), parts)


def terms(node: ast.expr) -> list[tuple[ast.expr, int]]:
    """The terms of a sum, each with its factor: (x + 4*y - 1) * 64  ->  (x, 64), (y, 256), (1, -64)."""
    found = _terms(node)
    number = found.pop("", (node, 0))[1]
    return [*((atom, factor) for atom, factor in found.values() if factor), (ast.Constant(1), number)]


def _terms(node: ast.expr) -> dict[str, tuple[ast.expr, int]]:
    """The terms of a sum with their factors, by their text; the constant by an empty text."""
    match node:
        case ast.Constant(value=int(number)):
            return {"": (node, number)}
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _scaled(_terms(inner), -1)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            found = _terms(left)
            for text, (atom, factor) in _scaled(_terms(right), 1 if isinstance(op, ast.Add) else -1).items():
                found[text] = (atom, factor + found.get(text, (atom, 0))[1])
            return found
        case ast.BinOp(left=ast.Constant(value=int(factor)), op=ast.Mult(), right=inner):
            return _scaled(_terms(inner), factor)
        case ast.BinOp(left=inner, op=ast.Mult(), right=ast.Constant(value=int(factor))):
            return _scaled(_terms(inner), factor)
    return {ast.unparse(node): (node, 1)}


def _scaled(terms: dict[str, tuple[ast.expr, int]], by: int) -> dict[str, tuple[ast.expr, int]]:
    return {text: (atom, by * factor) for text, (atom, factor) in terms.items()}


def is_number(node: ast.expr, value: int) -> bool:
    """True if a node is this literal."""
    return isinstance(node, ast.Constant) and node.value == value


def plus(node: ast.expr, amount: int) -> ast.expr:
    """`node + amount`, folded into a constant where there is one: (n - 1) + 1 is n."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return ast.Constant(node.value + amount)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        known = node.right
        if isinstance(known, ast.Constant) and isinstance(known.value, int):
            total = amount + (known.value if isinstance(node.op, ast.Add) else -known.value)
            return binary(ast.Add() if total >= 0 else ast.Sub(), node.left, ast.Constant(abs(total)))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        return ast.Call(node.func, [plus(arg, amount) for arg in node.args], [])
    return binary(ast.Add() if amount >= 0 else ast.Sub(), node, ast.Constant(abs(amount)))


def beside(bound: ast.expr, of: str, known: int) -> ast.expr:
    """A bound for values that are known to lie below (at or above) a number: min(8, n - 8*x) beside 8  ->  n - 8*x."""
    match bound:
        case ast.Call(func=ast.Name(id=name), args=args) if name == of:
            kept = [beside(arg, of, known) for arg in args if not _implied(arg, of, known)]
            return bound if not kept else kept[0] if len(kept) == 1 else ast.Call(bound.func, kept, [])
    return bound


def _implied(bound: ast.expr, of: str, known: int) -> bool:
    number = bound.value if isinstance(bound, ast.Constant) else None
    return isinstance(number, int) and (number >= known if of == "min" else number <= known)


def mentions(node: ast.expr, variable: str) -> bool:
    """True if an index expression changes with a variable."""
    return any(isinstance(part, ast.Name) and part.id == variable for part in ast.walk(node))


def operand(node: ast.expr) -> str:
    """An index expression as source that an operator may stand beside.

    >>> operand(ast.parse("n if n > m else m", mode="eval").body), operand(ast.parse("n + 1", mode="eval").body)
    ('(n if n > m else m)', 'n + 1')
    """
    text = ast.unparse(node)
    return f"({text})" if isinstance(node, ast.IfExp | ast.BoolOp) else text


def solved(part: ast.expr, variable: str, most: bool, value: ast.expr) -> tuple[bool, ast.expr] | None:
    """For which values of a variable a bound is `value` at most, or at least: whether up to or from one on, and which.

    8*i + (k + j) // 2 <= 0   ->   j <= (0 - 8*i) * 2 + 1 - k          3 - j >= 1   ->   j <= 3 - 1
    """
    match part:
        case ast.Name():
            return most, value
        case ast.UnaryOp(ast.USub(), negated):
            return solved(negated, variable, not most, binary(ast.Sub(), ast.Constant(0), value))
        case ast.BinOp(left, ast.Add() | ast.Sub() as op, right) if not mentions(right, variable):
            back = ast.Sub() if isinstance(op, ast.Add) else ast.Add()
            return solved(left, variable, most, binary(back, value, right))
        case ast.BinOp(left, ast.Add(), right) if not mentions(left, variable):
            return solved(right, variable, most, binary(ast.Sub(), value, left))
        case ast.BinOp(left, ast.Sub(), right) if not mentions(left, variable):
            return solved(right, variable, not most, binary(ast.Sub(), left, value))
        case ast.BinOp(left, ast.FloorDiv(), ast.Constant(int(by))) if by > 0:
            times = binary(ast.Mult(), value, ast.Constant(by))
            return solved(left, variable, most, binary(ast.Add(), times, ast.Constant(by - 1 if most else 0)))
    return None


def substituted(node: ast.expr, values: Environment) -> ast.expr:
    """An index expression with variables replaced, constants folded: 8 * i + r for r = 0  ->  8 * i."""

    def put(part: ast.expr) -> ast.expr:
        return substituted(part, values)

    match node:
        case ast.Constant():
            return node
        case ast.Name(id=name):
            return values.get(name, node)
        case ast.BinOp(left=left, op=ast.Add(), right=ast.Constant(value=int(amount))):
            return plus(put(left), amount)
        case ast.BinOp(left=left, op=op, right=right):
            return binary(op, put(left), put(right))
        case ast.UnaryOp(op=op, operand=operand):
            inner = put(operand)
            return (
                ast.Constant(0)
                if isinstance(op, ast.USub) and is_number(inner, 0)
                else ast.UnaryOp(op, inner)
            )
        case ast.Call(func=func, args=args):
            return ast.Call(func, [put(arg) for arg in args], [])
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return ast.Compare(put(left), ops, [put(part) for part in comparators])
        case ast.BoolOp(op=op, values=parts):
            return ast.BoolOp(op, [put(part) for part in parts])
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ast.IfExp(put(test), put(body), put(orelse))
        case ast.Subscript(value=array, slice=place):
            return ast.Subscript(array, put(place))
        case ast.Tuple(elts=parts):
            return ast.Tuple([put(part) for part in parts])
    raise NotImplementedError(f"index expression {ast.unparse(node)}")


def not_negative(value: ast.expr, known: frozenset[str]) -> bool:
    """True if LLVM sees that an index is not negative: sums and products of constants and of loops that begin so."""
    match value:
        case ast.Constant(value=int(number)):
            return number >= 0
        case ast.Name(id=name):
            return name in known
        case ast.BinOp(left, ast.Add() | ast.Mult() | ast.FloorDiv() | ast.Mod(), right):
            return not_negative(left, known) and not_negative(right, known)
        case ast.Call(func=ast.Name(id="max")):
            return any(not_negative(argument, known) for argument in value.args)
    return False
