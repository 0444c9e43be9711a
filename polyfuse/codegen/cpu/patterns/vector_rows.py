"""The common part of patterns that print vector rows: the call of a row's function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Define = Callable[[Sequence[str], Sequence[str]], str]
"""Prints a `VectorRow` with such parameters and lines beside the kernel, and returns its name."""
