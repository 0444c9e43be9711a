"""Schedules as files: the steps as JSON, read back without running any code.

    file  ::= { "format": FORMAT, "version": 1, "polyfuse": …, "nest": name, "statements": [name…], "steps": [step…] }
    step  ::= { "verb": name, "args": [value…], "options": { name: value } }
    value ::= text | number | true | false | null | [value…] | { "is": type, … }

A list is a tuple. `{"is": "SmemLayout", …}` is a layout of a shared buffer, `Shares` the shares of a stream-k
reduction, `Algorithm` a bilinear algorithm by its text, and `dict` a dictionary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib import metadata
from pathlib import Path
from typing import Any

from polyfuse.bilinear import Algorithm, from_text, to_text
from polyfuse.errors import BadArgument, InvalidSchedule
from polyfuse.ir.nest import Nest
from polyfuse.layouts import CoreMatrixLayout, SmemLayout, SwizzledLayout
from polyfuse.rewrite import Shares
from polyfuse.schedule.rewriting import REWRITE
from polyfuse.schedule.step import VERBS, Step

FORMAT, VERSION = "polyfuse schedule", 1

TYPES: dict[str, type[Any]] = {
    each.__name__: each for each in (SmemLayout, CoreMatrixLayout, SwizzledLayout, Shares)
}
"""The types of values that are written field by field."""


def to_json(nest: Nest, steps: Sequence[Step]) -> str:
    """Return the text of a file: the steps of a schedule of a nest."""
    every = [
        {"verb": step.verb, "args": list(map(_encoded, step.args)), "options": _options(step)}
        for step in steps
    ]
    head = {"format": FORMAT, "version": VERSION, "polyfuse": metadata.version("polyfuse")}
    head |= {"nest": nest.name, "statements": [s.name for s in nest.statements]}
    lines = ",\n".join(f"  {json.dumps(one, ensure_ascii=False)}" for one in every)
    body = f"[\n{lines}\n ]" if every else "[]"
    return f'{json.dumps(head, ensure_ascii=False, indent=1)[:-2]},\n "steps": {body}\n}}\n'


def _options(step: Step) -> dict[str, object]:
    return {name: _encoded(value) for name, value in step.options}


def _encoded(value: Any) -> object:
    if isinstance(value, str):
        return str(value)  # a binding is a str of its own
    if isinstance(value, tuple | list):
        return [_encoded(each) for each in value]
    if isinstance(value, Mapping):
        return {"is": "dict", "items": {name: _encoded(each) for name, each in value.items()}}
    if isinstance(value, Algorithm):
        about = {"name": value.name, "modulus": value.modulus, "text": to_text(value)}
        return {"is": "Algorithm", **about}
    if type(value).__name__ in TYPES:
        return {"is": type(value).__name__, **{n: _encoded(v) for n, v in asdict(value).items()}}
    assert value is None or isinstance(value, bool | int | float), f"no step has {value!r}"
    return value


def read_steps(path: str | Path, nest: Nest) -> tuple[Step, ...]:
    """Read the steps in a file.

    Args:
        path: The file.
        nest: The nest that they are for.

    Returns:
        The steps, not applied yet.

    Raises:
        BadArgument: if there is no such file.
        InvalidSchedule: if it is no schedule, of a later version, or of other statements.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise BadArgument(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidSchedule(f"{path} is no schedule: it is no text") from error
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidSchedule(f"{path} is no schedule: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InvalidSchedule(f"{path} is no schedule: expected a file that Schedule.save wrote")
    if found.get("version") != VERSION:
        raise InvalidSchedule(
            f"{path} has version {found.get('version')!r}, written by polyfuse {found.get('polyfuse')}; this one "
            f"reads version {VERSION}"
        )
    names, steps = found.get("statements"), found.get("steps")
    if not isinstance(names, list) or not isinstance(steps, list):
        raise InvalidSchedule(f"{path} is no schedule: it has no list of statements, or none of steps")
    known = {s.name for s in nest.statements}
    absent = [str(name) for name in names if name not in known]
    if absent:
        raise InvalidSchedule(
            f"{path} is a schedule of nest {found.get('nest')!r}; nest {nest.name!r} has no statement "
            f"{', '.join(absent)}"
        )
    return tuple(read_step(f"{path}: step {position}", each) for position, each in enumerate(steps))


def read_step(where: str, found: Any) -> Step:
    """Return a step from what JSON has of it.

    Args:
        where: How an error names the step.
        found: The step: "verb", "args", "options".

    Raises:
        InvalidSchedule: if it is no step.
    """
    try:
        verb, args, options = found["verb"], found["args"], found["options"]
        if verb not in (*VERBS, REWRITE):
            raise InvalidSchedule(f"there is no verb {verb!r}")
        return Step(verb, tuple(map(_decoded, args)), tuple((n, _decoded(v)) for n, v in options.items()))
    except (KeyError, TypeError, AttributeError, InvalidSchedule) as error:
        why = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
        raise InvalidSchedule(f"{where} cannot be read: {why}") from error


def _decoded(value: Any) -> object:
    if isinstance(value, list):
        return tuple(map(_decoded, value))
    if not isinstance(value, dict):
        return value
    about = dict(value)
    kind = about.pop("is", None)
    if kind == "dict":
        return {name: _decoded(each) for name, each in about["items"].items()}
    if kind == "Algorithm":
        return from_text(str(about["name"]), str(about["text"]), int(about["modulus"]))
    if kind not in TYPES:
        raise InvalidSchedule(f"there is no type {kind!r}")
    expected = {each.name for each in fields(TYPES[kind])}
    if about.keys() != expected:
        raise InvalidSchedule(f"a {kind} has the fields {', '.join(sorted(expected)) or 'none'}")
    return TYPES[kind](**{name: _decoded(each) for name, each in about.items()})
