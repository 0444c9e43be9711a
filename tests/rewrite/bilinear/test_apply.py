"""Fast products as rewrites: exact on integers for any size, layout, algorithm and form; what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse.bilinear import Algorithm
from polyfuse.errors import IllegalRewrite
from polyfuse.ir.sizes import extent
from polyfuse.rewrite.bilinear.common_sums import shared
from tests.support.examples import examples

# ruff: noqa: F821

ALGORITHMS = (
    *(pf.bilinear.named(name) for name in ("strassen", "winograd", "laderman", "strassen2")),
    pf.bilinear.classical(2, 1, 3),
    pf.bilinear.kronecker(pf.bilinear.classical(1, 2, 1), pf.bilinear.strassen),
)
FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"edges": "peel"},
    {"apart": True},
    {"apart": True, "inline": ("left",)},
    {"apart": True, "inline": ("left", "right")},
)


def same(before: pf.Nest, after: pf.Nest, sizes: dict[str, int] | None = None) -> None:
    """Whether two nests compute the same integers."""
    rng = np.random.default_rng(0)
    inputs = {
        t.name: rng.integers(-9, 9, [extent(e, sizes or {}) for e in t.shape]).astype(t.dtype)
        for t in before.inputs
    }
    expected, found = (pf.interpret(nest, inputs, sizes) for nest in (before, after))
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        assert np.array_equal(array, found[name]), name


@dataclass(frozen=True)
class Layout:
    """A contraction: how each operand is laid out, and which dimensions come along."""

    subscripts: str

    def nest(self, sizes: dict[str, int], dtype: str) -> pf.Nest:
        return pf.einsum(self.subscripts, {d: sizes[d] for d in self.subscripts if d in sizes}, dtype=dtype)


LAYOUTS = st.builds(
    lambda a, b, c, batch: Layout(f"{batch[0]}{a},{batch[1]}{b}->{batch[2]}{c}"),
    st.sampled_from(["ik", "ki"]),
    st.sampled_from(["kj", "jk"]),
    st.sampled_from(["ij", "ji"]),
    st.sampled_from([("", "", ""), ("b", "b", "b"), ("b", "", "b"), ("", "b", "b"), ("b", "b", "")]),
)


@settings(max_examples=examples(40), deadline=None)
@given(
    LAYOUTS,
    st.sampled_from(ALGORITHMS),
    st.sampled_from(FORMS),
    st.fixed_dictionaries({"i": st.integers(1, 9), "j": st.integers(1, 9), "k": st.integers(1, 9)}),
    st.sampled_from(["int32", "int64", "float64"]),
)
def test_every_size_layout_and_algorithm_gives_the_same_integers(
    layout: Layout, x: Algorithm, form: dict[str, Any], sizes: dict[str, int], dtype: str
) -> None:
    nest = layout.nest({**sizes, "b": 3}, dtype)
    if form and any(sizes[d] < count for d, count in zip("ikj", (x.m, x.k, x.n), strict=True)):
        dims = ("i", "k", "j")
        with pytest.raises(IllegalRewrite, match="fewer than"):
            pf.rewrite.bilinear(nest, "mac", x, dims=dims, **form)
        return
    same(nest, pf.rewrite.bilinear(nest, "mac", x, dims=("i", "k", "j"), **form).nest)


@settings(max_examples=examples(8), deadline=None)
@given(
    st.sampled_from(ALGORITHMS[:3]),
    st.sampled_from(FORMS),
    st.tuples(*[st.integers(3, 8)] * 3),
)
def test_one_nest_for_every_symbolic_size(
    x: Algorithm, form: dict[str, Any], sizes: tuple[int, int, int]
) -> None:
    nest = pf.einsum("ik,kj->ij", dtype="int64")
    done = pf.rewrite.bilinear(nest, "mac", x, **form)
    known = dict(zip(("Ni", "Nk", "Nj"), sizes, strict=True))
    same(nest, done.nest, known)
    same(nest.with_sizes(known), done.nest.with_sizes(known))


def test_what_the_statements_are() -> None:
    nest = pf.einsum("ik,kj->ij", {"i": 8, "j": 6, "k": 4})
    done = pf.rewrite.bilinear(nest, "mac", pf.bilinear.strassen)
    assert str(done) == (
        "mac is computed by strassen <2, 2, 2; 7>: 14 sums of blocks before, 4 after, 18 additions of blocks"
    )
    assert done.product == ("mac_zero", "mac_product")
    assert [t.shape for t in done.nest.tensors if t.role == "temporary"] == [(7, 4, 2), (7, 2, 3), (7, 4, 3)]
    assert str(done.nest.statement("mac_Y1").write) == "out[i, 3 + j]"
    assert "zero" not in {s.name for s in done.nest.statements}, "the suffix assigns"


def test_common_sums_are_computed_once() -> None:
    counts = {}
    for x in ALGORITHMS[:4]:
        nest = pf.einsum("ik,kj->ij", {"i": 8 * x.m, "j": 8 * x.n, "k": 8 * x.k})
        counts[x.name] = pf.rewrite.bilinear(nest, "mac", x).additions
    # Higham, section 23.1: 18 for Strassen, 15 for Winograd's variant
    assert counts == {"strassen": 18, "winograd": 15, "laderman": 70, "strassen2": 198}


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.integers(-2, 2), min_size=5, max_size=5), min_size=1, max_size=6), st.booleans())
def test_shared_sums_are_the_sums(forms: list[list[int]], reuse: bool) -> None:
    found = shared(forms, reuse)  # raises unless the values, put back, are the forms
    assert found.additions <= sum(max(0, sum(map(bool, form)) - 1) for form in forms)


def test_a_fast_product_of_a_sum_that_goes_on() -> None:
    @pf.nest
    def gemm(alpha: f64, beta: f64, A: f64[7, 5], B: f64[5, 6], C: f64[7, 6]):
        for i in range(7):
            for j in range(6):
                C[i, j] *= beta
                for k in range(5):
                    C[i, j] += alpha * A[i, k] * B[k, j]

    rng = np.random.default_rng(0)
    arrays = {"alpha": np.float64(3), "beta": np.float64(2)}
    arrays |= {
        n: rng.integers(-9, 9, s).astype(float) for n, s in (("A", (7, 5)), ("B", (5, 6)), ("C", (7, 6)))
    }
    expected = pf.interpret(gemm, arrays)["C"]
    for form in FORMS:
        done = pf.rewrite.bilinear(gemm, "S1", pf.bilinear.strassen, **form)
        assert np.array_equal(pf.interpret(done.nest, arrays)["C"], expected)


def test_a_convolution_is_a_product_of_its_channels() -> None:
    @pf.nest
    def conv(x: i32[4, 9], w: i32[6, 4, 3], y: i32[6, 7]):
        for o in range(6):
            for p in range(7):
                for c in range(4):
                    for r in range(3):
                        y[o, p] += w[o, c, r] * x[c, p + r]

    same(conv, pf.rewrite.bilinear(conv, "S0", pf.bilinear.winograd).nest)
    same(conv, pf.rewrite.bilinear(conv, "S0", pf.bilinear.strassen, dims=("o", "r", "p")).nest)


@pf.nest
def triangle(A: f64[N, N], B: f64[N, N], C: f64[N, N]):
    for i in range(N):
        for j in range(N):
            for k in range(i + 1):
                C[i, j] += A[i, k] * B[k, j]


@pf.nest
def feeds_itself(A: f64[N, N], B: f64[N, N]):
    for i in range(N - 1):
        for j in range(N):
            B[i + 1, j] = B[i, j]
            for k in range(N):
                A[i, j] += B[i + 1, k] * B[k, j]


@pf.nest
def others(A: f64[N, N], B: f64[N, N], C: f64[N, N], D: f32[N, N]):
    for i in range(N):
        for j in range(N):
            for k in range(N):
                C[i, j] += A[i, k]
    for i in range(N):
        for j in range(N):
            for k in range(N):
                C[i, j] += C[i, k] * B[k, j]
    for i in range(N):
        for j in range(N):
            for k in range(N):
                C[i, j] += A[i, k] * B[k, j] * i
    for i in range(N):
        for j in range(N):
            for k in range(N):
                C[i, j] += A[i, k] * D[k, j]
    for i in range(N):
        for j in range(N):
            for k in range(N):
                C[i, j] += A[i, j] * B[k, j]


@pytest.mark.parametrize(
    ("nest", "statement", "why"),
    [
        (triangle, "S0", r"S0 does not run over a box: it has the instance \[0, 0, 0\] and not \[0, 0, 1\]"),
        (
            feeds_itself,
            "S1",
            r"S1 shares a loop with statements that depend on it .*\(S1\[\d+, \d+, \d+\], S0\[",
        ),
        (others, "S0", "S0 is not a sum of products"),
        (others, "S1", "S1 reads C, which it writes"),
        (others, "S2", "the value of S2 depends on its index"),
        (others, "S3", "S3 mixes float32 and float64"),
        (others, "S4", "the factors of S4 are not such that one is independent of the columns"),
    ],
)
def test_what_is_refused(nest: pf.Nest, statement: str, why: str) -> None:
    with pytest.raises(IllegalRewrite, match=why):
        pf.rewrite.bilinear(nest, statement, pf.bilinear.strassen)


def test_dimensions_that_are_no_roles_are_refused() -> None:
    nest = pf.einsum("ik,kj->ij", {"i": 4, "j": 4, "k": 4})
    for dims in (("i", "j", "k"), ("i", "i", "j"), ("i", "k", "x")):
        with pytest.raises(IllegalRewrite, match="the factors of mac with rows, steps, columns"):
            pf.rewrite.bilinear(nest, "mac", pf.bilinear.strassen, dims=dims)


def test_a_table_that_multiplies_mod_2_only() -> None:
    x = pf.bilinear.strassen
    ones = pf.bilinear.algorithm(
        "ones", (2, 2, 2), *(np.abs(np.array(t)) for t in (x.left, x.right, x.result)), modulus=2
    )
    for dtype, remedy in (
        ("float64", "an algorithm over the integers."),
        ("int32", "modulo=2 if only the last bit"),
    ):
        nest = pf.einsum("ik,kj->ij", {"i": 4, "j": 4, "k": 4}, dtype=dtype)
        with pytest.raises(IllegalRewrite, match=f"multiplies modulo 2 only, but out is {dtype}.*{remedy}"):
            pf.rewrite.bilinear(nest, "mac", ones)
    done = pf.rewrite.bilinear(nest, "mac", ones, modulo=2)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 9, (4, 4)).astype(np.int32) for _ in range(2)]
    found, expected = (pf.interpret(n, arrays)["out"] for n in (done.nest, nest))
    assert np.array_equal(found % 2, expected % 2)
    assert not np.array_equal(found, expected)


@settings(max_examples=examples(10), deadline=None)
@given(st.sampled_from(ALGORITHMS), st.sampled_from(FORMS), st.integers(8, 40))
def test_floats_stay_within_the_algorithms_bound(x: Algorithm, form: dict[str, Any], size: int) -> None:
    nest = pf.einsum("ik,kj->ij", dict.fromkeys("ijk", size), dtype="float32")
    done = pf.rewrite.bilinear(nest, "mac", x, **form)
    rng = np.random.default_rng(size)
    a, b = (rng.uniform(-1, 1, (size, size)).astype(np.float32) for _ in range(2))
    error = np.abs(pf.interpret(done.nest, [a, b])["out"] - a.astype(np.float64) @ b.astype(np.float64)).max()
    # what is peeled is added to the sums of whole blocks: at most 2 x.k additions more
    bound = pf.bilinear.error_bound(x, size + 2 * x.k)
    assert error <= bound * 2.0**-24 * np.abs(a).max() * np.abs(b).max()
