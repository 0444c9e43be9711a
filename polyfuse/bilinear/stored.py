"""Read arrays from an .npz file, including lists of arrays that NumPy stores as a pickle, without executing anything.

A pickle is a program for a small stack machine; loading one runs it, and it may call whatever it names. Here its
instructions are read (pickletools) and a call is kept as what it is: the name of a function and its arguments. A file
of arrays names three: numpy's `_reconstruct`, `ndarray` and `dtype`. Any other name, and any other instruction, is an
error.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.errors import InvalidAlgorithm

Array = npt.NDArray[Any]

_NAMES = ("_reconstruct", "ndarray", "dtype")


def arrays_in(path: Path) -> dict[str, list[Array]]:
    """Each entry's arrays by name: of one array [u, v, w] its three parts, of a list its three elements."""
    try:
        with zipfile.ZipFile(path) as file:
            return {
                entry.removesuffix(".npy"): _parts(f"{path}, {entry}", file.read(entry))
                for entry in file.namelist()
            }
    except zipfile.BadZipFile as error:
        raise InvalidAlgorithm(f"{path} is not an .npz file: {error}") from error


def _parts(where: str, data: bytes) -> list[Array]:
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, fortran, dtype = read[version](stream)
        if not dtype.hasobject:
            flat = np.frombuffer(data, dtype, count=int(np.prod(shape)), offset=stream.tell())
            return list(flat.reshape(shape, order="F" if fortran else "C"))
        (outer,) = [found for found in _Reader(data[stream.tell() :]).run() if isinstance(found, _Made)]
        return [_array(element) for element in outer.state[-1]]
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise InvalidAlgorithm(f"{where} has no readable arrays: {error}") from error


def _array(made: _Made) -> Array:
    """The array that a pickle would build: state (version, shape, dtype, is it in Fortran's order, bytes)."""
    _, shape, dtype, fortran, data = made.state
    order, kind = dtype.state[1], np.dtype(dtype.args[0])
    if kind.hasobject:
        raise ValueError("an array of objects inside a list")
    flat = np.frombuffer(data, kind.newbyteorder(order) if order in "<>" else kind)
    return flat.reshape(shape, order="F" if fortran else "C")


@dataclass
class _Made:
    """An object that a pickle would construct: the function's name, its arguments, and the state to set."""

    name: str
    args: tuple[Any, ...]
    state: tuple[Any, ...] = ()


class _Mark:
    """The start of a list of operands on the stack."""


class _Reader:
    """A pickle's instructions on a stack of plain data."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Iterator[Any]:
        """The value that a pickle holds."""
        for instruction, argument, _ in pickletools.genops(self.data):
            self._step(instruction.name, argument)
        return iter(self.stack)

    def _step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _PUSHED:
            stack.append(_PUSHED[name](argument))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name == "GLOBAL":
            stack.append(_known(argument.split(" ")[-1]))
        elif name == "STACK_GLOBAL":
            stack.append(_known(self._popped(2)[1]))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(tuple(self._popped(int(name[-1]))))
        elif name == "TUPLE":
            stack.append(tuple(self._to_mark()))
        elif name == "REDUCE":
            function, args = self._popped(2)
            stack.append(_Made(function, args))
        elif name == "BUILD":
            state = stack.pop()
            stack[-1].state = state
        elif name == "APPENDS":
            items = self._to_mark()
            stack[-1].extend(items)
        elif name == "APPEND":
            item = stack.pop()
            stack[-1].append(item)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ValueError(f"the pickle instruction {name}, which no list of arrays needs")

    def _popped(self, count: int) -> list[Any]:
        taken = self.stack[-count:]
        del self.stack[-count:]
        return taken

    def _to_mark(self) -> list[Any]:
        at = max(p for p, value in enumerate(self.stack) if isinstance(value, _Mark))
        return self._popped(len(self.stack) - at)[1:]


_PUSHED: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_LIST": lambda _: [],
    "EMPTY_TUPLE": lambda _: (),
    "MARK": lambda _: _Mark(),
    **dict.fromkeys(
        (
            [
                "BININT",
                "BININT1",
                "BININT2",
                "LONG1",
                "BINUNICODE",
                "SHORT_BINUNICODE",
                "BINBYTES",
                "SHORT_BINBYTES",
                "BINBYTES8",
            ]
        ),
        lambda argument: argument,
    ),
}
"""Instructions that put a value on the stack."""


def _known(name: str) -> str:
    if name not in _NAMES:
        raise ValueError(f"a call of {name}, which no list of arrays needs")
    return name
