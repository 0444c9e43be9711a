"""NumPy's functions, one by one: value, type and shape of an expression are NumPy's, in the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from tests.frontend.python.running import copies, defined

N, M, K = 7, 5, 6
PARAMETERS = (
    "x: 'f64[N]', y: 'f64[N]', v: 'f64[M]', A: 'f64[N, M]', B: 'f64[M, K]', S: 'f64[N, N]', T: 'f64[N, M, 4]', "
    "k: 'i64[N]', j: 'i32[N]', u: 'u8[N]', b: 'bool[N]', h: 'f32[N]', F: 'f32[N, M]', q: 'f16[N]', z: 'c128[N]', "
    "c: 'c64[N]', Z: 'c128[N, N]', idx: 'i64[M]', n: 'i64', s: 'f64'"
)
HEAD = f"@pf.nest\ndef f({PARAMETERS}):\n    assert N >= 6\n    assert M >= 4\n"
TOLERANCE = {"float16": 2e-3, "float32": 3e-6, "complex64": 6e-6}


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    normal = rng.normal
    return {
        "x": normal(size=N),
        "y": normal(size=N),
        "v": normal(size=M),
        "A": normal(size=(N, M)),
        "B": normal(size=(M, K)),
        "S": normal(size=(N, N)),
        "T": normal(size=(N, M, 4)),
        "k": rng.integers(-9, 9, N) | 1,
        "j": rng.integers(-9, 9, N).astype(np.int32),
        "u": rng.integers(0, 255, N).astype(np.uint8),
        "b": rng.integers(0, 2, N).astype(bool),
        "h": normal(size=N).astype(np.float32),
        "F": normal(size=(N, M)).astype(np.float32),
        "q": normal(size=N).astype(np.float16),
        "z": normal(size=N) + 1j * normal(size=N),
        "c": (normal(size=N) + 1j * normal(size=N)).astype(np.complex64),
        "Z": normal(size=(N, N)) + 1j * normal(size=(N, N)),
        "idx": rng.integers(0, N, M),
        "n": 3,
        "s": 0.7,
    }


GIVEN = arrays()


def check(body: str) -> None:
    """Run a function's body by NumPy and by the oracle: results and arguments are equal, and have equal types."""
    nest = defined(f"{HEAD}    {body}\n")
    mine = copies(GIVEN)
    with np.errstate(all="ignore"):
        returned = nest.python(**mine)
        results = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
        sizes = {name: {"N": N, "M": M, "K": K}.get(name, GIVEN.get(name)) for name in nest.params}
        found = pf.interpret(nest, {t.name: GIVEN[t.name] for t in nest.inputs}, sizes)
    assert len(results) == len(nest.results)
    named = [*zip(nest.results, results, strict=True), *((t, mine[t.name]) for t in nest.with_role("inout"))]
    for tensor, value in named:
        wanted, own = np.asarray(value), np.asarray(found[tensor.name])
        assert own.dtype == wanted.dtype, body
        assert own.size == wanted.size, body
        near = TOLERANCE.get(wanted.dtype.name, 1e-12)
        np.testing.assert_allclose(own.reshape(wanted.shape), wanted, rtol=near, atol=near, err_msg=body)


