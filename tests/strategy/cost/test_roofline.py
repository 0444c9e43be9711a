from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.tree import loops_around
from polyfuse.machine import Level
from polyfuse.strategy.cost.counts import NOMINAL_SIZE, Counts, dims_of, nominal_sizes, stride
from polyfuse.strategy.cost.cpu_rows import row_seconds
from polyfuse.strategy.cost.kernel_model import Kernel, Share, Use, kernel_of
from polyfuse.strategy.cost.op_latency import Operations
from polyfuse.strategy.cost.roofline import (
    NAMED_ROW,
    Model,
    Tiling,
    left_behind,
    on_cpu,
    on_cuda,
    passed_again,
    rereads,
    scalar,
    slower_alone,
)
from polyfuse.strategy.pipeline import plan_for
from tests.support.models import CPU, CUDA, mlp


def product(i: int, j: int, k: int) -> Nest:
    tensors = [
        Tensor("x", (i, k), "float32", "input"),
        Tensor("w", (k, j), "float32", "input"),
        Tensor("y", (i, j), "float32", "inout"),
    ]
    domain = f"{{ mac[i, j, k] : 0 <= i < {i} and 0 <= j < {j} and 0 <= k < {k} }}"
    return Nest.of(tensors, [statement(domain, "y[i, j] += x[i, k] * w[k, j]")])


def test_work_counts_instances_and_operations() -> None:
    counts = Counts(product(4, 8, 16))
    assert counts.work("mac").instances == 4 * 8 * 16
    assert counts.work("mac").flops == 2 * 4 * 8 * 16


def test_slices_of_a_window_overlap() -> None:
    tensors = [Tensor("x", (12,), "float32", "input"), Tensor("y", (10,), "float32", "output")]
    domain = "{ s[i, r] : 0 <= i < 10 and 0 <= r < 3 }"
    init = statement("{ z[i] : 0 <= i < 10 }", "y[i] = 0.0")
    nest = Nest.of(tensors, [init, statement(domain, "y[i] += x[i + r]")])
    counts = Counts(nest)
    loop = loops_around(nest.order, "s")[0]
    assert counts.footprint("s", 1) == 12
    assert counts.slice_ratio("s", 1, loop.date("s")) == pytest.approx(3 / 12)
    use = next(u for u in kernel_of(counts, nest.order.children[1]).uses if u.tensor == "x")  # type: ignore[union-attr]
    assert use.bytes_in((4,), (10,)) == pytest.approx((4 + 2) * 4)


def test_symbolic_sizes_count_as_nominal() -> None:
    tensors = [Tensor("x", ("N",), "float32", "input"), Tensor("y", ("N",), "float32", "output")]
    nest = Nest.of(
        tensors, [statement("[N] -> { s[i] : 0 <= i < N }", "y[i] = 2 * x[i]")], context="[N] -> { : N >= 1 }"
    )
    assert Counts(nest).work("s").instances == NOMINAL_SIZE


@pytest.mark.parametrize(
    ("context", "given", "expected"),
    [
        ("N > 0 and 0 <= M <= 2", {}, {"N": 256, "M": 2}),
        ("M > 0 and N = 3M", {}, {"N": 255, "M": 85}),
        ("N >= 1000 and M < N", {}, {"N": 1000, "M": 256}),
        ("N > 0 and M = N - 1", {"M": 7}, {"N": 8, "M": 7}),
    ],
)
def test_a_size_that_may_not_be_256_counts_as_the_nearest_allowed(
    context: str, given: dict[str, int], expected: dict[str, int]
) -> None:
    """Sizes that are allowed to be 256 together still are: a bound on one says nothing of the others."""
    nest = Nest.of(
        [Tensor("x", ("N",), "float64", "input"), Tensor("y", ("N", "M"), "float64", "output")],
        [statement("[N, M] -> { S[i, j] : 0 <= i < N and 0 <= j < M }", "y[i, j] = x[i]")],
        context=f"[N, M] -> {{ : {context} }}",
    )
    assert nominal_sizes(nest, given) == expected


def test_tiles_read_again_what_they_do_not_index() -> None:
    kernel = kernel_of(Counts(product(64, 512, 512)), product(64, 512, 512).order)
    assert kernel.extents == (64, 512)
    x, w = 64 * 512 * 4, 512 * 512 * 4
    by_rows = dict(enumerate(rereads(kernel, Tiling((4, 512), (0, 1)))))
    assert by_rows[0][0] == 15 * w
    assert by_rows[1][0] == 0
    by_columns = dict(enumerate(rereads(kernel, Tiling((64, 64), (1, 0)))))
    assert by_columns[0][0] == 7 * x


def test_rows_that_several_loops_read_come_again_where_l1_does_not_hold_them() -> None:
    """Layer norm reads x three times: a block's row of 16 KB is in L1 meanwhile, 32 warps' rows are not in L2."""
    assert CUDA.gpu is not None
    rows, columns = 16384, 4096
    use = Use("x", 4, rows * columns, (1 / rows,), True, False, False, passes=3)
    kernel = Kernel(("sum", "norm"), (), (rows,), (use,), (Share("sum", rows * columns, 1, lanes=512),), None)
    x = float(rows * columns * 4)
    assert list(passed_again(kernel, Tiling((1,), (0,)))) == [(2 * x, 4.0 * columns)]
    few, many = (on_cuda(kernel, CUDA, 2 * int(x), Tiling((n,), (0,))).memory for n in (1, 32))
    assert many - few == pytest.approx(2 * x / CUDA.bandwidth(CUDA.levels[-1], CUDA.units))
    net = pf.compile(
        nn.lower(nn.LayerNorm(columns), batch=rows), target="cuda", machine="h200", device="none"
    )
    (launch,) = net.program.launches
    assert launch.extents({}) == ((rows, 1, 1), (512, 1, 1))


