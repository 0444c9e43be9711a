"""The microkernel: a product whose sums stay in registers, for whole tiles and the rest, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import InvalidSchedule
from polyfuse.ir import Nest, Tensor, statement
from tests.support.emitted import in_one_line
from tests.support.examples import examples
from tests.support.execution import memory, run_plain


def product(
    rows: int, columns: int, steps: int, dtype: str, left: str = "A[i, k]", right: str = "B[k, j]"
) -> Nest:
    """y = A B, then out = y + 1, with the operands in any layout."""
    names = {"i": rows, "j": columns, "k": steps}
    shapes = [tuple(names[d] for d in text[2:-1].split(", ")) for text in (left, right)]
    tensors = [
        Tensor(left[0], shapes[0], dtype, "input"),
        Tensor(right[0], shapes[1], dtype, "input"),
        Tensor("y", (rows, columns), dtype, "temporary"),
        Tensor("out", (rows, columns), dtype, "output"),
    ]
    box = f"0 <= i < {rows} and 0 <= j < {columns}"
    return Nest.of(
        tensors,
        [
            statement(f"{{ zero[i, j] : {box} }}", "y[i, j] = 0.0"),
            statement(f"{{ mac[i, j, k] : {box} and 0 <= k < {steps} }}", f"y[i, j] += {left} * {right}"),
            statement(f"{{ add[i, j] : {box} }}", "out[i, j] = y[i, j] + 1.0"),
        ],
    )


def tiled(nest: Nest, rows: int, columns: int) -> pf.Schedule:
    """The loops a microkernel needs, up to the verb itself."""
    s = (
        pf.Schedule(nest)
        .fuse("mac", "zero", at="j")
        .fuse("mac", "add", at="j")
        .tile("mac", i=rows, j=columns)
    )
    s = s.distribute("mac", "j_in").distribute("mac", "i_in").interchange("mac", "j_in", "k")
    return s.interchange("mac", "i_in", "k").promote("y", "mac", at="j")


def draw(nest: Nest) -> dict[str, np.ndarray]:
    """Small integers, whose sums of products are exact in either precision."""
    rng = np.random.default_rng(3)
    return {t.name: rng.integers(-4, 5, t.shape).astype(t.dtype) for t in nest.inputs}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(16, 64, 20), (13, 70, 7), (8, 32, 2), (5, 33, 3)])
def test_whole_tiles_and_the_rest_equal_the_oracle(shape: tuple[int, int, int], dtype: str) -> None:
    nest = product(*shape, dtype)
    rows, columns = min(8, shape[0]), 32
    net = pf.compile(nest, target="cpu", schedule=tiled(nest, rows, columns).microkernel("mac", "k"))
    inputs = draw(nest)
    assert "tile_mac(" in net.source
    whole = shape[0] % rows == 0 and shape[1] % columns == 0
    begun = f"tile_zero(TileSpec(rows={rows}, columns={columns})" in in_one_line(net.source)
    assert begun == whole, "whole tiles begin with whole vectors"
    np.testing.assert_array_equal(net(**inputs), pf.interpret(nest, inputs)["out"])


@pytest.mark.parametrize(("outer", "inner"), [(1, 20), (3, 7)])
def test_steps_whose_outer_loop_has_one_value_in_a_block(outer: int, inner: int) -> None:
    """isl makes no loop of one value: the next loop of steps is the tile's."""
    names = {"i": 13, "j": 33, "t": outer, "k": inner}
    box = " and ".join(f"0 <= {d} < {size}" for d, size in names.items())
    tensors = [
        Tensor("a", (outer, inner, 13), "float32", "input"),
        Tensor("b", (outer, inner, 33), "float32", "input"),
        Tensor("y", (13, 33), "float32", "inout"),
    ]
    mac = statement(f"{{ mac[t, i, j, k] : {box} }}", "y[i, j] += a[t, k, i] * b[t, k, j]")
    nest = Nest.of(tensors, [mac])
    s = pf.Schedule(nest).split("mac", "t", 1).tile("mac", i=6, j=16)
    s = s.reorder("mac", "t", "i", "j", "t_in", "k", "i_in", "j_in").microkernel("mac", "t_in")
    net, inputs = pf.compile(nest, target="cpu", schedule=s), draw(nest)
    assert "tile_mac(" in net.source
    expected = pf.interpret(nest, inputs)["y"]
    net(**inputs)
    np.testing.assert_array_equal(inputs["y"], expected)


