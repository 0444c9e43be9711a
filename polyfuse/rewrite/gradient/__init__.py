"""Derivatives of nests as nests: reverse mode (`vjp`, `grad`) and forward mode (`jvp`)."""

from polyfuse.rewrite.gradient.forward import jvp
from polyfuse.rewrite.gradient.reverse import Reversed, grad, reverse, vjp

__all__ = ["Reversed", "grad", "jvp", "reverse", "vjp"]
