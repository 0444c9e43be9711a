"""Keep a temporary of halves in float32, so that its values are not rounded.

    for i, j: p[i, j] = e[i, j] * r[i]              p: float16[N, M]   ->   p: float32[N, M]
    for i, j, d: o[i, d] += p[i, j] * v[j, d]       each p is the float32 number that was rounded to a half

The theorem. A body computes halves in float32 (ir/tensor.py), so that every statement that writes the temporary has the
float32 number, and every one that reads it computes with one. What is left out is one rounding to nearest of each
element, off by at most half a step of the half relative to it (`relative_step`): results are nearer to those of real
numbers, and may differ from those with the rounding by as much as that one made. It is for values that a kernel keeps,
as attention's weights, which `inline` and `factor` then may take apart; in memory the temporary is twice as large.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Nest
from polyfuse.ir.number_types import computed_in
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.refusal import check_legal, refused


@dataclass(frozen=True)
class Unrounded:
    """The result of `unround`.

    Attributes:
        nest: The new nest.
        tensor: The temporary.
        half: Its element type before.
    """

    nest: Nest
    tensor: str
    half: str

    def __str__(self) -> str:
        return f"{self.tensor} stays in float32, where it was rounded to {self.half}"


@recorded("unround")
@proving("the rewrite unround")
def unround(nest: Nest, tensor: str) -> Unrounded:
    """Keep a temporary of halves in float32.

    p: float16[N, M]   ->   p: float32[N, M]

    Args:
        nest: The nest.
        tensor: The tensor's name.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_unround` returns a reason.
    """
    check_legal(why_not_unround(nest, tensor))
    known = nest.tensor(tensor)
    wide = replace(known, dtype=computed_in(known.dtype))
    tensors = tuple(wide if t is known else t for t in nest.tensors)
    return Unrounded(replace(nest, tensors=tensors), tensor, known.dtype)


@proving("the question why_not_unround")
def why_not_unround(nest: Nest, tensor: str) -> Refusal | None:
    """Return the reason why a temporary cannot be kept in float32.

    Args:
        nest: The nest.
        tensor: The tensor's name.

    Returns:
        The reason; None if the rewrite is legal.
    """
    known, call = nest.tensor(tensor), f"unround({tensor!r})"
    if not known.is_half:
        return refused(call, f"{tensor} is {known.dtype}, which is not rounded", "float16 or bfloat16")
    if known.role != "temporary":
        return refused(call, f"{tensor} has role {known.role}, so it must stay {known.dtype}", "a temporary")
    return None