@pytest.mark.parametrize("rows", ["b[j]", "b[i]"])
def test_sums_that_begin_with_a_row_of_numbers(rows: str) -> None:
    """The same row in each row of a tile is stored as whole vectors; what differs from row to row is not."""
    tensors = [
        Tensor("A", (12, 20), "float32", "input"),
        Tensor("B", (20, 64), "float32", "input"),
        Tensor("b", (64,), "float32", "input"),
        Tensor("y", (12, 64), "float32", "output"),
    ]
    box = "0 <= i < 12 and 0 <= j < 64"
    first = statement(f"{{ first[i, j] : {box} }}", f"y[i, j] = {rows}")
    mac = statement(f"{{ mac[i, j, k] : {box} and 0 <= k < 20 }}", "y[i, j] += A[i, k] * B[k, j]")
    nest = Nest.of(tensors, [first, mac])
    net = pf.compile(nest, target="cpu")
    inputs = draw(nest)
    assert "tile_mac(" in net.source
    assert ("tile_first(" in net.source) == (rows == "b[j]")
    np.testing.assert_array_equal(net(**inputs), pf.interpret(nest, inputs)["y"])


@settings(max_examples=examples(10))
@given(
    st.tuples(st.integers(2, 30), st.integers(1, 80), st.integers(0, 9)),
    st.tuples(st.integers(2, 9), st.integers(1, 40)),
    st.sampled_from(["float32", "float64"]),
    st.booleans(),
)
def test_any_rest_in_rows_columns_and_steps(
    shape: tuple[int, int, int], tile: tuple[int, int], dtype: str, buffered: bool
) -> None:
    """Tiles of any size over products of any size, sums in a buffer or in the middle of an array."""
    nest = product(*shape, dtype)
    s = tiled(nest, *tile) if buffered else in_place(nest, *tile)
    try:
        s = s.microkernel("mac", "k")
    except InvalidSchedule:
        reject()
    net = pf.compile(nest, target="cpu", schedule=s)
    inputs = draw(nest)
    assert "tile_mac" in net.source
    np.testing.assert_array_equal(net(**inputs), pf.interpret(nest, inputs)["out"])


@pytest.mark.parametrize(
    "later",
    [
        lambda s: s.interchange("mac", "k", "j_in"),
        lambda s: s.split("mac", "i_in", 2),
        lambda s: s.reverse("mac", "j_in"),
        lambda s: s.bind("mac", i_in="cores"),
        lambda s: s.vectorize("mac", "j_in"),
        lambda s: s.promote("A", "mac", at="k", memory="local"),
    ],
)
def test_what_would_leave_no_product_of_its_loops_is_refused(
    later: Callable[[pf.Schedule], pf.Schedule],
) -> None:
    """Code for a tile has its steps outside, whatever a verb has made of the loops since."""
    s = in_place(product(16, 64, 20, "float32"), 8, 32).microkernel("mac", "k")
    with pytest.raises(InvalidSchedule, match="belongs to a microkernel, which this would destroy"):
        later(s)


