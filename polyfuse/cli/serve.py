"""`polyfuse serve FILE --stdio`: verdicts on proposed steps, one JSON request a line, one JSON answer a line.

    {"id": 1, "do": "verdict", "steps": [{"verb": "split", "args": ["mac0", "j", 32]}]}
    {"id": 1, "legal": true, "refused": null, …, "predicted": 3.2e-05, "steps": ["split('mac0', 'j', 32)"]}

With "measure": true a legal schedule is compiled and called on random arrays, and "measured" has the seconds of a call.

Requests hold data alone: names of verbs and their arguments. No code of a request is run. A request that cannot be
answered gets {"error": {"type", "message"}}, and the next line is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO

from polyfuse.cli.measuring import random_arrays
from polyfuse.errors import BadArgument, PolyfuseError
from polyfuse.ir.nest import Nest
from polyfuse.machine import Machine
from polyfuse.schedule.step import VERBS
from polyfuse.show.explorer import explored
from polyfuse.strategy.next_steps import next_steps
from polyfuse.workbench.verdict import verdict

MOST_STEPS, LONGEST = 10_000, 4_000_000
"""The most steps of a request, and the most characters of its line."""

SEED = 0
"""The seed of the arrays that schedules are measured on: every schedule is measured on the same ones."""


def serve(nest: Nest, machine: Machine, requests: Iterable[str], answers: TextIO) -> None:
    """Answer requests until there are no more.

    Args:
        nest: The nest that steps are proposed for.
        machine: The machine that prices them.
        requests: One request a line.
        answers: Where the answers are written.
    """
    for line in requests:
        if line.strip():
            answers.write(json.dumps(answer(nest, machine, line), ensure_ascii=False) + "\n")
            answers.flush()


def answer(nest: Nest, machine: Machine, line: str) -> dict[str, Any]:
    """Return the answer to one request, with its id.

    Args:
        nest: The nest.
        machine: The machine.
        line: The request.
    """
    about: dict[str, Any] = {}
    try:
        request = _read(line)
        about = {"id": request["id"]} if "id" in request else {}
        return about | ANSWERS[request.get("do", "verdict")](nest, machine, request)
    except PolyfuseError as error:
        return about | {"error": {"type": type(error).__name__, "message": str(error)}}


def _read(line: str) -> dict[str, Any]:
    if len(line) > LONGEST:
        raise BadArgument(f"a request has {len(line)} characters; expected at most {LONGEST}")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadArgument(f"a request is one line of JSON: {error}") from error
    if not isinstance(request, dict):
        raise BadArgument(f"a request is an object, not {type(request).__name__}")
    if not isinstance(request.get("do", "verdict"), str) or request.get("do", "verdict") not in ANSWERS:
        raise BadArgument(f"do: {request.get('do')!r}; expected one of {', '.join(ANSWERS)}")
    known = {"id", "do", "steps", "most", "measure"}
    unknown = sorted(request.keys() - known)
    if unknown:
        raise BadArgument(f"unknown field {unknown[0]!r}; a request has {', '.join(sorted(known))}")
    steps = request.get("steps", [])
    if not isinstance(steps, list) or len(steps) > MOST_STEPS:
        raise BadArgument(f"steps: expected a list of at most {MOST_STEPS} steps")
    return request


def _nest(nest: Nest, machine: Machine, request: Mapping[str, Any]) -> dict[str, Any]:
    return {"nest": str(nest), "statements": [s.name for s in nest.statements], "verbs": list(VERBS)}


def _verdict(nest: Nest, machine: Machine, request: Mapping[str, Any]) -> dict[str, Any]:
    measure = request.get("measure", False)
    if not isinstance(measure, bool):
        raise BadArgument(f"measure: {measure!r}; expected true or false")
    if measure and nest.params:
        names = ", ".join(nest.params)
        raise BadArgument(f"measure: the arrays depend on {names}; serve a nest whose sizes are numbers")
    inputs = random_arrays("measure", nest, {}, SEED) if measure else None
    return verdict(nest, request.get("steps", []), machine=machine, inputs=inputs).data()


def _next(nest: Nest, machine: Machine, request: Mapping[str, Any]) -> dict[str, Any]:
    most = request.get("most", 12)
    if not isinstance(most, int) or isinstance(most, bool) or not 0 < most <= 100:
        raise BadArgument(f"most: {most!r}; expected a number from 1 to 100")
    found = verdict(nest, request.get("steps", []), machine=machine)
    if not found.legal:
        return found.data()
    steps = [
        {
            "verb": one.step.verb,
            "args": list(one.step.args),
            "options": dict(one.step.options),
            "seconds": one.seconds,
        }
        for one in next_steps(found.schedule, machine, most)
    ]
    return {"next": steps, "predicted": found.predicted}


def _explore(nest: Nest, machine: Machine, request: Mapping[str, Any]) -> dict[str, Any]:
    found = verdict(nest, request.get("steps", []), machine=machine)
    return found.data() if not found.legal else {"explorer": explored(found.schedule, machine)}


ANSWERS: Mapping[str, Callable[[Nest, Machine, Mapping[str, Any]], dict[str, Any]]] = {
    "nest": _nest,
    "verdict": _verdict,
    "next": _next,
    "explore": _explore,
}
"""The commands that a request may name in its field `do`."""
