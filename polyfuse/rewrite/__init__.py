"""Rewrites: Nest -> Nest, the same values computed by other statements or kept in other places."""

from polyfuse.rewrite.expand import Expanded, Expansion, expand

__all__ = ["Expanded", "Expansion", "expand"]
