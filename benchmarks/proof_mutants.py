"""Mutants of a module: its source with one expression or one statement made wrong, in place in a process that has it.

    module's source -> every Change (what stands there, what takes its place) -> compiled -> put into live functions

A change is named by its function and its two texts, so that it keeps its name while lines move. Not changed: messages
of errors, assertions, annotations, decorators, default arguments, fields of classes. A wrong function is made right
for all who have imported it by exchanging its code object, and a constant of a module by rebinding its name wherever it
has been imported.
"""

from __future__ import annotations

import ast
import copy
import gc
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

NOT_CHANGED = (ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom)

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}

OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}

OTHER_METHOD = {
    "union": "intersect",
    "intersect": "union",
    "gt_map": "ge_map",
    "ge_map": "gt_map",
    "lt_map": "le_map",
    "le_map": "lt_map",
    "lex_lt_map": "lex_le_map",
    "lex_gt_union_map": "lex_ge_union_map",
    "dim_min": "dim_max",
    "dim_max": "dim_min",
    "min_val": "max_val",
    "max_val": "min_val",
    "is_nonneg": "is_pos",
    "is_equal": "is_subset",
}
"""A method of isl's objects, and another one with the same arguments."""

LEFT_OUT = (
    "subtract",
    "intersect",
    "union",
    "intersect_domain",
    "intersect_range",
    "gist",
    "reverse",
    "add",
    "sub",
)
"""Methods that return a value of the kind they are called on, so that the call can be left out."""

OTHER_FUNCTION = {
    "any": "all",
    "all": "any",
    "min": "max",
    "max": "min",
    "greatest": "least",
    "least": "greatest",
}


@dataclass(frozen=True)
class Change:
    """One change of a module's source.

    Attributes:
        function: The qualified name of the function; "" for a constant of the module.
        lines: The lines where it stands.
        text: `before -> after`, and a number where the same change is possible more than once in the function.
        module: The parsed module, as it is.
        old: The node that is changed.
        new: What takes its place.
    """

    function: str
    lines: range
    text: str
    module: ast.Module
    old: ast.AST
    new: ast.AST

    @property
    def source(self) -> ast.Module:
        """The parsed module, changed."""
        number = next(p for p, node in enumerate(ast.walk(self.module)) if node is self.old)
        changed = copy.deepcopy(self.module)
        old = list(ast.walk(changed))[number]
        new = ast.copy_location(copy.deepcopy(self.new), old)
        return ast.fix_missing_locations(_Exchanged(old, new).visit(changed))  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        """The function and the change."""
        return f"{self.function}: {self.text}"


def changes(text: str) -> Iterator[Change]:
    """Every change of a module's source, in the order of its lines."""
    module = ast.parse(text)
    owners = _owners(module)
    seen: Counter[str] = Counter()
    found = []
    for node in ast.walk(module):
        if id(node) not in owners:
            continue
        for new in _instead_of(node):
            what = f"{_line(node)} -> {_line(new)}"
            key = f"{owners[id(node)]}: {what}"
            seen[key] += 1
            what += f" #{seen[key]}" if seen[key] > 1 else ""
            found.append(Change(owners[id(node)], _lines(node), what, module, node, new))
    yield from sorted(found, key=lambda change: change.lines.start)


def _line(node: ast.AST) -> str:
    """A node as one line; of a condition without what depends on it."""
    text = " ".join(ast.unparse(node.test if isinstance(node, ast.If) else node).split())
    text = f"if {text}" if isinstance(node, ast.If) else text
    return text if len(text) <= 100 else text[:97] + "..."


def _lines(node: ast.AST) -> range:
    """The lines that run where a node does: those of a condition, not of what depends on it."""
    match node:
        case ast.If(test):
            return _lines(test)
        case ast.comprehension(_, _, ifs):
            return range(ifs[0].lineno, (ifs[-1].end_lineno or ifs[-1].lineno) + 1)
        case ast.expr() | ast.stmt():
            return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    raise TypeError(f"{type(node).__name__} stands on no line")


