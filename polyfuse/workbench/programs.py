"""`pf.program`: a Python function as compiled pieces and the Python between them.

    def relax(u, v, tol):                                def relax(u, v, tol):
        err = tol + 1.0                                      err = tol + 1.0
        while err > tol:                          ->         while err > tol:
            v[1:-1] = 0.5 * (u[:-2] + u[2:])                     err = piece0(u, v)
            err = np.abs(u - v).max()
            u[:] = v

A piece is a run of loops, stores to elements, and reductions to a number. It is compiled at its first call, for the
types and shapes of its arguments. Everything else is run by Python as it stands. So is a piece that is no nest, and a
call that a compiled piece refuses, which it does before it changes anything. Results are those of Python, but for the
order of sums and the type of a Python number beside float32 arrays, which is float64 in a nest. Numbers and arrays from
outside of the function have the values of the call; functions that a piece calls are read when it is compiled.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from polyfuse.compiler import compile as compile_nest
from polyfuse.errors import BadArgument, PolyfuseError
from polyfuse.frontend.python.source import Source, source_of
from polyfuse.runtime.executable import Executable

REDUCING = frozenset({"sum", "max", "min", "mean", "prod", "std", "var", "dot", "trace"})
"""The functions and methods whose result is a new number or array, by name."""

UNREAD = (
    *(ast.While, ast.Break, ast.Return, ast.Try, ast.With, ast.Yield, ast.YieldFrom, ast.Await, ast.Lambda),
    *(
        ast.FunctionDef,
        ast.ClassDef,
        ast.Global,
        ast.Nonlocal,
        ast.Delete,
        ast.Raise,
        ast.Import,
        ast.ImportFrom,
    ),
    *(ast.NamedExpr, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
"""The syntax that stays Python, with the loop around it."""

MOST = 8
"""Compiles of one piece: beyond that many kinds of arguments, others are left to Python."""

_numbers = count()


@dataclass
class Piece:
    """A run of statements that is compiled when it is called.

    Attributes:
        lines: The first and the last line in the file.
        python: The statements as a function of the names that they read.
        options: Options of `pf.compile`.
        numbers: Names from outside of the function, also dotted ones, that may be numbers.
        compiled: What was compiled, by the kinds of the arguments.
        remarks: How often the piece ran compiled, and why it did not.
    """

    lines: tuple[int, int]
    python: FunctionType
    options: Mapping[str, Any]
    numbers: tuple[tuple[str, ...], ...] = ()
    compiled: dict[Any, Executable] = field(default_factory=dict)
    refused: dict[Any, str] = field(default_factory=dict)
    remarks: dict[str, int] = field(default_factory=dict)

    def __call__(self, *args: Any) -> Any:
        """Run the piece: compiled, or by Python where that is refused."""
        run = self._executable(args)
        if run is not None:
            try:
                given = run(*args)
            except BadArgument as error:
                self._remark(f"by Python: {_first_line(error)}")
            else:
                self._remark("as machine code")
                return _as_numbers(given)
        return self.python(*args)

    def _executable(self, args: tuple[Any, ...]) -> Executable | None:
        if not any(isinstance(arg, np.ndarray) and arg.ndim for arg in args):
            self._remark("by Python: it has no array")
            return None
        outside = (_outer_value(self.python, name) for name in self.numbers)
        key = kind_of(args), tuple((type(one), one) for one in outside if isinstance(one, _NUMBER))
        if key not in self.compiled and key not in self.refused:
            if len(self.compiled) + len(self.refused) == MOST:
                self._remark(f"by Python: it is compiled for {MOST} kinds of arguments already")
                return None
            try:
                self.compiled[key] = compile_nest(self.python, example=args, **self.options)
            except PolyfuseError as error:
                self.refused[key] = f"by Python: {_first_line(error)}"
        if key in self.refused:
            self._remark(self.refused[key])
        return self.compiled.get(key)

    def _remark(self, text: str) -> None:
        self.remarks[text] = self.remarks.get(text, 0) + 1

    def __str__(self) -> str:
        """The piece's lines, and how it ran."""
        first, last = self.lines
        lines = f"line {first}" if first == last else f"lines {first} to {last}"
        ran = [f"ran {times} times {text}" for text, times in self.remarks.items()]
        return f"{lines}: {'; '.join(ran) or 'not called yet'}"


