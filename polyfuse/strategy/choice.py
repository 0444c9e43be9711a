"""Choosing: the question that a strategy asks wherever it takes the cheapest of several options.

    options, cheapest first by the model  --choose-->  the position of the one to take

A compile takes the first (`cheapest`). Tuning answers otherwise to try the others, and `Picked` repeats what it found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Choose = Callable[[tuple[str, ...], str, Sequence[float]], int]
"""Asked with a kernel's statements, what is to be chosen for it, and the seconds the model expects of each option, in
its order; answers with a position. The same question is never asked twice in one plan."""


def cheapest(kernel: tuple[str, ...], what: str, seconds: Sequence[float]) -> int:
    """The model's own choice."""
    return 0


def question(kernel: tuple[str, ...], what: str) -> str:
    """A question as text.

    >>> question(("mac0", "relu0"), "tiles")
    'tiles of mac0, relu0'
    """
    return f"{what} of {', '.join(kernel)}"


@dataclass(frozen=True)
class Picked:
    """The positions that were found best, by question; the model's own choice for every other question."""

    picks: Mapping[str, int]

    def __call__(self, kernel: tuple[str, ...], what: str, seconds: Sequence[float]) -> int:
        """The position that was picked."""
        return self.picks.get(question(kernel, what), 0)
