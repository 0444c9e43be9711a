"""Rewrites: Nest -> Nest, the same values computed by other statements or kept in other places."""

from polyfuse.rewrite.expand import Expanded, Expansion, expand
from polyfuse.rewrite.inline import Inlined, inline, why_not_inline
from polyfuse.rewrite.overlap import Overlapped, Recomputed, overlap
from polyfuse.rewrite.refusal import Refusal

__all__ = [
    "Expanded",
    "Expansion",
    "Inlined",
    "Overlapped",
    "Recomputed",
    "Refusal",
    "expand",
    "inline",
    "overlap",
    "why_not_inline",
]