def kind_of(args: Sequence[Any]) -> Any:
    """What a compiled piece depends on: types, and which extents and integers are equal.

    >>> a, b = np.zeros((2, 3)), np.zeros(3)
    >>> kind_of([a, b]) == kind_of([np.zeros((5, 4)), np.zeros(4)]), kind_of([a, b]) == kind_of([a, np.zeros(2)])
    (True, False)
    """
    numbers: dict[int, int] = {}
    kinds: list[Any] = []
    for arg in args:
        if isinstance(arg, np.ndarray):
            places = tuple(-1 if n == 1 else numbers.setdefault(n, len(numbers)) for n in arg.shape)
            kinds.append((str(arg.dtype), places))
    for arg in args:
        if not isinstance(arg, np.ndarray):
            is_extent = isinstance(arg, int | np.integer) and not isinstance(arg, bool)
            kinds.append((type(arg).__name__, numbers.get(int(arg)) if is_extent else None))
    return tuple(kinds)


class Program:
    """A function whose pieces are compiled.

    Attributes:
        pieces: The compiled pieces, in the order of the source.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        if not isinstance(function, FunctionType):
            raise BadArgument(f"pf.program takes a Python function, not {function!r}")
        functools.update_wrapper(self, function)
        splitter = _Splitter(source_of(function), options)
        self._run = splitter.done()
        self.pieces: tuple[Piece, ...] = tuple(splitter.pieces)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the function."""
        return self._run(*args, **named)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """The program as a method."""
        return self if instance is None else functools.partial(self, instance)

    def explain(self) -> str:
        """Return a line on each piece: its lines, and how often it ran compiled or by Python, and why.

        Returns:
            The text.
        """
        return (
            "\n".join(map(str, self.pieces))
            or "no piece: there are no loops over elements, and no stores to them"
        )


