"""Lower loops; those over tuples, and those whose index is an exponent of extents, are written out.

for j, v in enumerate(x)     ->   for j in range(N): v = x[j]
for w in (0.5, 0.25): x *= w ->   the body, twice
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from polyfuse.frontend.python.aliases import assigned_in
from polyfuse.frontend.python.numpy.expressions.constants import known_integer
from polyfuse.frontend.python.numpy.statements.assignments import assign_one
from polyfuse.frontend.python.numpy.statements.identity import same_value
from polyfuse.frontend.python.numpy.statements.iteration import iterating_function, loop_heads
from polyfuse.frontend.python.numpy.statements.lowerer import Lowerer
from polyfuse.frontend.python.numpy.statements.variables import carry, own_variables, owns, variable_of
from polyfuse.frontend.python.numpy.subscripts import Cut
from polyfuse.frontend.python.numpy.syntax import constant, name, number, placed
from polyfuse.frontend.python.numpy.values import Array, Scalar, Static, Value
from polyfuse.frontend.python.scope import Range

MOST_STEPS = 64
"""Iterations of a loop that is written out."""


def for_loop(lowerer: Lowerer, node: ast.For) -> None:
    """for i in range(…), reversed(range(…)), enumerate(…), zip(…), an array."""
    program, frame = lowerer.program, lowerer.frame
    items = _items(lowerer, node.iter)
    if items is not None:
        _written_out(lowerer, node, items)
        return
    heads = loop_heads(lowerer, node)
    if heads is None:
        program.emit(node)
        return
    variable, bounds, bindings = heads
    steps = _steps(lowerer, node, variable, bounds)
    if steps is not None:
        for at in steps:
            frame.variables[variable] = Scalar(placed(number(at), node), "integer")
            lowerer.statements(node.body)
        return
    own = variable_of(lowerer, variable)
    body = node.body
    assigned = [*assigned_in(body), *assigned_in([node.target])]
    for dead in _dead(lowerer, node):
        frame.variables.pop(dead)
    before = set(frame.carried)
    carry(lowerer, body)
    own_variables(lowerer, assigned_in(body))
    objects = {v: value for v, value in frame.variables.items() if isinstance(value, Static | tuple)}
    gone = {frame.names.get(v, v) for v in assigned}
    outside = program.aliases = program.aliases.without(gone)
    frame.variables[variable] = Scalar(name(own), "integer")
    frame.over.pop(variable, None)
    scope, args = program.scope, [program.aliases.written_out(b) for b in bounds]
    step = constant(args[2]) if len(args) == 3 else 1
    start = args[0] if len(args) > 1 else number(0)
    stop = args[1] if len(args) > 1 else args[0]
    if step and all(program.geometry.is_affine(b) for b in (start, stop)):
        program.scope = (*scope, Range(own, start, stop, step))
    place = program.place
    outer_block, program.block = program.block, []
    for target, value in bindings:
        assign_one(lowerer, ast.copy_location(ast.Assign([target], node.iter), node), target, value)
    lowerer.around.append(node)
    lowerer.statements(body)
    lowerer.around.pop()
    for variable, value in objects.items():
        now = frame.variables.get(variable)
        if now is not value and variable in assigned and (now is None or not same_value(now, value)):
            lowerer.evaluator.refuse(
                node,
                f"{variable} is another object in later iterations of this loop",
                "arrays and numbers",
            )
    made, program.block = program.block, outer_block
    program.place, program.scope, program.aliases = place, scope, outside
    frame.carried = before
    _leave(lowerer, own)
    function = (
        node.iter.func
        if isinstance(node.iter, ast.Call)
        and lowerer.frame.is_first
        and not bindings
        and iterating_function(lowerer, node.iter) == "range"
        and _same_call(node, bounds)
        else program.function("range")
    )
    call = ast.copy_location(ast.Call(function, bounds, []), node.iter)
    target_node = ast.copy_location(ast.Name(own, ast.Store()), node.target)
    if made or node.orelse:
        program.emit(ast.copy_location(ast.For(target_node, call, made or [ast.Pass()], node.orelse), node))


def _items(lowerer: Lowerer, node: ast.expr) -> list[Value] | None:
    """The elements of a tuple or list that is iterated over, also by enumerate and zip; None for anything else."""
    function = iterating_function(lowerer, node)
    if function in ("enumerate", "zip") and isinstance(node, ast.Call) and node.args and not node.keywords:
        parts = [_items(lowerer, arg) for arg in node.args[: None if function == "zip" else 1]]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        if function == "zip":
            return list(zip(*known, strict=False))
        begin = known_integer(lowerer.evaluator, node.args[1]) if len(node.args) == 2 else 0
        if begin is None:
            return None
        return [
            (Scalar(placed(number(k), node), "integer"), value) for k, value in enumerate(known[0], begin)
        ]
    if function is not None or not isinstance(node, ast.Tuple | ast.List | ast.Name):
        return None
    value = lowerer.evaluator.value(node)
    return list(value) if isinstance(value, tuple) else None


def _written_out(lowerer: Lowerer, node: ast.For, items: Sequence[Value]) -> None:
    """for w in (0.5, 0.25): x *= w    ->    twice the body."""
    if len(items) > MOST_STEPS or node.orelse:
        lowerer.evaluator.refuse(
            node.iter, f"a loop over {len(items)} elements, which is written out", f"{MOST_STEPS} of them"
        )
    for item in items:
        assign_one(lowerer, ast.copy_location(ast.Assign([node.target], node.iter), node), node.target, item)
        lowerer.statements(node.body)


def _steps(lowerer: Lowerer, node: ast.For, index: str, bounds: Sequence[ast.expr]) -> range | None:
    """The values of a loop's index if the body has powers of a number with it as exponent, as extents of arrays.

    for i in range(3): y.reshape(2**i, -1)    ->    three times the body: no extent is a power of an index
    """
    known = [known_integer(lowerer.evaluator, bound) for bound in bounds]
    powers = [
        part
        for statement in node.body
        for part in ast.walk(statement)
        if isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Pow)
        and any(isinstance(inner, ast.Name) and inner.id == index for inner in ast.walk(part.right))
    ]
    values = [bound for bound in known if bound is not None]
    if len(values) < len(known) or not any(_is_whole(lowerer, part.left) for part in powers):
        return None
    steps = range(*values)
    if len(steps) > MOST_STEPS:
        lowerer.evaluator.refuse(
            node, f"{len(steps)} steps with powers of {index} as extents", f"{MOST_STEPS} of them"
        )
    return steps


def _is_whole(lowerer: Lowerer, node: ast.expr) -> bool:
    """True for an integer that is known when the function is read."""
    found = lowerer.frame.found(node.id) if isinstance(node, ast.Name) else None
    return known_integer(lowerer.evaluator, found.node if isinstance(found, Scalar) else node) is not None


def _dead(lowerer: Lowerer, node: ast.For) -> list[str]:
    """The views whose value nobody reads any more: the loop's body assigns them first, nobody reads them later."""
    frame = lowerer.frame
    first: dict[str, bool] = {}
    for statement in node.body:
        for part in (statement.value if isinstance(statement, ast.Assign) else statement, statement):
            for inner in ast.walk(part):
                if isinstance(inner, ast.Name):
                    plain = isinstance(statement, ast.Assign) and isinstance(inner.ctx, ast.Store)
                    first.setdefault(inner.id, plain)
    inside = {id(part) for part in ast.walk(node)}
    region = lowerer.around[0] if lowerer.around else node
    later = {
        part.id
        for part in ast.walk(frame.source.tree)
        if isinstance(part, ast.Name)
        and isinstance(part.ctx, ast.Load)
        and id(part) not in inside
        and part.lineno >= region.lineno
    }
    return [
        variable
        for variable, assigned in first.items()
        if assigned
        and variable not in later
        and isinstance(known := frame.variables.get(variable), Array)
        and not owns(lowerer, variable, known)
        and variable not in frame.carried
    ]


def _leave(lowerer: Lowerer, index: str) -> None:
    """Forget the values that are those of one iteration of a loop that is over."""
    for frame in lowerer.frames:
        for variable, value in list(frame.variables.items()):
            if index in _names_of(value):
                del frame.variables[variable]
                frame.over[variable] = index


def _names_of(value: Value) -> set[str]:
    """The variables in an array's shape and elements, or in a slice's bounds; none of other values."""
    if isinstance(value, Static) and isinstance(value.value, Cut):
        return {
            n.id
            for b in (value.value.start, value.value.stop)
            if b
            for n in ast.walk(b)
            if isinstance(n, ast.Name)
        }
    if not isinstance(value, Array):
        return set()
    index = tuple(number(0) for _ in value.shape)
    parts = (*value.shape, value.element(index), *([] if value.mask is None else [value.mask.element(index)]))
    return {part.id for one in parts for part in ast.walk(one) if isinstance(part, ast.Name)}


def _same_call(node: ast.For, bounds: Sequence[ast.expr]) -> bool:
    args = node.iter.args if isinstance(node.iter, ast.Call) else []
    return len(args) == len(bounds) and all(a is b for a, b in zip(args, bounds, strict=True))
