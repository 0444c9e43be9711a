"""Choosing: the question that a strategy asks wherever it takes the cheapest of several options.

    options, cheapest first by the model  --choose-->  the position of the one to take

A compile takes the first (`cheapest`). Tuning answers otherwise to try the others, and `Picked` repeats what it found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Choose = Callable[[tuple[str, ...], str, Sequence[float]], int]
"""Asked with a kernel's statements, what is to be chosen for it, and the seconds the model expects of each option, in
its order; answers with a position. The same question is never asked twice in one plan (`asked_once`)."""


def cheapest(kernel: tuple[str, ...], what: str, seconds: Sequence[float]) -> int:
    """The model's own choice."""
    return 0


def asked_once(choose: Choose) -> Choose:
    """The same, for a plan that is made of several: a question that comes again has its answer, or the first option.

    >>> heard = asked_once(lambda kernel, what, seconds: len(seconds) - 1)
    >>> heard(("mac0",), "tiles", [1.0, 2.0, 3.0]), heard(("mac0",), "tiles", [1.0, 2.0, 3.0, 4.0])
    (2, 2)
    >>> heard(("mac0",), "tiles", [1.0, 2.0])
    0
    """
    if choose is cheapest:
        return choose
    given: dict[str, int] = {}

    def answered(kernel: tuple[str, ...], what: str, seconds: Sequence[float]) -> int:
        asked = question(kernel, what)
        if asked not in given:
            given[asked] = choose(kernel, what, seconds)
        return given[asked] if given[asked] < len(seconds) else 0

    return answered


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