def program(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile what can be compiled of a Python function, and leave the rest to Python.

    Loops, stores to elements and reductions that stand next to each other become nests, which are compiled when they
    are first called. A `while` whose end depends on data stays Python around them.

    Args:
        function: The function.
        **options: Options of `pf.compile`, as in `@pf.program(target="cpu")`.

    Returns:
        A `Program`: a function with the same arguments and results, with `pieces` and `explain()`.

    Raises:
        BadArgument: if it is not given a Python function.
        NoSource: if the function's source cannot be read.
    """
    if function is None:
        return functools.partial(program, **options)
    return Program(function, options)


class _Splitter:
    """Walks through a function's blocks, and makes pieces of runs of statements."""

    def __init__(self, source: Source, options: Mapping[str, Any]) -> None:
        self.source, self.options = source, options
        self.function = source.function
        code = self.function.__code__
        self.locals = {*code.co_varnames, *code.co_cellvars}
        self.pieces: list[Piece] = []

    def done(self) -> FunctionType:
        """The function with calls of pieces in it."""
        tree = self.source.tree
        every = (
            *tree.args.posonlyargs,
            *tree.args.args,
            *tree.args.kwonlyargs,
            tree.args.vararg,
            tree.args.kwarg,
        )
        body = self.block(tree.body, {arg.arg for arg in every if arg is not None})
        made = ast.FunctionDef(tree.name, tree.args, body, [], None, lineno=1, col_offset=0)
        for arg in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs):
            arg.annotation = None
        made.args.defaults = [ast.Constant(None) for _ in tree.args.defaults]
        made.args.kw_defaults = [d and ast.Constant(None) for d in tree.args.kw_defaults]
        names = (*self.function.__code__.co_freevars, *map(_piece_name, range(len(self.pieces))))
        own = (CellType(piece) for piece in self.pieces)
        cells = dict(zip(names, (*(self.function.__closure__ or ()), *own), strict=True))
        made_function = _function(made, names, self.source.file, cells, self.function)
        made_function.__defaults__ = self.function.__defaults__
        made_function.__kwdefaults__ = self.function.__kwdefaults__
        return made_function

    def block(self, body: Sequence[ast.stmt], bound: set[str]) -> list[ast.stmt]:
        """A block with its runs of statements as pieces, those inside of loops and branches, too.

        `bound` are the names that have a value wherever the block begins.
        """
        bound = set(bound)
        found: list[ast.stmt] = []
        run: list[ast.stmt] = []
        for node in body:
            if self.may_be_compiled(node):
                run.append(node)
                continue
            found += self.called(run, bound)
            bound |= _bound_by(run)
            run = []
            found.append(self.around(node, bound))
            bound |= _bound_by([node])
        return [*found, *self.called(run, bound)]

    def around(self, node: ast.stmt, bound: set[str]) -> ast.stmt:
        """A statement that stays Python, with pieces in its blocks."""
        if isinstance(node, ast.While | ast.For | ast.If | ast.With):
            node.body = self.block(
                node.body, bound | (_names(node.target) if isinstance(node, ast.For) else set())
            )
        if isinstance(node, ast.While | ast.For | ast.If):
            node.orelse = self.block(node.orelse, bound)
        return node

    def may_be_compiled(self, node: ast.stmt) -> bool:
        """True for loops, stores to elements and reductions to a name, with nothing in them that is no nest's."""
        if any(isinstance(part, UNREAD) for part in ast.walk(node)):
            return False
        match node:
            case ast.For(orelse=[]):
                stores = any(
                    isinstance(p, ast.Subscript) and isinstance(p.ctx, ast.Store) for p in ast.walk(node)
                )
                return stores or any(isinstance(part, ast.AugAssign) for part in ast.walk(node))
            case ast.Assign(targets=[ast.Subscript()]) | ast.AugAssign(target=ast.Subscript()):
                return True
            case ast.Assign(targets=[ast.Name()], value=ast.Call(func=ast.Attribute(attr=name))):
                return name in REDUCING
        return False

    def called(self, run: list[ast.stmt], bound: set[str]) -> list[ast.stmt]:
        """The call of a piece instead of a run of statements; these where a name of theirs may have no value."""
        if not run:
            return []
        read, given, behind = self.names_of(run)
        if behind - given - read or read - bound:
            return run
        outside = self.names_outside(run)
        arrays = {name[0] for name in outside if isinstance(_outer_value(self.function, name), np.ndarray)}
        results = sorted(behind)
        arguments = sorted(read | arrays)
        number = len(self.pieces)
        value = ast.Tuple([ast.Name(name, ast.Load()) for name in results], ast.Load())
        args = ast.arguments([], [ast.arg(name) for name in arguments], None, [], [], None, [])
        back = [ast.Return(value.elts[0] if len(results) == 1 else value)] if results else []
        tree = ast.FunctionDef(_piece_name(number), args, [*run, *back], [], None, lineno=1, col_offset=0)
        shift = self.source.first - 1
        lines = run[0].lineno + shift, (run[-1].end_lineno or run[-1].lineno) + shift
        self.pieces.append(Piece(lines, self.piece(tree), self.options, tuple(outside)))
        call = ast.Call(
            ast.Name(_piece_name(number), ast.Load()), [ast.Name(name, ast.Load()) for name in arguments], []
        )
        targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in results]
        made: ast.stmt = ast.Expr(call)
        if results:
            made = ast.Assign([targets[0] if len(targets) == 1 else ast.Tuple(targets, ast.Store())], call)
        return [ast.copy_location(made, run[0])]

    def names_of(self, run: Sequence[ast.stmt]) -> tuple[set[str], set[str], set[str]]:
        """(names that a run reads from outside, names that its own statements assign at last, names read behind it)."""
        used = {n.id for node in run for n in ast.walk(node) if isinstance(n, ast.Name)} & self.locals
        stored = {n.id for node in run for n in ast.walk(node) if isinstance(n, ast.Name) and _is_store(n)}
        inside = {id(n) for node in run for n in ast.walk(node)}
        fresh = {name for name in used if _is_set_first(run, name)}
        elsewhere = [
            n
            for n in ast.walk(self.source.tree)
            if isinstance(n, ast.Name) and not _is_store(n) and id(n) not in inside
        ]
        own = _own_uses(self.source.tree)
        behind = {n.id for n in elsewhere if n.id in stored and id(n) not in own}
        # what is read before it is stored may be read again, by the next iteration of a loop around
        return used - fresh, _bound_by(run), behind | ((stored - fresh) & used)

    def names_outside(self, run: Sequence[ast.stmt]) -> list[tuple[str, ...]]:
        """The names that a run reads from outside of the function, dotted ones as their parts."""
        found: dict[tuple[str, ...], None] = {}
        for node in (inner for one in run for inner in ast.walk(one)):
            parts: list[str] = []
            while isinstance(node, ast.Attribute):
                parts.insert(0, node.attr)
                node = node.value
            if isinstance(node, ast.Name) and node.id not in self.locals:
                found[node.id, *parts] = None
        return list(found)

    def piece(self, tree: ast.FunctionDef) -> FunctionType:
        """A run of statements as a function with a source of its own, in the scope of the function around."""
        text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
        file = f"<piece {next(_numbers)} of {self.function.__name__}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        parsed = ast.parse(text).body[0]
        assert isinstance(parsed, ast.FunctionDef), "a function was printed"
        free = self.function.__code__.co_freevars
        cells = dict(zip(free, self.function.__closure__ or (), strict=True))
        return _function(parsed, free, file, cells, self.function)


