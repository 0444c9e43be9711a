"""Conditions: distinguish those that limit the domain from those on data.

    if i > 0 and A[i] > x: S        ->   if i > 0:
                                             if A[i] > x: S
    if i == 0 or A[i] > x: S        ->   if i == 0: S
                                         elif A[i] > x: S
    y = a if i > 0 else b           ->   if i > 0: y = a
                                         else:     y = b

What stands in an affine branch runs there only, as in Python: A[i - 1] if i > 0 else 0 reads no A[-1]. A condition on
data keeps all instances, and each of them chooses:

    if A[i] > x: y[i] = v           ->   y[i] = v if A[i] > x else y[i]
    if A[i] > x: s += v             ->   s += v if A[i] > x else 0          (still a sum)
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

from polyfuse.frontend.python.aliases import occurrences

IsAffine = Callable[[ast.expr], bool]


@dataclass(frozen=True)
class Predicate:
    """A branch of an `if` on data: the test, or the variable that holds its result; `taken` says which branch.

    `own` are the variables that live in this branch alone: they can be computed where the branch is not taken, too.
    """

    test: ast.expr | str
    taken: bool
    own: frozenset[str]


def divided(node: ast.If, is_affine: IsAffine) -> ast.If | None:
    """An `if` whose first test is affine, where the test given is affine in part; None if no part is."""
    parts = _parts(node.test, is_affine)
    if parts is None:
        return None
    affine, data, conjunction = parts
    inner = ast.copy_location(ast.If(data, node.body, node.orelse), node)
    if conjunction:
        return ast.copy_location(ast.If(affine, [inner], node.orelse), node)
    return ast.copy_location(ast.If(affine, node.body, [inner]), node)


def chosen(node: ast.Assign | ast.AugAssign | ast.AnnAssign, is_affine: IsAffine) -> ast.If | None:
    """An assignment whose value has an affine choice in it, as an `if` around two without; None if it has none."""
    for part in ast.walk(node):
        if not isinstance(part, ast.IfExp):
            continue
        parts = (part.test, None, True) if is_affine(part.test) else _parts(part.test, is_affine)
        if parts is None:
            continue
        affine, data, conjunction = parts
        then, other = part.body, part.orelse
        if data is not None:
            rest = ast.copy_location(ast.IfExp(data, part.body, part.orelse), part)
            then, other = (rest, other) if conjunction else (then, rest)
        made = ast.If(affine, [_with(node, part, then)], [_with(node, part, other)])
        return ast.copy_location(made, node)
    return None


def own_variables(body: list[ast.stmt], function: ast.AST, variables: frozenset[str]) -> frozenset[str]:
    """The variables that occur in one body alone, which assigns them before anything else uses them."""
    found: set[str] = set()
    for position, node in enumerate(body):
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if not isinstance(target, ast.Name) or target.id not in variables:
            continue
        name = target.id
        earlier = occurrences(body[:position], name) + occurrences([node], name) - 1
        if earlier == 0 and occurrences(body, name) == occurrences([function], name):
            found.add(name)
    return frozenset(found)


def needs_variable(node: ast.If) -> bool:
    """True if a test must be stored: its operands may change before the last statement that depends on it."""
    if not node.orelse and len(node.body) == 1 and not isinstance(node.body[0], ast.For | ast.If):
        return False
    written = {
        _base(target)
        for part in (*node.body, *node.orelse)
        for target in ast.walk(part)
        if isinstance(target, ast.Name | ast.Subscript) and isinstance(target.ctx, ast.Store)
    }
    return any(isinstance(part, ast.Name) and part.id in written for part in ast.walk(node.test))


def one_assignment(node: ast.If) -> ast.Assign | ast.AugAssign | None:
    """Return an `if` whose branches each assign one and the same target as one assignment; None if it is another.

    if t: x = a                     ->   x = a if t else x >> 1
    else: x >>= 1
    """
    if len(node.body) != 1 or len(node.orelse) != 1:
        return None
    (yes,), (no,) = node.body, node.orelse
    target, other = _target(yes), _target(no)
    if target is None or other is None or ast.dump(target) != ast.dump(other):
        return None
    if isinstance(yes, ast.AugAssign) and isinstance(no, ast.AugAssign) and type(yes.op) is type(no.op):
        value = ast.IfExp(node.test, yes.value, no.value)
        made: ast.Assign | ast.AugAssign = ast.AugAssign(yes.target, yes.op, value)
    else:
        made = ast.Assign([target], ast.IfExp(node.test, _value(yes), _value(no)))
    return ast.fix_missing_locations(ast.copy_location(made, node))


def _target(node: ast.stmt) -> ast.Name | ast.Subscript | None:
    """The target of an assignment that has one, a variable or an element."""
    found: ast.expr | None = None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        found = node.targets[0]
    elif isinstance(node, ast.AugAssign):
        found = node.target
    return found if isinstance(found, ast.Name | ast.Subscript) else None


def _value(node: ast.stmt) -> ast.expr:
    """Return the expression that an assignment stores: x + 1 for x += 1."""
    if isinstance(node, ast.AugAssign):
        read = deepcopy(node.target)
        read.ctx = ast.Load()
        return ast.copy_location(ast.BinOp(read, node.op, node.value), node)
    assert isinstance(node, ast.Assign), "an assignment has a value"
    return node.value


def _base(target: ast.expr) -> str | None:
    """The name of what is written: A in A[i][j]."""
    while isinstance(target, ast.Subscript):
        target = target.value
    return target.id if isinstance(target, ast.Name) else None


def _parts(test: ast.expr, is_affine: IsAffine) -> tuple[ast.expr, ast.expr, bool] | None:
    """(affine part, data part, whether both must hold) of a test joined by `and` or `or`; None if one is missing."""
    if isinstance(test, ast.Compare) and len(test.ops) > 1:
        links = zip([test.left, *test.comparators], test.ops, test.comparators, strict=False)
        pairs: list[ast.expr] = [ast.Compare(left, [op], [right]) for left, op, right in links]
        test = ast.copy_location(ast.BoolOp(ast.And(), [ast.copy_location(p, test) for p in pairs]), test)
    if not isinstance(test, ast.BoolOp):
        return None
    affine = [part for part in test.values if is_affine(part)]
    data = [part for part in test.values if not is_affine(part)]
    if not affine or not data:
        return None
    return _joined(test, affine), _joined(test, data), isinstance(test.op, ast.And)


def _joined(test: ast.BoolOp, values: list[ast.expr]) -> ast.expr:
    return values[0] if len(values) == 1 else ast.copy_location(ast.BoolOp(test.op, values), test)


def _with(
    node: ast.Assign | ast.AugAssign | ast.AnnAssign, old: ast.IfExp, new: ast.expr
) -> ast.Assign | ast.AugAssign | ast.AnnAssign:
    """An assignment with another expression in the place of one of its parts."""
    made = deepcopy(node, {id(old): new})
    assert isinstance(made, ast.Assign | ast.AugAssign | ast.AnnAssign), "a copy has the type of the original"
    return made
