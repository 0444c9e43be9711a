"""What patterns that print vector rows have in common: how a row's function is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Define = Callable[[Sequence[str], Sequence[str]], str]
"""Prints a `VectorRow` with such parameters and lines beside the kernel, and returns its name."""
