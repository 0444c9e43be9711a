"""Values of comparisons, conditions and choices: x < y, a and b, a if c else b."""

from __future__ import annotations

import ast

from polyfuse.frontend.python.numpy.broadcasting import elementwise
from polyfuse.frontend.python.numpy.complex_numbers import chosen
from polyfuse.frontend.python.numpy.expressions.constants import decided
from polyfuse.frontend.python.numpy.expressions.evaluator import Evaluator, rebuilt
from polyfuse.frontend.python.numpy.expressions.operators import as_condition, compared, operands
from polyfuse.frontend.python.numpy.values import BOOL, Scalar, Static, Value, common_type
from polyfuse.ir.number_types import is_complex


def comparison(e: Evaluator, node: ast.Compare) -> Value:
    """x < y, chained too; `is` and == of Python objects that are known."""
    nodes = [node.left, *node.comparators]
    values = operands(e, nodes)
    if values is None:
        known = [e.value(part) for part in nodes]
        if all(isinstance(part, tuple) for part in known) and len(known) == 2:
            return _compared_tuples(e, node, known[0], known[1])  # type: ignore[arg-type]  # they are tuples
        return _known_comparison(e, node, known)
    if all(isinstance(value, Scalar) for value in values):
        if isinstance(node.ops[0], ast.Is | ast.IsNot):  # a number is not None
            return Static(isinstance(node.ops[0], ast.IsNot))
        if any(is_complex(value.dtype) for value in values):
            if len(node.ops) > 1:
                e.refuse(node, f"{ast.unparse(node)} of complex numbers", "one comparison: == !=")
            return compared(e, node.ops[0], values, node)
        parts = [value.node for value in values if isinstance(value, Scalar)]
        return Scalar(rebuilt(node, left=parts[0], comparators=parts[1:]), BOOL)
    if len(node.ops) > 1 or not isinstance(
        node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq | ast.NotEq
    ):
        e.refuse(node, f"{ast.unparse(node)} of arrays", "one comparison: < <= > >= == !=")
    return compared(e, node.ops[0], values, node)


def _compared_tuples(
    e: Evaluator, node: ast.Compare, left: tuple[Value, ...], right: tuple[Value, ...]
) -> Value:
    """x.shape == y.shape: equal if all elements are."""
    op = node.ops[0]
    parts = [part for part in (*left, *right) if isinstance(part, Scalar)]
    if not isinstance(op, ast.Eq | ast.NotEq) or len(parts) < len(left) + len(right):
        e.refuse(node, f"{ast.unparse(node)} is not known here", "comparisons of numbers")
    if len(left) != len(right):
        return Static(isinstance(op, ast.NotEq))
    join = ast.And() if isinstance(op, ast.Eq) else ast.Or()
    pairs = zip(parts[: len(left)], parts[len(left) :], strict=True)
    tests: list[ast.expr] = [
        ast.copy_location(ast.Compare(a.node, [op], [b.node]), node)
        for a, b in pairs
        if not e.program.geometry.same(a.node, b.node)
    ]
    if not tests:
        return Static(isinstance(op, ast.Eq))
    return Scalar(tests[0] if len(tests) == 1 else ast.copy_location(ast.BoolOp(join, tests), node), BOOL)


def _known_comparison(e: Evaluator, node: ast.Compare, known: list[Value]) -> Value:
    """A comparison of which one side is a Python object."""
    left, right = known[0], known[1]
    a, b = (side.value if isinstance(side, Static) else side for side in (left, right))
    if len(known) == 2 and isinstance(node.ops[0], ast.Is | ast.IsNot):
        return Static((a is b) == isinstance(node.ops[0], ast.Is))
    if len(known) == 2 and isinstance(node.ops[0], ast.Eq | ast.NotEq):
        other = [s.value for s in (left, right) if isinstance(s, Static)]
        if len(other) == 1 and (other[0] is None or isinstance(other[0], str)):  # no number is
            return Static(isinstance(node.ops[0], ast.NotEq))
    both = len(known) == 2 and isinstance(left, Static) and isinstance(right, Static)
    if both and isinstance(node.ops[0], ast.Eq | ast.NotEq):
        return Static((a == b) == isinstance(node.ops[0], ast.Eq))
    return e.refuse(node, f"{ast.unparse(node)} is not known here", "comparisons of numbers")


def boolean(e: Evaluator, node: ast.BoolOp) -> Value:
    """x and y; what is known when the function is read decides."""
    values = [e.value(part) for part in node.values]
    if any(isinstance(value, Static) for value in values):
        is_and = isinstance(node.op, ast.And)
        rest = []
        for part, value in zip(node.values, values, strict=True):
            if not isinstance(value, Static):
                rest.append(part)
            elif bool(value.value) != is_and:
                return Static(not is_and)
        if not rest:
            return Static(is_and)
        return e.value(rest[0] if len(rest) == 1 else ast.copy_location(ast.BoolOp(node.op, rest), node))
    if not all(isinstance(value, Scalar) for value in values):
        e.refuse(node, f"{ast.unparse(node)}: the truth of an array", "np.logical_and, & and |")
    return Scalar(
        rebuilt(node, values=[as_condition(value) for value in values if isinstance(value, Scalar)]), BOOL
    )


def condition(e: Evaluator, node: ast.expr) -> ast.expr | bool:
    """A condition of numbers; its truth if that is known when the function is read."""
    value = e.value(node)
    if isinstance(value, Static):
        return bool(value.value)
    if isinstance(value, tuple):
        return bool(value)
    known = decided(e, value.node) if isinstance(value, Scalar) else None
    if known is not None:
        return known
    if not isinstance(value, Scalar):
        e.refuse(
            node, f"{ast.unparse(node)}: the truth of an array", "np.where, or a condition of one element"
        )
    return as_condition(value)


def choice(e: Evaluator, node: ast.IfExp) -> Value:
    """a if test else b."""
    test = condition(e, node.test)
    if isinstance(test, bool):
        return e.value(node.body if test else node.orelse)
    values = operands(e, [node.body, node.orelse])
    if values is None:
        e.refuse(node, f"{ast.unparse(node)} chooses what is no number", "numbers")
    types = [value.dtype for value in values]
    dtype = common_type(types)
    if is_complex(dtype):
        return elementwise(e.program, lambda a, b: chosen(test, a, b, types), dtype, values)
    if all(isinstance(value, Scalar) for value in values):
        body, orelse = (value.node for value in values if isinstance(value, Scalar))
        return Scalar(rebuilt(node, test=test, body=body, orelse=orelse), dtype)
    return elementwise(e.program, lambda a, b: ast.IfExp(test, a, b), dtype, values)
