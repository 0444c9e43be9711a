"""Scan and Loop with a known number of steps: the nodes of their body once for each step.

    Scan(states, sequences) { body }   ->   states, outputs = body(states, sequences[0]); … ; stack(outputs)
    Loop(count, true, states) { body } ->   states, outputs = body(0, true, states); … ; stack(outputs)

A body may contain any operator, so that it is no loop of a nest in general. A long sequence would be many statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import onnx

from polyfuse import nn
from polyfuse.frontend.importers import Failed, Unsupported
from polyfuse.frontend.onnx.files import NODES
from polyfuse.frontend.onnx.operators import Node
from polyfuse.frontend.onnx.operators.registry import axes_within, value_of
from polyfuse.frontend.onnx.scope import Scope

STEPS = 64
"""The most steps that are written out."""


class Import(Protocol):
    """What a body's steps need of the import that they are part of."""

    count: int
    """Nodes so far."""

    def nodes(self, nodes: Iterable[onnx.NodeProto], scope: Scope, place: str = "") -> None:
        """Make the values of nodes, in their order."""

    def define(self, scope: Scope, name: str, operand: Any) -> None:
        """Give an operand its name."""

    def initialisers(self, graph: onnx.GraphProto, scope: Scope, taken: set[str]) -> None:
        """Define a graph's initialisers."""

    def told(self, node: onnx.NodeProto) -> Node:
        """What an importer is told of its node."""


def written_out(
    walk: Import, node: onnx.NodeProto, operands: Sequence[Any], scope: Scope, label: str
) -> Sequence[Any]:
    """Return the results of a Scan or a Loop.

    Args:
        walk: The import.
        node: The node.
        operands: Its operands; None for one that is left out.
        scope: The names around it.
        label: What to call it.

    Returns:
        The results: states, and what the steps give, stacked.

    Raises:
        Unsupported: if the number of steps is not known, or there are too many, or whether a step is the last depends
            on what is computed.
    """
    steps = _Steps(walk, node, scope, label)
    return steps.scan(operands) if node.op_type == "Scan" else steps.loop(operands)


class _Steps:
    def __init__(self, walk: Import, node: onnx.NodeProto, scope: Scope, label: str) -> None:
        self.walk, self.node, self.label = walk, node, label
        self.attributes = {a.name: a for a in node.attribute}
        if "body" not in self.attributes:
            raise Unsupported("has no body")
        self.body = self.attributes["body"].g
        self.around = scope.inner()
        walk.initialisers(self.body, self.around, set())

    def step(self, given: Sequence[Any], least: int) -> list[Any]:
        """The results of the body for its operands, of which there have to be so many."""
        if len(given) != len(self.body.input) or len(self.body.output) < least:
            raise Unsupported(
                f"its body takes {len(self.body.input)} operands for {len(self.body.output)} results; it is given "
                f"{len(given)}, and at least {least} are read"
            )
        inner = self.around.inner()
        for one, operand in zip(self.body.input, given, strict=True):
            self.walk.define(inner, one.name, operand)
        self.walk.nodes(self.body.node, inner, self.label)
        missing = next((one.name for one in self.body.output if one.name not in inner.operands), None)
        if missing is not None:
            raise Unsupported(f"no node of its body makes the result {missing!r}")
        return [inner.operands[one.name] for one in self.body.output]

    def check(self, steps: int) -> int:
        """A number of steps that are written out."""
        if not 0 < steps <= STEPS or self.walk.count + steps * len(self.body.node) > NODES:
            raise Unsupported(f"has {steps} steps; 1 to {STEPS} are written out")
        return steps

    def scan(self, operands: Sequence[Any]) -> Sequence[Any]:
        """Steps along axes of the last operands."""
        count = int(self.attributes["num_scan_inputs"].i) if "num_scan_inputs" in self.attributes else 0
        if not 0 < count <= len(operands):
            raise Unsupported(f"scans {count} of {len(operands)} operands")
        states, given = list(operands[: len(operands) - count]), [value_of(x) for x in operands[-count:]]
        named = self._numbers("scan_input_axes", count)
        axes = [axes_within([axis], x.rank)[0] for axis, x in zip(named, given, strict=True)]
        back = self._numbers("scan_input_directions", count)
        lengths = {x.shape[axis] for x, axis in zip(given, axes, strict=True)}
        steps = next(iter(lengths))
        if len(lengths) > 1 or not isinstance(steps, int):
            raise Unsupported(f"its lengths are {', '.join(map(str, lengths))}; expected one number for all")
        collected: list[list[Any]] = []
        for at in range(self.check(steps)):
            parts = [
                nn.select(x, axis, steps - 1 - at if turned else at)
                for x, axis, turned in zip(given, axes, back, strict=True)
            ]
            found = self.step([*states, *parts], len(states))
            if any(isinstance(one, Failed) for one in found):
                return [Failed()] * len(self.node.output)
            collected.append(found[len(states) :])
            states = found[: len(states)]
        every = [list(each) for each in zip(*collected, strict=True)]
        turned = self._numbers("scan_output_directions", len(every))
        ordered = [each[::-1] if turn else each for each, turn in zip(every, turned, strict=True)]
        return [*states, *map(_stacked, ordered, self._numbers("scan_output_axes", len(every)))]

    def loop(self, operands: Sequence[Any]) -> Sequence[Any]:
        """Steps up to a number that is known, or until a condition that is known says so."""
        told = self.walk.told(self.node)
        count, condition = (*operands, None, None)[:2]
        states = list(operands[2:])
        if count is None and condition is None:
            raise Unsupported("has neither a number of steps nor a condition")
        given = (STEPS + 1,) if count is None else told.integers(count, "number of steps")
        if len(given) != 1:
            raise Unsupported(f"has {len(given)} numbers of steps; expected one")
        goes_on = condition is None or bool(told.numbers(condition, "condition").any())
        collected: list[list[Any]] = []
        while goes_on and len(collected) < given[0]:
            self.check(len(collected) + 1)
            going, *found = self.step([np.array(len(collected)), np.array(True), *states], 1 + len(states))
            if any(isinstance(one, Failed) for one in (going, *found)):
                return [Failed()] * len(self.node.output)
            goes_on = bool(told.numbers(going, "condition after a step").any())
            collected.append(found[len(states) :])
            states = found[: len(states)]
        self.check(len(collected))
        return [*states, *(_stacked(list(each), 0) for each in zip(*collected, strict=True))]

    def _numbers(self, name: str, count: int) -> list[int]:
        """An attribute with a number for each of some operands; 0 where it is left out."""
        found = [int(one) for one in self.attributes[name].ints] if name in self.attributes else [0] * count
        if len(found) != count:
            raise Unsupported(f"{name} are {found}; expected {count} numbers")
        return found


def _stacked(parts: Sequence[Any], axis: int) -> Any:
    """What the steps gave along a new axis; known if all of it is."""
    if all(isinstance(one, np.ndarray) for one in parts) and len({one.shape for one in parts}) == 1:
        return np.stack(parts, axes_within([axis], parts[0].ndim + 1)[0])
    values = [value_of(one) for one in parts]
    return nn.stack(values, axes_within([axis], values[0].rank + 1)[0])