def cases(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


REAL = (
    "sqrt exp log log2 log10 log1p expm1 exp2 sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arctanh"
)
COMPLEX = (
    f"{REAL} arccosh abs sign square reciprocal conj real imag angle isnan isinf isfinite negative positive"
)


@pytest.mark.parametrize("name", REAL.split())
def test_functions_of_real_numbers_have_numpys_types(name: str) -> None:
    parts = (
        f"np.{name}({value})" for value in ("abs(x) % 1", "abs(h) % 1", "abs(q) % 1", "abs(s) % 1", "k == 1")
    )
    check(f"return {', '.join(parts)}")


@pytest.mark.parametrize("name", COMPLEX.split())
def test_functions_of_complex_numbers(name: str) -> None:
    check(f"return np.{name}(z), np.{name}(c), np.{name}(3 * z.conj() - 1), np.{name}(z[0])")


POWERS = "z ** 0|z ** -1|z ** -3|z ** 0.5|z ** 1.5|z ** n|z ** s|z ** x|z ** z|x ** z|2.0 ** z|z ** (1 + 2j)|c ** 0.5"


@pytest.mark.parametrize("power", [*POWERS.split("|"), "c ** h", "c ** x", "np.power(z, s)", "(z * 0) ** s"])
def test_powers_of_complex_numbers(power: str) -> None:
    check(f"return {power}")


EXPRESSIONS = cases(
    """
    A[b, 0].sum(), A[:, v > 0].sum(), x[x > 0].max(), x[b].min(), u[b].max(), np.mean(A[b])
    S[0][idx], x[[0, 2, 1]], A[[0, 1], [1, 2]], A[np.arange(M), np.arange(M)], A[idx, np.arange(M)]
    np.take(x, idx), np.take(A, idx, axis=0), np.count_nonzero(x > 0), np.count_nonzero(A > 0, axis=1)
    np.broadcast_to(v, A.shape) + A, np.zeros(A.shape[1:]), np.zeros(A.shape[:1] + (2,)), A.mT
    np.tensordot(A, B, axes=([1], [0])), np.tensordot(A, A, axes=((0, 1), (0, 1)))
    np.tensordot(T, A, axes=([0, 1], [0, 1])), np.tensordot(A, S, axes=(0, 1)), np.inner(A, A)
    np.cross(x[:3], y[:3]), np.vecdot(A, A), np.trace(S, 1), np.trace(S, offset=-1)
    np.linalg.norm(x), np.linalg.norm(A, axis=1), np.linalg.norm(Z, axis=0, keepdims=True)
    np.linalg.norm(x, 1), np.linalg.norm(x, np.inf), np.linalg.norm(x, 3), np.linalg.norm(A, "fro")
    np.linalg.trace(S), np.linalg.matrix_power(S, 3), np.linalg.vector_norm(x)
    np.sum(q), np.prod(q), np.max(q), np.mean(q), np.std(q), np.var(q), q @ q, np.sum(F.astype(np.float16), axis=0)
    np.prod(z), np.var(z), np.std(Z, axis=0), np.cumprod(z)
    np.sum(x, initial=1.0), np.max(x, initial=0.0), np.min(A, axis=0, initial=5.0)
    np.sum(x, where=b), np.sum(A, where=A > 0, axis=1), np.mean(x, where=b), np.max(x, where=b, initial=0.0)
    np.ptp(x), np.average(x), np.average(x, weights=y), np.average(A, axis=0, weights=x)
    np.argmax(x), x.argmin(), np.argmax(A, axis=1), A.argmin(axis=0)
    float(u[0]) * 2, float(u[0]) * u, float(h[0]) * h, sum(u), np.nanmax(u), np.nanmin(j)
    np.linalg.norm(u), np.hypot(u, u), np.linalg.norm(u.astype(np.int8)), np.cov(F)
    np.argmax(A), np.argmin(A), np.argmin(u), np.argmin(u[:, None] * u, axis=1), np.argmin(np.minimum(k, -9))
    np.nansum(x), np.nanmax(x), np.nanmean(x), np.nan_to_num(x)
    np.cumprod(A, axis=0), np.add.accumulate(x), np.maximum.accumulate(x), np.cumsum(b)
    np.diff(x), np.diff(A, axis=0), np.diff(x, n=2), np.gradient(x), np.trapezoid(x)
    np.add.reduce(A), np.maximum.reduce(A, axis=1), np.logical_and.reduce(b), np.logical_or.reduce(A > 0, axis=1)
    sum(x), sum(A), max(x), min(k), any(b), all(b), np.corrcoef(A)
    np.select([x > 1, x > 0], [x, y], 0.5), np.clip(x, a_min=0, a_max=1), np.fmax(x, y), np.fmin(x, y)
    np.fabs(k), np.reciprocal(k), np.sign(u), np.trunc(k), round(s), np.heaviside(x, 0.5), np.copysign(x, y)
    np.cbrt(x), np.logaddexp(x, y), np.sinc(x), np.radians(h), np.degrees(h), np.fmod(x, 0.7), np.fmod(k, 3)
    np.logical_xor(b, x > 0), divmod(k, 3)[1], np.divmod(x, y)[0], np.isclose(x, y), np.allclose(x, x)
    np.arctan2(h, h), np.arctan2(s, 2.0), np.hypot(k, 2), b ** 2, b << True, u ** np.uint8(3)
    np.moveaxis(T, 0, -1), np.matrix_transpose(T), np.permute_dims(T, (1, 0, 2)), np.rot90(A), np.expand_dims(x, (0, 2))
    np.roll(A, (1, 2), axis=(0, 1)), np.tile(x, 2), np.tile(A, (2, 1)), np.tile(T, 2)
    np.dstack((x, y)), np.column_stack((x, y)), np.append(x, 1.0), np.concat((x, y)), np.atleast_2d(x)
    np.pad(x, 1, mode="edge"), np.pad(x, 2, mode="reflect"), np.pad(x, 1, mode="wrap"), np.pad(x, pad_width=1)
    np.pad(x, 2, mode="symmetric"), np.pad(A, ((1, 1), (2, 0)), mode="edge"), np.tri(N), np.tri(N, M, 1), np.tril(x)
    np.full(shape=N, fill_value=3), np.full_like(x, fill_value=1), np.arange(5.0), np.arange(0.0, 1.0, 0.25)
    np.meshgrid(x, v, y)[0], np.meshgrid(x, v, sparse=True)[1], np.mgrid[0:N, 0:M], np.indices((N, M))
    np.array([[1, 2], [3, 4]]), np.array([x, y]), np.size(A, 0), np.ndim(A), x.nbytes, np.finfo(np.float64).eps
    np.histogram(x, 5)[0], np.histogram(x, 4, weights=y)[0], np.histogram(x, 3, range=(-1.0, 1.0))[1]
    np.angle(x), np.angle(z, deg=True), np.round(z, 2), np.polyval([1.0, 2.0, 3.0], x)
    """
)


@pytest.mark.parametrize("values", EXPRESSIONS)
def test_an_expression_is_what_numpy_says(values: str) -> None:
    check(f"return {values}")


@pytest.mark.parametrize(
    "value",
    [
        "np.linalg.solve(S, x)",
        "np.linalg.solve(S, A)",
        "np.linalg.inv(S)",
        "np.linalg.det(S[::-1])",
        "np.linalg.inv(Z)",
    ],
)
def test_linear_systems_are_solved_with_exchange_of_rows(value: str) -> None:
    check(f"return {value}")


STATEMENTS = cases(
    r"""
    S[np.diag_indices(N)] = 1.0; S[np.diag_indices_from(S)] -= x; S[np.arange(1, N), np.arange(N - 1)] *= 2.0
    y[: N + 3] = x[: N + 3] * 2.0; S[np.arange(N)] = S[::-1] + 1.0
    A[x > 0] = 0.0; A[:, v > 0] += 1.0; A[b, 0] = 2.0
    S @= S
    x.fill(s); np.copyto(y, x); np.fill_diagonal(S, 1.0)
    a, *r = x[0], x[1], x[2]; return r[1] - a
    assert x.shape == y.shape; x += y
    for i in reversed(range(0, N, 2)): y[i] += x[i]
    for i, a in enumerate(x, start=1): y[i - 1] = a * i
    for i, (a, d) in enumerate(zip(x, y)): S[0, i] += a * d
    for i, l in zip(range(0, N, 2), range(N)): y[i] += x[l]
    for i, l in enumerate(range(0, N - 1, 2)): y[i] += x[l]
    for d in (1, 2, 3): x[d] = d * s
    for a, d in ((0, 1.0), (1, 2.0)): x[a] = d
    for g in (np.sin, np.cos): x[:] = g(x)
    for i, w in enumerate([0.5, 0.25]): x *= w + i
    for i in np.arange(N): x[i] += 1
    with np.errstate(all='ignore'): x /= y
    x[1:] = np.histogram(y, N - 1)[0]
    """
)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_does_what_it_does_in_python(statement: str) -> None:
    check(statement.replace("; ", "\n    "))


BRANCHES = cases(
    r"""
    if s > 0:|    t = x * 2|else:|    t = y * 3|return t
    if x[0] > 9:|    t = x * 2|    r = t.sum()|else:|    t = y * 3|    r = t.max()|return r + t
    for i in range(N):|    if x[i] > 0:|        t = x * i|    else:|        t = y + i|    y[i] = t.sum()
    g = np.sin|if x[0] > 9:|    g = np.cos|else:|    y[:] = g(x)
    if x[0] > 9:|    t = x[1:]|    y[1:] = t|else:|    t = x[:-1]|    y[1:] = t * 2
    if s > 0:|    return x + 1|return y
    if x[0] > 9:|    return x + 1|else:|    return y
    """
)


@pytest.mark.parametrize("body", BRANCHES)
def test_what_one_branch_assigns_the_other_one_does_not_see(body: str) -> None:
    check(body.replace("|", "\n    "))


def grown(a: Any, p: float = 2.0) -> Any:
    for _ in range(3):
        p = p * 2
    return a * p


def chosen(a: Any, s: Any, p: int = 2) -> Any:
    if s > 0:
        p *= 3
    return a * p


def test_a_default_changes_in_a_loop_or_branch_of_an_inlined_function() -> None:
    nest = defined(
        "@pf.nest\ndef f(x: 'f64[N]', s: 'f64'):\n    return grown(x), chosen(x, s), chosen(x, -s)\n",
        grown=grown,
        chosen=chosen,
    )
    given = {"x": np.arange(1.0, 5.0), "s": 1.0}
    found = pf.interpret(nest, given, {"N": 4})
    wanted = nest.python(**given)
    for tensor, value in zip(nest.results, wanted, strict=True):
        np.testing.assert_array_equal(found[tensor.name], value)


def spmv(row: Any, column: Any, value: Any, x: Any) -> Any:
    y = np.empty(row.size - 1, value.dtype)
    for i in range(row.size - 1):
        y[i] = value[row[i] : row[i + 1]] @ x[column[row[i] : row[i + 1]]]
    return y


def test_rows_of_a_sparse_matrix_are_slices_with_bounds_in_data() -> None:
    types = {"row": "i64[R]", "column": "i64[Z]", "value": "f64[Z]", "x": "f64[N]"}
    nest = pf.nest(spmv, types=types)
    assert "for r0 in range(row[i], row[i + 1]):" in str(nest.elements)
    given = {
        "row": np.array([0, 1, 1, 3, 5]),
        "column": np.array([1, 0, 2, 1, 1]),
        "value": np.arange(1.0, 6.0),
        "x": np.array([1.0, 10.0, 100.0]),
    }
    found = pf.interpret(nest, given, {"R": 5, "Z": 5, "N": 3})
    np.testing.assert_array_equal(found[nest.results[0].name], spmv(**given))


def test_a_slice_with_a_bound_in_data_is_stored_to() -> None:
    body = "x[k[0]:] = 0.0\n    y[:k[1]] = 1.0"
    nest = defined(f"@pf.nest\ndef f(x: 'f64[N]', y: 'f64[N]', k: 'i64[N]'):\n    {body}\n")
    given = {"x": np.ones(5), "y": np.zeros(5), "k": np.array([2, 3, 0, 0, 0])}
    found = pf.interpret(nest, copies(given), {"N": 5})
    nest.python(**given)
    np.testing.assert_array_equal(found["x"], given["x"])
    np.testing.assert_array_equal(found["y"], given["y"])