@pytest.mark.parametrize(
    ("later", "tiles"),
    [
        (lambda s: s.interchange("mac", "i", "j").bind("mac", j="cores"), True),
        (lambda s: s.interchange("mac", "i_in", "k"), True),
        (lambda s: s.reverse("mac", "k"), False),
        (lambda s: s.shift("mac", "i_in", 3), True),
    ],
)
def test_what_leaves_its_loops_a_product_is_not_refused(
    later: Callable[[pf.Schedule], pf.Schedule], tiles: bool
) -> None:
    """Steps that run backward have no operation, and stay loops."""
    nest = product(16, 64, 20, "float32")
    inputs = draw(nest)
    net = pf.compile(nest, target="cpu", schedule=later(in_place(nest, 8, 32).microkernel("mac", "k")))
    assert ("_mac(" in net.source) == tiles
    np.testing.assert_array_equal(net(**inputs), pf.interpret(nest, inputs)["out"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_that_another_loop_of_steps_cuts_short_are_loops(dtype: str) -> None:
    """for s: for k // 4: for k % 4: for i: the loop before the last one is no loop of rows."""
    tensors = [
        Tensor("a", (10, 2), dtype, "input"),
        Tensor("b", (16,), dtype, "input"),
        Tensor("out", (16,), dtype, "inout"),
    ]
    box = "0 <= i < 16 and 0 <= k < 10 and 0 <= s < 2"
    nest = Nest.of(tensors, [statement(f"{{ mac[i, k, s] : {box} }}", "out[i] += a[k, s] * b[i]")])
    s = pf.Schedule(nest).split("mac", "k", 4).reorder("mac", "s", "k", "k_in", "i").microkernel("mac", "s")
    inputs = {**draw(nest), "out": np.zeros(16, dtype)}
    net = pf.compile(nest, target="cpu", schedule=s)
    expected = pf.interpret(nest, {name: value.copy() for name, value in inputs.items()})["out"]
    net(**inputs)
    np.testing.assert_array_equal(inputs["out"], expected)


def in_place(nest: Nest, rows: int, columns: int) -> pf.Schedule:
    """The product alone in tiles, its sums where they are."""
    return pf.Schedule(nest).tile("mac", i=rows, j=columns).reorder("mac", "i", "j", "k", "i_in", "j_in")


def test_symbolic_sizes_and_triangles() -> None:
    """y[i, j] += A[i, k] B[k, j] for j <= i: tiles on the diagonal have other columns in each row, which are masked."""
    tensors = [
        Tensor("A", ("N", "M"), "float64", "input"),
        Tensor("B", ("M", "N"), "float64", "input"),
        Tensor("y", ("N", "N"), "float64", "inout"),
    ]
    box = "[N, M] -> { mac[i, j, k] : 0 <= j <= i < N and 0 <= k < M }"
    nest = Nest.of(
        tensors, [statement(box, "y[i, j] += A[i, k] * B[k, j]")], context="[N, M] -> { : N, M > 0 }"
    )
    net = pf.compile(nest, target="cpu", schedule=in_place(nest, 4, 16).microkernel("mac", "k"))
    source, spec = in_one_line(net.source), "TileSpec(rows=4, columns=16)"
    assert source.count(f"tile_mac({spec}") == source.count(f"tile_mac_slanted({spec}") == 1
    rng = np.random.default_rng(5)
    for n, m in ((1, 3), (16, 1), (37, 9)):
        a, b, y = (rng.integers(-4, 5, shape).astype(float) for shape in ((n, m), (m, n), (n, n)))
        expected = y + np.tril(a @ b)
        net(a, b, y)
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("border", "dtype"),
    [
        ("j > i", "float32"),
        ("3 * i - 20 <= 2 * j and j <= 2 * i + 5", "float64"),
        ("20 - 3 * i <= j <= 50 - i and i + j >= 12", "float64"),
    ],
)
def test_rows_of_a_tile_may_have_columns_of_their_own(border: str, dtype: str) -> None:
    """Any borders aslant, also rows without columns before and after others: arrays end where the domain does."""
    tensors = [Tensor(n, shape, dtype, "input") for n, shape in (("A", (23, 7)), ("B", (7, 39)))]
    tensors.append(Tensor("y", (23, 39), dtype, "inout"))
    box = f"{{ mac[i, j, k] : 0 <= i < 23 and 0 <= j < 39 and 0 <= k < 7 and {border} }}"
    nest = Nest.of(tensors, [statement(box, "y[i, j] += A[i, k] * B[k, j]")])
    s = in_place(nest, 5, 16).microkernel("mac", "k")
    net = pf.compile(nest, target="cpu", schedule=s)
    inputs = draw(nest) | {"y": np.ones((23, 39), dtype)}
    expected = pf.interpret(nest, inputs)["y"]
    plain = {name: array.copy() for name, array in inputs.items()}
    run_plain(s.nest, s.tree, plain, {}, seed=1)
    net(**inputs)
    evenly = "2 * j" not in border
    assert ("tile_mac_slanted(" in net.source) == evenly, "3i/2 grows with rows by no whole number"
    np.testing.assert_array_equal(inputs["y"], expected)
    np.testing.assert_array_equal(plain["y"], expected)


@pytest.mark.parametrize("border", ["k > i", "k < i and j >= i", "i - 4 <= k <= i + 9", "5 < i + k < 30"])
def test_steps_that_some_rows_lack_run_as_loops_before_and_after_the_tile(border: str) -> None:
    """Triangles and bands of steps, also with columns aslant."""
    shapes = {"A": (30, 23), "B": (30, 39)}
    tensors = [Tensor(n, shape, "float64", "input") for n, shape in shapes.items()]
    tensors.append(Tensor("y", (23, 39), "float64", "inout"))
    box = f"{{ mac[i, j, k] : 0 <= i < 23 and 0 <= j < 39 and 0 <= k < 30 and {border} }}"
    nest = Nest.of(tensors, [statement(box, "y[i, j] += A[k, i] * B[k, j]")])
    s = in_place(nest, 5, 16).microkernel("mac", "k")
    net = pf.compile(nest, target="cpu", schedule=s)
    inputs = draw(nest) | {"y": np.ones((23, 39))}
    expected = pf.interpret(nest, inputs)["y"]
    plain = {name: array.copy() for name, array in inputs.items()}
    run_plain(s.nest, s.tree, plain, {}, seed=1)
    net(**inputs)
    assert "if k_first < k_end:\n                tile_mac_" in net.source
    np.testing.assert_array_equal(inputs["y"], expected)
    np.testing.assert_array_equal(plain["y"], expected)


@pytest.mark.parametrize("left", ["A[i, k]", "A[k, i]"])
def test_the_left_operand_may_be_transposed(left: str) -> None:
    nest = product(16, 64, 24, "float32", left=left)
    net = pf.compile(nest, target="cpu", schedule=tiled(nest, 8, 32).microkernel("mac", "k"))
    inputs = draw(nest)
    np.testing.assert_array_equal(net(**inputs), pf.interpret(nest, inputs)["out"])


def test_operands_in_either_order() -> None:
    nest = product(16, 64, 24, "float32", left="B[k, j]", right="A[i, k]")
    net = pf.compile(nest, target="cpu", schedule=tiled(nest, 8, 32).microkernel("mac", "k"))
    inputs = draw(nest)
    np.testing.assert_array_equal(net(**inputs), pf.interpret(nest, inputs)["out"])


def test_a_layers_product_is_one_call(golden: Callable[[str, str], None]) -> None:
    nest = nn.lower(nn.Linear(50, 64, seed=1), batch=21)
    s = pf.Schedule(nest).fuse("mac0", "zero0", at="j").fuse("mac0", "bias0", at="j").tile("mac0", i=8, j=32)
    s = s.distribute("mac0", "j_in").distribute("mac0", "i_in").interchange("mac0", "j_in", "k")
    s = s.interchange("mac0", "i_in", "k").promote("y0", "mac0", at="j").microkernel("mac0", "k")
    net = pf.compile(nest, target="cpu", schedule=s)
    golden("schedule/microkernel.txt", f"{s}\n\n{net.kernels[0].source}")


def test_on_a_gpu_it_is_the_loops() -> None:
    nest = product(9, 33, 5, "float32")
    s = tiled(nest, 8, 32).microkernel("mac", "k")
    net = pf.compile(nest, target="cuda", machine="h200", device="lockstep", schedule=s)
    inputs = draw(nest)
    np.testing.assert_array_equal(net(**inputs), pf.interpret(nest, inputs)["out"])


@pytest.mark.parametrize("rows", [16, 50])
@pytest.mark.parametrize("tile", [(8, 32), (2, 16)])
def test_tiles_may_ask_for_the_next_panel(rows: int, tile: tuple[int, int]) -> None:
    """All tiles of a panel ask for the next one, each for a part, and the result is the same."""
    nest = product(rows, 96, 24, "float64")
    s = tiled(nest, *tile).pack("B", "mac", panel=(1, tile[1])).interchange("mac", "i", "j")
    plain = s.microkernel("mac", "k")
    s = plain.prefetch("mac", "B_panels", "j")
    assert "@ microkernel  full tiles apart  [fetches B_panels of the next j]" in str(s)
    inputs = draw(nest)
    found = [pf.compile(nest, target="cpu", schedule=one) for one in (plain, s)]
    assert ["tile_mac_ahead(" in net.source for net in found] == [False, True]
    for net in found:
        np.testing.assert_array_equal(net(**inputs), pf.interpret(nest, inputs)["out"])
    arrays = memory(nest, s.nest, s.tree, inputs, {})
    run_plain(s.nest, s.tree, arrays, {}, seed=1)
    np.testing.assert_array_equal(arrays["out"], pf.interpret(nest, inputs)["out"])


@pytest.mark.parametrize("rows", [16, 50])
@pytest.mark.parametrize("tile", [(8, 32), (2, 16)])
def test_tiles_may_ask_for_the_next_panel_of_rows(rows: int, tile: tuple[int, int]) -> None:
    """All whole tiles of a panel ask for the next one, each for a part, and the result is the same."""
    nest = product(rows, 48, 24, "float64")
    plain = tiled(nest, *tile).pack("A", "mac", panel=(0, tile[0])).microkernel("mac", "k")
    s = plain.prefetch("mac", "A_panels", "i")
    assert "[fetches A_panels of the next i]" in str(s)
    inputs = draw(nest)
    found = [pf.compile(nest, target="cpu", schedule=one) for one in (plain, s)]
    assert ["tile_mac_rows_ahead(" in net.source for net in found] == [False, True]
    asked = next(line for line in in_one_line(found[1].source).splitlines() if "tile_mac_rows_ahead(" in line)
    assert "following=(i + 1, 0, 0)" in asked
    assert asked.endswith(f", share={-(-tile[0] // (48 // tile[1]))})")
    for net in found:
        np.testing.assert_array_equal(net(**inputs), pf.interpret(nest, inputs)["out"])
    arrays = memory(nest, s.nest, s.tree, inputs, {})
    run_plain(s.nest, s.tree, arrays, {}, seed=1)
    np.testing.assert_array_equal(arrays["out"], pf.interpret(nest, inputs)["out"])


@pytest.mark.parametrize(("rows", "columns"), [(16, 96), (13, 100)])
def test_tiles_may_ask_for_columns_further_on(rows: int, columns: int) -> None:
    """Tiles prefetch the columns of two tiles later of a factor that is not packed; the result is the same."""
    nest = product(rows, columns, 24, "float64")
    plain = tiled(nest, 8, 32).microkernel("mac", "k")
    s = plain.prefetch("mac", "B", "j", by=2)
    inputs = draw(nest)
    found = [pf.compile(nest, target="cpu", schedule=one) for one in (plain, s)]
    assert ["tile_mac_columns_ahead(" in net.source for net in found] == [False, True]
    asked = next(x for x in in_one_line(found[1].source).splitlines() if "tile_mac_columns_ahead(" in x)
    assert asked.endswith(", further=64)")
    for net in found:
        np.testing.assert_array_equal(net(**inputs), pf.interpret(nest, inputs)["out"])
    arrays = memory(nest, s.nest, s.tree, inputs, {})
    run_plain(s.nest, s.tree, arrays, {}, seed=1)
    np.testing.assert_array_equal(arrays["out"], pf.interpret(nest, inputs)["out"])


@pytest.mark.parametrize(("rows", "share"), [(16, 16), (20, 16), (24, 11), (7, 32)])
def test_tiles_may_ask_for_the_next_block_of_steps(rows: int, share: int) -> None:
    """Whole tiles ask for all of it together: 32 columns in two, with a third that is cut short or without."""
    nest = product(rows, 64, 40, "float64")
    s = pf.Schedule(nest).split("mac", "j", 32).split("mac", "k", 16).split("mac", "i", min(rows, 8))
    s = s.reorder("mac", "j", "k", "i", "k_in", "i_in", "j_in").pack("B", "mac", panel=(1, 32))
    s = s.microkernel("mac", "k_in").prefetch("mac", "B_panels", "k")
    inputs = draw(nest)
    net = pf.compile(nest, target="cpu", schedule=s)
    asked = next(line for line in in_one_line(net.source).splitlines() if "tile_mac_ahead(" in line)
    assert "16 * (k + 1), 0)" in asked
    assert asked.endswith(f", share={share})")
    np.testing.assert_array_equal(net(**inputs), pf.interpret(nest, inputs)["out"])
    arrays = memory(nest, s.nest, s.tree, inputs, {})
    run_plain(s.nest, s.tree, arrays, {}, seed=1)
    np.testing.assert_array_equal(arrays["out"], pf.interpret(nest, inputs)["out"])


def test_what_asking_ahead_needs_is_said() -> None:
    s = tiled(product(16, 64, 24, "float32"), 8, 32).microkernel("mac", "k")
    for tensor, loop, why in (
        ("B", "i_in", "i_in is not a loop around the microkernel; expected one of i, j"),
        ("B", "i", "share B, and B of the next i is the same part of it"),
        ("A", "j", "share B, and A of the next j"),
        ("A", "i", "lie apart in A, which a tile would ask for row by row: pack it in panels first"),
    ):
        with pytest.raises(InvalidSchedule, match=why):
            s.prefetch("mac", tensor, loop)
    with pytest.raises(
        InvalidSchedule, match="by=2; the tiles of a microkernel prefetch the next panel, by=1"
    ):
        s.pack("B", "mac", panel=(1, 32)).prefetch("mac", "B_panels", "j", by=2)


def refused(schedule: pf.Schedule, loop: str = "k") -> str:
    with pytest.raises(InvalidSchedule) as caught:
        schedule.microkernel("mac", loop)
    return str(caught.value)


def test_what_it_needs_is_said() -> None:
    nest = product(16, 64, 24, "float32")
    assert "needs perfectly nested loops" in refused(tiled(nest, 8, 32), "i")
    assert (
        "the loops outside those of rows and columns must be those that the sum does not depend on"
        in refused(tiled(nest, 8, 32).interchange("mac", "k", "i_in"), "i_in")
    )
    assert "at most 512 sums in whole vectors, not 16 x 33" in refused(tiled(nest, 16, 33))
    assert "at most 512 sums in whole vectors, not 16 x 64" in refused(tiled(nest, 16, 64))
    bare = pf.Schedule(nest).reorder("mac", "k", "i", "j")
    assert "at most 512 sums" in refused(bare)
    transposed = product(16, 64, 24, "float32", right="B[j, k]")
    assert "columns along last axes" in refused(tiled(transposed, 8, 32))


def test_only_a_sum_of_products_of_two_reads() -> None:
    box = "0 <= i < 8 and 0 <= j < 32"
    tensors = [Tensor("A", (8, 4), "float32", "input"), Tensor("y", (8, 32), "float32", "output")]
    nest = Nest.of(
        tensors,
        [
            statement(f"{{ zero[i, j] : {box} }}", "y[i, j] = 0.0"),
            statement(f"{{ mac[i, j, k] : {box} and 0 <= k < 4 }}", "y[i, j] += A[i, k] + 1.0"),
        ],
    )
    assert "sum of products of two reads" in refused(pf.Schedule(nest).reorder("mac", "k", "i", "j"))


def test_sums_may_lie_in_any_array_and_any_part_of_it() -> None:
    nest = product(16, 128, 24, "float32")
    s = (
        pf.Schedule(nest)
        .tile("mac", i=8, j=32)
        .reorder("mac", "i", "j", "k", "i_in", "j_in")
        .microkernel("mac", "k")
    )
    net = pf.compile(nest, target="cpu", schedule=s)
    assert (
        "tile_mac(TileSpec(rows=8, columns=32), y=y, y_at=(8 * i, 32 * j), y_row=0, a=A, a_at=(8 * i, 0), a_row=0, "
        "a_step=1, b=B, b_at=(0, 32 * j), b_step=0, steps=24)"
    ) in in_one_line(net.source)
    inputs = draw(nest)
    np.testing.assert_array_equal(net(**inputs), pf.interpret(nest, inputs)["out"])


def test_factors_have_the_type_of_the_sum() -> None:
    # tiles read both factors in the sum's type: float32 numbers would be taken for halves of float64 numbers
    nest = product(96, 96, 80, "float64")
    mixed = Nest.of(
        [replace(t, dtype="float32") if t.name == "A" else t for t in nest.tensors], nest.statements
    )
    a, b = np.ones((96, 80), np.float32), np.ones((80, 96))
    for fuse in (True, False):
        assert (pf.compile(mixed, target="cpu", fuse=fuse)(a, b) == 81).all()
    with pytest.raises(InvalidSchedule, match="needs factors of the sum's type, and A is float32, y float64"):
        pf.Schedule(mixed).reorder("mac", "k", "i", "j").microkernel("mac", "k")


def test_a_loop_of_one_step_need_move_no_factor() -> None:
    """The one element of a wide window that lies within an image, whichever is the outer loop."""
    box = "0 <= i < 6 and 0 <= j < 16 and 0 <= k < 5"
    nest = Nest.of(
        [
            Tensor("a", (6, 5), "float32", "input"),
            Tensor("w", (5, 3, 16), "float32", "input"),
            Tensor("y", (6, 16), "float32", "output"),
        ],
        [
            statement("{ zero[i, j] : 0 <= i < 6 and 0 <= j < 16 }", "y[i, j] = 0.0"),
            statement(f"{{ mac[i, j, k, n] : {box} and n = 1 }}", "y[i, j] += a[i, k] * w[k, n, j]"),
        ],
    )
    s = pf.Schedule(nest).reorder("mac", "k", "n", "i", "j").microkernel("mac", "k")
    inputs = draw(nest)
    found = pf.compile(nest, target="cpu", schedule=s)
    np.testing.assert_array_equal(found(**inputs), pf.interpret(nest, inputs)["y"])
    assert "tile_mac" in found.source
