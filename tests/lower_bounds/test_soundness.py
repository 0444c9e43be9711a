"""No order of instances moves fewer bytes than the bound: simulated with the best replacement."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.polybench import KERNELS
from polyfuse import lower, nn
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.lower_bounds.program_bound import program_bound
from polyfuse.schedule import Schedule
from tests.support.examples import examples
from tests.support.nests import nests, some_sizes
from tests.support.pebbles import Touch, touches, traffic

SIZES = {
    **dict.fromkeys(("NI", "NJ", "NK", "NL", "NM", "M", "NR", "NQ", "NP", "W", "H"), 7),
    "N": 8,
    "T": 5,
}


def least_and_moved(nest: Nest, order: list[Touch], elements: int) -> tuple[int, int, int]:
    """The bound, what is moved once, and the simulated traffic; in bytes, all as if elements had the smallest size."""
    size = min(tensor.itemsize for tensor in nest.tensors)
    found = program_bound(nest, [s.name for s in nest.statements], elements * size)
    items = {tensor.name: tensor.itemsize for tensor in nest.tensors}
    alike = sum(moved.elements * (items[name] - size) for name, moved in found.moved.items())
    return (
        found.least(elements * size) - alike,
        found.compulsory - alike,
        size * traffic(nest, order, elements),
    )


def operands(order: list[Touch]) -> int:
    return max(len({*reads, write}) for reads, write in order)


@pytest.mark.parametrize(
    "name",
    ["2mm", "atax", "cholesky", "covariance", "doitgen", "floyd-warshall", "gramschmidt", "syr2k", "trmm"],
)
def test_polybench_moves_at_least_the_bound(name: str) -> None:
    kernel = KERNELS[name].nest
    nest = kernel.with_sizes({size: SIZES[size] for size in kernel.params})
    order = touches(nest)
    for elements in (operands(order), 8, 24):
        if elements >= operands(order):
            least, once, moved = least_and_moved(nest, order, elements)
            assert once <= least <= moved


def tiled_product() -> tuple[Nest, Schedule]:
    nest = lower(nn.Linear(24, 8, bias=False), batch=8)
    return nest, Schedule(nest).tile("mac0", i=4, j=4, k=1).fuse("mac0", "zero0", at="j")


def stencil() -> tuple[Nest, Schedule]:
    nest = KERNELS["jacobi-1d"].nest.with_sizes({"T": 40, "N": 40})
    return nest, Schedule(nest)


def convolution() -> tuple[Nest, Schedule]:
    nest = lower(nn.Conv2d(4, 4, 3, bias=False), batch=1, features=(4, 6, 6))
    return nest, Schedule(nest).tile("mac0", j=2, k=2)


@pytest.mark.parametrize(
    ("made", "elements", "close"),
    [(tiled_product, 21, 1.35), (stencil, 4, 70.0), (convolution, 8, 11.0)],
)
def test_good_orders_come_near(
    made: Callable[[], tuple[Nest, Schedule]], elements: int, close: float
) -> None:
    nest, schedule = made()
    least, once, moved = least_and_moved(nest, touches(nest, schedule.tree), elements)
    assert once < least <= moved <= close * least


@settings(max_examples=examples(60))
@given(data=st.data())
def test_random_nests_move_at_least_the_bound(data: st.DataObject) -> None:
    nest = data.draw(nests(max_statements=3))
    fixed = nest.with_sizes(data.draw(some_sizes(nest)))
    order = touches(fixed)
    if order:
        elements = operands(order) + data.draw(st.integers(0, 6))
        least, once, moved = least_and_moved(fixed, order, elements)
        assert once <= least <= moved


FORMS = ("i", "j", "k", "i + j", "j + k", "i + 2*k")


@st.composite
def contractions(draw: st.DrawFn) -> Nest:
    """y[…] += a[…] * b[…] * y or c[…], with random sums of three indices as subscripts, in random order of loops."""
    subscripts = st.lists(st.sampled_from(FORMS), min_size=1, max_size=2, unique=True).map(tuple)
    extents = [draw(st.integers(4, 11)) for _ in "ijk"]
    target, *read = (draw(subscripts) for _ in range(draw(st.integers(2, 4))))
    names = ["y", *draw(st.permutations(["a", "b", "c", "a"]))[: len(read)]]
    shapes: dict[str, tuple[int, ...]] = {}
    accesses = []
    for name, own in zip(names, (target, *read), strict=True):
        rank = len(shapes[name]) if name in shapes else len(own)
        fitting = (*own, *("i",) * rank)[:rank]
        shapes[name] = (30,) * rank
        accesses.append(f"{name}[{', '.join(fitting)}]")
    order = draw(st.permutations("ijk"))
    box = " and ".join(f"0 <= {name} < {n}" for name, n in zip("ijk", extents, strict=True))
    if draw(st.booleans()):
        box += " and j <= i"
    tensors = [Tensor("y", shapes["y"], "float64", "inout")]
    tensors += [Tensor(name, shapes[name], "float64", "input") for name in dict.fromkeys(names[1:])]
    text = f"{accesses[0]} += {' * '.join(accesses[1:])}"
    return Nest.of(tensors, [statement(f"{{ S[{', '.join(order)}] : {box} }}", text)])


@settings(max_examples=examples(60))
@given(nest=contractions(), more=st.integers(0, 3))
def test_random_contractions_move_at_least_the_bound(nest: Nest, more: int) -> None:
    order = touches(nest)
    least, once, moved = least_and_moved(nest, order, operands(order) + more)
    assert once <= least <= moved
