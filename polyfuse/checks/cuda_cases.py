"""The nests whose CUDA kernels are checked: in emulators by the tests, on a GPU by `polyfuse gpu-check`.

One list, so that what CI compiles and runs without a GPU is what a machine with one runs. A case is drawn anew from a
seed each time; small cases suit an emulator, the others only a GPU (all of them compile anywhere).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from polyfuse import nn
from polyfuse.bilinear import named
from polyfuse.interpret import interpret
from polyfuse.ir import Nest
from polyfuse.ir.gather import rows_of
from polyfuse.ir.number_types import HALVES, is_real
from polyfuse.ir.precision import PRECISIONS, Math
from polyfuse.optim.gradients import grad, vjp
from polyfuse.rewrite import bilinear
from polyfuse.runtime.samples import drawn, roundings
from polyfuse.schedule import Schedule
from polyfuse.schedule.promote.promoted_values import moving_axes

Array = np.ndarray[Any, Any]

TOLERANCE = 256
"""The largest error of a result in units of rounding, relative to the oracle's largest element (or 1): sums over up
to 1024 terms in another order."""


ROUNDED = 2
"""The same for halves, which are rounded from float32: to one neighbour or the other."""


@dataclass(frozen=True)
class Case:
    """A nest to compile for CUDA, by its `schedule` if it has one, and to check. `kernels`: how many the strategy is
    to make of it, if that is promised; `small`: an emulator runs it in a second or so. `math` is what it is compiled
    with; other than "ieee" it is of nests of one product or convolution, whose constants are its factors and a bias.
    """

    name: str
    make: Callable[[], Nest]
    kernels: int | None = None
    small: bool = True
    math: Math = "ieee"
    schedule: Callable[[Nest], Schedule] | None = None

    def nest(self) -> Nest:
        """The nest, with its own seeded weights."""
        return self.make()

    def by_hand(self, nest: Nest) -> Schedule | None:
        """The schedule that the nest is compiled by, if it has one."""
        return None if self.schedule is None else self.schedule(nest)


def dense(
    *sizes: int,
    batch: int,
    dtype: str = "float32",
    activation: Callable[[], nn.Module] = nn.ReLU,
    bias: bool = True,
) -> Nest:
    """A chain of Linear layers over these sizes, each followed by an activation."""
    layers: list[nn.Module] = []
    for number, (size, after) in enumerate(pairwise(sizes)):
        layers += [nn.Linear(size, after, bias=bias, seed=number, dtype=dtype), activation()]
    return nn.lower(nn.Sequential(*layers), batch=batch)


def gradients(nest: Nest) -> Nest:
    """The gradients of a model by its input and its weights."""
    return vjp(nest, [t.name for t in nest.with_role("input", "constant") if is_real(t.dtype)])


def upsampled() -> Nest:
    """A transposed convolution of stride 2."""
    rng = np.random.default_rng(5)
    weight = rng.standard_normal((3, 4, 4, 4), np.float32)
    return nn.lower(nn.conv_transpose(nn.input("x", (2, 3, 4, 3)), weight, stride=2, padding=1))


def classifier() -> Nest:
    """The loss of a small network of images and its gradients by the weights, with the statistics of the batch."""
    x, target, seed = (
        nn.input("x", (4, 3, 7, 6)),
        nn.input("target", (4,), "int64"),
        nn.input("seed", (), "int64"),
    )
    layers = nn.Conv2d(3, 5, 3, padding=1), nn.BatchNorm(5), nn.ReLU(), nn.MaxPool(2)
    with nn.training(seed):
        value = nn.cross_entropy(nn.Sequential(*layers, nn.Flatten(), nn.Linear(45, 6))(x), target)
    nest = nn.lower(value)
    return grad(nest, [t.name for t in nest.with_role("constant")])


def by_strassen(*sizes: int, batch: int) -> Nest:
    """The same chain, each product by Strassen's algorithm: kernels that other kernels' sums of blocks wait for."""
    nest = dense(*sizes, batch=batch)
    for name in [s.name for s in nest.statements if s.is_reduction]:
        nest = bilinear(nest, name, named("strassen")).nest
    return nest


def product(rows: int, steps: int, columns: int, dtype: str = "float32") -> Nest:
    """max(x @ y, 0) of two inputs."""
    x, y = nn.input("x", (rows, steps), dtype), nn.input("y", (steps, columns), dtype)
    return nn.lower(nn.relu(nn.matmul(x, y)))


def words() -> nn.Module:
    """Rows of a table, and a product with them."""
    return nn.Sequential(nn.Embedding(50, 40), nn.Linear(40, 24), nn.Tanh())


def pointwise(layer: nn.Module, batch: int = 5, features: int = 67) -> Nest:
    """One layer without weights."""
    return nn.lower(layer, batch=batch, features=features)


def dropped(*shape: int) -> Nest:
    """Elements dropped by random numbers, before a function of each."""
    x, seed = nn.input("x", shape), nn.input("seed", (), "int64")
    return nn.lower(nn.tanh(nn.dropout(x, 0.4, seed)))


def reduction(reduce: Callable[[nn.Value], nn.Value], *shape: int, dtype: str = "float32") -> Nest:
    """A function of one input x."""
    return nn.lower(reduce(nn.input("x", shape, dtype)))


def of_halves(make: Callable[[nn.Value], nn.Value], *shape: int) -> Nest:
    """The same of an input of float16 and of one of bfloat16."""
    return nn.lower([make(nn.input(f"x_{half}", shape, half)) for half in HALVES])


def chain(x: nn.Value) -> nn.Value:
    """Three operations, the value of each rounded."""
    return nn.relu((x + 0.3) * x - x)


def residual() -> Nest:
    """x + linear(relu(linear(x))), normalised."""
    block = nn.Sequential(nn.Linear(24, 40, seed=1), nn.ReLU(), nn.Linear(40, 24, seed=2))
    return nn.lower(nn.Sequential(nn.Residual(block), nn.LayerNorm(24)), batch=9)


def two_outputs() -> Nest:
    """Two results of one product."""
    x = nn.input("x", (11, 20))
    y = nn.linear(x, nn.Linear(20, 12, seed=3))
    return nn.lower((nn.relu(y), nn.softmax(y)))


def images(
    *layers: nn.Module, batch: int = 2, features: tuple[int, ...] = (3, 7, 6), dtype: str = "float32"
) -> Nest:
    """Layers for images, one after the other."""
    return nn.lower(nn.Sequential(*layers), batch=batch, features=features, dtype=dtype)


def gates() -> Nest:
    """Four parts of one product, activated and joined again: what a recurrent cell does."""
    x, h = nn.input("x", (7, 9)), nn.input("h", (7, 6))
    rows = nn.linear(nn.concat([x, h], 1), nn.Linear(15, 24, seed=4))
    i, f, g, o = nn.chunk(rows, 4, 1)
    return nn.lower(nn.concat([nn.sigmoid(i) * nn.tanh(g) + nn.sigmoid(f), nn.flip(o, 0)], 1))


def heads() -> Nest:
    """Products of rows and columns for each head of each sequence of a batch."""
    q, k = nn.input("q", (2, 3, 17, 24)), nn.input("k", (2, 3, 24, 20))
    return nn.lower(nn.relu(q @ k))


def attention(rows: int, features: int) -> Nest:
    """softmax(q kᵀ) v."""
    q, k, v = (nn.input(name, (rows, features)) for name in "qkv")
    return nn.lower(nn.softmax(q @ nn.transpose(k)) @ v)


def padded_windows() -> Nest:
    """A weighted sum over 3 × 3 windows of a padded image, transposed."""
    image = nn.pad(nn.input("x", (13, 17)), (1, 1))
    seen = nn.unfold(nn.unfold(image, 0, 3), 1, 3)
    weights = np.arange(9, dtype=np.float32).reshape(3, 3) - 4
    return nn.lower(nn.transpose(nn.sum(seen * weights, (2, 3))))


def across() -> Nest:
    """2 x + y', whose neighbours in memory are a row's and a column's."""
    return nn.lower(nn.input("x", (70, 45)) * 2.0 + nn.transpose(nn.input("y", (45, 70))))


