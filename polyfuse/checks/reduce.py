"""`polyfuse reduce FILE`: make a program that fails as small as it can be while it still fails in the same way.

    def f(a, b):                           def f(a):
        for i in range(100):     wrong         for i in range(2):
            a[i] = 2 * a[i]     ------->           a[i] = 2 * a[i]
            b[i] = a[i] - 1

A program fails if a compiled call gives other values than the oracle, raises, does not end in time, or ends its
process. The edits tried are of the source of the function under @pf.nest: leave out a statement, a loop, a condition or
an argument; put an operand in place of an expression; make a number smaller. A file without such a function defines a
nest in another way, which is edited itself (reduce_nest.py). An edit stays if the program then fails in the same way;
the search ends where none does. Each trial runs in a process of its own.
"""

from __future__ import annotations

import ast
import copy
import multiprocessing
import re
import runpy
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import numpy as np

from polyfuse.checks.nest_source import nest_source
from polyfuse.checks.reduce_nest import nest_edits
from polyfuse.compiler import compile
from polyfuse.errors import BadArgument, BudgetExceeded, InvalidMath, PolyfuseError, TargetUnavailable
from polyfuse.interpret import interpret
from polyfuse.ir import Nest
from polyfuse.ir.gather import rows_of
from polyfuse.ir.sizes import extent
from polyfuse.workbench.terminal import Terminal

SIZE = 5
"""The value of every symbolic size that the options do not name."""

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""How far a value may lie from the oracle's, of the largest in its array. Integers are equal."""

Edits = Callable[[str], Iterator[str]]
"""The smaller files of a file."""

Kind = Literal["agrees", "refused", "wrong", "crash", "time-out", "died"]


@dataclass(frozen=True)
class Options:
    """How a program is compiled and called, and how many seconds that may take."""

    target: str = "cpu"
    machine: str | None = None
    device: str | None = None
    sizes: tuple[tuple[str, int], ...] = ()
    limit: float = 60.0


@dataclass(frozen=True)
class Outcome:
    """The result of running one program: `where` tells failures apart, `text` is shown to users."""

    kind: Kind
    where: str = ""
    text: str = ""

    @property
    def fails(self) -> bool:
        """Return whether polyfuse is at fault: a refusal is an answer."""
        return self.kind not in ("agrees", "refused")

    def like(self, other: Outcome) -> bool:
        """Return whether both programs ended in the same way."""
        return (self.kind, self.where) == (other.kind, other.where)

    def __str__(self) -> str:
        return ": ".join(part for part in (self.kind, self.where, self.text) if part)


def trial(text: str, options: Options) -> Outcome:
    """Compile and call a program in a process of its own, and compare what it leaves with the oracle.

    Args:
        text: A Python file with one nest.
        options: The target, the sizes, and the time it has.

    Returns:
        What became of it.
    """
    forks = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver") if forks else multiprocessing.get_context("spawn")
    context.set_forkserver_preload(["polyfuse.checks.reduce"])  # imported once, not by every trial
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_tried, args=(text, options, there))
    process.start()
    there.close()
    try:
        if not here.poll(options.limit):
            return Outcome("time-out", text=f"not done after {options.limit:.0f} s")
        outcome: Outcome = here.recv()
    except EOFError:
        process.join()
        return Outcome("died", str(process.exitcode), "the process ended")
    finally:
        process.kill()
        process.join()
        here.close()
    return outcome


def _tried(text: str, options: Options, answer: Connection) -> None:
    answer.send(outcome_of(text, options))
    answer.close()


def outcome_of(text: str, options: Options) -> Outcome:
    """Compile and call a program in this process, and compare what it leaves with the oracle.

    Args:
        text: A Python file with one nest.
        options: The target and the sizes.

    Returns:
        What became of it. What the file, the frontend or the call itself refuses is no failure; what compile raises is,
        except for targets, options and budgets.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(text, encoding="utf-8")
        how: dict[str, Any] = {"target": options.target, "machine": options.machine, "device": options.device}
        try:
            nest = _nest_in(path)
            arrays = _arrays(nest, dict(options.sizes))
            expected = interpret(nest, arrays)
        except Exception as error:  # noqa: BLE001  an edit can leave any nonsense
            return Outcome("refused", type(error).__name__, str(error))
        try:
            net = compile(nest, **how)
            given = net(**arrays)
        except (BadArgument, BudgetExceeded, InvalidMath, TargetUnavailable) as error:
            return Outcome("refused", type(error).__name__, str(error))
        except Exception as error:  # noqa: BLE001  a crash is what is looked for
            return _crash(error)
    results = given if isinstance(given, tuple) else () if given is None else (given,)
    found = {**arrays, **{t.name: value for t, value in zip(nest.results, results, strict=True)}}
    return next(
        (wrong for t, at in expected.items() if (wrong := _differs(t, found[t], at))), Outcome("agrees")
    )


def _nest_in(path: Path) -> Nest:
    found = [
        value for value in runpy.run_path(str(path), run_name="reduced").values() if isinstance(value, Nest)
    ]
    if len(found) != 1:
        raise BadArgument(f"the file has {len(found)} nests, expected one")
    return found[0]


def _arrays(nest: Nest, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Small whole numbers, the same in each trial; of rows, those that there are."""
    sizes = {name: sizes.get(name, SIZE) for name in nest.params}
    rows = rows_of(nest, sizes)
    arrays: dict[str, Any] = {}
    for tensor in nest.inputs:
        if tensor.rank == 0 and tensor.name in sizes:
            arrays[tensor.name] = sizes[tensor.name]
            continue
        low, high = (0, rows[tensor.name]) if tensor.name in rows else (-2, 3)
        numbers = np.random.default_rng(0).integers(low, high, [extent(size, sizes) for size in tensor.shape])
        arrays[tensor.name] = (
            numbers.astype(tensor.dtype) if tensor.rank else numbers.astype(tensor.dtype)[()]
        )
    return arrays


