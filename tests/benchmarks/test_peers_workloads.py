"""The workloads: their references against element-by-element definitions, and ours against the references."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from benchmarks.peers.references import REFERENCES, WrongResult, error, reference
from benchmarks.peers.workloads import ALPHA, BETA, EVERY, STEPS, Workload
from benchmarks.sides import by_numpy, by_polyfuse
from tests.benchmarks.small import SMALL


def test_every_kind_of_the_table_has_a_reference_and_a_small_form() -> None:
    kinds = {workload.kind for workload in EVERY.values()}
    assert kinds == set(SMALL) == set(REFERENCES)


@pytest.mark.parametrize("kind", SMALL)
def test_ours_computes_the_reference(kind: str) -> None:
    workload = SMALL[kind]
    found = by_polyfuse.KINDS[kind](workload.make())()
    assert error(workload, list(found), reference(kind, workload.make())) <= workload.bound


@pytest.mark.parametrize("kind", SMALL)
def test_numpy_in_float32_stays_in_float32_and_computes_the_reference(kind: str) -> None:
    workload = SMALL[kind]
    found = list(by_numpy.KINDS[kind](workload.make())())
    assert {result.dtype for result in found} == {np.dtype("float32")}
    assert error(workload, found, reference(kind, workload.make())) <= workload.bound


@pytest.mark.parametrize("kind", SMALL)
def test_arrays_are_float32_and_the_same_each_time(kind: str) -> None:
    once, again = SMALL[kind].make(), SMALL[kind].make()
    assert {array.dtype for array in once.values()} == {np.dtype("float32")}
    assert all(np.array_equal(once[name], again[name]) for name in once)


def by_hand(kind: str) -> tuple[dict[str, Any], Any]:
    """(float64 arrays, the first result of the reference)."""
    arrays = {name: np.asarray(array, np.float64) for name, array in SMALL[kind].make().items()}
    return arrays, reference(kind, arrays)[0]


def test_a_convolution_is_a_sum_over_its_window() -> None:
    a, found = by_hand("conv")
    (images, channels, height, width), filters = a["x"].shape, len(a["weight"])
    for n, k, y, x in product(range(images), range(filters), range(height), range(width)):
        total = a["bias"][k]
        for c, i, j in product(range(channels), range(3), range(3)):
            if 0 <= y + i - 1 < height and 0 <= x + j - 1 < width:
                total += a["x"][n, c, y + i - 1, x + j - 1] * a["weight"][k, c, i, j]
        assert found[n, k, y, x] == pytest.approx(max(total, 0))


def test_a_convolution_in_groups_is_one_for_each() -> None:
    a, found = by_hand("grouped")
    deep, each = a["weight"].shape[1], len(a["weight"]) // (a["x"].shape[1] // a["weight"].shape[1])
    for group in range(a["x"].shape[1] // deep):
        part, filters = slice(group * deep, (group + 1) * deep), slice(group * each, (group + 1) * each)
        own = {"x": a["x"][:, part], "weight": a["weight"][filters], "bias": a["bias"][filters]}
        np.testing.assert_allclose(found[:, filters], reference("conv", own)[0])


def test_an_lstm_is_its_cell_again_and_again() -> None:
    a, found = by_hand("lstm")
    steps, batch, width = a["x"].shape
    sigmoid = lambda v: 1 / (1 + math.exp(-v))  # noqa: E731
    below = a["x"]
    for layer in range(2):
        h, c, made = np.zeros((batch, width)), np.zeros((batch, width)), []
        for t in range(steps):
            sums = below[t] @ a[f"wx{layer}"] + h @ a[f"wh{layer}"] + a[f"b{layer}"]
            for b, j in product(range(batch), range(width)):
                i, f, g, o = (sums[b, part * width + j] for part in range(4))
                c[b, j] = sigmoid(f) * c[b, j] + sigmoid(i) * math.tanh(g)
                h[b, j] = sigmoid(o) * math.tanh(c[b, j])
            made.append(h.copy())
        below = np.stack(made)
    np.testing.assert_allclose(found, below)


def test_the_chain_is_ten_operations_and_a_sum() -> None:
    a, found = by_hand("chain")
    total = 0.0
    for x in a["x"]:
        t = max(x * np.float32(1.1) + np.float32(0.3), 0) * x
        total += math.exp(1 / math.sqrt(abs(t) + 1)) - 0.5
    assert found[0] == pytest.approx(total)


def test_gemver_moves_x_before_it_multiplies() -> None:
    a, moved = by_hand("gemver")
    w = reference("gemver", a)[1]
    n = len(a["x"])
    matrix = np.array(
        [
            [a["a"][i, j] + a["u1"][i] * a["v1"][j] + a["u2"][i] * a["v2"][j] for j in range(n)]
            for i in range(n)
        ]
    )
    beta = np.float32(BETA)
    x = [a["x"][i] + sum(beta * matrix[j, i] * a["y"][j] for j in range(n)) + a["z"][i] for i in range(n)]
    np.testing.assert_allclose(moved, x)
    np.testing.assert_allclose(w, [ALPHA * sum(matrix[i, j] * x[j] for j in range(n)) for i in range(n)])


def test_jacobi_leaves_both_arrays_and_their_borders() -> None:
    a, _ = by_hand("jacobi")
    one, two = reference("jacobi", a)
    for array, before in ((one, a["a"]), (two, a["b"])):
        assert np.array_equal(array[0], before[0])
        assert np.array_equal(array[:, -1], before[:, -1])
    assert STEPS == 100


def test_a_wrong_result_is_refused() -> None:
    workload = Workload("sum", "chain", dict, bound=1e-5)
    assert error(workload, [np.float32([2.00001])], (np.array([2.0]),)) == pytest.approx(5e-6, rel=0.1)
    with pytest.raises(WrongResult, match=r"off by 0\.5 of the largest element"):
        error(workload, [np.float32([1.0])], (np.array([2.0]),))
    with pytest.raises(WrongResult, match="off by inf"):
        error(workload, [np.float32([np.nan])], (np.array([2.0]),))
    many, few = np.zeros(1000), np.zeros(1000)
    many[0] = few[0] = few[1] = 1.0
    assert error(Workload("image", "unsharp", dict, flipped=1e-3), [few], (many,)) == 0.0
    with pytest.raises(WrongResult, match="off by 1 of"):
        error(workload, [few], (many,))
    with pytest.raises(WrongResult, match="shape"):
        error(workload, [np.float32([1.0, 2.0])], (np.array([2.0]),))
    with pytest.raises(WrongResult, match="0 results, expected 1"):
        error(workload, [], (np.array([2.0]),))
