"""Sums of blocks, with common subexpressions computed once.

    a10 + a11,  a10 + a11 - a00,  a00 + a01 - a10 - a11      5 additions, with repetitions 6
                     ->  t = a10 + a11,  u = t - a00,  a01 - u        3 additions

The pair of terms that occurs in most sums becomes a value of its own, again and again (greedily: the fewest additions
are NP-hard to find). A pair has the same two terms with the same ratio. Sums and values are exact: putting the values
back gives the coefficients that were asked for, which is checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import gcd

from polyfuse.errors import ValidationFailure

Terms = tuple[tuple[int, int], ...]
"""(value, coefficient) pairs; values below the number of blocks are blocks, later ones are sums."""

_Form = dict[int, int]


@dataclass(frozen=True)
class Sum:
    """One value: what it adds up, and which of the forms it is; None if it is only part of others."""

    value: int
    terms: Terms
    form: int | None


@dataclass(frozen=True)
class Sums:
    """Every form over so many blocks, as values in an order in which they can be computed."""

    blocks: int
    sums: tuple[Sum, ...]

    @property
    def additions(self) -> int:
        """Additions and subtractions of blocks."""
        return sum(max(0, len(one.terms) - 1) for one in self.sums)


def shared(forms: Sequence[Sequence[int]], reuse: bool = True) -> Sums:
    """The forms (rows of coefficients of blocks) with common pairs computed once.

    With `reuse` a form that is part of others is computed as that part; without, every form is a value that no other
    one has in its terms.
    """
    blocks = len(forms[0])
    left: list[_Form] = [{b: c for b, c in enumerate(form) if c} for form in forms]
    parts: dict[int, Terms] = {}
    while (pair := _commonest(left)) is not None:
        value = blocks + len(parts)
        parts[value] = pair
        left = [_with(form, pair, value) for form in left]
    found = Sums(blocks, tuple(_ordered(left, parts, blocks, reuse)))
    _check(forms, found)
    return found


def _commonest(forms: list[_Form]) -> Terms | None:
    """The pair of terms that occurs in most forms, of equals the first; None if every pair occurs once."""
    counts: Counter[Terms] = Counter(
        _pair(form, *two) for form in forms for two in combinations(sorted(form), 2)
    )
    best = max(counts.items(), key=lambda found: found[1], default=None)
    return best[0] if best is not None and best[1] > 1 else None


def _pair(form: _Form, x: int, y: int) -> Terms:
    """Two terms of a form without their common factor, the first one positive."""
    factor = _factor(form, x, y)
    return (x, form[x] // factor), (y, form[y] // factor)


def _factor(form: _Form, x: int, y: int) -> int:
    return gcd(form[x], form[y]) * (1 if form[x] > 0 else -1)


def _with(form: _Form, pair: Terms, value: int) -> _Form:
    """The form with a pair replaced by the value it is, if it has the pair."""
    (x, _), (y, _) = pair
    if x not in form or y not in form or _pair(form, x, y) != pair:
        return form
    rest = {v: c for v, c in form.items() if v not in (x, y)}
    return {**rest, value: _factor(form, x, y)}


def _ordered(forms: list[_Form], parts: dict[int, Terms], blocks: int, reuse: bool) -> list[Sum]:
    """The shared values and the forms; a form that is a shared value itself is computed as that."""
    is_form: dict[int, int] = {}
    for f, form in enumerate(forms):
        for value, factor in form.items():
            if reuse and len(form) == factor == 1 and value in parts:
                is_form.setdefault(value, f)
    found = [Sum(value, terms, is_form.get(value)) for value, terms in parts.items()]
    done = set(is_form.values())
    rest = ((f, form) for f, form in enumerate(forms) if f not in done)
    return found + [Sum(blocks + len(parts) + f, tuple(sorted(form.items())), f) for f, form in rest]


def _check(forms: Sequence[Sequence[int]], found: Sums) -> None:
    """Raise ValidationFailure unless the values, put back, are the forms."""
    known: dict[int, list[int]] = {b: [int(b == x) for x in range(found.blocks)] for b in range(found.blocks)}
    for one in found.sums:
        known[one.value] = [sum(c * known[v][b] for v, c in one.terms) for b in range(found.blocks)]
        if one.form is not None and known[one.value] != list(forms[one.form]):
            raise ValidationFailure(f"sum {one.form} became {known[one.value]}, expected {forms[one.form]}")
    if sorted(one.form for one in found.sums if one.form is not None) != list(range(len(forms))):
        raise ValidationFailure("a sum of blocks was lost")
