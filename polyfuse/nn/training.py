"""Training mode: what layers do in a training step only, and what they hand to it.

with training(seed) as mode: y = model(x)      y has dropout and statistics of the batch
                                               mode.renewed: arrays of the model with their next values
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from polyfuse.errors import BadArgument
from polyfuse.nn.graph import Value
from polyfuse.nn.nest_writer import Array


@dataclass
class Training:
    """One pass through a model in training mode.

    Attributes:
        seed: The number that random numbers are a function of.
        draws: How many values have been dropped from.
        renewed: Arrays that layers keep, such as running means, each with its next value.
    """

    seed: Value
    draws: int = 0
    renewed: list[tuple[Array, Value]] = field(default_factory=list)

    def next_draw(self) -> int:
        """The number of one more value that elements are dropped from."""
        self.draws += 1
        return self.draws - 1

    def renew(self, array: Array, value: Value) -> None:
        """Note the next value of an array that a layer keeps.

        Args:
            array: The array.
            value: Its next value.

        Raises:
            BadArgument: if it has a next value already, since a layer is used twice.
        """
        if any(array is other for other, _ in self.renewed):
            raise BadArgument(
                "a layer that keeps statistics of the batch is used twice in a training step: take two layers"
            )
        self.renewed.append((array, value))


_mode: ContextVar[Training | None] = ContextVar("training", default=None)


def training_mode() -> Training | None:
    """The training mode that layers are called in; None outside of `training`."""
    return _mode.get()


@contextmanager
def training(seed: Value) -> Iterator[Training]:
    """Call layers in training mode: dropout drops elements, and batch norm takes the batch's statistics.

    Args:
        seed: One number of int64, such as `nn.input("seed", (), "int64")`: the same seed drops the same elements.

    Yields:
        The mode, which has the next values of what layers keep (`renewed`).

    Raises:
        BadArgument: if the seed is not one number of int64.
    """
    if not isinstance(seed, Value) or seed.shape != () or seed.dtype != "int64":
        raise BadArgument(
            f"training: the seed is {seed!r}, expected one number: nn.input('seed', (), 'int64')"
        )
    mode = Training(seed)
    token = _mode.set(mode)
    try:
        yield mode
    finally:
        _mode.reset(token)
