"""PolyBench 4.2, solvers and data mining. Written from the benchmark's definitions."""

# ruff: noqa: F821

from math import sqrt

import polyfuse as pf


@pf.nest
def cholesky(A: "f64[N, N]"):
    """The lower triangle becomes L with A = L L'."""
    for i in range(N):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[j, k]
            A[i, j] /= A[j, j]
        for k in range(i):
            A[i, i] -= A[i, k] * A[i, k]
        A[i, i] = sqrt(A[i, i])


@pf.nest
def durbin(r: "f64[N]", y: "f64[N]", z: "f64[N]"):
    """Solve the Yule-Walker equations: T y = -r, T[i, j] the Toeplitz matrix of (1, r)."""
    y[0] = -r[0]
    beta = 1.0
    alpha = -r[0]
    for k in range(1, N):
        beta = (1 - alpha * alpha) * beta
        total = 0.0
        for i in range(k):
            total += r[k - i - 1] * y[i]
        alpha = -(r[k] + total) / beta
        for i in range(k):
            z[i] = y[i] + alpha * y[k - i - 1]
        for i in range(k):
            y[i] = z[i]
        y[k] = alpha


@pf.nest
def gramschmidt(A: "f64[M, N]", R: "f64[N, N]", Q: "f64[M, N]"):
    """A = Q R by the modified Gram-Schmidt process; A is overwritten."""
    for k in range(N):
        norm = 0.0
        for i in range(M):
            norm += A[i, k] * A[i, k]
        R[k, k] = sqrt(norm)
        for i in range(M):
            Q[i, k] = A[i, k] / R[k, k]
        for j in range(k + 1, N):
            R[k, j] = 0.0
            for i in range(M):
                R[k, j] += Q[i, k] * A[i, j]
            for i in range(M):
                A[i, j] = A[i, j] - Q[i, k] * R[k, j]


@pf.nest
def lu(A: "f64[N, N]"):
    """A becomes L (below the diagonal, ones on it) and U, A = L U."""
    for i in range(N):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[k, j]
            A[i, j] /= A[j, j]
        for j in range(i, N):
            for k in range(i):
                A[i, j] -= A[i, k] * A[k, j]


@pf.nest
def ludcmp(A: "f64[N, N]", b: "f64[N]", x: "f64[N]", y: "f64[N]"):
    """Solve A x = b by LU decomposition; A becomes L and U."""
    for i in range(N):
        for j in range(i):
            w = A[i, j]
            for k in range(j):
                w -= A[i, k] * A[k, j]
            A[i, j] = w / A[j, j]
        for j in range(i, N):
            w = A[i, j]
            for k in range(i):
                w -= A[i, k] * A[k, j]
            A[i, j] = w
    for i in range(N):
        w = b[i]
        for j in range(i):
            w -= A[i, j] * y[j]
        y[i] = w
    for i in range(N - 1, -1, -1):
        w = y[i]
        for j in range(i + 1, N):
            w -= A[i, j] * x[j]
        x[i] = w / A[i, i]


@pf.nest
def trisolv(L: "f64[N, N]", x: "f64[N]", b: "f64[N]"):
    """Solve L x = b, L lower triangular."""
    for i in range(N):
        x[i] = b[i]
        for j in range(i):
            x[i] -= L[i, j] * x[j]
        x[i] = x[i] / L[i, i]


@pf.nest
def covariance(data: "f64[N, M]", cov: "f64[M, M]", mean: "f64[M]"):
    """The covariance of M columns over N rows; `data` is centred."""
    for j in range(M):
        mean[j] = 0.0
        for i in range(N):
            mean[j] += data[i, j]
        mean[j] /= float(N)
    for i in range(N):
        for j in range(M):
            data[i, j] -= mean[j]
    for i in range(M):
        for j in range(i, M):
            cov[i, j] = 0.0
            for k in range(N):
                cov[i, j] += data[k, i] * data[k, j]
            cov[i, j] /= N - 1.0
            cov[j, i] = cov[i, j]


@pf.nest
def correlation(data: "f64[N, M]", corr: "f64[M, M]", mean: "f64[M]", stddev: "f64[M]"):
    """The correlation of M columns over N rows; a column that hardly varies counts as of deviation 1."""
    for j in range(M):
        mean[j] = 0.0
        for i in range(N):
            mean[j] += data[i, j]
        mean[j] /= float(N)
    for j in range(M):
        stddev[j] = 0.0
        for i in range(N):
            stddev[j] += (data[i, j] - mean[j]) * (data[i, j] - mean[j])
        stddev[j] /= float(N)
        stddev[j] = sqrt(stddev[j])
        stddev[j] = 1.0 if stddev[j] <= 0.1 else stddev[j]
    for i in range(N):
        for j in range(M):
            data[i, j] -= mean[j]
            data[i, j] /= sqrt(float(N)) * stddev[j]
    for i in range(M - 1):
        corr[i, i] = 1.0
        for j in range(i + 1, M):
            corr[i, j] = 0.0
            for k in range(N):
                corr[i, j] += data[k, i] * data[k, j]
            corr[j, i] = corr[i, j]
    corr[M - 1, M - 1] = 1.0
