"""The functions that are being read: the one that is decorated, and those that are inlined into it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from polyfuse.frontend.python.numpy.values import Value
from polyfuse.frontend.python.scope_names import outer_value
from polyfuse.frontend.python.source import Source


@dataclass(frozen=True)
class LocalFunction:
    """A `def` or `lambda` inside of a function, with the names that it sees."""

    node: ast.FunctionDef | ast.Lambda
    frame: Frame


@dataclass
class Frame:
    """One function's names and their values.

    `names` are the names that stand for variables in the lowered function; in the decorated function every variable
    keeps its own. `carried` are the arrays that a loop or branch around assigns: they keep their memory. `over` are the
    names whose value was one of a loop that is over, with that loop's variable; `divided` those that stand for
    different arrays or objects behind a branch, with its test.
    """

    source: Source
    variables: dict[str, Value] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    carried: set[str] = field(default_factory=set)
    over: dict[str, str] = field(default_factory=dict)
    divided: dict[str, str] = field(default_factory=dict)
    around: Frame | None = None
    caller: Frame | None = None
    call: ast.AST | None = None
    label: str = ""
    is_first: bool = False

    def found(self, name: str) -> Value | None:
        """The value of a name, in this function or those around it; None if none of them assigns it."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.variables:
                return frame.variables[name]
            frame = frame.around
        return None

    def outside(self, name: str) -> Any:
        """The Python object of a name that no function assigns; MISSING if there is none."""
        return outer_value(self.source, name)

    def chain(self) -> str:
        """The calls that lead here: "in relu, called in line 4 of net"; empty in the decorated function."""
        parts = []
        frame: Frame | None = self
        while frame is not None and frame.caller is not None:
            line = frame.caller.source.first + getattr(frame.call, "lineno", 1) - 1
            parts.append(f"in {frame.label}, called in line {line} of {frame.caller.label}")
            frame = frame.caller
        return ", ".join(parts)

    @property
    def depth(self) -> int:
        """The number of calls that lead here."""
        return 0 if self.caller is None else self.caller.depth + 1
