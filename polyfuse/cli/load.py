"""Load a FILE of the command line: Python that defines a nest, a model, layers, or values.

FILE ::= path[.py] [":" name]
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polyfuse as pf
from polyfuse.cli.early_checks import existing, parts_of, schedule_file
from polyfuse.errors import BadArgument, PolyfuseError
from polyfuse.ir import Nest
from polyfuse.nn import Module, Sequential, Value, lower
from polyfuse.schedule import Schedule
from polyfuse.workbench.terminal import Terminal

NAMES = ("nest", "model", "layers", "outputs")
"""The names that are tried, in this order, if the command line gives none."""


def loaded(terminal: Terminal, file: str, batch: int | None, features: Sequence[int] | None) -> Nest:
    """Run a file and return the nest of what it defines."""
    with terminal.working(f"running {file}"):
        return load_nest(file, batch, features)


def load_nest(file: str, batch: int | None = None, features: Sequence[int] | None = None) -> Nest:
    """Run a Python file and make a nest of what it defines.

    A Nest is taken as it is; a model, or a list of layers, is lowered with `batch` and `features` (from the command
    line, or else the file's variables of these names); values are outputs. A function without parameters is called.
    Without a name, and if none of NAMES is there, the file's only Nest is taken, such as a function under @pf.nest.

    Raises BadArgument if there is no such file, name or kind of value, or if the file raises.
    """
    path, name = parts_of(existing(file))
    variables = _run(path)
    nests = [n for n, value in variables.items() if isinstance(value, Nest)]
    wanted = [name] if name else [n for n in NAMES if n in variables] or (nests if len(nests) == 1 else [])
    if not wanted or wanted[0] not in variables:
        looked = repr(name) if name else "none of " + ", ".join(NAMES)
        raise BadArgument(f"{path} defines {'no ' if name else ''}{looked}; name one with {path}:name")
    found = variables[wanted[0]]
    if callable(found) and not isinstance(found, Module | Nest):
        with _reported(path):
            found = found()
    return _lowered(
        found,
        f"{wanted[0]} in {path}",
        batch if batch is not None else variables.get("batch"),
        features or variables.get("features"),
    )


def load_schedule(path: Path, nest: Nest) -> Schedule:
    """Return the schedule of a nest in a file: JSON, or Python that makes a schedule `s` of `nest`.

    Raises BadArgument if there is no such file or schedule, or the file raises; InvalidSchedule if it is of another
    nest.
    """
    schedule_file(path)
    if path.suffix == ".json":
        return Schedule.load(path, nest)
    with _reported(path):
        found = runpy.run_path(str(path), init_globals={"pf": pf, "nest": nest}).get("s")
    if not isinstance(found, Schedule):
        raise BadArgument(
            f"{path} does not define a Schedule named s; `polyfuse compile --emit` writes such a file"
        )
    return found


def known_sizes(nest: Nest, sizes: Mapping[str, int]) -> Mapping[str, int]:
    """Return values of a nest's symbolic sizes; BadArgument for a name that is none of them."""
    unknown = [name for name in sizes if name not in nest.params]
    if unknown:
        there = f"there are {', '.join(nest.params)}" if nest.params else "all its sizes are numbers"
        raise BadArgument(f"{nest.name} has no symbolic size {', '.join(unknown)}; {there}")
    return sizes


def possible_statements(nest: Nest, names: Sequence[str]) -> None:
    """Raise BadArgument for a name that no statement of a nest or of its plan can have.

    Rewrites name their statements after a statement or a tensor, and join the words by "_": pack_w0, mac0_again; copies
    into a stack of tensors h0, h1, … are stack_h0s_0. Which they make is known when the plan is; a name without such a
    word is refused before.
    """
    known = [s.name for s in nest.statements]
    words = "|".join(map(re.escape, known))
    tensors = "|".join(re.escape(tensor.name) for tensor in nest.tensors)
    possible = re.compile(rf"(?:^|_)(?:{words}|(?:{tensors})s?)(?:_|$)")
    for name in names:
        if not possible.search(name):
            raise BadArgument(f"explain: no statement {name!r}; there are {', '.join(known)}")


def _lowered(found: Any, where: str, batch: int | None, features: Sequence[int] | None) -> Nest:
    if isinstance(found, Nest):
        return found
    if isinstance(found, list | tuple) and found and all(isinstance(x, Module) for x in found):
        found = Sequential(*found)
    if isinstance(found, Module):
        if batch is None:
            raise BadArgument(
                f"{where} is a model and needs a batch: give --batch, or define batch in the file"
            )
        return lower(found, batch=batch, features=features)
    if isinstance(found, Value) or (
        isinstance(found, list | tuple) and all(isinstance(x, Value) for x in found)
    ):
        return lower(found)
    raise BadArgument(
        f"{where} is of type {type(found).__name__}; expected a Nest, a model, a list of layers, or values"
    )


def _run(path: Path) -> dict[str, Any]:
    with _reported(path):
        return runpy.run_path(str(path), run_name="polyfuse_file")


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Turn an exception of a user's file into a BadArgument that names the line; polyfuse errors stay as they are."""
    try:
        yield
    except PolyfuseError:
        raise
    except Exception as error:  # a user's file may raise anything; it is reported, not hidden
        raise BadArgument(f"{path}{_line(error, path)} raised {type(error).__name__}: {error}") from error


def _line(error: BaseException, path: Path) -> str:
    """Return the line of the file that caused an error, as ", line 3"."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f", line {error.lineno}"
    number, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            number = trace.tb_lineno
        trace = trace.tb_next
    return f", line {number}" if number is not None else ""
