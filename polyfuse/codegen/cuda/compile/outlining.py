"""Outline the parts of a kernel between grid barriers as functions that it calls.

    def k(x, w, a, w_2, out, arrivals):           def k_part(x, w, a):
        i = cuda.threadIdx.x                          i = cuda.threadIdx.x
        a[i] = x[i] * w[i]                            a[i] = x[i] * w[i]
        grid_barrier(arrivals)             ->     def k(x, w, a, w_2, out, arrivals):
        out[i] = a[i] * w_2[i]                        k_part(x, w, a)
                                                      grid_barrier(arrivals)
                                                      k_part(a, w_2, out)

numba takes time that grows with the square of a function's length, and what it makes of one part serves all equal
ones: 8 layers of 512 x 512 take 0.4 s of its time instead of 3.6 s (one Zen 5 core). A function is inlined where it is
called: of seven random networks four have the cubin that they have in one piece, bit for bit, and three of float64
numbers one of 4 registers less to 1 more, without spills. Called, those 8 layers would take 147 registers, not 79.
Lines are those of the kernel's source.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from polyfuse.codegen.looptree.alpha_equal import canonical
from polyfuse.ir.fresh_names import fresh

MEETING, SHARED, LOCAL = "grid_barrier", "cuda.shared.array", "cuda.local.array"


@dataclass(frozen=True)
class Called:
    """The functions of parts, equal ones once, and the kernel that calls them."""

    functions: tuple[ast.FunctionDef, ...]
    kernel: ast.FunctionDef


@dataclass(frozen=True)
class _Cut:
    """A kernel's body at its grid barriers: what it opens with by name, the parts, and the barriers between them."""

    opening: dict[str, ast.Assign]
    parts: tuple[list[ast.stmt], ...]
    barriers: tuple[ast.stmt, ...]


def in_called_parts(kernel: ast.FunctionDef) -> Called:
    """The kernel with a function for each part; as it is, without any, where its parts do not come apart.

    They do where each computes with names of its own: arguments, arrays in shared memory and what follows from
    coordinates and numbers alone are all that several have.
    """
    cut = _cut(kernel)
    given = {each.arg for each in kernel.args.args}
    needed = [_needed(part, cut.opening) for part in cut.parts]
    if len(cut.parts) == 1 or not _come_apart(cut, needed, given):
        return Called((), kernel)
    shared = {name for name, line in cut.opening.items() if _called(line.value) == SHARED}
    functions: dict[str, ast.FunctionDef] = {}
    body: list[ast.stmt] = [line for name, line in cut.opening.items() if name in shared]
    for part, names, barrier in zip(cut.parts, needed, (None, *cut.barriers), strict=True):
        inside = [*(line for name, line in cut.opening.items() if name in names - shared), *part]
        passed = [name for name in dict.fromkeys(_names(inside)) if name in given | shared]
        taken = [function.name for function in functions.values()]
        made = _function(fresh(f"{kernel.name}_part", taken), passed, inside)
        made = functions.setdefault(canonical(ast.unparse(made)), made)
        call = ast.Call(ast.Name(made.name, ast.Load()), [ast.Name(name, ast.Load()) for name in passed], [])
        body += [*([] if barrier is None else [barrier]), ast.copy_location(ast.Expr(call), part[0])]
    calling = copy.copy(kernel)
    calling.body = body
    return Called(tuple(functions.values()), ast.fix_missing_locations(calling))


def _cut(kernel: ast.FunctionDef) -> _Cut:
    """The kernel's body, without its docstring."""
    rest = kernel.body[ast.get_docstring(kernel) is not None :]
    opening: dict[str, ast.Assign] = {}
    for statement in rest:
        match statement:
            case ast.Assign([ast.Name(name)], value) if _is_settled(value) and name not in opening:
                opening[name] = statement
                continue
        break
    parts: list[list[ast.stmt]] = [[]]
    barriers = []
    for statement in rest[len(opening) :]:
        if isinstance(statement, ast.Expr) and _called(statement.value) == MEETING:
            barriers.append(statement)
            parts.append([])
        else:
            parts[-1].append(statement)
    return _Cut(opening, tuple(parts), tuple(barriers))


def _come_apart(cut: _Cut, needed: Sequence[set[str]], given: set[str]) -> bool:
    """True if parts exchange values only through memory that both are given.

    An array of each thread's own, and a variable that is assigned again, are one part's alone.
    """
    stored = {name for part in cut.parts for name in _stored(part)}
    own = {name for name, line in cut.opening.items() if name in stored or _called(line.value) == LOCAL}
    known = given | cut.opening.keys()
    return (
        all(cut.parts)
        and not stored & given
        and all(sum(name in names for names in needed) <= 1 for name in own)
        and not any(_read_first(part, known) & stored for part in cut.parts)
    )


def _is_settled(value: ast.expr) -> bool:
    """True if a value is the same wherever it is computed: it has no element of an array."""
    return not any(isinstance(node, ast.Subscript) for node in ast.walk(value))


def _needed(part: Iterable[ast.stmt], opening: dict[str, ast.Assign]) -> set[str]:
    """The names of what a kernel opens with that a part is computed from."""
    found = {name for name in _names(part) if name in opening}
    for name in reversed(opening):  # one line is computed from lines before it
        if name in found:
            found |= {inner for inner in _names([opening[name].value]) if inner in opening}
    return found


def _names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    return (inner.id for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.Name))


def _stored(part: Iterable[ast.stmt]) -> set[str]:
    """The variables that a part assigns."""
    every = (inner for statement in part for inner in ast.walk(statement) if isinstance(inner, ast.Name))
    return {name.id for name in every if isinstance(name.ctx, ast.Store)}


def _read_first(statements: Iterable[ast.stmt], known: AbstractSet[str]) -> set[str]:
    """The names that statements may read before they assign them; those that are `known` have a value before."""
    return _followed(statements, set(known))[0]


def _followed(statements: Iterable[ast.stmt], known: set[str]) -> tuple[set[str], set[str]]:
    """The names that are read without a value, and those that surely have one behind."""
    read: set[str] = set()
    for statement in statements:
        match statement:
            case ast.For(ast.Name(variable), iterated, body):
                read |= {*_names([iterated])} - known
                read |= _followed(body, known | {variable})[0]
            case ast.If(test, body, otherwise):
                read |= {*_names([test])} - known
                (first, after), (second, other) = _followed(body, known), _followed(otherwise, known)
                read, known = read | first | second, after & other
            case ast.Assign([ast.Name(name)], value):
                read |= {*_names([value])} - known
                known = known | {name}
            case _:
                read |= {*_names([statement])} - known
    return read, known


def _function(name: str, parameters: Sequence[str], body: list[ast.stmt]) -> ast.FunctionDef:
    """A function of one part, on the lines of that part."""
    empty = ast.parse(f"def {name}({', '.join(parameters)}): pass").body[0]
    assert isinstance(empty, ast.FunctionDef), "that is what was written"
    for node in ast.walk(empty):
        if hasattr(node, "lineno"):
            ast.copy_location(node, body[0])
    empty.body = body
    return empty


def _called(value: ast.expr) -> str:
    """The name of the function that a value calls; "" if it is not a call."""
    return ast.unparse(value.func) if isinstance(value, ast.Call) else ""
