"""Derivatives of nests as nests: reverse mode (`reverse`) and forward mode (`jvp`).

The values on the way, and the pass that makes each:

    Nest, wrt, outputs
      -> Nest on copies of its inouts                      copies.on_copies
      -> … with products and loops apart                   apart.with_products_apart, in_own_loops
      -> … with reductions as assignments where a loop     shares.with_explicit
           uses the unfinished result
      -> the tensors that derivatives pass through         activity.active
      -> which values are overwritten                      lifetimes.Lifetimes, from the nest's dependences
      -> for each statement and read, in reversed order:
           the product seed * df/dR                        adjoint_bodies.pull
           a seed of a maximum or a product                shares.share_of
           its instances by the element that they write    owners.owned, by inverting the access relation
           the sum that several products are multiples of  partial_sums.partial_sum
           a stencil's terms as one gather                  gathers.gathered
           sums that lie apart in an array of their own     phases.in_own_array
           copies of values that are lost                  stored.Stored
      -> Nest of what the results need                     assembly.assembled
      -> … with values computed again, not kept            recompute.recomputed
"""

from polyfuse.rewrite.gradient.forward import jvp
from polyfuse.rewrite.gradient.reverse import Reversed, reverse

__all__ = ["Reversed", "jvp", "reverse"]
