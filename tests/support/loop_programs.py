"""Loop programs whose plans the tests are about, statement by statement: time loops, triangles, scalars."""

from __future__ import annotations

from polyfuse.ir import Nest, Statement, Tensor, statement
from polyfuse.ir.tree import Leaf, Loop, Tree, sequence, statements
from polyfuse.sets import dim_names, dimension

Order = str | tuple[str, "Order"] | list["Order"]
"""A statement; ("i", body) for a loop; [first, second] one after the other."""


def program(name: str, tensors: list[Tensor], texts: dict[str, str], order: Order) -> Nest:
    """A nest from {domain: assignment} and its order, each loop stepping through the dimension it is named after."""
    found = {s.name: s for s in (statement(domain, text) for domain, text in texts.items())}
    return Nest.of(tensors, found.values(), _tree(found, order), name=name)


def _tree(found: dict[str, Statement], order: Order) -> Tree:
    match order:
        case str():
            return Leaf(order)
        case list():
            return sequence(tuple(_tree(found, part) for part in order))
    name, inner = order
    body = _tree(found, inner)
    domains = {s: found[s].domain for s in statements(body)}
    dates = ((s, dimension(domain, dim_names(domain).index(name))) for s, domain in domains.items())
    return Loop(name, tuple(dates), body)


def array(name: str, *shape: int, role: str = "inout") -> Tensor:
    return Tensor(name, shape, "float64", role)


def jacobi_1d(n: int = 14, steps: int = 6) -> Nest:
    domain = f"0 <= t < {steps} and 1 <= i < {n} - 1"
    texts = {
        f"{{ S[t, i] : {domain} }}": "B[i] = 0.25 * (A[i - 1] + 2 * A[i] + A[i + 1])",
        f"{{ R[t, i] : {domain} }}": "A[i] = 0.25 * (B[i - 1] + 2 * B[i] + B[i + 1])",
    }
    return program("jacobi_1d", [array("A", n), array("B", n)], texts, ("t", [("i", "S"), ("i", "R")]))


def jacobi_2d(n: int = 9, steps: int = 4) -> Nest:
    domain = f"0 <= t < {steps} and 1 <= i < {n} - 1 and 1 <= j < {n} - 1"

    def mean(a: str) -> str:
        return f"0.125 * (4 * {a}[i, j] + {a}[i, j - 1] + {a}[i, j + 1] + {a}[i + 1, j] + {a}[i - 1, j])"

    texts = {
        f"{{ S[t, i, j] : {domain} }}": f"B[i, j] = {mean('A')}",
        f"{{ R[t, i, j] : {domain} }}": f"A[i, j] = {mean('B')}",
    }
    order: Order = ("t", [("i", ("j", "S")), ("i", ("j", "R"))])
    return program("jacobi_2d", [array("A", n, n), array("B", n, n)], texts, order)


def seidel_2d(n: int = 9, steps: int = 4) -> Nest:
    near = " + ".join(f"A[i + {a} - 1, j + {b} - 1]" for a in range(3) for b in range(3))
    domain = f"{{ S[t, i, j] : 0 <= t < {steps} and 1 <= i < {n} - 1 and 1 <= j < {n} - 1 }}"
    return program(
        "seidel_2d", [array("A", n, n)], {domain: f"A[i, j] = ({near}) / 8"}, ("t", ("i", ("j", "S")))
    )


def fdtd_2d(n: int = 8, steps: int = 4) -> Nest:
    now = f"0 <= t < {steps}"
    q = f"{now} and 1 <= i < {n} and 0 <= j < {n}"
    r = f"{now} and 0 <= i < {n} and 1 <= j < {n}"
    h = f"{now} and 0 <= i < {n} - 1 and 0 <= j < {n} - 1"
    texts = {
        f"{{ P[t, j] : {now} and 0 <= j < {n} }}": "ey[0, j] = f[t]",
        f"{{ Q[t, i, j] : {q} }}": "ey[i, j] = ey[i, j] - 0.5 * (hz[i, j] - hz[i - 1, j])",
        f"{{ R[t, i, j] : {r} }}": "ex[i, j] = ex[i, j] - 0.5 * (hz[i, j] - hz[i, j - 1])",
        f"{{ S[t, i, j] : {h} }}": "hz[i, j] = hz[i, j] - 0.75 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])",
    }
    tensors = [array(name, n, n) for name in ("ex", "ey", "hz")] + [array("f", steps, role="input")]
    order: Order = ("t", [("j", "P"), ("i", ("j", "Q")), ("i", ("j", "R")), ("i", ("j", "S"))])
    return program("fdtd_2d", tensors, texts, order)


def gemm(n: int = 8) -> Nest:
    texts = {
        f"{{ S[i, j] : 0 <= i, j < {n} }}": "C[i, j] *= 3",
        f"{{ M[i, k, j] : 0 <= i, j, k < {n} }}": "C[i, j] += A[i, k] * B[k, j]",
    }
    tensors = [array("C", n, n), array("A", n, n, role="input"), array("B", n, n, role="input")]
    return program("gemm", tensors, texts, ("i", [("j", "S"), ("k", ("j", "M"))]))


def trmm(m: int = 8, n: int = 9) -> Nest:
    texts = {
        f"{{ M[i, j, k] : 0 <= i < {m} and 0 <= j < {n} and i < k < {m} }}": "B[i, j] += A[k, i] * B[k, j]",
        f"{{ S[i, j] : 0 <= i < {m} and 0 <= j < {n} }}": "B[i, j] = 2 * B[i, j]",
    }
    tensors = [array("A", m, m, role="input"), array("B", m, n)]
    return program("trmm", tensors, texts, ("i", ("j", [("k", "M"), "S"])))


