"""Values that are not rounded on their way: a temporary of halves becomes one of float32.

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

from polyfuse.errors import IllegalRewrite
from polyfuse.ir import Nest
from polyfuse.ir.tensor import computed_in
from polyfuse.proving import proving
from polyfuse.refusals import Refusal
from polyfuse.rewrite.refusal import refused


@dataclass(frozen=True)
class Unrounded:
    """A nest in which a temporary of halves is one of float32."""

    nest: Nest
    tensor: str
    half: str

    def __str__(self) -> str:
        return f"{self.tensor} stays in float32, where it was rounded to {self.half}"


@proving("the rewrite unround")
def unround(nest: Nest, tensor: str) -> Unrounded:
    """p: float16[N, M]   ->   p: float32[N, M]

    Raises IllegalRewrite where `why_not_unround` says why.
    """
    refusal = why_not_unround(nest, tensor)
    if refusal is not None:
        raise IllegalRewrite(refusal)
    known = nest.tensor(tensor)
    wide = replace(known, dtype=computed_in(known.dtype))
    tensors = tuple(wide if t is known else t for t in nest.tensors)
    return Unrounded(replace(nest, tensors=tensors), tensor, known.dtype)


@proving("the question why_not_unround")
def why_not_unround(nest: Nest, tensor: str) -> Refusal | None:
    """Why a tensor cannot be one of float32; None if it can."""
    known, call = nest.tensor(tensor), f"unround({tensor!r})"
    if not known.is_half:
        return refused(call, f"{tensor} is {known.dtype}, which rounds nothing", "float16 or bfloat16")
    if known.role != "temporary":
        return refused(
            call, f"{tensor} is visible to others ({known.role}), who want {known.dtype}", "a temporary"
        )
    return None
