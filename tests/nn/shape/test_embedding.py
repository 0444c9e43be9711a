"""Embeddings: values on every target, fused with what follows, and numbers that are no rows."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument, InvalidSchedule
from polyfuse.ir import Nest
from polyfuse.schedule import Schedule

DRAW = np.random.default_rng(0)
W = DRAW.standard_normal((11, 24), np.float32)
X = DRAW.integers(0, 11, (5, 7)).astype(np.int32)


def scaled() -> Nest:
    return pf.lower(2.0 * nn.embedding(nn.input("x", X.shape, "int32"), W))


@pytest.fixture(scope="module")
def net() -> pf.Executable:
    return pf.compile(scaled(), target="cpu")


def test_rows_go_into_their_users_and_have_a_name(net: pf.Executable) -> None:
    np.testing.assert_array_equal(net(X), 2 * W[X])
    assert "row = int64(x[i, j])" in net.source
    assert "address(w, (row, 0))" in net.source
    assert "e0 is read through, in mul0" in net.explain()
    assert net.report().bytes_moved == 2 * W[X].nbytes, (
        "rows read and written: nothing of the table but these"
    )


@pytest.mark.parametrize("wrong", [11, -1])
def test_no_row_is_read_that_is_not_there(net: pf.Executable, wrong: int) -> None:
    x = X.copy()
    x[3, 2] = wrong
    out = np.zeros((*X.shape, 24), np.float32)
    lockstep = pf.compile(net.nest, target="cuda", machine="h200", device="lockstep")
    for run in (net, lockstep):
        with pytest.raises(
            BadArgument, match=rf"^x\[3, 2\] is {wrong}, expected 0 <= x\[3, 2\] < 11: .* w0: float32"
        ):
            run(x, out=out)
    assert not out.any(), "nothing has run"
    np.testing.assert_array_equal(lockstep(X), 2 * W[X])


def test_scalar_indices_tables_of_numbers_and_of_matrices() -> None:
    i, x = nn.input("i", (), "int64"), nn.input("x", X.shape, "int32")
    cubes = DRAW.standard_normal((11, 3, 40))
    outputs = [nn.embedding(i, W), nn.embedding(x, W[:, 0].copy()), nn.embedding(x, cubes) + 1.0]
    net = pf.compile(pf.lower(outputs), target="cpu")
    expected = W[4], W[:, 0][X], cubes[X] + 1
    for found, wanted in zip(net(4, X), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    with pytest.raises(BadArgument, match=r"^i is 11, expected 0 <= i < 11"):
        net(11, X)


def test_numbers_reshaped_and_transposed() -> None:
    """As models pass them on: the rows are views, and a call checks the input."""
    x = nn.input("x", (2, 6), "int64")
    nest = pf.lower(nn.embedding(nn.transpose(nn.reshape(x, (3, 4)), 0, 1), W))
    net = pf.compile(nest, target="cpu")
    numbers = np.arange(12).reshape(2, 6) % len(W)
    np.testing.assert_array_equal(net(numbers), np.asarray(W)[numbers.reshape(3, 4).T])
    with pytest.raises(BadArgument):
        net(numbers - 1)


def test_a_column_of_numbers_chooses_rows_of_its_own_table() -> None:
    """A call checks the numbers of a view against its table, and not the others."""
    x = nn.input("x", ("N", 3, 2), "int64")
    large = DRAW.standard_normal((100, 24), np.float32)
    parts = nn.embedding(x[:, 2], W), nn.embedding(nn.flip(x, 2)[:, 0], large), nn.embedding(x[:, 2, 1], W)
    nest = pf.lower(parts)
    cpu, lockstep = (
        pf.compile(nest, target="cpu"),
        pf.compile(nest, target="cuda", machine="h200", device="lockstep"),
    )
    numbers = DRAW.integers(0, 11, (5, 3, 2))
    numbers[:, 0], numbers[:, 1] = DRAW.integers(11, 100, (5, 2)), -1
    for run in (cpu, lockstep):
        found = run(numbers)
        np.testing.assert_array_equal(found[0], W[numbers[:, 2]])
        np.testing.assert_array_equal(found[1], large[numbers[:, 0, ::-1]])
        np.testing.assert_array_equal(found[2], W[numbers[:, 2, 1]])
        for at, rows in (((4, 2, 0), 11), ((3, 0, 1), 100)):
            wrong = numbers.copy()
            wrong[at] = rows
            place = rf"x\[{', '.join(map(str, at))}\]"
            with pytest.raises(
                BadArgument, match=rf"^{place} is {rows}, expected 0 <= {place} < {rows}: .* w\d: float32"
            ):
                run(wrong)


def test_a_product_takes_rows_block_by_block() -> None:
    model = nn.Sequential(nn.Embedding(50, 64, padding_idx=3), nn.Linear(64, 32), nn.ReLU())
    nest = pf.lower(model, batch=(6, 16))
    assert nest.tensor("x").dtype == "int64"
    assert not nest.constants["w0"][3].any()
    x = DRAW.integers(0, 50, (6, 16))
    expected = pf.interpret(nest, [x])["out"]
    net = pf.compile(nest, target="cpu")
    assert len([launch for launch in net.kernels if not launch.once]) == 1
    np.testing.assert_allclose(net(x), expected, atol=1e-4)
    on_gpu = pf.compile(nest, target="cuda", machine="h200", device="lockstep")
    np.testing.assert_allclose(on_gpu(x), expected, atol=1e-4)


def test_one_table_for_letters_and_for_results() -> None:
    x = nn.input("x", (9,), "int64")
    nest = pf.lower(nn.embedding(x, W) @ nn.transpose(nn.constant(W)))
    given = DRAW.integers(0, 11, 9)
    net = pf.compile(nest, target="cpu")
    np.testing.assert_allclose(net(given), W[given] @ W.T, atol=1e-4)


def test_equal_kernels_have_their_own_tables_and_indices() -> None:
    tables = [DRAW.standard_normal((n, 16), np.float32) for n in (9, 9, 9, 8)]
    x, z = (nn.input(name, (12,), "int64") for name in "xz")
    chosen = [(x, 0), (x, 1), (z, 2), (z, 3), (x, 0)]
    nest = pf.lower([nn.embedding(index, tables[t]) for index, t in chosen])
    arrays = {"x": DRAW.integers(0, 9, 12), "z": DRAW.integers(0, 8, 12)}
    net = pf.compile(nest, target="cpu", fuse=False)
    names = {id(x): "x", id(z): "z"}
    for found, (index, t) in zip(net(**arrays), chosen, strict=True):
        np.testing.assert_array_equal(found, tables[t][arrays[names[id(index)]]])


def test_verbs_by_hand() -> None:
    schedule = Schedule(scaled()).promote("w0_at_x", "lookup0", at="j", memory="local")
    net = pf.compile(schedule.source, target="cpu", schedule=schedule)
    np.testing.assert_array_equal(net(X), 2 * W[X])
    with pytest.raises(InvalidSchedule, match="the address of the next row of w0_at_x is read from x"):
        Schedule(scaled()).vectorize("lookup0", "k").prefetch("lookup0", "w0_at_x", "i")
    nest = pf.rewrite.compose_views(pf.lower(nn.embedding(nn.input("x", (8,), "int64"), W) @ W.T.copy())).nest
    with pytest.raises(InvalidSchedule, match="those of w0_at_x lie where x says: promote it"):
        Schedule(nest).reorder("mac0", "k", "i", "j").microkernel("mac0", "k")


def test_rows_are_staged_in_shared_memory() -> None:
    nest = pf.lower(2.0 * nn.embedding(nn.input("x", (32,), "int64"), W))
    schedule = Schedule(pf.rewrite.compose_views(nest).nest).tile("mul0", i=8, j=8)
    schedule = schedule.bind("mul0", i="block.x").bind("mul0", i_in="thread.x")
    schedule = schedule.promote(
        "w0_at_x", "mul0", at="j", memory="shared", panel=(0, 8), layout=pf.SmemLayout(8, 4, 0, 1, 0)
    )
    net = pf.compile(schedule.source, target="cuda", machine="h200", device="lockstep", schedule=schedule)
    x = DRAW.integers(0, 11, 32)
    np.testing.assert_array_equal(net(x), 2 * W[x])


def test_views_and_formulas_say_where_rows_lie() -> None:
    assert r"\mathit{w0}_{x_{i, j}, k}" in pf.show.latex(scaled())
    assert "float32[5, 7, 24] = w0[x]" in pf.show.html(scaled())


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (
            lambda: nn.embedding(nn.input("x", (3,)), W),
            "does not hold integers; expected an input such as nn.input",
        ),
        (
            lambda: nn.embedding(nn.input("x", (3,), "int64") + 1.0, W),
            "is computed; row numbers must be an input",
        ),
        (lambda: nn.tanh(nn.input("x", (3,), "int64")), "tanh computes in float32 or float64"),
        (
            lambda: nn.embedding(nn.input("x", (3,), "int64"), nn.relu(nn.constant(W))),
            "the table .* is computed",
        ),
        (
            lambda: nn.embedding(nn.input("x", (3,), "int64"), np.float32(1.0).reshape(())),
            "not a floating-point table",
        ),
        (lambda: nn.Embedding(0, 3), "both sizes must be at least 1"),
        (lambda: nn.Embedding(4, 3, padding_idx=-1), "padding_idx -1 is not a row; expected 0 to 3"),
    ],
)
def test_what_does_not_fit(made: object, why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        made()  # type: ignore[operator]
