"""Choices: how the strategy decides between candidates, and how a caller or a search overrules the cost model.

    options, cheapest first by the model  --Choose.best-->   the one to take
    something to do, or to leave          --Choose.takes-->  whether it is done

Without more the model decides (`cheapest`). A `Wish`, of `compile(force=…)`, comes first: it takes or leaves what a
pass offers, or takes the candidate of a name. What nobody wishes for, a search may answer: tuning tries other positions
than the first, and `Picked` repeats what it found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

Answer = Callable[[tuple[str, ...], str, Sequence[float]], int]
"""Asked with a kernel's statements, what is to be chosen for it, and the seconds the model expects of each option, in
its order; answers with a position. The same question is never asked twice in one plan."""


@dataclass(frozen=True)
class Wish:
    """What a pass is to do whatever the model expects.

    Attributes:
        pass_: its name.
        statements: those that a kernel, or a nest, has to have; empty for every one.
        choice: False leaves it out, True takes it, a text takes the candidate of that name.
    """

    pass_: str
    statements: frozenset[str]
    choice: bool | str

    def __str__(self) -> str:
        return f"{self.pass_} of {', '.join(sorted(self.statements))}" if self.statements else self.pass_


class Choose:
    """Decides for the model, by wishes first, then by a search's answers.

    Args:
        answer: a search's answers; None takes the first option of each question.
        wishes: what passes are to do.
    """

    def __init__(self, answer: Answer | None = None, wishes: Iterable[Wish] = ()) -> None:
        self.answer, self.wishes = answer, tuple(wishes)
        self.offered: dict[str, dict[str, None]] = {}
        """The names of the candidates that wished passes had, for the error where none of them was meant."""
        self.granted: set[Wish] = set()
        """The wishes that decided something."""
        self._given: dict[str, int] = {}

    @property
    def searches(self) -> bool:
        """True if a search answers."""
        return self.answer is not None

    @property
    def decides_alike(self) -> bool:
        """True if kernels that are equal but for names have the same answers."""
        return self.answer is None and not any(
            wish.statements or isinstance(wish.choice, str) for wish in self.wishes
        )

    def with_wishes(self, wishes: Iterable[Wish]) -> Choose:
        """The same with more wishes."""
        return Choose(self.answer, (*self.wishes, *wishes))

    def without_search(self) -> Choose:
        """The same, as the model decides what nobody wishes for."""
        other = Choose(None, self.wishes)
        other.offered, other.granted = self.offered, self.granted
        return other

    def wish(self, pass_: str, statements: Iterable[str] = ()) -> Wish | None:
        """What a pass is to do with these statements; a wish for some of them comes before one for all."""
        if not self.wishes:
            return None
        own = frozenset(statements)
        found = [wish for wish in self.wishes if wish.pass_ == pass_ and wish.statements <= own]
        return max(found, key=lambda wish: len(wish.statements), default=None)

    def asks(self, pass_: str, statements: Iterable[str] = ()) -> bool:
        """True if a pass is asked at all: not if it is to be left out."""
        wish = self.wish(pass_, statements)
        if wish is None or wish.choice is not False:
            return True
        self.granted.add(wish)
        return False

    def forces(self, pass_: str, statements: Iterable[str] = ()) -> bool:
        """True if a pass is to do something whatever the model expects."""
        wish = self.wish(pass_, statements)
        return wish is not None and wish.choice is not False

    def wished(self, pass_: str, statements: Iterable[str] = ()) -> bool:
        """True if it is a wish that decides."""
        return self.wish(pass_, statements) is not None

    def takes(
        self,
        pass_: str,
        statements: Sequence[str],
        usual: bool,
        what: str = "",
        seconds: tuple[float, float] = (0.0, 0.0),
    ) -> bool:
        """True if something is done.

        Args:
            pass_: the pass that offers it.
            statements: what it is about.
            usual: the model's own decision.
            what: the question as a search hears it; a search is not asked without.
            seconds: the model's for it, and without it.
        """
        wish = self.wish(pass_, statements)
        if wish is not None:
            if isinstance(wish.choice, bool):
                self.granted.add(wish)  # a candidate's name is only granted once there is that candidate
            return wish.choice is not False
        if not what:
            return usual
        position = self._position(tuple(statements), what, seconds if usual else seconds[::-1])
        return (position == 0) == usual

    def best(
        self,
        pass_: str,
        statements: Sequence[str],
        options: Sequence[T],
        seconds: Callable[[T], float],
        name: Callable[[T], str],
        what: str = "",
    ) -> T:
        """The option to take.

        Args:
            pass_: the pass that offers them.
            statements: what they are about.
            options: one at least, the model's own choice first.
            seconds: what the model expects of one.
            name: tells one from the others, for wishes. Of options with one name the first is meant.
            what: the question as a search hears it; a search is not asked without.
        """
        wish = self.wish(pass_, statements)
        if wish is not None and isinstance(wish.choice, str):
            named = {name(option): option for option in reversed(options)}
            self.offer(pass_, reversed(named))
            if wish.choice in named:
                self.granted.add(wish)
                return named[wish.choice]
        if not what:
            return options[0]
        return options[self._position(tuple(statements), what, list(map(seconds, options)))]

    def offer(self, pass_: str, names: Iterable[str]) -> None:
        """Note the names of candidates that a pass has."""
        if any(wish.pass_ == pass_ for wish in self.wishes):
            self.offered.setdefault(pass_, {}).update(dict.fromkeys(names))

    def _position(self, kernel: tuple[str, ...], what: str, seconds: Sequence[float]) -> int:
        """A search's answer; a question that comes again has the same answer, or the first option."""
        if self.answer is None:
            return 0
        asked = question(kernel, what)
        if asked not in self._given:
            self._given[asked] = self.answer(kernel, what, seconds)
        return self._given[asked] if self._given[asked] < len(seconds) else 0


cheapest = Choose()
"""The model's own choice."""


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
