"""Frontends: what users write, as nests. Layers have a place of their own, polyfuse.nn."""

from polyfuse.frontend.build import NestBuilder
from polyfuse.frontend.einsum import einsum
from polyfuse.frontend.python import PythonNest, nest

__all__ = ["NestBuilder", "PythonNest", "einsum", "nest"]
