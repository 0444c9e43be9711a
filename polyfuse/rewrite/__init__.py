"""Rewrites: Nest -> Nest, with the same values computed by other statements or stored in other places."""

from polyfuse.errors.refusals import Refusal
from polyfuse.rewrite.batching.batch import Batch, Batched, batch, why_not_batch
from polyfuse.rewrite.bilinear.apply import Bilinear, bilinear
from polyfuse.rewrite.coalesce import Coalesced, coalesce, why_not_coalesce
from polyfuse.rewrite.common_statements import Shared, share, why_not_share
from polyfuse.rewrite.dead_instances import needed
from polyfuse.rewrite.follow import Followed, follow, why_not_follow
from polyfuse.rewrite.gradient import Reversed, reverse
from polyfuse.rewrite.index_set_splitting import Pieces, pieces
from polyfuse.rewrite.inline import Inlined, inline, why_not_inline
from polyfuse.rewrite.reductions.complex_products import RealProduct, real_product, why_not_real_product
from polyfuse.rewrite.reductions.factor_out import Factored, factor, why_not_factor
from polyfuse.rewrite.reductions.fold_scales import Folded, fold, why_not_fold
from polyfuse.rewrite.reductions.in_place import in_place
from polyfuse.rewrite.reductions.online_softmax import Online, online
from polyfuse.rewrite.reductions.own_accumulator import own_sums
from polyfuse.rewrite.reductions.private_accumulator import accumulate
from polyfuse.rewrite.reductions.split_reduction import (
    SplitReduction,
    split_reduction,
    why_not_split_reduction,
)
from polyfuse.rewrite.reductions.split_sum_terms import Terms, terms, why_not_terms
from polyfuse.rewrite.reductions.symmetric_sums import Mirrored, mirror, why_not_mirror
from polyfuse.rewrite.reindex import Reindexed, reindex, why_not_reindex
from polyfuse.rewrite.shares import Shares
from polyfuse.rewrite.storage.expansion import Expanded, Expansion, expand
from polyfuse.rewrite.storage.keep_float32 import Unrounded, unround, why_not_unround
from polyfuse.rewrite.storage.privatize_scratch import Scratch, scratch, why_not_scratch
from polyfuse.rewrite.storage.snapshot_operand import Snapshot, snapshot, why_not_snapshot
from polyfuse.rewrite.storage.widen_halves import (
    Narrowed,
    Widened,
    narrow,
    why_not_narrow,
    why_not_widen,
    widen,
)
from polyfuse.rewrite.tiling.blocked_factorization import Panels, panels, why_not_panels
from polyfuse.rewrite.tiling.overlapped_tiling import Overlapped, Recomputed, overlap
from polyfuse.rewrite.views.compose import Views, compose_views
from polyfuse.rewrite.views.flow import Composed
from polyfuse.rewrite.views.in_place_of import place, why_not_place
from polyfuse.rewrite.views.read_through import read_through, why_not_read_through

__all__ = [
    "Batch",
    "Batched",
    "Bilinear",
    "Coalesced",
    "Composed",
    "Expanded",
    "Expansion",
    "Factored",
    "Folded",
    "Followed",
    "Inlined",
    "Mirrored",
    "Narrowed",
    "Online",
    "Overlapped",
    "Panels",
    "Pieces",
    "RealProduct",
    "Recomputed",
    "Refusal",
    "Reindexed",
    "Reversed",
    "Scratch",
    "Shared",
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
    "coalesce",
    "compose_views",
    "expand",
    "factor",
    "fold",
    "follow",
    "in_place",
    "inline",
    "mirror",
    "narrow",
    "needed",
    "online",
    "overlap",
    "own_sums",
    "panels",
    "pieces",
    "place",
    "read_through",
    "real_product",
    "reindex",
    "reverse",
    "scratch",
    "share",
    "snapshot",
    "split_reduction",
    "terms",
    "unround",
    "why_not_batch",
    "why_not_coalesce",
    "why_not_factor",
    "why_not_fold",
    "why_not_follow",
    "why_not_inline",
    "why_not_mirror",
    "why_not_narrow",
    "why_not_panels",
    "why_not_place",
    "why_not_read_through",
    "why_not_real_product",
    "why_not_reindex",
    "why_not_scratch",
    "why_not_share",
    "why_not_snapshot",
    "why_not_split_reduction",
    "why_not_terms",
    "why_not_unround",
    "why_not_widen",
    "widen",
]
