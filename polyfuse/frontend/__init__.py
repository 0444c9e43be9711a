"""Frontends: what users write, as nests. Layers have a place of their own, polyfuse.nn."""

from polyfuse.frontend.python import PythonNest, nest

__all__ = ["PythonNest", "nest"]