def _crash(error: Exception) -> Outcome:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = "" if isinstance(error, PolyfuseError) else f" in {Path(frame.filename).name}, {frame.name}"
    return Outcome("crash", type(error).__name__ + place, str(error))


def _differs(name: str, found: Any, expected: Any) -> Outcome | None:
    found, expected = np.asarray(found), np.asarray(expected)
    tolerance = TOLERANCE.get(str(expected.dtype), 0.0)
    mine, his = (
        (array if tolerance == 0 else array.astype(np.float64))
        for array in (found, expected.reshape(found.shape))
    )
    finite = his[np.isfinite(his)] if tolerance else his
    most = tolerance * max(1.0, float(np.abs(finite).max(initial=0))) if tolerance else 0
    same = np.isclose(mine, his, 0, most, equal_nan=True) if tolerance else mine == his
    if same.all():
        return None
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    text = f"{name}{list(at)} is {found[at]}, expected {expected.reshape(found.shape)[at]}"
    return Outcome("wrong", text=text)


# -- the search ----------------------------------------------------------------------------------------------------


def reduced(
    text: str,
    options: Options,
    wanted: Outcome,
    seconds: float = 600.0,
    say: Callable[[str], None] = lambda line: None,
    smaller: Edits | None = None,
) -> str:
    """Make a program that fails smaller, as long as it fails in the same way.

    Args:
        text: A Python file with one nest.
        options: How it is compiled and called.
        wanted: How it fails.
        seconds: No trial starts after this time.
        say: Called with a line after each edit that stays.
        smaller: The edits to try; by default those of the function under @pf.nest.

    Returns:
        The smallest file found.

    Raises:
        BadArgument: if the edits are the function's, and the file has none under a decorator whose name ends in "nest".
    """
    end = time.monotonic() + seconds
    return smallest(
        text,
        lambda edited: trial(edited, options).like(wanted),
        lambda: time.monotonic() < end,
        say,
        smaller or edits,
    )


def smallest(
    text: str,
    fails: Callable[[str], bool],
    may_go_on: Callable[[], bool] = lambda: True,
    say: Callable[[str], None] = lambda line: None,
    smaller: Edits | None = None,
) -> str:
    """Edit a file again and again, each time keeping what still fails, until no edit does or the time is over."""
    best, tried = text.rstrip("\n"), set[str]()
    while may_go_on():
        found = (smaller or edits)(best)
        edited = next((edit for edit in map(str.rstrip, found) if edit not in tried), None)
        if edited is None:
            break
        tried.add(edited)
        if fails(edited):
            best = edited
            say(f"{len(best.splitlines())} lines, {len(best)} characters")
    return best + "\n"


def edits(text: str) -> Iterator[str]:
    """Files that are smaller than this one by one edit of its function, those that take away most first."""
    for edit in (_without_statements, _without_loops, _with_less_numbers, _without_arguments, _with_operands):
        for module in edit(text):
            yield ast.unparse(ast.fix_missing_locations(module))


def function_in(module: ast.Module) -> ast.FunctionDef:
    """The function under @pf.nest, or under another decorator whose name ends in "nest"."""
    found = next(_functions(module), None)
    if found is None:
        raise BadArgument("the file has no function under @pf.nest")
    return found


def has_function(text: str) -> bool:
    """True if a file has a function under @pf.nest."""
    return any(_functions(ast.parse(text)))


