"""Frontends: what users write, as nests. Layers have a place of their own, polyfuse.nn."""

from polyfuse.frontend.einsum import einsum
from polyfuse.frontend.nest_builder import NestBuilder
from polyfuse.frontend.python.function import PythonNest, nest

__all__ = ["NestBuilder", "PythonNest", "einsum", "nest"]
