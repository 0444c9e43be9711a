"""The interface of a side: a step that is called without arguments, and its weights in the layout of `networks`."""

from __future__ import annotations

from abc import ABC, abstractmethod

from benchmarks.training.networks import Array

MOMENTUM = 0.9
"""All steps are SGD with this momentum."""


class Step(ABC):
    """A step of training on a network's batch."""

    @abstractmethod
    def __call__(self) -> float:
        """Update the weights; the loss before."""

    @abstractmethod
    def parameters(self) -> dict[str, Array]:
        """The weights by name."""
