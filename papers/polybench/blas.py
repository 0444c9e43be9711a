"""PolyBench 4.2, linear algebra: BLAS routines and products. Written from the benchmark's definitions."""

# The annotations are polyfuse's: names inside of them are symbolic sizes, which ruff and Python do not know.
# ruff: noqa: F821

import polyfuse as pf


@pf.nest
def gemm(alpha: "f64", beta: "f64", C: "f64[NI, NJ]", A: "f64[NI, NK]", B: "f64[NK, NJ]"):
    """C = alpha A B + beta C."""
    for i in range(NI):
        for j in range(NJ):
            C[i, j] *= beta
        for k in range(NK):
            for j in range(NJ):
                C[i, j] += alpha * A[i, k] * B[k, j]


@pf.nest
def gemver(
    alpha: "f64", beta: "f64", A: "f64[N, N]", u1: "f64[N]", v1: "f64[N]", u2: "f64[N]", v2: "f64[N]",
    w: "f64[N]", x: "f64[N]", y: "f64[N]", z: "f64[N]",
):  # fmt: skip
    """A += u1 v1' + u2 v2'; x += beta A' y + z; w += alpha A x."""
    for i in range(N):
        for j in range(N):
            A[i, j] = A[i, j] + u1[i] * v1[j] + u2[i] * v2[j]
    for i in range(N):
        for j in range(N):
            x[i] = x[i] + beta * A[j, i] * y[j]
    for i in range(N):
        x[i] = x[i] + z[i]
    for i in range(N):
        for j in range(N):
            w[i] = w[i] + alpha * A[i, j] * x[j]


@pf.nest
def gesummv(
    alpha: "f64", beta: "f64", A: "f64[N, N]", B: "f64[N, N]", tmp: "f64[N]", x: "f64[N]", y: "f64[N]"
):
    """y = alpha A x + beta B x."""
    for i in range(N):
        tmp[i] = 0.0
        y[i] = 0.0
        for j in range(N):
            tmp[i] = A[i, j] * x[j] + tmp[i]
            y[i] = B[i, j] * x[j] + y[i]
        y[i] = alpha * tmp[i] + beta * y[i]


@pf.nest
def symm(alpha: "f64", beta: "f64", C: "f64[M, N]", A: "f64[M, M]", B: "f64[M, N]"):
    """C = alpha A B + beta C, A symmetric with its lower triangle given."""
    for i in range(M):
        for j in range(N):
            acc = 0.0
            for k in range(i):
                C[k, j] += alpha * B[i, j] * A[i, k]
                acc += B[k, j] * A[i, k]
            C[i, j] = beta * C[i, j] + alpha * B[i, j] * A[i, i] + alpha * acc


@pf.nest
def syrk(alpha: "f64", beta: "f64", C: "f64[N, N]", A: "f64[N, M]"):
    """The lower triangle of C = alpha A A' + beta C."""
    for i in range(N):
        for j in range(i + 1):
            C[i, j] *= beta
        for k in range(M):
            for j in range(i + 1):
                C[i, j] += alpha * A[i, k] * A[j, k]


@pf.nest
def syr2k(alpha: "f64", beta: "f64", C: "f64[N, N]", A: "f64[N, M]", B: "f64[N, M]"):
    """The lower triangle of C = alpha (A B' + B A') + beta C."""
    for i in range(N):
        for j in range(i + 1):
            C[i, j] *= beta
        for k in range(M):
            for j in range(i + 1):
                C[i, j] += A[j, k] * alpha * B[i, k] + B[j, k] * alpha * A[i, k]


@pf.nest
def trmm(alpha: "f64", A: "f64[M, M]", B: "f64[M, N]"):
    """B = alpha A' B, A lower triangular with a diagonal of ones."""
    for i in range(M):
        for j in range(N):
            for k in range(i + 1, M):
                B[i, j] += A[k, i] * B[k, j]
            B[i, j] = alpha * B[i, j]


@pf.nest
def two_mm(
    alpha: "f64", beta: "f64", tmp: "f64[NI, NJ]", A: "f64[NI, NK]", B: "f64[NK, NJ]", C: "f64[NJ, NL]",
    D: "f64[NI, NL]",
):  # fmt: skip
    """D = alpha A B C + beta D."""
    for i in range(NI):
        for j in range(NJ):
            tmp[i, j] = 0.0
            for k in range(NK):
                tmp[i, j] += alpha * A[i, k] * B[k, j]
    for i in range(NI):
        for j in range(NL):
            D[i, j] *= beta
            for k in range(NJ):
                D[i, j] += tmp[i, k] * C[k, j]


@pf.nest
def three_mm(
    E: "f64[NI, NJ]", A: "f64[NI, NK]", B: "f64[NK, NJ]", F: "f64[NJ, NL]", C: "f64[NJ, NM]", D: "f64[NM, NL]",
    G: "f64[NI, NL]",
):  # fmt: skip
    """G = (A B) (C D)."""
    for i in range(NI):
        for j in range(NJ):
            E[i, j] = 0.0
            for k in range(NK):
                E[i, j] += A[i, k] * B[k, j]
    for i in range(NJ):
        for j in range(NL):
            F[i, j] = 0.0
            for k in range(NM):
                F[i, j] += C[i, k] * D[k, j]
    for i in range(NI):
        for j in range(NL):
            G[i, j] = 0.0
            for k in range(NJ):
                G[i, j] += E[i, k] * F[k, j]


@pf.nest
def atax(A: "f64[M, N]", x: "f64[N]", y: "f64[N]", tmp: "f64[M]"):
    """y = A' (A x)."""
    for i in range(N):
        y[i] = 0.0
    for i in range(M):
        tmp[i] = 0.0
        for j in range(N):
            tmp[i] = tmp[i] + A[i, j] * x[j]
        for j in range(N):
            y[j] = y[j] + A[i, j] * tmp[i]


@pf.nest
def bicg(A: "f64[N, M]", s: "f64[M]", q: "f64[N]", p: "f64[M]", r: "f64[N]"):
    """s = A' r and q = A p."""
    for i in range(M):
        s[i] = 0.0
    for i in range(N):
        q[i] = 0.0
        for j in range(M):
            s[j] = s[j] + r[i] * A[i, j]
            q[i] = q[i] + A[i, j] * p[j]


@pf.nest
def mvt(x1: "f64[N]", x2: "f64[N]", y1: "f64[N]", y2: "f64[N]", A: "f64[N, N]"):
    """x1 += A y1 and x2 += A' y2."""
    for i in range(N):
        for j in range(N):
            x1[i] = x1[i] + A[i, j] * y1[j]
    for i in range(N):
        for j in range(N):
            x2[i] = x2[i] + A[j, i] * y2[j]


@pf.nest
def doitgen(A: "f64[NR, NQ, NP]", C4: "f64[NP, NP]", total: "f64[NP]"):
    """A[r, q, :] = A[r, q, :] C4, in place."""
    for r in range(NR):
        for q in range(NQ):
            for p in range(NP):
                total[p] = 0.0
                for s in range(NP):
                    total[p] += A[r, q, s] * C4[s, p]
            for p in range(NP):
                A[r, q, p] = total[p]
