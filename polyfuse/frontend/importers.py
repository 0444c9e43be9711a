"""Shared by the torch and ONNX importers: errors for refused nodes, unused results, conversion of operands."""

from __future__ import annotations

import keyword
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyfuse.errors import PolyfuseError
from polyfuse.ir import DType
from polyfuse.nn import cast
from polyfuse.nn.graph import INTEGERS, RESERVED, Value, constant


class Unsupported(PolyfuseError):
    """A node that polyfuse cannot express. The message is the reason and says what would work."""


@dataclass(frozen=True)
class Missing:
    """A result of an operator that is not computed, and why: the indices of a pooling."""

    reason: str


@dataclass(frozen=True)
class Refusal:
    """A node that is not imported, and why."""

    node: str
    operator: str
    reason: str
    place: str = ""

    def __str__(self) -> str:
        at = f" (in {self.place})" if self.place else ""
        return f"{self.node} = {self.operator}{at}: {self.reason}"


@dataclass(frozen=True)
class Failed:
    """The result of a node that was refused, or reads one that was."""


def converted(x: Any, dtype: DType) -> Any:
    """An operand in the element type that an operation computes in; numbers stay numbers, arrays become constants."""
    if isinstance(x, np.ndarray):
        return constant(x.astype(dtype))
    if not isinstance(x, Value) or x.dtype == dtype:
        return x
    if x.dtype in INTEGERS:
        raise Unsupported(f"reads {x.dtype} as numbers: cast the tensor to {dtype} before it is passed")
    return cast(x, dtype)


def required(x: Any, name: str) -> Value:
    """A tensor operand; Unsupported where a number was given in its place."""
    if not isinstance(x, Value):
        raise Unsupported(f"{name} is {x!r}, and not a tensor")
    return x


def free_name(target: str, taken: set[str]) -> str:
    """A tensor's name: a model's with "_" for what an identifier cannot have, and one more where it is taken."""
    name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in target)
    name = f"_{name}" if not name.isidentifier() else name
    while name in taken or name in RESERVED or keyword.iskeyword(name):
        name += "_"
    taken.add(name)
    return name
