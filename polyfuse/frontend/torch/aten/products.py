"""Importers of products: matrices, batches of them, linear layers, attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polyfuse import nn
from polyfuse.frontend.importers import Unsupported, converted
from polyfuse.frontend.torch.aten.registry import Result, Truths, aten, floating, masked
from polyfuse.ir import DType
from polyfuse.nn.graph import Value, pointwise


@aten("mm.default", "bmm.default", "matmul.default")
def product(result: Result, x: Any, y: Any) -> Value:
    """`x @ y`; a vector is a matrix of one row or column for the time being."""
    dtype = floating(result)
    x, y = converted(x, dtype), converted(y, dtype)
    left = nn.reshape(x, (1, *x.shape)) if x.rank == 1 else x
    right = nn.reshape(y, (*y.shape, 1)) if y.rank == 1 else y
    found = nn.matmul(left, right)
    return found if found.shape == result.shape else nn.reshape(found, result.shape)


@aten("mv.default", "dot.default")
def vector_product(result: Result, x: Any, y: Any) -> Value:
    """A product with a vector."""
    return product(result, x, y)


@aten("addmm.default", "baddbmm.default")
def addmm(result: Result, bias: Any, x: Any, y: Any, *, beta: float = 1, alpha: float = 1) -> Value:
    """`beta * bias + alpha * x @ y`."""
    dtype = floating(result)
    bias, x, y = (converted(value, dtype) for value in (bias, x, y))
    if alpha == beta == 1 and y.rank == 2 and bias.shape == y.shape[1:]:
        return nn.linear(x, y, bias)
    found = nn.matmul(x, y)
    found = found if alpha == 1 else found * alpha
    return found if beta == 0 else found + (bias if beta == 1 else bias * beta)


@aten("linear.default")
def linear(result: Result, x: Any, weight: Any, bias: Any = None) -> Value:
    """`x @ weight.T + bias`: torch keeps the weight as (out_features, in_features)."""
    dtype = floating(result)
    x, weight, bias = (converted(value, dtype) for value in (x, weight, bias))
    return nn.linear(x, nn.transpose(weight), bias)


def _attention(
    result: Result, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None, keep: float = 1.0
) -> tuple[Value, Value, Value | None]:
    """softmax(q kᵀ scale + mask) v, the scores before softmax, and 1 for each of their rows that sees a key.

    Rows that see none have no weights: their scores are not masked, and their results are 0. None: all rows see one.
    """
    dtype = floating(result)
    q, k, v = (converted(value, dtype) for value in (q, k, v))
    if keep != 1.0:
        raise Unsupported("draws random numbers for dropout; call model.eval()")
    if k.rank == q.rank > 2:
        k, v = (_for_heads(value, q.shape[-3]) for value in (k, v))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = nn.matmul(q, nn.transpose(k)) * factor
    if causal:
        if mask is not None:
            raise Unsupported("a mask and is_causal; ATen allows one of them")
        rows, columns = scores.shape[-2:]
        seen = np.triu(np.full((rows, columns), -np.inf), 1)
        scores = scores + nn.constant(seen.astype(dtype))
    seeing = None
    if mask is not None:
        added, seeing = _added(mask, dtype)
        scores = scores + added
    found = nn.matmul(nn.softmax(scores, -1), v)
    return found if seeing is None else nn.where(seeing, found, 0.0), scores, seeing


def _added(mask: Any, dtype: DType) -> tuple[Value, Value | None]:
    """The numbers that a mask adds to scores, and 1 for each row that sees a key, else 0; None where all rows do.

    Truth values add 0 where they hold, else -inf. A row of -inf alone adds 0: its softmax is a number, and not used.
    """
    of = mask.of if isinstance(mask, Truths) else mask
    if isinstance(of, np.ndarray):
        numbers = np.where(of, 0.0, -np.inf) if isinstance(mask, Truths) else of
        sees = np.atleast_1d(numbers).max(-1, keepdims=True) != -np.inf
        added = nn.constant(np.where(sees, numbers, 0.0).astype(dtype))
        return added, None if sees.all() else nn.constant(sees.astype(dtype))
    value = converted(of, dtype)
    if isinstance(mask, Truths):
        value = nn.where(value, 0.0, -np.inf)
    most = nn.max(value, -1, keepdims=True) if value.rank else value
    seeing = most.ne(-np.inf)
    return nn.where(seeing, value, 0.0), seeing


def _for_heads(x: Value, heads: int) -> Value:
    """Keys or values with each head repeated for the queries' heads that share it."""
    *batch, own, length, width = x.shape
    if own == heads or own == 0 or heads % own:
        return x
    apart = nn.reshape(x, (*batch, own, 1, length, width))
    return nn.reshape(
        nn.expand(apart, (*batch, own, heads // own, length, width)), (*batch, heads, length, width)
    )


@masked("scaled_dot_product_attention.default", 3, "attn_mask")
def attention(
    result: Result,
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """Attention as one product, softmax and another product, which the strategy may fuse to one kernel."""
    return _attention(result, q, k, v, attn_mask, is_causal, scale, 1.0 - dropout_p)[0]


@masked("_scaled_dot_product_flash_attention_for_cpu.default", 5, "attn_mask")
def flash_attention(
    result: Result,
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> tuple[Value, Value]:
    """The same, and the logarithm of the sum of exponentials of each row, which the gradient reads."""
    found, scores, seeing = _attention(result, q, k, v, attn_mask, is_causal, scale, 1.0 - dropout_p)
    sums = nn.logsumexp(scores, -1)
    if seeing is not None:  # of rows that see no key, torch gives 0
        sums = nn.where(nn.reshape(seeing, seeing.shape[:-1]) if seeing.rank else seeing, sums, 0.0)
    return found, sums


@aten("_transformer_encoder_layer_fwd.default")
def encoder_layer(
    result: Result,
    x: Any,
    width: int,
    heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    out_weight: Any,
    out_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Any,
    norm_bias_1: Any,
    norm_weight_2: Any,
    norm_bias_2: Any,
    weight_1: Any,
    bias_1: Any,
    weight_2: Any,
    bias_2: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Value:
    """A whole encoder layer, which torch calls outside of training in place of the layer's own operators."""
    if mask is not None:
        raise Unsupported(
            "an encoder layer with a mask as one operator; torch.backends.mha.set_fastpath_enabled(False)"
        )

    def attended(v: Value) -> Value:
        batch, length, _ = v.shape
        parts = nn.reshape(linear(result, v, qkv_weight, qkv_bias), (batch, length, 3, heads, width // heads))
        q, k, every = (nn.permute(nn.select(parts, 2, part), (0, 2, 1, 3)) for part in range(3))
        found, *_ = _attention(result, q, k, every, None, False, None)
        joined = nn.reshape(nn.permute(found, (0, 2, 1, 3)), (batch, length, width))
        return linear(result, joined, out_weight, out_bias)

    def forward(v: Value) -> Value:
        inner = linear(result, v, weight_1, bias_1)
        return linear(result, nn.gelu(inner) if use_gelu else nn.relu(inner), weight_2, bias_2)

    def first(v: Value) -> Value:
        return nn.layer_norm(v, width, norm_weight_1, norm_bias_1, eps)

    def second(v: Value) -> Value:
        return nn.layer_norm(v, width, norm_weight_2, norm_bias_2, eps)

    if norm_first:
        middle: Value = x + attended(first(x))
        return middle + forward(second(middle))
    middle = first(x + attended(x))
    return second(middle + forward(middle))


@aten("outer.default")
def outer(result: Result, x: Any, y: Any) -> Value:
    """`x[i] * y[j]`."""
    dtype = floating(result)
    x, y = converted(x, dtype), converted(y, dtype)
    return pointwise("outer", "{0} * {1}", nn.reshape(x, (-1, 1)), y)
