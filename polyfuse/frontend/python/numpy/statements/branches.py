"""Lower branches, and merge what names stand for behind them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import chain

from polyfuse.frontend.python.aliases import assigned_in
from polyfuse.frontend.python.conditions import Predicate
from polyfuse.frontend.python.numpy.expressions.comparisons import condition
from polyfuse.frontend.python.numpy.statements.common_statements import merged
from polyfuse.frontend.python.numpy.statements.identity import same_value
from polyfuse.frontend.python.numpy.statements.lowerer import Lowerer
from polyfuse.frontend.python.numpy.statements.variables import carry, own_variables, owns
from polyfuse.frontend.python.numpy.syntax import element, number, placed, stored
from polyfuse.frontend.python.numpy.values import BOOL, Array, Scalar, Static, Value, common_type
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
    behind: list[ast.stmt] = []
    if affine:
        bodies, behind = _merged_statements(lowerer, written, bodies, taken_names)
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
    for statement in behind:
        program.emit(statement)


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
    arrays, kept = _without_makers(lowerer, bodies)
    numbers: dict[str, ast.AnnAssign] = {}
    for part in chain(*map(ast.walk, chain(*kept))):
        if (
            isinstance(part, ast.AnnAssign)
            and isinstance(part.target, ast.Name)
            and part.target.id not in taken
        ):
            numbers.setdefault(part.target.id, part)
    for array, made in arrays.items():
        assert isinstance(made.value, ast.Call), "an array is made by a call"
        shape, dtype = made.value.args
        assert isinstance(shape, ast.Tuple), "the program makes arrays of tuples"
        assert isinstance(dtype, ast.Constant), "and of named types"
        lowerer.program.emit(made)
        if not by_data:
            continue
        loops, index = lowerer.program.loops("i", shape.elts)
        target = element(array, index)
        lowerer.program.emit_nest(loops, [ast.Assign([stored(target)], _zero(str(dtype.value)))])
    for annotated in numbers.values() if by_data else ():
        note = annotated.annotation
        zero = _zero(DTYPES[str(note.value)]) if isinstance(note, ast.Constant) else number(0)
        lowerer.program.emit(ast.AnnAssign(annotated.target, note, zero, 1))
    return kept


def _without_makers(
    lowerer: Lowerer, bodies: Sequence[list[ast.stmt]]
) -> tuple[dict[str, ast.Assign], list[list[ast.stmt]]]:
    """(the statements that make arrays, by the array; both branches without them)."""
    maker = ast.unparse(lowerer.program.function("empty"))
    arrays: dict[str, ast.Assign] = {}

    class Without(ast.NodeTransformer):
        def visit_Assign(self, part: ast.Assign) -> ast.stmt | None:
            if isinstance(part.value, ast.Call) and ast.unparse(part.value.func) == maker:
                assert isinstance(part.targets[0], ast.Name), "an array is a variable"
                arrays[part.targets[0].id] = part
                return None
            return part

    kept = [[one for part in body for one in [Without().visit(part)] if one is not None] for body in bodies]
    return arrays, kept


def _merged_statements(
    lowerer: Lowerer, test: ast.expr, bodies: list[list[ast.stmt]], taken: set[str]
) -> tuple[list[list[ast.stmt]], list[ast.stmt]]:
    """(both branches, the statements behind them), where those that both begin with are emitted here."""
    program = lowerer.program
    if not all(bodies):
        return bodies, []
    arrays, kept = _without_makers(lowerer, deepcopy(bodies))
    stores = set(assigned_in(chain(*kept)))
    calls = {array: made.value for array, made in arrays.items()}
    if stores & _names_in((test, *calls.values())):
        return bodies, []
    own = frozenset({*stores, *arrays} - taken - _known_behind(lowerer))
    found = merged(test, kept, own, frozenset(program.names.sizes), calls)
    if found is None:
        return bodies, []
    for array, made in arrays.items():
        if found.renamed.get(array, array) == array:
            program.emit(made)
    for statement in found.before:
        program.emit(statement)
    return found.bodies, found.behind


def _known_behind(lowerer: Lowerer) -> set[str]:
    """The names of the lowered program in what the variables of the function are known to be."""
    frame = lowerer.frame
    values = [value for value in frame.variables.values() if not isinstance(value, Static)]
    parts = (part for value in values for part in _expressions(value))
    return {*frame.names.values(), *_names_in((*parts, *lowerer.program.aliases.known.values()))}


def _expressions(value: Value) -> Iterable[ast.AST]:
    """The parts of a value that are written in the lowered program."""
    if isinstance(value, tuple):
        return chain(*map(_expressions, value))
    if isinstance(value, Scalar):
        return (value.node,)
    if not isinstance(value, Array):
        return ()
    index = tuple(number(0) for _ in value.shape)
    stored_in = () if value.storage is None else (ast.Name(value.storage, ast.Load()),)
    mask = () if value.mask is None else _expressions(value.mask)
    return (*stored_in, *value.shape, value.element(index), *mask)


def _names_in(nodes: Iterable[ast.AST]) -> set[str]:
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}


def _zero(dtype: str) -> ast.expr:
    """A zero of a type; of conditions one that is false."""
    if dtype == BOOL:
        return ast.Compare(number(0), [ast.NotEq()], [number(0)])
    return number(0.0 if is_real(dtype) else 0)