class _Exchanged(ast.NodeTransformer):
    """A node in place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.old else self.generic_visit(node)


def _owners(module: ast.Module) -> dict[int, str]:
    """The qualified name of the function of each node that may be changed."""
    found: dict[int, str] = {}

    def mark(node: ast.AST, owner: str) -> None:
        if isinstance(node, NOT_CHANGED):
            return
        if isinstance(node, ast.FunctionDef):
            inside(node.body, f"{owner}.<locals>.{node.name}" if owner else node.name)
            return
        found[id(node)] = owner
        if isinstance(node, ast.Raise) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
        ):
            return
        if isinstance(node, ast.AnnAssign):
            parts: list[ast.AST] = [node.value] if node.value is not None else []
        else:
            parts = list(ast.iter_child_nodes(node))
        for part in parts:
            mark(part, owner)

    def inside(body: list[ast.stmt], owner: str) -> None:
        for statement in body:
            docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not docstring:
                mark(statement, owner)

    for statement in module.body:
        if isinstance(statement, ast.FunctionDef):
            inside(statement.body, statement.name)
        elif isinstance(statement, ast.ClassDef):
            for part in statement.body:
                if isinstance(part, ast.FunctionDef):
                    inside(part.body, f"{statement.name}.{part.name}")
        elif isinstance(statement, ast.Assign) and isinstance(
            statement.value, ast.Tuple | ast.Dict | ast.Constant
        ):
            found.update((id(node), "") for node in ast.walk(statement.value))
    return found


# -- what takes the place of a node ------------------------------------------------------------------------------------


def _instead_of(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that take the place of one, each a change."""
    match node:
        case ast.Compare(left, [op], [right]) if type(op) in COMPARISONS:
            yield ast.Compare(left, [COMPARISONS[type(op)]()], [right])
            if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.Tuple) and len(right.elts) > 1:
                for at in range(len(right.elts)):
                    rest = ast.Tuple([e for p, e in enumerate(right.elts) if p != at], ast.Load())
                    yield ast.Compare(left, [op], [rest])
        case ast.Compare(left, ops, rights) if len(ops) > 1:
            for at, op in enumerate(ops):
                if type(op) in COMPARISONS:
                    new = [COMPARISONS[type(op)]() if p == at else o for p, o in enumerate(ops)]
                    yield ast.Compare(left, new, rights)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            for at in range(len(values)):
                rest_of = [v for p, v in enumerate(values) if p != at]
                yield rest_of[0] if len(rest_of) == 1 else ast.BoolOp(op, rest_of)
        case ast.UnaryOp(ast.USub(), ast.Constant(int(value))):
            yield ast.Constant(value)
        case ast.UnaryOp(ast.USub(), operand):
            yield operand
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            yield ast.BinOp(left, OPERATORS[type(op)](), right)
        case ast.Call(ast.Attribute(value, method), args) if method in OTHER_METHOD or method in LEFT_OUT:
            if method in OTHER_METHOD:
                yield ast.Call(ast.Attribute(value, OTHER_METHOD[method], ast.Load()), args, node.keywords)
            if method in LEFT_OUT:
                yield value
        case ast.Call(ast.Attribute(_, method), _) if method.startswith(("is_", "has_")):
            yield ast.UnaryOp(ast.Not(), node)
        case ast.Call(ast.Name(function), args) if function in OTHER_FUNCTION:
            yield ast.Call(ast.Name(OTHER_FUNCTION[function], ast.Load()), args, node.keywords)
        case ast.If(_, body, orelse):
            for value in (True, False):
                yield ast.If(ast.Constant(value), body, orelse)
        case ast.IfExp(_, body, orelse):
            yield body
            yield orelse
        case ast.comprehension(target, iterated, ifs) if ifs:
            for at in range(len(ifs)):
                yield ast.comprehension(target, iterated, [c for p, c in enumerate(ifs) if p != at], 0)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield ast.Constant(value + 1)
        case ast.Tuple(elts, ast.Load()) if len(elts) > 1 and all(isinstance(e, ast.Constant) for e in elts):
            for at in range(len(elts)):
                yield ast.Tuple([e for p, e in enumerate(elts) if p != at], ast.Load())
        case (
            ast.Continue()
            | ast.Break()
            | ast.Raise()
            | ast.AugAssign()
            | ast.Expr(ast.Call() | ast.Yield() | ast.YieldFrom())
        ):
            yield ast.Pass()


# -- into a process that runs ------------------------------------------------------------------------------------------


def put_in_place(change: Change, file: Path) -> bool:
    """Give the live functions and constants of a module's file their changed form; False if none is alive."""
    code = compile(change.source, str(file), "exec")
    if not change.function:
        return _rebound(code, file)
    wrong = {one.co_qualname: one for one in _codes(code)}
    gc.unfreeze()  # what is frozen is not among the collector's objects
    alive = [
        one
        for one in gc.get_objects()
        if type(one) is FunctionType
        and one.__code__.co_filename == str(file)  # isinstance asks dead proxies too
    ]
    changed = False
    for function in alive:
        new = wrong.get(function.__code__.co_qualname)
        if new is not None and new.co_freevars == function.__code__.co_freevars:
            function.__code__ = new
            changed = True
    return changed


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


def _rebound(code: CodeType, file: Path) -> bool:
    """Exchange the constants of a module that its changed source gives other values."""
    own = next((m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == str(file)), None)
    if own is None:
        return False
    values = {"__name__": own.__name__, "__file__": str(file), "__package__": own.__package__}
    exec(code, values)
    changed = False
    for name, new in values.items():
        old = vars(own).get(name)
        if type(new) not in (tuple, dict, int, float, str) or name.startswith("__") or new == old:
            continue
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get(name) is old:
                setattr(module, name, new)
                changed = True
    return changed
