"""Weights that are constants of a nest, and whether a call passes others, or the same with other values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import torch

ADDRESS, VERSION = torch.Tensor.data_ptr, attrgetter("_version")


@dataclass
class Held:
    """A weight that is a constant of a nest: the argument's number, the constant's name, and the tensor as it was."""

    at: int
    name: str
    tensor: torch.Tensor
    version: int
    address: int

    @staticmethod
    def of(at: int, name: str, tensor: torch.Tensor) -> Held:
        """A weight as it is now."""
        return Held(at, name, tensor.detach(), tensor._version, tensor.data_ptr())

    def take(self, now: torch.Tensor) -> None:
        """Hold this tensor in its place."""
        self.tensor, self.version, self.address = now.detach(), now._version, now.data_ptr()


@dataclass
class HeldWeights:
    """All weights that are constants of a nest, with their arguments' numbers, versions and addresses.

    A call compares the lists: a model has hundreds of weights, and asking each by a method took MobileNetV2's 52 µs.
    Weights that are not `checked` are promised to stay as they are.
    """

    every: tuple[Held, ...]
    checked: bool = True
    places: list[int] = field(init=False)
    versions: list[int] = field(init=False)
    addresses: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.places = [one.at for one in self.every]
        self._note()

    def changed(self, args: Sequence[torch.Tensor]) -> list[tuple[Held, torch.Tensor]]:
        """The weights of which a call passes another tensor, or one written to since, each with that tensor.

        torch counts writes, but not those to .data. A tensor that is held keeps its memory, so that no other can have
        the same address.
        """
        if not self.checked:
            return []
        now = [args[at] for at in self.places]
        addresses, versions = list(map(ADDRESS, now)), list(map(VERSION, now))
        if addresses == self.addresses and versions == self.versions:
            return []
        return [
            (one, tensor)
            for one, tensor, address, version in zip(self.every, now, addresses, versions, strict=True)
            if (one.address, one.version) != (address, version)
        ]

    def take(self, new: Sequence[tuple[Held, torch.Tensor]]) -> None:
        """Hold these tensors in the places of weights."""
        for one, tensor in new:
            one.take(tensor)
        self._note()

    def _note(self) -> None:
        self.versions = [one.version for one in self.every]
        self.addresses = [one.address for one in self.every]