def ensemble(members: int, *sizes: int, batch: int) -> Nest:
    """Networks of the same layers on one input, one after the other."""
    x, found = nn.input("x", (batch, sizes[0])), []
    for member in range(members):
        h = x
        for number, (size, after) in enumerate(pairwise(sizes)):
            h = nn.relu(nn.linear(h, nn.Linear(size, after, seed=10 * member + number)))
        found.append(h)
    return nn.lower(found)


def flattened(dtype: str, *shape: int, columns: int) -> Nest:
    """max(x @ y, 0), where each row of x is an image."""
    x, y = nn.input("x", shape, dtype), nn.input("y", (prod(shape[1:]), columns), dtype)
    return nn.lower(nn.relu(nn.matmul(nn.reshape(x, (shape[0], prod(shape[1:]))), y)))


def backward(dtype: str, rows: int, steps: int, columns: int) -> Nest:
    """max(x @ y, 0), where every second row of x is read, and its steps backward."""
    x, y = nn.input("x", (2 * rows, steps), dtype), nn.input("y", (steps, columns), dtype)
    return nn.lower(nn.relu(nn.matmul(nn.flip(x[::2], 1), y)))


def by_rows(rows: int, steps: int, columns: int, dtype: str) -> Nest:
    """max(x @ y.T, 0): steps are neighbours in both factors."""
    x, y = nn.input("x", (rows, steps), dtype), nn.input("y", (columns, steps), dtype)
    return nn.lower(nn.relu(nn.matmul(x, nn.transpose(y))))


