"""Small programs of every kind, for test_programs: each is a nest, and means what Python means."""

from __future__ import annotations

import math
from math import inf
from math import sqrt as root

import numpy as np

# ruff: noqa: F821, SIM108
LIMIT = 4
WEIGHT = np.float32(0.25)


def relu_else(x: f64[N], y: f64[N]):
    for i in range(N):
        if x[i] > 0:
            y[i] = x[i]
        else:
            y[i] = 0.1 * x[i]


def swap_sort(x: f64[N]):
    for i in range(N):
        for j in range(N - 1 - i):
            if x[j] > x[j + 1]:
                t = x[j]
                x[j] = x[j + 1]
                x[j + 1] = t


def masked_sum(x: f64[N], m: i64[N], s: f64[1]):
    for i in range(N):
        if m[i] == 1:
            s[0] += x[i]


def count_pos(x: f64[N]):
    n = 0
    for i in range(N):
        if x[i] > 0.0:
            n += 1
    return n


def argmax_like(x: f64[N]):
    m = x[0]
    for i in range(1, N):
        if x[i] > m:
            m = x[i]
    return m


def mixed(x: f64[N], y: f64[N]):
    for i in range(N):
        if i > 0 and x[i - 1] > 0.0:
            y[i] = x[i - 1]
        elif i == 0 or x[i] < 0.0:
            y[i] = -1.0
        else:
            y[i] += 2.0


def ternary_bounds(x: f64[N], y: f64[N]):
    for i in range(N):
        y[i] = (x[i - 1] if i > 0 else 0.0) + (x[i + 1] if i < N - 1 else 0.0)


def periodic(x: f64[N], y: f64[N]):
    for i in range(N):
        left = i - 1 if i > 0 else N - 1
        if i == N - 1:
            right = 0
        else:
            right = i + 1
        y[i] = x[left] - 2.0 * x[i] + x[right]


def alias_chain(x: f64[N, N]):
    for i in range(N - 2):
        ip = i + 1
        ipp = ip + 1
        for j in range(ip, N):
            jm = j - 1
            x[ip, j] = x[i, jm] + x[ipp, j] * ip


def alias_aug(x: f64[N]):
    k = 1
    k += 2
    for i in range(N):
        if i >= k:
            x[i] = x[i - k] + k


def n_from_shape(x: f64[A, B]):
    n = x.shape[0]
    m = x.shape[1]
    for i in range(n):
        for j in range(m):
            x[i, j] = x[i, j] * n + m


def local_zeros(x: f64[N, M], y: f64[N]):
    t = np.zeros((N, M))
    for i in range(N):
        for j in range(M):
            t[i, j] += 2.0 * x[i, j]
    for i in range(N):
        for j in range(M):
            y[i] += t[i, j]


def returns_array(x: f64[N]):
    out = np.empty_like(x)
    for i in range(N):
        out[i] = x[N - 1 - i]
    return out


def returns_two(x: f64[N]):
    s = 0.0
    p = 1.0
    for i in range(N):
        s += x[i]
        p *= x[i]
    return s, p


def returns_expr(x: f64[N]):
    s = 0.0
    for i in range(N):
        s += x[i] * x[i]
    return math.sqrt(s)


def mean_var(x: f64[N]):
    m = 0.0
    for i in range(N):
        m += x[i]
    m /= N
    v = 0.0
    for i in range(N):
        d = x[i] - m
        v += d * d
    return m, v / (N - 1) if N > 1 else 0.0


def chained(x: f64[N, N]):
    for i in range(N):
        for j in range(N):
            if 0 < i <= j < N - 1:
                x[i][j] -= x[i - 1][j + 1]


def neg_step(x: f64[N]):
    for i in range(N - 2, -1, -1):
        x[i] += x[i + 1]
    for i in range(N - 1, 0, -2):
        x[i] /= 2.0


