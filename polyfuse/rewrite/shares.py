"""How the work of a reduction is shared out: an argument of `split_reduction`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Shares:
    """Equal shares of a reduction's work (stream-k; Osama et al., 2023).

    Attributes:
        count: The number of shares.
        steps: The steps of one chunk, the smallest piece that is shared out.
        tile: The tile's size along dimensions of the results; 1 along those not named.
    """

    count: int
    steps: int
    tile: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """The constructor call, as text."""
        return f"Shares({self.count}, steps={self.steps}, tile={dict(self.tile)})"