def test_long_vectors_have_blocks_of_eight_warps() -> None:
    """Blocks of two warps took 165 µs for 64M numbers where a copy takes 128, of eight 146 (H200)."""
    net = pf.compile(
        nn.lower(nn.ReLU(), batch=1 << 20, features=(64,)), target="cuda", machine="h200", device="none"
    )
    (launch,) = net.program.launches
    assert prod(launch.extents({})[1]) == 256


def test_a_parallel_loop_pays_only_for_enough_work() -> None:
    small, large = Model(Counts(mlp(1, 64, 1)), CPU), Model(Counts(mlp(1, 512, 64)), CPU)
    nests = mlp(1, 64, 1), mlp(1, 512, 64)
    parts = [nest.order.children[1] for nest in nests]  # type: ignore[union-attr]
    assert small.cost(parts[0]).tiling.parallel is None
    assert large.cost(parts[1]).tiling.parallel is not None


def test_a_cost_prints_its_numbers() -> None:
    nest = product(64, 64, 64)
    cost = Model(Counts(nest), CUDA).cost(nest.order)
    for number in (str(cost.flops), str(cost.compulsory), str(cost.again), "µs"):
        assert number in str(cost)


def test_more_cores_never_cost_more() -> None:
    kernel = kernel_of(Counts(product(64, 512, 512)), product(64, 512, 512).order)
    serial = on_cpu(kernel, CPU, 2**20, Tiling((4, 512), (0, 1)))
    parallel = on_cpu(kernel, CPU, 2**20, Tiling((4, 512), (0, 1), 0))
    assert parallel.compute < serial.compute
    assert parallel.overhead > serial.overhead


def test_strides_of_a_product() -> None:
    nest = product(4, 8, 16)
    mac = nest.statement("mac")
    assert [[stride(a, d) for d in range(3)] for a in mac.accesses] == [[2, 1, 0], [2, 0, 1], [0, 1, 2]]
    assert [dims_of(loop.date("mac")) for loop in loops_around(nest.order, "mac")] == [{0}, {1}, {2}]


def test_sums_that_lie_apart_are_priced_as_scalars() -> None:
    def seconds(target: str, columns: int) -> float:
        tensors = [
            Tensor("x", (64, columns), "float32", "input"),
            Tensor("w", (64,), "float32", "input"),
            Tensor("y", (2 * columns,), "float32", "inout"),
        ]
        domain = f"{{ mac[k, j] : 0 <= k < 64 and 0 <= j < {columns} }}"
        nest = Nest.of(tensors, [statement(domain, f"y[{target}] += x[k, j] * w[k]")])
        kernel = kernel_of(Counts(nest), nest.order, ())
        return on_cpu(kernel, CPU, 0, Tiling((), ())).compute - row_seconds(kernel, CPU)

    lanes = CPU.vector_bytes / 4
    assert seconds("2 * j + 1", 4) == pytest.approx(lanes * CPU.loops * seconds("j", 4))
    assert seconds("2 * j + 1", 64) == pytest.approx(lanes * CPU.loops / 2 * seconds("j", 64))


def test_small_products_in_a_row_are_kernels_of_microkernels_and_not_one_of_scalar_loops() -> None:
    plan = plan_for(mlp(4, 16, 2), replace(CPU, units=1))
    assert [len(group.statements) for group in plan.groups] == [4, 4, 4, 4]


def test_rows_that_data_name_cost_their_places() -> None:
    table = np.ones((1000, 16), np.float32)
    rows = pf.lower(nn.embedding(nn.input("i", (128,), "int64"), table))
    (name,) = (s.name for s in rows.statements)
    counts = Counts(rows)
    assert counts.named_rows(name) == 128
    kernel = kernel_of(counts, rows.order)
    free = replace(kernel, shares=tuple(replace(share, named=0) for share in kernel.shares))
    tiling = Tiling((1,) * len(kernel.extents), tuple(range(len(kernel.extents))))
    costs = [on_cpu(one, CPU, counts.total_bytes, tiling).compute for one in (kernel, free)]
    assert costs[0] - costs[1] == pytest.approx(NAMED_ROW * CPU.cycle * 128)


def test_one_value_for_each_row_of_others_is_no_vector() -> None:
    shares = (
        Share("dot", 128, 1, operations=Operations(128.0), adds=True, row=1),
        Share("logistic", 3, 1, operations=Operations(40.0), row=1),
    )
    kernel = Kernel(("dot", "logistic"), (), (), (), shares, None)
    assert [slower_alone(share, kernel, CPU) for share in shares] == [1.0, scalar(4, CPU)]
    assert slower_alone(shares[1], replace(kernel, shares=shares[1:]), CPU) == 1.0


def test_what_loops_of_a_band_leave_for_each_other_behind_l1_is_moved() -> None:
    """A row of softmax is read three times, and its exponentials are written and read."""
    shares = Share("exp", 1, 1), Share("scale", 1, 1)

    def moved(width: int) -> list[tuple[float, Level]]:
        x = Use("x", 4, 8 * width, (1 / 8,), read=True, written=False, internal=False, passes=3)
        e = Use("e", 4, 8 * width, (1 / 8,), read=False, written=True, internal=True, passes=2)
        once = replace(e, tensor="t", passes=1)
        kernel = Kernel(("exp", "scale"), (), (8,), (x, e, once), shares, None)
        return list(left_behind(kernel, CPU, Tiling((1,), (0,))))

    assert moved(256) == []
    row = 8 * 4 * 16384
    assert moved(16384) == [(2.0 * row, CPU.levels[1]), (2.0 * row, CPU.levels[1])]