def recurrent(layer: nn.Module, times: int = 4, rows: int = 3) -> Nest:
    """A recurrent layer over a short sequence."""
    return nn.lower(layer, batch=(times, rows))


def units_on_blocks(nest: Nest) -> Schedule:
    """A recurrence whose units blocks share out, four each, with their weights in shared memory for all steps.

    for i: { for units: step; hidden }  ->  for run: { weights (of a block); for i: { step; hidden; grid barrier } }
    """
    s = Schedule(nest).fuse("step0", "hidden0", at="k").interchange("step0", "j", "k").split("step0", "k", 4)
    s = s.bind("step0", k="block.x", k_in="thread.y", j="thread.x").join("step0", loop="run")
    s = s.promote("u0", "step0", at="run", memory="shared")
    s = s.bind("load_u0", load_u0_0="thread.y", load_u0_1="thread.x")
    for name in ("biases0", "first0", "mac0", "start0", "narrow0"):
        s = s.bind(name, i="block.x")
    return s


def layers_in_one_launch(nest: Nest) -> Schedule:
    """Dense layers, each by blocks of its own number, which wait for those of the layer before."""
    s, layers = Schedule(nest), len(nest.with_role("constant")) // 2
    for n in range(layers):
        s = s.fuse(f"zero{n}", f"mac{n}", at="j").fuse(f"mac{n}", f"bias{n}", at="j")
        s = s.fuse(f"mac{n}", f"relu{n}", at="j").split(f"mac{n}", "j", 8)
        s = s.bind(f"mac{n}", i="block.y", j="block.x", j_in="thread.x")
    return s.join("mac0", f"mac{layers - 1}", loop="layers")


