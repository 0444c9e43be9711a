"""Names inside kernels: the same for the same code, whichever layer it came from.

mac3 reading x3, w3 and mac5 reading x5, w5 both become `mac` reading x, w: equal kernels then have equal text, and are
compiled once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from polyfuse.ir.gather import read_from
from polyfuse.ir.nest import Nest
from polyfuse.ir.nest_text import body_text
from polyfuse.ir.statement import Statement
from polyfuse.ir.tensor import Tensor


def base(name: str) -> str:
    """A name without the number that tells one layer from the next: "w3" -> "w", "load_x0_1" -> "load_x_1"."""
    return re.sub(r"(?<=[A-Za-z])\d+(?=_|$)", "", name)


class Namer:
    """Hands out names for keys, each name once: base(key), then base(key)_2, …"""

    def __init__(self, reserved: tuple[str, ...] = ()) -> None:
        self._taken: set[str] = set(reserved)
        self._given: dict[str, str] = {}

    @property
    def taken(self) -> frozenset[str]:
        """The names that it will not hand out again."""
        return frozenset(self._taken)

    def __call__(self, key: str) -> str:
        """The name for a key; the same key gets the same name."""
        if key not in self._given:
            wanted = base(key)
            name, n = wanted, 2
            while name in self._taken:
                name, n = f"{wanted}_{n}", n + 1
            self._taken.add(name)
            self._given[key] = name
        return self._given[key]


def tensors_of(nest: Nest, names: Iterable[str]) -> Iterator[Tensor]:
    """The tensors that statements read and write, in the order in which a kernel names them."""
    for s in map(nest.statement, names):
        for access in (*s.reads, s.write):
            yield from read_from(nest, nest.tensor(access.tensor))


def line_of(nest: Nest, s: Statement, namer: Namer) -> str:
    """A statement in a kernel's own names, so that equal kernels read equally."""

    def called(tensor: str) -> str:  # gathered rows are `w[x]`
        gather = nest.tensor(tensor).gather
        return f"{namer(gather.table)}[{namer(gather.index)}]" if gather else namer(tensor)

    write, *reads = (replace(access, tensor=called(access.tensor)) for access in s.accesses)
    return f"{base(s.name)}: {body_text(replace(s, write=write, reads=tuple(reads)))}"