def div_mod_bounds(x: f64[N], y: f64[N]):
    for i in range(N // 2):
        for j in range(i // 2, (i + 5) // 3):
            if (i + j) % 3 != 1 and j < N:
                y[i] += x[j] * j


def mod_select(x: f64[N]):
    for i in range(N):
        x[i] = 1.0 if i % 2 == 0 else -1.0


def root_alias(x: f64[N]):
    for i in range(N):
        x[i] = (
            root(abs(x[i]))
            + max(x[i], 0.0, -1.0)
            + pow(abs(x[i]), 0.5)
            + x[i] ** 2
            + (1.0 + abs(x[i])) ** -1.5
        )


def consts(x: f64[N]):
    for i in range(min(N, LIMIT)):
        x[i] = WEIGHT * x[i] + math.pi


def minmax(x: f64[N], lo: f64[1], hi: f64[1]):
    for i in range(N):
        lo[0] = min(x[i], lo[0])
        hi[0] = max(hi[0], x[i])


def nested_data_if(x: f64[N], y: f64[N]):
    for i in range(N):
        if x[i] > 0.0:
            if y[i] > 0.0:
                x[i] = y[i]
                y[i] = -1.0
            else:
                y[i] = x[i]
            x[i] += 1.0


def loop_in_data_if(x: f64[N], a: f64[N, N]):
    for i in range(N):
        if x[i] > 0.0:
            s = 0.0
            for j in range(N):
                s += a[i, j]
            x[i] = s
        else:
            for j in range(N):
                a[i, j] = 0.0


def div_in_branch(x: f64[N], y: f64[N]):
    for i in range(N):
        if x[i] != 0.0:
            r = 1.0 / x[i]
            y[i] = r * r


def carried(x: f64[N]):
    t = 0.0
    for i in range(N):
        if x[i] > 0.0:
            t = x[i]
        x[i] = t


def int_arith(a: i64[N], b: i64[N]):
    for i in range(N):
        a[i] = a[i] * 3 - b[i] + i
        if a[i] > b[i]:
            b[i] = a[i]


def f32_sum(x: f32[N], y: f32[N]):
    for i in range(N):
        y[i] = x[i] * 0.1 + 0.3


def f32_test(x: f32[N], y: f32[N]):
    for i in range(N):
        if x[i] > 0.1:
            y[i] = 1.0


def int_param(k: i64, n: i64, x: f64[N]):
    for i in range(n):
        if i < N:
            x[i] = x[i] * k + n


def shadow_param(alpha: f64, x: f64[N]):
    alpha = alpha * 2.0
    for i in range(N):
        x[i] = alpha * x[i]
        alpha += 1.0
    return alpha


def doc(x: f64[N]):
    """A docstring."""
    for i in range(N):
        "another"
        pass
        x[i] = 1.0
    return None


def zeros_in_loop(x: f64[N, N], y: f64[N]):
    for i in range(N):
        t = np.zeros(N)
        for j in range(N):
            for k in range(j + 1):
                t[j] += x[i, k]
        for j in range(N):
            y[j] += t[j] * t[N - 1 - j]


def test_changes(x: f64[N]):
    for i in range(1, N):
        if x[i] > x[i - 1]:
            x[i - 1] = x[i]
            x[i] = 0.0


def choice_of_what_it_reads(x: i64[N], y: i64[N]):
    for i in range(N):
        if x[i] & 1:
            x[i] = (x[i] >> 1) ^ y[i]
        else:
            x[i] >>= 1


def either_sum(x: f64[N], y: f64[N]):
    s = 0.0
    for i in range(N):
        if s > y[i]:
            s += x[i]
        else:
            s += 2.0 * x[i]
    y[0] = s


def triangular_if(x: f64[N, N]):
    for i in range(N):
        for j in range(N):
            if not (i <= j or i == N - 1):
                x[i, j] = x[j, i]


def neg_data(x: f64[N]):
    for i in range(N):
        if not x[i] > 0.0 or x[i] != x[i]:
            x[i] = -x[i]


def select_reduce_max(x: f64[N], m: f64[1]):
    for i in range(N):
        if x[i] < 0.5:
            m[0] = max(m[0], x[i])


def where_fn(x: f64[N]):
    for i in range(N):
        x[i] = np.where(x[i] > 0, np.sqrt(np.abs(x[i])), np.minimum(x[i], -0.5))


def prefix(x: f64[N]):
    s = 0.0
    for i in range(N):
        s = s + x[i]
        x[i] = s


def alias_killed(x: f64[N], y: f64[N]):
    last = 0
    for i in range(N):
        y[i] = last
        last = i
    y[0] = last


def int_local_bound(x: f64[N]):
    h = N // 2
    for i in range(h):
        x[i] = x[h + i] + i


def scalar_cmp_param(flag: i64, alpha: f64, x: f64[N]):
    if alpha > 0.5:
        for i in range(N):
            x[i] = alpha
    if flag == 1:
        for i in range(N):
            x[i] += 1.0


def parts_of_infinity(x: f64[N], lo: f64):
    m = -inf
    for i in range(N):
        if x[i] < lo:
            x[i] = lo
        m = max(m, x[i])
    return m


def more_than_its_sum(x: f64[N]):
    s = 0.0
    for i in range(N):
        if x[i] > s:
            s += x[i]
    return s


def product_of_some(x: f64[N], p: f64[N]):
    for i in range(N):
        for j in range(N):
            if x[j] > x[i] or i == j:
                p[i] *= x[j]


def in_two_places(x: f64[N], y: f64[N]):
    for i in range(N):
        if i % 2 == 0:
            at = i
        else:
            at = N - 1 - i // 2
        y[i] = x[at]


def own_and_shared(x: f64[N], y: f64[N]):
    t = 1.0
    for i in range(N):
        if x[i] > 0.0:
            r = x[i] * x[i]
            r = r + 1.0
            t = r
        y[i] = t


def filled(x: f64[N, M]):
    ones = np.ones((N, 2), dtype=np.float32)
    sevens = np.full_like(x, 7)
    count = np.zeros(N, "int64")
    for i in range(N):
        for j in range(M):
            count[i] += 1
            ones[i, j % 2] += 0.5
            x[i, j] = sevens[i, j] * ones[i, j % 2]
    return ones, count, x[0, 0]
