"""Frontends: turn what users write into nests. Layers are in polyfuse.nn."""

from polyfuse.frontend.einsum import einsum
from polyfuse.frontend.nest_builder import NestBuilder
from polyfuse.frontend.python.function import PythonNest, nest

__all__ = ["NestBuilder", "PythonNest", "einsum", "nest"]
