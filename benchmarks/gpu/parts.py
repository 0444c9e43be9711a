"""The parts of the run: which workloads, computed how by us, and what is wanted of the figures.

Each part is of workloads that are measured one after the other; on the stand-in for a GPU all are small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import polyfuse as pf
from benchmarks.peers import workloads as of
from benchmarks.peers.workloads import Workload

OURS = "polyfuse"
CAPTURED = f"{OURS}, captured"

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Subject:
    """A workload; `flops` and `moved` (bytes read and written at least) of a call, 0 where it is not rated by them.

    `ways` are compile's options for each of our sides: the first is OURS, which the others are compared with too. Two
    are not compile's: "tiles" is a place in the model's order of register tiles (tiles.py), and "captured" says that
    calls are captured on their arrays, as a graph of a peer is.
    """

    workload: Workload
    flops: int = 0
    moved: int = 0
    ways: Mapping[str, Options] = field(default_factory=lambda: {OURS: {}})

    @property
    def name(self) -> str:
        return self.workload.name


@dataclass(frozen=True)
class Part:
    """`wanted` says what the figures are to show; `subjects(small)` are measured in this order.

    `groups` are subjects whose ratios are summed up by themselves too: what they are called, and which they are.
    """

    name: str
    wanted: str
    subjects: Callable[[bool], list[Subject]]
    groups: Mapping[str, Callable[[str], bool]] = field(default_factory=dict)


@dataclass(frozen=True)
class Chosen:
    """What a short run measures: subjects with one of `only` in their names, beside peers with none of `without`.

    >>> Chosen(without=("autotune",)).beside("torch max-autotune, graph"), Chosen(("2048",)).measured("gemm-1024")
    (False, False)
    """

    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def measured(self, name: str) -> bool:
        """A subject, by its name; all where none is named."""
        return not self.only or any(part in name for part in self.only)

    def beside(self, label: str) -> bool:
        """A peer, by its label."""
        return not any(part in label for part in self.without)


ALL = Chosen()

BOTH: Mapping[str, Options] = {OURS: {}, CAPTURED: {"captured": True}}
"""Where the host may decide: ordinary calls, and captured ones."""


def gemm(small: bool) -> list[Subject]:
    """Products alone, then one layer with bias and ReLU."""
    sizes = (24,) if small else (1024, 2048, 4096, 8192)
    return [*map(square, sizes), *(dense(1, n, n) for n in sizes)]


def tiles(small: bool) -> list[Subject]:
    """Products in the tiles that the model puts first, second, and so on."""
    ways = {
        OURS: {},
        **{f"{OURS}, tiles {place + 1}": {"tiles": place} for place in range(1, 2 if small else 8)},
    }
    return [square(n, ways) for n in ((24,) if small else (1024, 2048, 4096))]


def square(n: int, ways: Mapping[str, Options] | None = None, bound: float = 1e-4) -> Subject:
    made = Workload(f"gemm-{n}", "gemm", partial(factors, n), bound)
    return Subject(made, 2 * n**3, ways=ways or {OURS: {}})


def dense(layers: int, batch: int, width: int) -> Subject:
    made = of.mlp(layers, width, batch)
    return Subject(Workload(made.name, made.kind, made.make, 1e-4), 2 * layers * batch * width**2, ways=BOTH)


def tensor(small: bool) -> list[Subject]:
    """Products of rounded factors, beside cuBLAS with the same rounding: of float32 arrays, and of halves."""
    return [
        Subject(Workload(f"{kind}-{n}", kind, partial(make, n), bound), 2 * n**3, ways={OURS: {"math": math}})
        for n in ((96,) if small else (4096, 8192))
        for math, kind, make, bound in (
            ("tf32", "gemm_tf32", factors, 2e-3),
            ("bf16", "gemm_bf16", factors, 2e-2),
            ("bf16", "gemm_halves", halves, 2e-2),
        )
    ]


def factors(n: int) -> of.Arrays:
    """x and w of a square product."""
    return of.normal(x=(n, n), w=(n, n))


def halves(n: int) -> of.Arrays:
    """The same, in bfloat16."""
    return {name: array.astype("bfloat16") for name, array in factors(n).items()}


def strassen(small: bool) -> list[Subject]:
    """One level and two, beside our own classical product and cuBLAS."""
    one = pf.bilinear.strassen
    two = pf.bilinear.kronecker(one, one)
    ways: dict[str, Options] = {OURS: {}, "polyfuse strassen": {"fast_matmul": one}}
    if not small:  # planning 180 statements takes seconds
        ways["polyfuse strassen, two levels"] = {"fast_matmul": two}
    return [square(n, ways, bound=1e-3) for n in ((16,) if small else (8192, 12288, 16384))]


GRID = {
    "layers": (1, 2, 4, 8),
    "batch": (2, 4, 8, 16, 32, 64, 128),
    "width": (128, 256, 512, 1024, 2048, 4096),
}


def grid(small: bool) -> list[Subject]:
    """Dense networks; narrow ones first."""
    if small:
        return [dense(2, 3, 20)]
    return [dense(n, b, w) for w, n, b in product(GRID["width"], GRID["layers"], GRID["batch"])]


def width_of(name: str) -> int:
    """Of a cell, by its name: mlp-4x512-b64."""
    return int(name.split("-")[1].split("x")[1])


def ensembles(small: bool) -> list[Subject]:
    """Members of four layers of 64 at batch 32."""
    members, layers, width, batch = ((2,), 2, 8, 3) if small else ((2, 4, 8, 16, 32, 64), 4, 64, 32)
    return [
        Subject(
            Workload(f"ensemble-{k}x{layers}x{width}-b{batch}", "ensemble",
                     partial(of.ensemble_arrays, k, layers, width, batch), 1e-4),
            2 * k * layers * batch * width**2,
            ways=BOTH,
        )
        for k in members
    ]  # fmt: skip


def lstm(small: bool) -> list[Subject]:
    """Sequences beside cuDNN: layers, width, batch, steps."""
    sides = ((1, 8, 3, 2),) if small else ((1, 128, 32, 50), (2, 128, 50, 50), (2, 512, 50, 50))
    return [
        Subject(
            Workload(f"lstm-{n}x{w}-b{b}-s{s}", "lstm", partial(of.lstm_arrays, n, w, b, s), 1e-4),
            16 * n * s * b * w**2,
        )
        for n, w, b, s in sides
    ]


def convolutions(small: bool) -> list[Subject]:
    """3 x 3, bias, ReLU, channels first, beside cuDNN: images, channels, side, filters."""
    sides = (
        ((2, 3, 6, 4),)
        if small
        else ((32, 16, 28, 32), (1, 64, 56, 64), (32, 64, 56, 64), (32, 256, 14, 256))
    )
    return [
        Subject(
            Workload(f"conv-n{n}-c{c}-{s}-k{k}", "conv", partial(of.conv_arrays, n, c, s, k), 1e-4),
            18 * n * c * k * s**2,
        )
        for n, c, s, k in sides
    ]  # fmt: skip


def memory(small: bool) -> list[Subject]:
    """Rows, chains and a transpose, whose time is that of their bytes: read once and written once, as a copy does."""
    m, n = (5, 40) if small else (16384, 4096)
    rows, whole, turned = 8 * m * n, m * n, (20, 40) if small else (m, n)
    made = [
        Workload(f"softmax-{m}x{n}", "softmax", partial(of.normal, x=(m, n)), 1e-4),
        Workload(f"layer-norm-{m}x{n}", "layer_norm", partial(of.normal, x=(m, n), gamma=(n,), beta=(n,)), 1e-4),
        Workload("turned-{}x{}".format(*turned), "turned", partial(of.normal, x=turned)),
        Workload(f"pointwise-{whole}", "pointwise", partial(of.normal, x=(whole,))),
        Workload(f"x-over-sum-{whole}", "normalised", partial(positive, whole), 1e-3),
    ]  # fmt: skip
    return [*(Subject(workload, moved=rows) for workload in made), Subject(sums(whole), moved=4 * whole)]


def sums(n: int) -> Workload:
    """A sum of so many float32 numbers is as exact as its order."""
    return Workload(f"chain-sum-{n}", "chain", partial(of.normal, x=(n,)), 1e-3)


def positive(n: int) -> of.Arrays:
    return {name: abs(array) + 1 for name, array in of.normal(x=(n,)).items()}


def train(small: bool) -> list[Subject]:
    """Forward and backward passes: gradients by all weights, which come with each call, as they change in training."""
    dense_layers = ((2, 8, 3),) if small else ((4, 256, 64), (8, 512, 64), (4, 1024, 256), (4, 4096, 1024))
    images = ((2, 3, 6, 4),) if small else ((32, 64, 56, 64), (32, 256, 14, 256))
    members = ((2, 2, 8, 3),) if small else ((10, 4, 64, 32),)
    rows = ((5, 40),) if small else ((16384, 4096),)
    return [
        *(
            trained(
                f"mlp-{n}x{w}-b{b}",
                "mlp",
                partial(of.mlp_arrays, n, w, b),
                (b, w),
                6 * n * b * w**2 - 2 * b * w**2,
            )
            for n, w, b in dense_layers
        ),
        *(
            trained(
                f"conv-n{n}-c{c}-{s}-k{k}",
                "conv",
                partial(of.conv_arrays, n, c, s, k),
                (n, k, s, s),
                36 * n * c * k * s**2,
            )
            for n, c, s, k in images
        ),
        *(
            trained(
                f"ensemble-{k}x{n}x{w}-b{b}", "ensemble", partial(of.ensemble_arrays, k, n, w, b), (k, b, w)
            )
            for k, n, w, b in members
        ),
        *(
            trained(
                f"layer-norm-{m}x{n}",
                "layer_norm",
                partial(of.normal, x=(m, n), gamma=(n,), beta=(n,)),
                (m, n),
            )
            for m, n in rows
        ),
    ]


def trained(
    name: str, kind: str, make: Callable[[], of.Arrays], result: tuple[int, ...], flops: int = 0
) -> Subject:
    """The gradients of a workload for a cotangent of its result's shape."""

    def arrays() -> of.Arrays:
        return {**make(), "out_bar": of.normal(out_bar=result)["out_bar"]}

    return Subject(Workload(f"{name}-gradients", f"{kind}_gradients", arrays, 1e-3), flops, ways=BOTH)


