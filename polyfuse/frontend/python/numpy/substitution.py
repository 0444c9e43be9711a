"""Leave out variables of inlined functions that are copies, or whose value is used once.

    x = a[k]; size = abs(x)              ->   size = abs(a[k])
    p = 2.0 * z; q = p * z + 1.0         ->   q = 2.0 * z * z + 1.0

Every variable is a statement of the nest, and a compile's time grows faster than the number of statements. The theorem:
if `v` is assigned once, is read after that in the same block only, and nothing that its value reads is assigned until
`v` is read for the last time, then the value may stand where `v` is read. It has the same type there: a copy has that
of what it copies; another value has the declared type of `v` if all that it reads has that type.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy

from polyfuse.frontend.python.aliases import assigned_in, stored_arrays
from polyfuse.frontend.python.numpy.memory import NOTES

NOTE_OF: Mapping[str, str] = {str(dtype): note for dtype, note in NOTES.items()}
"""The annotation of each element type."""

LARGEST = 40
"""Nodes of the syntax tree beyond which a value that is used once keeps its variable."""


def without_copies(
    body: Sequence[ast.stmt], kept: Collection[str], types: Mapping[str, str]
) -> list[ast.stmt]:
    """Return the statements without variables that are copies or used once, as long as there are some.

    Args:
        body: The statements of a function.
        kept: The names whose variables stay: those that the function was written with.
        types: What is known of names' types, as annotations: "f64" of a variable or of an array's elements.

    Returns:
        The statements.
    """
    substitution = _Substitution(kept, types)
    changed = True
    while changed:
        substitution.count(body)
        body, changed = substitution.block(list(body))
    return list(body)


class _Substitution:
    """One pass over all blocks, and how often the function assigns and reads each name, with which type."""

    def __init__(self, kept: Collection[str], types: Mapping[str, str]) -> None:
        self.kept = kept
        self.types = types
        self.assigned: Counter[str] = Counter()
        self.read: Counter[str] = Counter()
        self.declared: dict[str, str] = {}
        self.variables: set[str] = set()

    def count(self, body: Sequence[ast.stmt]) -> None:
        """Count the assignments and reads of each name, and collect declared types."""
        self.assigned, self.read = Counter(), Counter()
        self.declared, self.variables = dict(self.types), set(self.types)
        for part in (part for statement in body for part in ast.walk(statement)):
            if isinstance(part, ast.Name):
                counts = self.read if isinstance(part.ctx, ast.Load) else self.assigned
                counts[part.id] += 1
            match part:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Constant(value=str() as note)):
                    self.declared[name] = note
                    self.variables.add(name)
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(func=ast.Name(), args=[_, ast.Constant(value=str() as dtype)]),
                ):
                    self.declared[name] = NOTE_OF.get(dtype, dtype)  # a new array
                case ast.Assign(targets=[ast.Name(id=name)]):
                    self.variables.add(name)

    def block(self, body: list[ast.stmt]) -> tuple[list[ast.stmt], bool]:
        """The statements of a block, in which one variable less is assigned in each block; True if one was found."""
        changed = False
        for statement in body:
            for field in ("body", "orelse"):
                inside = getattr(statement, field, None)
                if inside:
                    made, found = self.block(inside)
                    changed |= found
                    setattr(statement, field, made or [ast.copy_location(ast.Pass(), statement)])
        position = 0
        while position < len(body):
            if self._substituted(body, position):
                del body[position]
                changed = True
            else:
                position += 1
        return body, changed

    def _substituted(self, body: list[ast.stmt], position: int) -> bool:
        """Put the value of the assignment at a position where its variable is read, if that is legal."""
        match body[position]:
            case (
                ast.Assign(targets=[ast.Name(id=variable)], value=ast.expr() as value)
                | ast.AnnAssign(target=ast.Name(id=variable), value=ast.expr() as value)
            ):
                pass
            case _:
                return False
        if variable in self.kept or self.assigned[variable] != 1 or variable not in self.variables:
            return False
        if not self.read[variable]:
            for name in (part.id for part in ast.walk(value) if isinstance(part, ast.Name)):
                self.read[name] -= 1
            return True
        is_copy = self._is_copy(variable, value)
        if not is_copy and not (self.read[variable] == 1 and self._is_typed(variable, value)):
            return False
        rest = body[position + 1 :]
        reading = [k for k, statement in enumerate(rest) if _reads(statement, variable)]
        if not reading or sum(_reads(rest[k], variable) for k in reading) != self.read[variable]:
            return False
        last = rest[reading[-1]]
        if not is_copy and not _is_assignment(last):
            return False
        changing = rest[: reading[-1] + (0 if _is_assignment(last) else 1)]
        names = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}
        if any(names & _changed(statement) for statement in changing):
            return False
        for k in reading:
            rest[k] = _With(variable, value).visit(rest[k])
        body[position + 1 :] = rest
        for name in (part.id for part in ast.walk(value) if isinstance(part, ast.Name)):
            self.read[name] += self.read[variable] - 1
        return True

    def _is_copy(self, variable: str, value: ast.expr) -> bool:
        """True for an element or a variable, of the same type; an index of a loop and a size have none."""
        match value:
            case ast.Subscript(value=ast.Name(id=other)):
                pass
            case ast.Name(id=other) if other in self.variables:
                pass
            case _:
                return False
        note = self.declared.get(variable)
        return note is None or note == self.declared.get(other)

    def _is_typed(self, variable: str, value: ast.expr) -> bool:
        """True if a value has the declared type of its variable wherever it stands, and no test in it."""
        note = self.declared.get(variable)
        nodes = list(ast.walk(value))
        if note not in ("f32", "f64") or len(nodes) > LARGEST:
            return False
        if any(isinstance(part, ast.IfExp | ast.Compare | ast.BoolOp | ast.Call) for part in nodes):
            return False
        leaves = {self.declared.get(name) for name in _leaves(value)}
        return leaves == {note}


def _leaves(node: ast.expr) -> Iterator[str]:
    """The variables and arrays that a value reads, without those in subscripts."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Subscript):
        yield from _leaves(node.value)
    else:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from _leaves(child)


def _is_assignment(statement: ast.stmt) -> bool:
    """True for what reads everything before it stores."""
    return isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign)


def _reads(statement: ast.stmt, variable: str) -> int:
    return sum(
        isinstance(part, ast.Name) and part.id == variable and isinstance(part.ctx, ast.Load)
        for part in ast.walk(statement)
    )


def _changed(statement: ast.stmt) -> set[str]:
    """The names that a statement assigns, and the arrays that it stores to."""
    return {*assigned_in([statement]), *stored_arrays(statement)}


class _With(ast.NodeTransformer):
    """Puts a value in the place of a variable that is read."""

    def __init__(self, variable: str, value: ast.expr) -> None:
        self.variable = variable
        self.value = value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = node.id == self.variable and isinstance(node.ctx, ast.Load)
        return deepcopy(self.value) if found else node
