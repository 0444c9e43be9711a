"""Weights that are constants of a nest, and whether a call passes others, or the same with other values."""

from __future__ import annotations

from dataclasses import dataclass

import torch


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

    def changed(self, now: torch.Tensor) -> bool:
        """Whether a call passes another tensor, or one written to since: torch counts writes, but not those to .data.

        The tensor that is kept keeps its memory, so that no other can have the same address.
        """
        return bool(now.data_ptr() != self.address or now._version != self.version)

    def take(self, now: torch.Tensor) -> None:
        """Hold this tensor in its place."""
        self.tensor, self.version, self.address = now.detach(), now._version, now.data_ptr()
