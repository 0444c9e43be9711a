"""Tensors of torch as arrays and back, in the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]


def array_of(tensor: torch.Tensor) -> Array:
    """Return a tensor's elements as an array in the same memory, if it lies in the memory of the CPU.

    Args:
        tensor: The tensor; bfloat16 and float16 too.

    Returns:
        The array.
    """
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    bits = plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain
    array: Array = bits.numpy()
    return array if bits is plain else array.view("bfloat16")


def tensor_of(array: Array) -> torch.Tensor:
    """Return an array's elements as a tensor in the same memory; bfloat16 too.

    Args:
        array: The array.

    Returns:
        The tensor.
    """
    if array.dtype == "bfloat16":
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)
