"""Options of the commands: lists with commas."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable


def some_of(choices: Iterable[str]) -> Callable[[str], list[str]]:
    """What reads names of these, such as "gemm,lu"."""
    known = list(choices)

    def names(text: str) -> list[str]:
        unknown = [name for name in text.split(",") if name not in known]
        if unknown:
            raise ArgumentTypeError(f"no {', '.join(unknown)}; there are {', '.join(known)}")
        return text.split(",")

    return names


def some_numbers_of(choices: Iterable[int]) -> Callable[[str], list[int]]:
    """What reads some of these numbers, such as "2,4"."""
    named = some_of(map(str, choices))
    return lambda text: list(map(int, named(text)))


def numbers(text: str) -> list[int]:
    """Whole numbers, such as "1,2"."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no list of numbers such as 1,2") from error
