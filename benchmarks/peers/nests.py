"""The workloads that are loops, as `@pf.nest` functions in float32. Those that are layers: sides/by_polyfuse.py."""

from math import exp, sqrt

import numpy as np

import polyfuse as pf
from benchmarks.peers.workloads import ALPHA, BETA, STEPS


@pf.nest
def chain(x: "f32[N]"):
    """Ten operations on each element, and their sum."""
    total = np.zeros((1,), np.float32)
    for i in range(N):
        t = max(x[i] * 1.1 + 0.3, 0.0) * x[i]
        total[0] += exp(1.0 / sqrt(abs(t) + 1.0)) - 0.5
    return total


@pf.nest
def jacobi(a: "f32[N, N]", b: "f32[N, N]"):
    """Means of five neighbours, a to b and back."""
    for _t in range(STEPS):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                b[i, j] = 0.2 * (a[i, j] + a[i, j - 1] + a[i, 1 + j] + a[1 + i, j] + a[i - 1, j])
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                a[i, j] = 0.2 * (b[i, j] + b[i, j - 1] + b[i, 1 + j] + b[1 + i, j] + b[i - 1, j])


@pf.nest
def two_mm(a: "f32[M, K]", b: "f32[K, L]", c: "f32[L, N]", d: "f32[M, N]"):
    """BETA d + ALPHA a b c."""
    ab = np.empty((M, L), np.float32)
    result = np.empty((M, N), np.float32)
    for i in range(M):
        for j in range(L):
            ab[i, j] = 0.0
            for k in range(K):
                ab[i, j] += ALPHA * a[i, k] * b[k, j]
    for i in range(M):
        for j in range(N):
            result[i, j] = BETA * d[i, j]
            for k in range(L):
                result[i, j] += ab[i, k] * c[k, j]
    return result


@pf.nest
def three_mm(a: "f32[M, K]", b: "f32[K, L]", c: "f32[L, P]", d: "f32[P, N]"):
    """(a b) (c d)."""
    ab = np.empty((M, L), np.float32)
    cd = np.empty((L, N), np.float32)
    result = np.empty((M, N), np.float32)
    for i in range(M):
        for j in range(L):
            ab[i, j] = 0.0
            for k in range(K):
                ab[i, j] += a[i, k] * b[k, j]
    for i in range(L):
        for j in range(N):
            cd[i, j] = 0.0
            for k in range(P):
                cd[i, j] += c[i, k] * d[k, j]
    for i in range(M):
        for j in range(N):
            result[i, j] = 0.0
            for k in range(L):
                result[i, j] += ab[i, k] * cd[k, j]
    return result


@pf.nest
def atax(a: "f32[M, N]", x: "f32[N]"):
    """aᵀ (a x)."""
    ax = np.empty(M, np.float32)
    result = np.zeros(N, np.float32)
    for i in range(M):
        ax[i] = 0.0
        for j in range(N):
            ax[i] += a[i, j] * x[j]
        for j in range(N):
            result[j] += a[i, j] * ax[i]
    return result


@pf.nest
def gemver(
    a: "f32[N, N]",
    u1: "f32[N]",
    v1: "f32[N]",
    u2: "f32[N]",
    v2: "f32[N]",
    x: "f32[N]",
    y: "f32[N]",
    z: "f32[N]",
):
    """A matrix of rank two is added to a; what that and its transpose do to vectors."""
    sum = np.empty((N, N), np.float32)
    moved = np.empty(N, np.float32)
    w = np.zeros(N, np.float32)
    for i in range(N):
        for j in range(N):
            sum[i, j] = a[i, j] + u1[i] * v1[j] + u2[i] * v2[j]
    for i in range(N):
        moved[i] = x[i]
    for i in range(N):
        for j in range(N):
            moved[i] += BETA * sum[j, i] * y[j]
    for i in range(N):
        moved[i] = moved[i] + z[i]
    for i in range(N):
        for j in range(N):
            w[i] += ALPHA * sum[i, j] * moved[j]
    return moved, w