CASES: tuple[Case, ...] = (
    Case("linear 17 → 31, no bias", lambda: nn.lower(nn.Linear(17, 31, bias=False), batch=13)),
    Case("linear 17 → 31 + ReLU", lambda: dense(17, 31, batch=13), kernels=1),
    Case("2 dense layers 33 → 50 → 21", lambda: dense(33, 50, 21, batch=19)),
    Case("2 dense layers, float64", lambda: dense(18, 25, 7, batch=10, dtype="float64")),
    Case("8 dense layers of 64, batch 1", lambda: dense(*[64] * 9, batch=1), kernels=1),
    Case("8 dense layers of 64, batch 5", lambda: dense(*[64] * 9, batch=5), kernels=1),
    Case("dense, batch 0", lambda: dense(8, 8, batch=0)),
    Case("ReLU", lambda: pointwise(nn.ReLU()), kernels=1),
    Case("LeakyReLU", lambda: pointwise(nn.LeakyReLU(0.1)), kernels=1),
    Case("tanh", lambda: pointwise(nn.Tanh()), kernels=1),
    Case("sigmoid", lambda: pointwise(nn.Sigmoid()), kernels=1),
    Case("GELU, exact", lambda: pointwise(nn.GELU()), kernels=1),
    Case("GELU, tanh", lambda: pointwise(nn.GELU("tanh")), kernels=1),
    Case("SiLU", lambda: pointwise(nn.SiLU()), kernels=1),
    Case("softmax", lambda: pointwise(nn.Softmax(), features=37), kernels=1),
    Case("softmax, float64", lambda: reduction(nn.softmax, 6, 21, dtype="float64"), kernels=1),
    Case("log-softmax", lambda: pointwise(nn.LogSoftmax(), features=37), kernels=1),
    Case("layer norm", lambda: nn.lower(nn.LayerNorm(45), batch=7), kernels=1),
    Case("RMS norm", lambda: nn.lower(nn.RMSNorm(45), batch=7), kernels=1),
    Case("residual block", residual),
    Case("two outputs of one product", two_outputs),
    Case("sum of all", lambda: reduction(nn.sum, 7, 33)),
    Case("mean over rows", lambda: reduction(lambda x: nn.mean(x, 0), 33, 9)),
    Case("max over columns", lambda: reduction(lambda x: nn.max(x, -1), 9, 33)),
    Case("min over the middle of three", lambda: reduction(lambda x: nn.min(x, 1, keepdims=True), 4, 9, 5)),
    Case("place of the maximum", lambda: reduction(nn.argmax, 9, 133)),
    Case("place of the minimum, of 4000", lambda: reduction(lambda x: nn.argmin(x, 0), 4000)),
    Case("ensemble of 3, two layers", lambda: ensemble(3, 33, 40, 21, batch=17)),
    Case("3 dense layers, bfloat16", lambda: dense(24, 40, 33, 16, batch=9, dtype="bfloat16")),
    Case("LSTM, 2 layers", lambda: recurrent(nn.LSTM(5, 9, 2))),
    Case("GRU", lambda: recurrent(nn.GRU(5, 9))),
    Case("RNN", lambda: recurrent(nn.RNN(5, 9))),
    Case("RNN whose units blocks share", lambda: recurrent(nn.RNN(5, 14)), 6, schedule=units_on_blocks),
    Case("3 layers in one launch", lambda: dense(9, 21, 30, 5, batch=4), 1, schedule=layers_in_one_launch),
    Case("x / sum(x)", lambda: reduction(lambda x: x / nn.sum(x), 6, 11)),
    Case("x / norm(x), 50003 values in two passes", lambda: reduction(lambda x: x / nn.norm(x), 50003), 3),
    Case("softmax of heads", lambda: reduction(nn.softmax, 2, 3, 5, 70), 1),
    Case("maximum of 65 × 99 in two passes", lambda: reduction(nn.max, 65, 99)),
    Case("variance over rows", lambda: reduction(lambda x: nn.var(x, -1), 9, 33)),
    Case("log sum exp", lambda: reduction(lambda x: nn.logsumexp(x, 0), 33, 9)),
    Case("gradients of 2 dense layers", lambda: gradients(dense(17, 21, 13, batch=11))),
    Case("gradients of a softmax", lambda: gradients(pointwise(nn.Softmax(), features=37))),
    Case(
        "gradients of a convolution, stride 2",
        lambda: gradients(images(nn.Conv2d(3, 5, 3, stride=2, padding=1))),
    ),
    Case("gradients of a dropout", lambda: gradients(dropped(5, 67))),
    Case("gradients of an RNN", lambda: gradients(recurrent(nn.RNN(5, 9)))),
    Case("gradients of an LSTM", lambda: gradients(recurrent(nn.LSTM(5, 9)))),
    Case("gradients of a GRU", lambda: gradients(recurrent(nn.GRU(5, 9)))),
    Case("gradients of a layer norm", lambda: gradients(nn.lower(nn.LayerNorm(45), batch=7))),
    Case("gradients of a group norm", lambda: gradients(images(nn.GroupNorm(3, 6), features=(6, 5, 4)))),
    Case("gradients of attention", lambda: gradients(attention(24, 8))),
    Case("gradients of max pooling", lambda: gradients(images(nn.MaxPool(3, stride=2, padding=1)))),
    Case(
        "gradients of a depthwise convolution",
        lambda: gradients(images(nn.Conv2d(3, 3, 3, groups=3), nn.ReLU())),
    ),
    Case("gradients of a transposed convolution", lambda: gradients(upsampled())),
    Case("gradients of an embedding", lambda: gradients(nn.lower(words(), batch=(6, 9)))),
    Case("gradients of an ensemble", lambda: gradients(ensemble(3, 17, 12, batch=9))),
    Case("gradients of a classifier's loss, in training", classifier),
    Case(
        "gradients of 2 dense layers of 512", lambda: gradients(dense(512, 512, 512, batch=256)), small=False
    ),
    Case(
        "gradients of a convolution of 64 channels",
        lambda: gradients(images(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), batch=4, features=(64, 28, 28))),
        small=False,
    ),
    Case(
        "gradients of dense layers by Strassen's algorithm",
        lambda: gradients(by_strassen(128, 128, batch=128)),
        small=False,
    ),
    Case("convolution + ReLU", lambda: images(nn.Conv2d(3, 5, 3, padding="same"), nn.ReLU())),
    Case(
        "convolution in register tiles, padded",
        lambda: images(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), batch=4, features=(16, 20, 20)),
        small=False,
    ),
    Case(
        "convolution in register tiles, channels last, stride 2",
        lambda: images(
            nn.Conv2d(64, 64, 3, stride=2, padding=1, layout="NHWC"), batch=2, features=(56, 56, 64)
        ),
        small=False,
    ),
    Case(
        "convolution, stride 2, dilation 2, groups, NHWC",
        lambda: images(
            nn.Conv2d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2, layout="NHWC"), features=(7, 6, 4)
        ),
    ),
    Case("depthwise convolution + batch norm", lambda: images(nn.Conv2d(3, 3, 3, groups=3), nn.BatchNorm(3))),
    Case("max pooling", lambda: images(nn.MaxPool(3, stride=2, padding=1)), kernels=1),
    Case("average pooling, adaptive", lambda: images(nn.AdaptiveAvgPool((3, 2)))),
    Case("group norm", lambda: images(nn.GroupNorm(3, 6), features=(6, 5, 4))),
    Case("parts of one product, joined again", gates),
    Case("rows of x and columns of y", across, kernels=1),
    Case("windows of a padded image", padded_windows),
    Case(
        "every other column of a product",
        lambda: nn.lower(nn.relu(nn.linear(nn.input("x", (9, 33)), nn.Linear(33, 32)))[:, ::2]),
    ),
    Case("product in register tiles, 260 → 64 + ReLU", lambda: dense(260, 64, batch=52), kernels=1),
    Case("embedding and a product", lambda: nn.lower(words(), batch=(6, 9))),
    Case("product in register tiles, odd", lambda: dense(131, 65, batch=33), kernels=1),
    Case("product in register tiles, no bias", lambda: nn.lower(nn.Linear(128, 64, bias=False), batch=32)),
    Case("product of heads", heads),
    Case("product by Strassen's algorithm, odd", lambda: by_strassen(187, 163, batch=177)),
    Case("2 dense layers by Strassen's algorithm", lambda: by_strassen(96, 96, 96, batch=64)),
    Case(
        "softmax of a product", lambda: nn.lower(nn.Sequential(nn.Linear(40, 400), nn.Softmax()), batch=70), 2
    ),
    Case("attention", lambda: attention(64, 24), kernels=1),
    Case("product of tf32 factors, odd", lambda: product(79, 131, 70), 1, math="tf32"),
    Case("product of tf32 factors in stages", lambda: product(96, 192, 160), 1, math="tf32"),
    Case("product of bf16 factors", lambda: product(96, 192, 160), 1, math="bf16"),
    Case("product of f16 factors", lambda: product(96, 192, 160), 1, math="f16"),
    Case("product of float64 on tensor cores", lambda: product(96, 192, 160, "float64"), 1),
    Case("chains of float16 and of bfloat16", lambda: of_halves(chain, 9, 70)),
    Case("softmax of float16 and of bfloat16", lambda: of_halves(nn.softmax, 6, 37)),
    *(Case(f"dense + ReLU, {half}", partial(dense, 33, 50, batch=19, dtype=half)) for half in HALVES),
    Case("product of float16 on tensor cores", lambda: product(96, 192, 160, "float16"), 1, math="f16"),
    Case("product of bfloat16 by warpgroups", lambda: product(512, 320, 512, "bfloat16"), 1, math="bf16"),
    Case("product of tf32 factors, 1024 × 64 by 512", lambda: product(1024, 64, 512), 1, math="tf32"),
    Case(
        "product of rows of bfloat16 by warpgroups",
        lambda: by_rows(576, 320, 576, "bfloat16"),
        1,
        math="bf16",
    ),
    Case(
        "product of flattened float16 images",
        lambda: flattened("float16", 512, 8, 40, columns=512),
        1,
        False,
        "f16",
    ),
    Case("product of flattened images", lambda: flattened("float32", 70, 4, 2, 8, columns=72)),
    Case("product of rows and steps in another order", lambda: backward("float32", 70, 64, 72)),
    Case("the same of tf32 factors", lambda: backward("float32", 70, 64, 72), math="tf32"),
    Case("the same in float64", lambda: backward("float64", 70, 64, 72)),
    Case("1024 × 1000 × 1032 of tf32 factors", lambda: product(1024, 1000, 1032), 2, False, "tf32"),
    Case("1000 × 514 × 1023 of bf16 factors", lambda: product(1000, 514, 1023), small=False, math="bf16"),
    Case(
        "convolution of bf16 factors",
        lambda: images(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), batch=32, features=(64, 56, 56)),
        small=False,
        math="bf16",
    ),
    Case(
        "convolution of tf32 factors, channels last",
        lambda: images(
            nn.Conv2d(48, 64, 3, padding=1, layout="NHWC"), nn.ReLU(), batch=32, features=(55, 57, 48)
        ),
        small=False,
        math="tf32",
    ),
    Case(
        "convolution of bfloat16 on tensor cores, stride 2",
        lambda: images(
            nn.Conv2d(64, 64, 3, stride=2, padding=1, dtype="bfloat16"),
            nn.ReLU(),
            batch=8,
            features=(64, 113, 112),
            dtype="bfloat16",
        ),
        small=False,
        math="bf16",
    ),
    Case(
        "convolution of float16 in register tiles, channels last",
        lambda: images(
            nn.Conv2d(48, 64, 3, padding=1, layout="NHWC", dtype="float16"),
            nn.ReLU(),
            batch=8,
            features=(55, 57, 48),
            dtype="float16",
        ),
        small=False,
    ),
    Case(
        "convolution in float64",
        lambda: images(
            nn.Conv2d(64, 64, 3, padding=1, dtype="float64"),
            nn.ReLU(),
            batch=4,
            features=(64, 28, 28),
            dtype="float64",
        ),
        small=False,
    ),
    Case("LSTM of 128 units", lambda: recurrent(nn.LSTM(96, 128), 6, 32), small=False),
    Case("GRU of 128 units", lambda: recurrent(nn.GRU(96, 128), 6, 32), small=False),
    Case("dense 1024 × 1024 × 1024", lambda: dense(1024, 1024, batch=1024), kernels=1, small=False),
    Case(
        "dense 1024 × 1024 × 1024 by Strassen's algorithm",
        lambda: by_strassen(1024, 1024, batch=1024),
        small=False,
    ),
    Case("dense 1000 × 1023 × 514", lambda: dense(514, 1023, batch=1000), kernels=1, small=False),
    Case("dense 64 × 64 × 65536, in two passes", lambda: dense(65536, 64, batch=64), kernels=2, small=False),
    Case("dense 512 × 512 × 512, float64", lambda: dense(512, 512, batch=512, dtype="float64"), small=False),
    Case("4 dense layers of 384, batch 64", lambda: dense(*[384] * 5, batch=64), kernels=1, small=False),
    Case("2 dense layers of 1024, batch 100", lambda: dense(*[1024] * 3, batch=100), small=False),
    Case("softmax of 1000 × 1000", lambda: pointwise(nn.Softmax(), 1000, 1000), kernels=1, small=False),
)
"""Every case."""