def lu(n: int = 8) -> Nest:
    texts = {
        f"{{ L[i, j, k] : 0 <= k < j < i < {n} }}": "A[i, j] += -(A[i, k] * A[k, j])",
        f"{{ D[i, j] : 0 <= j < i < {n} }}": "A[i, j] = A[i, j] / A[j, j]",
        f"{{ U[i, j, k] : 0 <= k < i <= j < {n} }}": "A[i, j] += -(A[i, k] * A[k, j])",
    }
    return program("lu", [array("A", n, n)], texts, ("i", [("j", [("k", "L"), "D"]), ("j", ("k", "U"))]))


def cholesky(n: int = 8) -> Nest:
    texts = {
        f"{{ L[i, j, k] : 0 <= k < j < i < {n} }}": "A[i, j] += -(A[i, k] * A[j, k])",
        f"{{ D[i, j] : 0 <= j < i < {n} }}": "A[i, j] = A[i, j] / A[j, j]",
        f"{{ Q[i, k] : 0 <= k < i < {n} }}": "A[i, i] += -(A[i, k] * A[i, k])",
        f"{{ V[i] : 0 <= i < {n} }}": "A[i, i] = sqrt(abs(A[i, i])) + 1",
    }
    return program("cholesky", [array("A", n, n)], texts, ("i", [("j", [("k", "L"), "D"]), ("k", "Q"), "V"]))


def trisolv(n: int = 9) -> Nest:
    texts = {
        f"{{ I[i] : 0 <= i < {n} }}": "x[i] = b[i]",
        f"{{ S[i, j] : 0 <= j < i < {n} }}": "x[i] += -(L[i, j] * x[j])",
        f"{{ D[i] : 0 <= i < {n} }}": "x[i] = x[i] / L[i, i]",
    }
    tensors = [array("L", n, n, role="input"), array("b", n, role="input"), array("x", n)]
    return program("trisolv", tensors, texts, ("i", ["I", ("j", "S"), "D"]))


def floyd_warshall(n: int = 7) -> Nest:
    texts = {f"{{ S[k, i, j] : 0 <= i, j, k < {n} }}": "D[i, j] = min(D[i, j], D[i, k] + D[k, j])"}
    return program("floyd_warshall", [array("D", n, n)], texts, ("k", ("i", ("j", "S"))))


def atax(m: int = 7, n: int = 9) -> Nest:
    texts = {
        f"{{ Z[j] : 0 <= j < {n} }}": "y[j] = 0",
        f"{{ I[i] : 0 <= i < {m} }}": "tmp[i] = 0",
        f"{{ S[i, j] : 0 <= i < {m} and 0 <= j < {n} }}": "tmp[i] += A[i, j] * x[j]",
        f"{{ R[i, j] : 0 <= i < {m} and 0 <= j < {n} }}": "y[j] += A[i, j] * tmp[i]",
    }
    tensors = [
        array("A", m, n, role="input"),
        array("x", n, role="input"),
        array("y", n, role="output"),
        array("tmp", m, role="temporary"),
    ]
    return program("atax", tensors, texts, [("j", "Z"), ("i", ["I", ("j", "S"), ("j", "R")])])


def mvt(n: int = 8) -> Nest:
    texts = {
        f"{{ S[i, j] : 0 <= i, j < {n} }}": "x[i] += A[i, j] * p[j]",
        f"{{ R[i, j] : 0 <= i, j < {n} }}": "y[i] += A[j, i] * q[j]",
    }
    tensors = [array("A", n, n, role="input"), array("x", n), array("y", n)]
    tensors += [array("p", n, role="input"), array("q", n, role="input")]
    return program("mvt", tensors, texts, [("i", ("j", "S")), ("i", ("j", "R"))])


def gemver(n: int = 8) -> Nest:
    texts = {
        f"{{ H[i, j] : 0 <= i, j < {n} }}": "A[i, j] = A[i, j] + u[i] * v[j] + w[i] * z[j]",
        f"{{ X[i, j] : 0 <= i, j < {n} }}": "x[i] += 2 * A[j, i] * y[j]",
        f"{{ Z[i] : 0 <= i < {n} }}": "x[i] = x[i] + z[i]",
        f"{{ W[i, j] : 0 <= i, j < {n} }}": "s[i] += 3 * A[i, j] * x[j]",
    }
    tensors = [array("A", n, n), array("x", n), array("s", n)]
    tensors += [array(name, n, role="input") for name in "uvwyz"]
    order: Order = [("i", ("j", "H")), ("i", ("j", "X")), ("i", "Z"), ("i", ("j", "W"))]
    return program("gemver", tensors, texts, order)


def mean(n: int = 16) -> Nest:
    texts = {
        "{ I[] }": "s = 0",
        f"{{ S[i] : 0 <= i < {n} }}": "s += a[i] * b[i]",
        "{ M[] }": f"m = s / {n}",
    }
    tensors = [array("a", n, role="input"), array("b", n, role="input")]
    tensors += [array("s", role="temporary"), array("m", role="output")]
    return program("mean", tensors, texts, ["I", ("i", "S"), "M"])


PROGRAMS = (
    jacobi_1d,
    jacobi_2d,
    seidel_2d,
    fdtd_2d,
    gemm,
    trmm,
    lu,
    cholesky,
    trisolv,
    floyd_warshall,
    atax,
    mvt,
    gemver,
    mean,
)
