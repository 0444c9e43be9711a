"""Rewrites: Nest -> Nest, the same values computed by other statements or kept in other places."""

from polyfuse.rewrite.accumulate import accumulate
from polyfuse.rewrite.batching import Batch, Batched, batch, why_not_batch
from polyfuse.rewrite.bilinear import Bilinear, bilinear
from polyfuse.rewrite.expand import Expanded, Expansion, expand
from polyfuse.rewrite.factor import Factored, factor, why_not_factor
from polyfuse.rewrite.fold import Folded, fold, why_not_fold
from polyfuse.rewrite.follow import Followed, follow, why_not_follow
from polyfuse.rewrite.in_place import in_place
from polyfuse.rewrite.inline import Inlined, inline, why_not_inline
from polyfuse.rewrite.needed import needed
from polyfuse.rewrite.online import Online, online
from polyfuse.rewrite.overlap import Overlapped, Recomputed, overlap
from polyfuse.rewrite.own_sums import own_sums
from polyfuse.rewrite.panels import Panels, panels, why_not_panels
from polyfuse.rewrite.pieces import Pieces, pieces
from polyfuse.rewrite.reduce import SplitReduction, split_reduction, why_not_split_reduction
from polyfuse.rewrite.refusal import Refusal
from polyfuse.rewrite.scratch import Scratch, scratch, why_not_scratch
from polyfuse.rewrite.shares import Shares
from polyfuse.rewrite.snapshot import Snapshot, snapshot, why_not_snapshot
from polyfuse.rewrite.terms import Terms, terms, why_not_terms
from polyfuse.rewrite.unround import Unrounded, unround, why_not_unround
from polyfuse.rewrite.view_flow import Composed
from polyfuse.rewrite.view_places import place, why_not_place
from polyfuse.rewrite.view_reads import read_through, why_not_read_through
from polyfuse.rewrite.views import Views, compose_views
from polyfuse.rewrite.widen import Narrowed, Widened, narrow, why_not_narrow, why_not_widen, widen

__all__ = [
    "Batch",
    "Batched",
    "Bilinear",
    "Composed",
    "Expanded",
    "Expansion",
    "Factored",
    "Folded",
    "Followed",
    "Inlined",
    "Narrowed",
    "Online",
    "Overlapped",
    "Panels",
    "Pieces",
    "Recomputed",
    "Refusal",
    "Scratch",
    "Shares",
    "Snapshot",
    "SplitReduction",
    "Terms",
    "Unrounded",
    "Views",
    "Widened",
    "accumulate",
    "batch",
    "bilinear",
    "compose_views",
    "expand",
    "factor",
    "fold",
    "follow",
    "in_place",
    "inline",
    "narrow",
    "needed",
    "online",
    "overlap",
    "own_sums",
    "panels",
    "pieces",
    "place",
    "read_through",
    "scratch",
    "snapshot",
    "split_reduction",
    "terms",
    "unround",
    "why_not_batch",
    "why_not_factor",
    "why_not_fold",
    "why_not_follow",
    "why_not_inline",
    "why_not_narrow",
    "why_not_panels",
    "why_not_place",
    "why_not_read_through",
    "why_not_scratch",
    "why_not_snapshot",
    "why_not_split_reduction",
    "why_not_terms",
    "why_not_unround",
    "why_not_widen",
    "widen",
]
