"""Buffers whose elements lie apart in the tensor: their cells, and that validation finds what has none."""

from __future__ import annotations

from dataclasses import replace

import islpy as isl
import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.analysis import storage, validation
from polyfuse.analysis.digits import held_along
from polyfuse.analysis.storage import buffers_of, geometry
from polyfuse.errors import ValidationFailure
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.layouts.core_matrix import Digit
from polyfuse.schedule import Schedule


def apart(*offsets: int, size: int = 8) -> Nest:
    """S0: t[i] = …, S1: t[i + offset] = …, and R: their sum, for each i."""
    box = f"0 <= i < {size}"
    tensors = [
        Tensor("A", (size + max(offsets),), "float64", "input"),
        Tensor("t", (size + max(offsets),), "float64", "temporary"),
        Tensor("O", (size,), "float64", "output"),
    ]
    every = [
        statement(f"{{ S{n}[i] : {box} }}", f"t[i + {o}] = 2 * A[i + {o}]") for n, o in enumerate(offsets)
    ]
    total = " + ".join(f"{n + 1} * t[i + {o}]" for n, o in enumerate(offsets))
    return Nest.of(tensors, [*every, statement(f"{{ R[i] : {box} }}", f"O[i] = {total}")], name="apart")


def in_one_loop(nest: Nest) -> Schedule:
    s = Schedule(nest)
    first, *rest = (x.name for x in nest.statements)
    for name in rest:
        s = s.fuse(first, name, at="i")
    return s.promote("t", first, at="i", memory="local")


@pytest.mark.parametrize(
    ("offsets", "step", "cells"),
    [((0, 64), 64, 2), ((0, 64, 192), 64, 4), ((8, 20, 28), 4, 6), ((0, 9, 23), 1, 24), ((16,), 1, 1)],
)
def test_what_lies_apart_has_neighbouring_cells(offsets: tuple[int, ...], step: int, cells: int) -> None:
    nest = apart(*offsets)
    s = in_one_loop(nest)
    ((loop, buffer),) = buffers_of(s.tree)
    found = geometry(s.nest, s.tree, loop, buffer)
    assert (found.held, found.shape) == (((Digit(step, None, 1),),), (cells,))
    a = np.random.default_rng(0).random(nest.tensor("A").shape)
    expected = sum(2 * (n + 1) * a[o : o + 8] for n, o in enumerate(offsets))
    np.testing.assert_allclose(pf.compile(nest, schedule=s)(a), expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("touched", "corner", "step"),
    [
        ("{ [i] -> t[e] : exists q : e = i + 6 q and 0 <= q < 5 }", "{ [i] -> [i] }", 6),
        ("{ [i] -> t[e] : i <= e < i + 4 }", "{ [i] -> [i] }", 1),
        ("{ [i] -> t[i]; [i] -> t[i + 8] : i > 3; [i] -> t[i + 12] : i <= 3 }", "{ [i] -> [i] }", 4),
    ],
)
def test_steps_between_elements(touched: str, corner: str, step: int) -> None:
    pieces = isl.UnionMap(touched).intersect_domain(isl.UnionSet("{ [i] : 0 <= i < 9 }"))
    found = held_along(isl.Map.from_union_map(pieces), 0, isl.PwAff(corner), 30)
    assert found == (Digit(step, None, 1),)


def test_an_element_without_a_cell_is_found() -> None:
    s = in_one_loop(apart(0, 64, 96))

    def wrong(*arguments: object) -> storage.Geometry:
        return replace(geometry(*arguments), held=((Digit(64, None, 1),),))  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "geometry", wrong)
        message = r"storage failed: S2\[0\] touches t between elements 64 apart"
        with pytest.raises(ValidationFailure, match=message):
            validation.validate(s.source, s.nest, s.tree)


def test_blocks_of_a_fast_product_stay_in_registers() -> None:
    """What one iteration makes of four blocks has four cells, not those of the box around them."""
    net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
    found = pf.compile(
        pf.lower(net, batch=128), machine=replace(pf.Machine.preset("zen5"), units=1), fast_matmul="strassen"
    )
    assert "(2, 2)" in found.source
    assert "(65, 129)" not in found.source