_NUMBER = bool | int | float | complex | np.number


def _outer_value(function: FunctionType, name: tuple[str, ...]) -> Any:
    """The value of a name that a function finds outside of itself, with attributes; None if it has none now."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    first, *attributes = name
    try:
        value = cells[first].cell_contents if first in cells else function.__globals__.get(first)
    except ValueError:  # not yet assigned
        return None
    for attribute in attributes:
        value = getattr(value, attribute, None) if isinstance(value, ModuleType) else None
    return value


def _piece_name(number: int) -> str:
    return f"polyfuse_piece{number}"


def _function(
    tree: ast.FunctionDef, free: Sequence[str], file: str, cells: Mapping[str, CellType], like: FunctionType
) -> FunctionType:
    """A function of its syntax, with the globals of another and the cells of names from around it."""
    args = ast.arguments([], [ast.arg(name) for name in free], None, [], [], None, [])
    outer = ast.FunctionDef("around", args, [tree], [], None, lineno=1, col_offset=0)
    code = compile(ast.fix_missing_locations(ast.Module([outer], [])), file, "exec")
    inner = next(c for c in code.co_consts if isinstance(c, CodeType))
    own = next(c for c in inner.co_consts if isinstance(c, CodeType) and c.co_name == tree.name)
    closure = tuple(cells[name] for name in own.co_freevars)
    return FunctionType(own, like.__globals__, tree.name, None, closure)


def _is_store(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _is_set_first(body: Sequence[ast.stmt], name: str) -> bool:
    """True if a block, or each loop's body in it that uses a name, assigns it before anything in it uses it."""
    using = [node for node in body if name in _names(node)]
    if not using:
        return False
    match using[0]:
        case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
            return name not in _names(value)
        case ast.For(target=ast.Name(id=target)) as loop if target == name:
            return all(
                isinstance(node, ast.For) and isinstance(node.target, ast.Name) and node.target.id == name
                for node in using
            ) and name not in _names(loop.iter)
    return all(_is_set_inside(node, name) for node in using)


def _is_set_inside(node: ast.stmt, name: str) -> bool:
    """True if the blocks of a loop or a branch assign a name before they use it, and its head does not use it."""
    head: tuple[ast.expr, ...]
    match node:
        case ast.For(target=target, iter=over):
            head, blocks = (target, over), [node.body]
        case ast.If(test=test):
            head, blocks = (test,), [node.body, node.orelse]
        case _:
            return False
    if any(name in _names(part) for part in head):
        return False
    used = [body for body in blocks if any(name in _names(part) for part in body)]
    return all(_is_set_first(body, name) for body in used)


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _bound_by(body: Sequence[ast.stmt]) -> set[str]:
    """The names that statements assign wherever they have run."""
    found: set[str] = set()
    for node in body:
        match node:
            case ast.Assign(targets=targets):
                found |= {
                    n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and _is_store(n)
                }
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                found.add(name)
            case ast.FunctionDef(name=name):
                found.add(name)
    return found


def _own_uses(tree: ast.AST) -> set[int]:
    """The uses of names that are assigned before, in the same loop: no value comes from outside of it."""
    found: set[int] = set()
    for loop in _loops(tree):
        names = {n.id for n in ast.walk(loop) if isinstance(n, ast.Name)}
        first = {name for name in names if _is_set_first([loop], name)}
        found |= {id(n) for n in ast.walk(loop) if isinstance(n, ast.Name) and n.id in first}
    return found


def _loops(tree: ast.AST) -> Iterator[ast.For]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.For))


def _as_numbers(given: Any) -> Any:
    """Results without dimensions as NumPy's numbers."""
    if isinstance(given, tuple):
        return tuple(map(_as_numbers, given))
    return given[()] if isinstance(given, np.ndarray) and given.ndim == 0 else given


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
