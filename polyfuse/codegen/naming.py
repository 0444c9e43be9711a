"""Names inside kernels: the same for the same code, whichever layer it came from.

mac3 reading x3, w3 and mac5 reading x5, w5 both become `mac` reading x, w: equal kernels then have equal text, and are
compiled once.
"""

from __future__ import annotations

import re


def base(name: str) -> str:
    """A name without the number that tells one layer from the next: "w3" -> "w", "load_x0_1" -> "load_x_1"."""
    return re.sub(r"(?<=[A-Za-z])\d+(?=_|$)", "", name)


class Namer:
    """Hands out names for keys, each name once: base(key), then base(key)_2, …"""

    def __init__(self, reserved: tuple[str, ...] = ()) -> None:
        self._taken: set[str] = set(reserved)
        self._given: dict[str, str] = {}

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
