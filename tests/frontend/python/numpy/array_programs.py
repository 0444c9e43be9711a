"""Programs on arrays, as a NumPy user writes them. Every one is run by Python and as a nest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# ruff: noqa: F821, E741, B905

WEIGHTS = np.array([0.25, 0.5, 0.25])
SCALE = 3.0


def smooth(y: f64[N]):
    y[1:-1] = 0.5 * (y[:-2] + y[2:])


def shifts(y: f64[N]):
    y[1:] = y[:-1]
    y[:-1] = y[1:] + 1.0
    y[::-1] = y[:]


def slices(x: f64[N], A: f64[N, M], y: f64[N]):
    y[::2] = x[::2] * 2
    y[1::2] += A[1::2, -1]
    y[-1] = x[-2] - x[0] if x[0] > 0 else x[1]
    A[..., 0] = y
    A[0, :] = A[-1]
    A[:, ::-1][1] = 4
    return A[::-1, None, 1:3]


def broadcast(A: f64[N, M], x: f64[N], y: f64[M]):
    A += x[:, None] * y
    A *= y[np.newaxis, :] - 1
    A /= 2
    A[:] = A - A.mean(axis=0)
    return A.T + x, x - np.sum(A, axis=-1)


def products(A: f64[N, N], B: f64[N, M], x: f64[N], C: f64[N, M]):
    C[:] = 1.5 * A @ B + 0.5 * C
    A[:] = A @ A
    y = x @ A @ B
    z = np.dot(A, x) + (A.T * 2) @ x
    s = x @ z
    return y, z, s, np.outer(x, y), np.einsum("ij,jk->ki", A, B), np.tensordot(A, B, axes=1)


def batches(A: f64[2, N, M], B: f64[M, N]):
    C = A @ B
    return C, np.swapaxes(C, 0, 2), np.transpose(C, (1, 0, 2)), np.einsum("bii->b", C)


def reductions(A: f64[N, M], k: i32[N]):
    a = np.max(A, axis=1, keepdims=True)
    e = np.exp(A - a)
    p = e / e.sum(axis=1, keepdims=True)
    return (
        p,
        A.min(),
        np.prod(A, axis=0),
        np.mean(k),
        k.sum(),
        np.var(A, axis=1),
        np.std(A),
        np.any(A > 1.0) * 1.0,
        np.cumsum(A, axis=1),
        np.trace(A[:2, :2]),
    )


def selections(x: f64[N], A: f64[N, N]):
    y = np.where(x > 0, x, 0)
    z = np.clip(x, -0.5, 0.5) + np.maximum(x, y) - np.minimum(x, 0.25)
    mask = np.logical_and(x > -1, x < 1)
    x[mask] = 2.0
    x[x > 1.5] *= 3.0
    inside = z[mask]
    s = inside.sum()
    A[A < 0] = A[A < 0] ** 2
    w = np.sign(z) + np.abs(z) + np.hypot(z, y) + np.arctan2(z, x) + np.arctan(z)
    return y, z, s, w, np.triu(A, 1) - np.tril(A), np.where(~mask | (y == 0), 1, 0)


def shapes(A: f64[N, M], x: f64[N]):
    (I, J) = A.shape
    n = len(x)
    t = np.zeros((I, J - 1))
    t[:, :] = A[:, : J - 1]
    u = np.ones(A.shape[-1]) * A.shape[0] + x.size
    v = np.empty_like(x)
    for i in range(n):
        v[i] = i * t.shape[1]
    w = np.full((n, 2), 7.0)
    w[:, 1] = np.arange(n)
    g = np.eye(n) + np.linspace(0.0, 1.0, n)
    return t, u, v, w, g, np.zeros(3, dtype=np.int64) + np.arange(1, 7, 2)


def rearranged(A: f64[N, 4], x: f64[N], y: f64[N]):
    return (
        A.reshape(-1),
        A.reshape((A.shape[0], 2, 2)).transpose(2, 0, 1),
        np.flip(x),
        np.roll(x, 1),
        np.concatenate((x, y[1:], x)),
        np.stack((x, y), axis=1),
        np.hstack((A, x[:, None])),
        np.repeat(x, 2),
        np.pad(A, ((1, 1), (0, 2))),
        np.diag(x),
        A.ravel() * 2.0,
        np.squeeze(x[:, None]),
    )


def rebound(x: f64[N], y: f64[N], steps: i64):
    old = x.copy()
    for _ in range(steps):
        new = old + y
        new[1:] = new[1:] - old[:-1]
        old, y = new, y * 0.5
        x = x + old
    return x, old


def views(A: f64[N, N]):
    B = A.T
    row = A[0]
    row[1:] = 5.0
    B[2, 0] = -1.0
    for i in range(1, A.shape[0]):
        below = A[i]
        below += A[i - 1]
        B[0, i] = below[0] * 2.0
    c = B[1]
    return c + row


def statements(x: f64[N], y: f64[N]):
    a = b = x[0] + 1.0
    x[0], y[0] = y[0], x[0]
    x, y = y, x
    for i in reversed(range(2, len(x))):
        if x[i] > 0.0:
            continue
        x[i] += x[i - 1] * a
    for j, v in enumerate(y):
        x[j] += v * j
    for p, q in zip(x, y):
        b += p * q
    for j, k in enumerate(range(1, 3)):
        x[j] = x[k] * b
    return a, b


def relu(z: Any, low: float = 0.0):
    return np.maximum(z, low)


def dense(z: Any, w: Any, bias: Any = None):
    out = z @ w
    if bias is not None:
        out += bias
    return out


def match(a: Any, b: Any):
    if a > b:
        return 1.0
    return SCALE


def network(x: f64[N, M], w: f64[M, M], b: f64[M]):
    def squared(t: Any):
        u = t * t
        return u, u.sum(axis=0)

    twice = lambda t: 2 * t  # noqa: E731
    h = relu(dense(x, w, b), low=0.1)
    h = twice(dense(h, w))
    x[:] = relu(x)
    s, total = squared(h)
    return s, total, match(total[0], b[0]) + WEIGHTS[1], b * WEIGHTS[0]


def blocks(A: f64[N, N]):
    for i in range(A.shape[0]):
        for j in range(i):
            A[i, j] -= np.dot(A[i, :j], A[:j, j])
            A[i, j] /= 4.0
        A[i, i:] -= A[i, :i] @ A[:i, i:]
    return A


def singles(x: f32[N], k: i32[N], y: f32[N]):
    z = x * 1.5 + k
    y[:] = x / 3
    w = k / 2
    v = k * 2
    u = np.sum(x)
    return z, w, v, u, x.astype(np.float64), np.sqrt(k * k)


def functions(x: f64[N], A: f64[N, M]):
    y = 0.9 * x / np.max(np.abs(x))
    x[0] = np.inf
    x[-1] = np.nan
    z = np.where(np.isinf(x) | ~np.isfinite(x), 4.5, x * 3)
    a = np.arcsin(y) + np.arccos(y) * np.arctanh(y) - np.arctan(z) + np.tan(y)
    b = np.sinh(y) * np.cosh(z) + np.arcsinh(z) + np.arccosh(np.abs(z) + 1)
    c = np.log2(z * z) + np.log10(z * z) + np.log1p(1e-18 * z) + np.expm1(1e-18 * z) + np.exp2(z)
    A[:] = np.round(A * 4) / 2
    return (
        a,
        b,
        c,
        np.hypot(y, z),
        np.floor(A) + 10 * np.ceil(A) + 100 * np.rint(A) + 1000 * np.trunc(A),
        np.round(A * 0.37, 2),
        np.floor(z).sum(),
        math.sinh(A[0, 0]),
        np.sign(z),
    )


def integers(k: i64[N], l: i32[N], A: f64[N, M]):
    a = k // l + 5 * (k % l) - k // -2 + k % 3
    b = (k << 3) ^ (k >> 1) | (~k & 7)
    c = (l << 30) // 3 + (l >> l) - l % -1
    k += np.left_shift(k, 70) + np.floor_divide(k, 0)
    k &= 6
    for i in range(1, len(k)):
        l[i] = l[i - 1] % l[i] + l[i] // 2
        l[i] ^= 5
    t = k[0] // 2
    return (
        a,
        b,
        c,
        np.where((k > 0) ^ (l > 0), k, 0),
        (A * (k % 2 == 1)[:, None]).sum(axis=0),
        np.floor(k) * t,
    )


def grids(x: f64[N], y: f64[M], A: f64[2, N]):
    X, Y = np.meshgrid(x, y)
    P, Q = np.meshgrid(x, y, indexing="ij")
    I, J = np.mgrid[: len(x), 1 : len(y)]
    return I * J, X * Y, P - Q, np.tile(A, (3, 1)), np.tile(A[:, :2], 2), np.tile(x, (2, 1))


def exchanged(A: f64[N, M], x: f64[N]):
    A[0], A[1] = A[1], A[0] * 2
    A[0], A[-1] = A[-1], A[0]
    x[0], x[1] = x[1], x[0]


def slices_by_name(x: f64[N], A: f64[N, 7]):
    flat = A[0].ravel()
    every = slice(None, None, 2)
    for i in range(1, N - 1):
        end = i
        before = slice(end - 1, end)
        end += 1
        here = slice(end - 1, end)
        x[here] = 0.5 * (x[before] + x[slice(end)][0])
    flat[every] = A[1, every] + flat[slice(0, 7, 2)]
    return x[slice(N - 2)]


def a_slice_of_each_iteration(x: f64[N]):
    for i in range(N - 1):
        part = slice(i, i + 2)
        x[part] = x[part] * 2.0
    for i in range(N - 2):
        part = slice(i + 1, i + 2)
        x[part] = x[part] + x[i]
