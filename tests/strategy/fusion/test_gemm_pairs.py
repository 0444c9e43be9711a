"""What the search for groups says of a product that a fusion would take its blocks from."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.machine import KiB, MiB, cpu
from polyfuse.strategy import plan_for

AVX2 = cpu("avx2", 1, 32, (32 * KiB, 512 * KiB, 16 * MiB), 3.5e9)


def of_sentences(words: int, outputs: int) -> Nest:
    """Two sentences scaled word by word, then a linear layer of all words, as in a transformer of torch."""
    return Nest.of(
        [
            Tensor("x", (2, words, 64), "float32", "input"),
            Tensor("w", (outputs, 64), "float32", "input"),
            Tensor("v", (2 * words, 64), "float32", "temporary"),
            Tensor("y", (2 * words, outputs), "float32", "output"),
        ],
        [
            statement(
                f"{{ scale[i, j, k] : 0 <= i < 2 and 0 <= j < {words} and 0 <= k < 64 }}",
                f"v[{words} * i + j, k] = 2.0 * x[i, j, k]",
            ),
            statement(f"{{ zero[i, j] : 0 <= i < {2 * words} and 0 <= j < {outputs} }}", "y[i, j] = 0.0"),
            statement(
                f"{{ mac[i, j, k] : 0 <= i < {2 * words} and 0 <= j < {outputs} and 0 <= k < 64 }}",
                "y[i, j] += v[i, k] * w[j, k]",
            ),
        ],
    )


@pytest.mark.parametrize("outputs", [256, 4096])
def test_a_product_keeps_its_parallel_loops(outputs: int) -> None:
    """Behind words of sentences its rows would carry a dependence, and its tiles would be plain loops."""
    plan = plan_for(of_sentences(16, outputs), AVX2)
    assert any(loop.bind == "microkernel" for loop in plan.schedule.loops("mac"))
    assert ("scale", "mac") not in {(d.producer, d.consumer) for d in plan.decisions if d.taken}


def test_what_reads_a_factor_of_a_product_stays_out_of_its_kernel() -> None:
    """A bias' gradient and its update share no value with the gradient of the weights, whose blocks hold neither."""
    shapes = {"x": (64, 256), "g": (64, 256), "m": (256,), "s": (256,), "w": (256, 256)}
    roles = {"m": "inout", "s": "temporary", "w": "output"}
    square = "0 <= i < 256 and 0 <= j < 256"
    nest = Nest.of(
        [Tensor(name, shape, "float32", roles.get(name, "input")) for name, shape in shapes.items()],  # type: ignore[arg-type]
        [
            statement("{ first[j] : 0 <= j < 256 }", "s[j] = 0.0"),
            statement("{ sum[k, j] : 0 <= k < 64 and 0 <= j < 256 }", "s[j] += g[k, j]"),
            statement("{ update[j] : 0 <= j < 256 }", "m[j] = 0.9 * m[j] + s[j]"),
            statement(f"{{ zero[j, i] : {square} }}", "w[i, j] = 0.0"),
            statement(f"{{ mac[k, j, i] : 0 <= k < 64 and {square} }}", "w[i, j] += x[k, i] * g[k, j]"),
        ],
    )
    plan = plan_for(nest, AVX2)
    kernels = [tuple(n for n in group.statements if n in nest.order.members) for group in plan.groups]
    assert kernels == [("first", "sum", "update"), ("zero", "mac")]


@pytest.mark.parametrize("pixels", [2, 8])
def test_layers_before_a_convolution_in_groups_keep_their_blocks(pixels: int) -> None:
    """In one kernel, which only an image's loop would hold together, neither would have tiles in registers."""
    draw = np.random.default_rng(0).standard_normal
    x = nn.input("x", (1, 48, pixels, pixels))
    x = nn.relu(nn.conv2d(x, draw((48, 48, 1, 1), np.float32), draw(48, np.float32)))
    x = nn.relu(nn.conv2d(x, draw((48, 8, 3, 3), np.float32), draw(48, np.float32), padding=1, groups=6))
    nest = pf.lower(nn.mean(x, (2, 3)))
    plan = plan_for(nest, AVX2)
    products = [s.name for s in nest.statements if s.name.startswith("mac")]
    assert len(products) == 2
    assert len({next(g.statements for g in plan.groups if name in g.statements) for name in products}) == 2
    for name in products:
        assert any(loop.bind == "microkernel" for loop in plan.schedule.loops(name))