def calls(small: bool) -> list[Subject]:
    """What the host spends on a call, and on the first."""
    return [dense(2, 1, 8)] if small else [dense(8, 1, 64), dense(8, 64, 512), dense(8, 64, 1024)]


PARTS: Mapping[str, Part] = {
    part.name: part
    for part in (
        Part("calls", "host at most 5 µs a captured call; compile at most 6 s for 8 layers", calls),
        Part("gemm", "peer/ours at least 0.95 alone, 1.05 with bias and ReLU", gemm),
        Part("tiles", "the model's first choice within 5 % of the best of eight", tiles),
        Part("tensor", "peer/ours at least 0.90, beside cuBLAS with the same factors", tensor),
        Part("memory", "at least 0.90 of a copy's bytes a second", memory),
        Part("conv", "beside cuDNN", convolutions),
        Part("lstm", "beside cuDNN", lstm),
        Part("train", "beside torch's autograd: forward pass and gradients by weights", train),
        Part("ensembles", "beside torch's batched products", ensembles),
        Part("strassen", "over the best classical: one level 1.12, two levels 1.22", strassen),
        Part(
            "grid",
            "no cell below 1.0, geometric mean at least 1.3; 2 for widths to 256",
            grid,
            {"widths to 256": lambda name: width_of(name) <= 256},
        ),
    )
}
"""In the order of a run: what is quick first."""