def draw(nest: Nest, generator: np.random.Generator) -> dict[str, Array]:
    """Random inputs for a nest by name, standard normal."""
    return drawn(nest.inputs, generator, rows_of(nest, {}))


def poisoned(nest: Nest) -> tuple[Array, ...]:
    """An array of NaN for each output, of integers the smallest: an element that is not written shows."""
    shapes = [(tuple(int(size) for size in t.shape), np.dtype(t.dtype)) for t in nest.with_role("output")]
    return tuple(
        np.full(shape, np.iinfo(dtype).min if dtype.kind == "i" else np.nan, dtype) for shape, dtype in shapes
    )


def error(
    nest: Nest, inputs: Mapping[str, Array], results: Mapping[str, Array], math: Math = "ieee"
) -> float:
    """The largest difference from the oracle, in units of rounding (`roundings`); of halves in parts of ROUNDED units.

    Where factors are rounded it is counted in parts of each element's own bound, of which TOLERANCE are all of it: the
    sum of the absolute values of its products (`product` of absolute values) times what polyfuse.ir.precision says.
    """
    exact = interpret(nest, inputs)
    if math == "ieee":
        halves = any(array.dtype.itemsize == 2 for array in exact.values())
        return roundings(exact, results) * (TOLERANCE / ROUNDED if halves else 1)
    absolute = nest.with_constants({name: np.abs(values) for name, values in nest.constants.items()})
    magnitude = interpret(absolute, {name: np.abs(array) for name, array in inputs.items()})
    steps = _most_steps(nest)
    parts = (
        np.abs(exact[name] - found) / (PRECISIONS[math].bound(steps) * magnitude[name])
        for name, found in results.items()
    )
    return TOLERANCE * max(float(np.nan_to_num(part, nan=np.inf).max()) for part in parts)


def _most_steps(nest: Nest) -> int:
    """The most products that a result sums up: the values of the dimensions with which a sum does not move."""
    found = 1
    for s in nest.statements:
        if s.op == "+=":
            own = moving_axes(s.write)
            summed = (d for d in range(len(s.dims)) if d not in own)
            sizes = (s.domain.dim_max_val(d).sub(s.domain.dim_min_val(d)) for d in summed)
            found = max(found, prod(int(size.to_python()) + 1 for size in sizes))
    return found
