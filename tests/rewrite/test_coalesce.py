"""Two loops over pixels as one: the same values, what is copied, what is refused, and where it is taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import IllegalRewrite
from polyfuse.ir import Nest
from polyfuse.machine import Machine
from polyfuse.rewrite import coalesce, why_not_coalesce
from polyfuse.strategy.match.gemm import products_of
from polyfuse.strategy.pipeline import plan_for
from polyfuse.strategy.rewrites.reductions.coalesce import with_pixels_in_one_loop

Array = np.ndarray[Any, Any]


def integers(*shape: int) -> Array:
    return np.random.default_rng(shape).integers(-2, 3, shape).astype(np.float32)


def bottleneck(channels: int, filters: int, size: int, images: int = 1, steps: int = 1) -> Nest:
    """A block of a residual network: convolutions of one pixel around one of 3 x 3, and one beside them."""
    x = nn.relu(nn.input("x", (images, channels, size, size)))
    first = nn.relu(nn.conv2d(x, integers(filters, channels, 1, 1), integers(filters)))
    second = nn.relu(nn.conv2d(first, integers(filters, filters, 3, 3), None, steps, 1))
    third = nn.conv2d(second, integers(channels, filters, 1, 1), integers(channels))
    beside = x if steps == 1 else nn.conv2d(x, integers(channels, channels, 1, 1), None, steps)
    return pf.lower(nn.relu(third + beside))


def assert_same(nest: Nest, made: Nest, *shape: int) -> None:
    x = integers(*shape)
    before, after = pf.interpret(nest, [x]), pf.interpret(made, [x])
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


def shape_of(nest: Nest, tensor: str) -> tuple[int | str, ...]:
    return nest.tensor(tensor).shape


@pytest.mark.parametrize("images", [1, 2])
def test_pixels_are_one_loop_of_all_that_shares_their_tensors(images: int) -> None:
    nest = bottleneck(6, 4, 5, images)
    sums = [s.name for s in nest.statements if s.op == "+="]
    done = coalesce(nest, sums[0], nest.statement(sums[0]).dims[2])
    y = nest.statement(sums[0]).write.tensor
    assert shape_of(done.nest, y) == (images, 4, 25)
    assert sums[1] not in done.statements
    assert not done.copies
    assert_same(nest, done.nest, images, 6, 5, 5)
    assert len(done.nest.statement(sums[0]).dims) == len(nest.statement(sums[0]).dims) - 1


def test_the_tail_of_a_window_stays_in_its_loops_and_stores_rows() -> None:
    nest = bottleneck(6, 4, 5)
    sums = [s.name for s in nest.statements if s.op == "+="]
    done = coalesce(nest, sums[2], nest.statement(sums[2]).dims[2])
    windows = nest.statement(sums[1])
    assert shape_of(done.nest, windows.write.tensor) == shape_of(nest, windows.write.tensor)
    read = next(a.tensor for a in nest.statement(sums[2]).reads if a.tensor in done.stored)
    tail = next(s for s in done.nest.statements if s.write.tensor == read)
    assert tail.name in done.borders
    assert str(tail.write).endswith("5k + l]")
    assert_same(nest, done.nest, 1, 6, 5, 5)


def test_a_strided_read_is_copied_into_rows() -> None:
    nest = bottleneck(6, 4, 6, steps=2)
    name = next(s.name for s in nest.statements if s.op == "+=" and any("2k, 2l" in str(a) for a in s.reads))
    done = coalesce(nest, name, "k")
    (copy,) = (done.nest.statement(each) for each in done.copies)
    assert str(copy.reads[0]).endswith("2i2, 2i3]")
    assert shape_of(done.nest, copy.write.tensor) == (1, 6, 9)
    assert_same(nest, done.nest, 1, 6, 6, 6)


def test_what_cannot_be_one_loop_is_refused() -> None:
    nest = bottleneck(6, 4, 5)
    sums = [s.name for s in nest.statements if s.op == "+="]
    assert "bounds" in str(why_not_coalesce(nest, sums[1], "k"))  # windows end at the border of the image
    assert "no two dimensions from q on" in str(why_not_coalesce(nest, sums[0], "q"))
    with pytest.raises(IllegalRewrite, match="is refused"):
        coalesce(nest, sums[0], nest.statement(sums[0]).dims[1])


def test_it_is_taken_on_small_images_which_are_columns_then() -> None:
    nest, machine = bottleneck(256, 64, 4), Machine.preset("xeon")
    given = (replace(t, role="input") if t.role == "constant" else t for t in nest.tensors)
    nest = replace(nest, tensors=tuple(given))  # constants are packed once for all calls
    made, said = with_pixels_in_one_loop(nest, machine)
    assert [one.taken for one in said] == [True]
    sums = [s.name for s in nest.statements if s.op == "+="]
    columns = {p.columns for p in products_of(made, sums[0])}
    assert columns == {made.statement(sums[0]).dims.index("k")}, "not the one image of the batch"
    plan = plan_for(nest, machine)
    assert any("j x k in tiles of" in note for note in plan.notes)
    assert sum(len(g.statements) > 1 for g in plan.groups) == 3, "borders are in the kernels of their sums"


def test_weights_of_one_pixel_are_read_in_place() -> None:
    """Their last axes have one element each: rows of w[256, 64, 1, 1] lie along its second axis."""
    x = nn.relu(nn.input("x", (1, 64, 8, 8)))
    w = nn.input("w", (256, 64, 1, 1))
    nest = pf.lower(nn.relu(nn.conv2d(x, w)))
    plan = plan_for(nest, Machine.preset("xeon"))
    assert any("w is not packed" in note for note in plan.notes)
    assert nest.tensor("w").innermost == 1


def test_the_compiled_block_computes_the_same() -> None:
    nest = bottleneck(32, 16, 6, steps=2)
    run = pf.compile(nest, target="cpu", force={"coalesce": True})
    x = integers(1, 32, 6, 6)
    expected = pf.interpret(nest, [x])[nest.results[0].name]
    np.testing.assert_array_equal(run(x), expected)
