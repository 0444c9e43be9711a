"""New names for statements, tensors and loops."""

from __future__ import annotations

from collections.abc import Collection


def fresh(name: str, taken: Collection[str]) -> str:
    """`name`, or `name_2`, `name_3`, … if it is taken."""
    if name not in taken:
        return name
    return next(f"{name}_{n}" for n in range(2, len(taken) + 3) if f"{name}_{n}" not in taken)
