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

    def changed(self, now: torch.Tensor) -> bool:
        """Whether a call passes another tensor, or one written to since: torch counts writes, but not those to .data.

        The tensor that is kept keeps its memory, so that no other can have the same address.
        """
        return bool(now.data_ptr() != self.tensor.data_ptr() or now._version != self.version)
