"""Lower branches, and merge what names stand for behind them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from polyfuse.frontend.python.aliases import assigned_in
from polyfuse.frontend.python.conditions import Predicate
from polyfuse.frontend.python.numpy.expressions.comparisons import condition
from polyfuse.frontend.python.numpy.statements.identity import same_value
from polyfuse.frontend.python.numpy.statements.lowerer import Lowerer
from polyfuse.frontend.python.numpy.statements.variables import carry, own_variables, owns
from polyfuse.frontend.python.numpy.syntax import element, number, placed, stored
from polyfuse.frontend.python.numpy.values import BOOL, Array, Scalar, Value, common_type
from polyfuse.frontend.python.parameters import DTYPES
from polyfuse.frontend.python.scope import Branch
from polyfuse.ir.number_types import is_real


def branch(lowerer: Lowerer, node: ast.If) -> None:
    """if test: … else: …; one whose test is known is one of its bodies."""
    program, frame = lowerer.program, lowerer.frame
    test = condition(lowerer.evaluator, node.test)
    if isinstance(test, bool):
        lowerer.statements(node.body if test else node.orelse)
        return
    changed = assigned_in((*node.body, *node.orelse))
    before = set(frame.carried)
    carry(lowerer, [*node.body, *node.orelse])
    own_variables(lowerer, changed)
    written = program.aliases.written_out(test)
    affine = program.geometry.here().affine.is_condition(placed(written, node))
    scope, aliases, place = program.scope, program.aliases, program.place
    start, taken_names = dict(frame.variables), set(program.taken)
    bodies: list[list[ast.stmt]] = [[], []]
    ends = [aliases, aliases]
    found: list[dict[str, Value]] = [{}, {}]
    joined = False
    both = set(assigned_in(node.body)) & set(assigned_in(node.orelse))
    branches = [(0, True, node.body), (1, False, node.orelse)]
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
        branches.reverse()  # where two sizes are equal, the shapes of the other branch are those of this one, too
    for at, taken, body in branches:
        part = Branch(written, taken) if affine else Predicate(written, taken, frozenset())
        program.scope = (*scope, part)
        program.aliases = aliases
        bodies[at] = lowerer.block(body)
        ends[at] = program.aliases
        found[at] = frame.variables
        shared = _shared(lowerer, found[at], both - set(start))
        joined |= bool(shared)
        frame.variables = {**start, **shared}
    _merge(lowerer, node, found, not affine)
    own = [frame.names.get(v, v) for v in changed]
    program.aliases = (
        aliases.after_branches(written, ends[0], ends[1], own) if affine else aliases.without(own)
    )
    program.scope, program.place, frame.carried = scope, place, before
    if joined or not affine:
        bodies = _made_before(lowerer, bodies, taken_names, not affine)
    if not affine:
        for variable in both - set(start) - _loop_variables(node):
            known = frame.variables.get(variable)
            if isinstance(known, Scalar) and isinstance(known.node, ast.Name) and max(map(len, bodies)) > 1:
                program.emit(ast.Assign([stored(known.node)], _zero(known.dtype)))
    if bodies[0] or bodies[1]:
        made = ast.If(test, bodies[0] or [ast.copy_location(ast.Pass(), node)], bodies[1])
        program.emit(ast.copy_location(made, node))


def _loop_variables(node: ast.If) -> set[str]:
    """The names that loops inside of a branch assign."""
    loops = (part.target for part in ast.walk(node) if isinstance(part, ast.For))
    return {part.id for target in loops for part in ast.walk(target) if isinstance(part, ast.Name)}


def _shared(lowerer: Lowerer, found: dict[str, Value], names: set[str]) -> dict[str, Value]:
    """The arrays of one branch to whose memory the other one stores what it assigns to the same names."""
    shared: dict[str, Value] = {}
    for variable in names:
        known = found.get(variable)
        if isinstance(known, Array) and owns(lowerer, variable, known):
            lowerer.frame.carried.add(variable)
            shared[variable] = known
    return shared


def _merge(lowerer: Lowerer, node: ast.If, found: Sequence[dict[str, Value]], by_data: bool) -> None:
    """Behind a branch: numbers have both branches' type; a name of two things is refused where it is read."""
    frame = lowerer.frame
    merged: dict[str, Value] = {}
    for variable in dict.fromkeys((*found[0], *found[1])):
        values = [one[variable] for one in found if variable in one]
        first, last = values[0], values[-1]
        if isinstance(first, Scalar) and isinstance(last, Scalar):
            wide = common_type([first.dtype, last.dtype])
            merged[variable] = last if first.dtype == last.dtype else replace(last, dtype=wide)
        elif len(values) == 2 and (first is last or same_value(first, last)):
            merged[variable] = last
        elif len(values) == 1 and not (by_data and isinstance(first, Array)):
            merged[variable] = first
        else:
            frame.divided[variable] = ast.unparse(node.test)
    frame.variables = merged


def _made_before(
    lowerer: Lowerer, bodies: Sequence[list[ast.stmt]], taken: set[str], by_data: bool
) -> list[list[ast.stmt]]:
    """Make the arrays of two branches before them. Where data decide, a store keeps the values if the test fails.

    if x[0] > 0:                        t = empty(N); for i0 in range(N): t[i0] = 0.0
        t = empty(N)            ->      if x[0] > 0:
        for i0 …: t[i0] = …                 for i0 …: t[i0] = …
    """
    maker = ast.unparse(lowerer.program.function("empty"))
    arrays: list[ast.Assign] = []
    numbers: dict[str, ast.AnnAssign] = {}

    class Without(ast.NodeTransformer):
        def visit_Assign(self, part: ast.Assign) -> ast.stmt | None:
            if isinstance(part.value, ast.Call) and ast.unparse(part.value.func) == maker:
                arrays.append(part)
                return None
            return part

        def visit_AnnAssign(self, part: ast.AnnAssign) -> ast.stmt:
            if isinstance(part.target, ast.Name) and part.target.id not in taken:
                numbers.setdefault(part.target.id, part)
            return part

    kept = [[one for part in body for one in [Without().visit(part)] if one is not None] for body in bodies]
    for part in arrays:
        assert isinstance(part.value, ast.Call), "an array is made by a call"
        shape, dtype = part.value.args
        assert isinstance(shape, ast.Tuple), "the program makes arrays of tuples"
        assert isinstance(dtype, ast.Constant), "and of named types"
        assert isinstance(part.targets[0], ast.Name), "which are variables"
        lowerer.program.emit(part)
        if not by_data:
            continue
        loops, index = lowerer.program.loops("i", shape.elts)
        target = element(part.targets[0].id, index)
        lowerer.program.emit_nest(loops, [ast.Assign([stored(target)], _zero(str(dtype.value)))])
    for annotated in numbers.values() if by_data else ():
        note = annotated.annotation
        zero = _zero(DTYPES[str(note.value)]) if isinstance(note, ast.Constant) else number(0)
        lowerer.program.emit(ast.AnnAssign(annotated.target, note, zero, 1))
    return kept


def _zero(dtype: str) -> ast.expr:
    """A zero of a type; of conditions one that is false."""
    if dtype == BOOL:
        return ast.Compare(number(0), [ast.NotEq()], [number(0)])
    return number(0.0 if is_real(dtype) else 0)