def _functions(module: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and any(
            re.search(r"nest\b", ast.unparse(decorator)) for decorator in node.decorator_list
        ):
            yield node


def _nodes(text: str) -> list[ast.AST]:
    return list(ast.walk(function_in(ast.parse(text))))


def _copy(text: str, number: int) -> tuple[ast.Module, Any]:
    """A fresh copy of the file, and the node of its function that has this number in _nodes."""
    module = ast.parse(text)
    return module, list(ast.walk(function_in(module)))[number]


def _blocks(text: str) -> list[tuple[int, str, list[ast.stmt]]]:
    """The blocks of statements: the node's number, "body" or "orelse", and the statements."""
    return [
        (number, name, block)
        for number, node in enumerate(_nodes(text))
        for name in ("body", "orelse")
        if isinstance(block := getattr(node, name, None), list) and block
    ]


def _without_statements(text: str) -> Iterator[ast.Module]:
    """Leave out a run of neighbours in a block: halves of the longest, quarters, …, single ones."""
    blocks = _blocks(text)
    length = max(len(block) for _, _, block in blocks)
    while length:
        for number, name, block in blocks:
            for first in range(0, len(block) - length + 1, length):
                if name == "orelse" or length < len(block):
                    module, node = _copy(text, number)
                    del getattr(node, name)[first : first + length]
                    yield module
        length //= 2


def _without_loops(text: str) -> Iterator[ast.Module]:
    """Put the body in place of a loop, at its first iteration, or of a condition."""
    for number, name, block in _blocks(text):
        for at, statement in enumerate(block):
            for part in ("body", "orelse"):
                if isinstance(statement, ast.For | ast.If) and getattr(statement, part):
                    module, node = _copy(text, number)
                    inner = getattr(getattr(node, name)[at], part)
                    if isinstance(statement, ast.For):
                        bounds = statement.iter.args if isinstance(statement.iter, ast.Call) else []
                        first = bounds[0] if len(bounds) > 1 else ast.Constant(0)
                        inner = [_Named(ast.unparse(statement.target), first).visit(part) for part in inner]
                    getattr(node, name)[at : at + 1] = inner
                    yield module


def _with_less_numbers(text: str) -> Iterator[ast.Module]:
    """Make a number smaller wherever it stands, in annotations too; then each by itself."""
    function = ast.unparse(function_in(ast.parse(text)))
    numbers = sorted({int(n) for n in re.findall(r"(?<![\w.])\d+(?![\w.])", function)}, reverse=True)
    for number in numbers:
        for less in sorted({1, 2, number // 2, number - 1}):
            if 0 < less < number:
                module = ast.parse(text)
                at = module.body.index(function_in(module))
                changed = re.sub(rf"(?<![\w.]){number}(?![\w.])", str(less), function)
                module.body[at] = ast.parse(changed).body[0]
                yield module
    for number, node in enumerate(_nodes(text)):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value > 0:
            for less in sorted({0, node.value // 2, node.value - 1}):
                module, constant = _copy(text, number)
                constant.value = less
                yield module


def _without_arguments(text: str) -> Iterator[ast.Module]:
    """Leave out an argument that the body does not name, where none has a default."""
    function = function_in(ast.parse(text))
    used = {node.id for part in function.body for node in ast.walk(part) if isinstance(node, ast.Name)}
    for at, argument in enumerate(function.args.args):
        if argument.arg not in used and not function.args.defaults:
            module = ast.parse(text)
            del function_in(module).args.args[at]
            yield module


def _with_operands(text: str) -> Iterator[ast.Module]:
    """Put an operand in place of an expression, and a number in place of an element that is read."""
    for number, node in enumerate(_nodes(text)):
        for at in range(len(_operands(node))):
            module, expression = _copy(text, number)
            yield _Replaced(expression, _operands(expression)[at]).visit(module)


def _operands(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.BinOp(left, _, right):
            return [left, right]
        case ast.IfExp(_, body, orelse):
            return [body, orelse]
        case ast.UnaryOp(_, operand) if not isinstance(operand, ast.Constant):
            return [operand]
        case ast.BoolOp(_, values):
            return values
        case ast.Call(func, args) if ast.unparse(func) != "range":
            return args
        case ast.Subscript(ctx=ast.Load()):
            return [ast.Constant(1)]
    return []


class _Named(ast.NodeTransformer):
    """An expression in place of a variable."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.value) if node.id == self.name else node


class _Replaced(ast.NodeTransformer):
    """A node in place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.old else self.generic_visit(node)


def program_in(file: str, load: Callable[[], Nest]) -> tuple[str, Edits]:
    """Return the text of a program to reduce, and what edits it.

    Args:
        file: A Python file, or file.py:name.
        load: Makes the nest that the file defines, where it is no function under @pf.nest.

    Returns:
        The file's text, or that of a file which makes its nest with other values of the constants.

    Raises:
        BadArgument: if the file defines no nest, or one that cannot be written as text.
    """
    if Path(file).is_file():
        text = Path(file).read_text(encoding="utf-8")
        if has_function(text):
            return text, edits
    return nest_source(load()), nest_edits


def reduce_file(
    file: str,
    options: Options,
    seconds: float,
    out: Path | None,
    terminal: Terminal,
    load: Callable[[], Nest],
) -> bool:
    """Reduce a file that fails; print each step and the smallest program, and write it where it is wanted.

    Returns:
        Whether the file failed.
    """
    text, smaller = program_in(file, load)
    outcome = trial(text, options)
    terminal.text(f"{file}: {outcome}")
    if not outcome.fails:
        return False
    small = reduced(text, options, outcome, seconds, terminal.text, smaller)
    terminal.heading("the smallest program that fails so")
    terminal.text(small)
    if out is not None:
        out.write_text(small, encoding="utf-8")
        terminal.text(f"wrote {out}")
    return True
