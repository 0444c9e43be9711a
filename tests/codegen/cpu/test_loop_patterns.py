"""Each pattern of `CPU_PATTERNS` prints a loop of some program, and only loops that no pattern before it takes."""
# ruff: noqa: F821, UP037

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.cpu import loop_patterns, printer
from polyfuse.codegen.cpu.loop_patterns import CPU_PATTERNS, LoopPattern, LoopPrinter
from polyfuse.codegen.generate import program
from polyfuse.codegen.looptree.nodes import For
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.machine import KiB, MiB, cpu
from polyfuse.strategy import plan_for
from tests.codegen.cpu.patterns.test_outer_loop_vectorize import abreast, filtered
from tests.codegen.cpu.patterns.test_scalar_promotion import through_each, to_the_right
from tests.codegen.cpu.patterns.transposed.test_stores import convolution
from tests.schedule.test_dot_microkernel import dots
from tests.schedule.test_dot_microkernel import tiled as in_dots
from tests.schedule.test_microkernel_verb import in_place, product, tiled
from tests.strategy.cpu.test_convolutions import SMALL

ONE = cpu("one core", 1, 64, (32 * KiB, 1 * MiB, 32 * MiB), 2.6e9)


@pf.nest
def swept(A: "f64[N]", T: "i64"):
    for _t in range(T):
        for i in range(1, N - 1):
            A[i] = 0.25 * A[i - 1] + 0.5 * A[i] + 0.25 * A[i + 1]


@pf.nest
def smooth(A: "f64[N, M]", B: "f64[N, M]"):
    for i in range(1, N - 1):
        for j in range(1, M - 1):
            B[i, j] = A[i - 1, j] + A[i, j - 1] + A[i, j + 1] + A[i + 1, j]


@pf.nest
def smooth_row(a: "f64[N]", b: "f64[N]"):
    for j in range(1, N - 1):
        b[j] = a[j - 1] + a[j] + a[j + 1]


@pf.nest
def down(A: "f64[N, M]"):
    for j in range(1, M):
        for i in range(N):
            A[i, j] = A[i, j - 1] + 1


@pf.nest
def row_sums(x: "f32[N, M]", s: "f32[N]"):
    for i in range(N):
        for j in range(M):
            s[i] += x[i, j]


def dense(batch: int) -> pf.Schedule:
    layers = nn.Sequential(nn.Linear(64, 64, seed=0), nn.ReLU())
    return plan_for(pf.lower(layers, batch=batch), ONE).schedule


def convolved(width: int) -> pf.Schedule:
    return plan_for(convolution(32, width), pf.Machine.preset("zen5")).schedule


def depthwise() -> pf.Schedule:
    layers = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1, groups=3))
    return plan_for(pf.lower(layers, batch=1, features=(3, 5, 40)), ONE).schedule


def exchanged() -> pf.Schedule:
    tensors = [Tensor("x", (40, 70), "float32", "input"), Tensor("w", (70, 40), "float32", "input")]
    tensors.append(Tensor("y", (40, 70), "float32", "output"))
    domain = "{ S[i, j] : 0 <= i < 40 and 0 <= j < 70 }"
    return plan_for(Nest.of(tensors, [statement(domain, "y[i, j] = x[i, j] - w[j, i]")]), ONE).schedule


def transposed() -> pf.Schedule:
    x, w = nn.input("x", (1024, 75)), nn.input("w", (128, 75))
    return plan_for(pf.lower(x @ nn.transpose(w)), ONE).schedule


def windowed() -> pf.Schedule:
    x, w = nn.input("x", (1, 40, 8, 8)), nn.input("w", (32, 40, 3, 3))
    return plan_for(pf.lower(nn.relu(nn.conv2d(x, w, padding=1))), SMALL).schedule


def upsampled() -> pf.Schedule:
    x, w = nn.input("x", (1, 8, 6, 7)), np.ones((8, 16, 4, 4), np.float32)
    return plan_for(pf.lower(nn.conv_transpose(x, w, stride=2, padding=1) * 2.0), ONE).schedule


def bordered(border: str, left: str = "A[i, k]") -> pf.Schedule:
    """A product of 23 x 39 in tiles of 5 x 16 with 30 steps, some of which a border takes away."""
    shapes = (("A", (23, 30) if left == "A[i, k]" else (30, 23)), ("B", (30, 39)))
    tensors = [Tensor(name, shape, "float64", "input") for name, shape in shapes]
    tensors.append(Tensor("y", (23, 39), "float64", "inout"))
    box = f"{{ mac[i, j, k] : 0 <= i < 23 and 0 <= j < 39 and 0 <= k < 30 and {border} }}"
    nest = Nest.of(tensors, [statement(box, f"y[i, j] += {left} * B[k, j]")])
    return in_place(nest, 5, 16).microkernel("mac", "k")


def whole_tiles() -> pf.Schedule:
    return tiled(product(16, 64, 20, "float32"), 8, 32).microkernel("mac", "k")


PROGRAMS: dict[str, Callable[[], pf.Schedule]] = {
    "row_mac": lambda: dense(1),
    "row_mac_windows": depthwise,
    "tile_dot": lambda: in_dots(dots(7, 9, 37), 3, 4, 8).microkernel("mac", "k"),
    "tile_mac": whole_tiles,
    "tile_mac_slanted": lambda: bordered("j > i"),
    "tile_mac_windows": lambda: convolved(28),
    "triangle_border": lambda: bordered("k > i", "A[k, i]"),
    "no_microkernel": lambda: bordered("3 * i - 20 <= 2 * j"),
    "tile_init": whole_tiles,
    "rows_abreast": lambda: abreast(filtered, 16),
    "transposed_reads": exchanged,
    "one_loop": windowed,
    "transposed_copy": transposed,
    "whole_tile": lambda: convolved(32),
    "transposed_store": lambda: convolved(28),
    "row_by_row": upsampled,
    "reduced_row": lambda: pf.Schedule(pf.lower(nn.max_pool(nn.input("x", (1, 2, 32, 32)), 2))),
    "sum_in_register": lambda: pf.Schedule(row_sums).vectorize("S0", "j"),
    "short_row": lambda: dense(64),
    "stencil_row": lambda: pf.Schedule(smooth_row).vectorize("S0", "j"),
    "kept_reads": lambda: pf.Schedule(to_the_right),
    "around_one_value": lambda: pf.Schedule(through_each),
    "whole_registers": lambda: pf.Schedule(down).vectorize("S0", "i"),
    "doacross": lambda: (
        pf.Schedule(swept).skew("S0", "i", by="_t").tile("S0", _t=2, i=3).bind("S0", _t="pipeline")
    ),
    "dynamic": lambda: pf.Schedule(smooth).bind("S0", i="dynamic"),
    "step_of_doacross": lambda: pf.Schedule(swept).skew("S0", "i", by="_t").bind("S0", _t="pipeline"),
    "cores": lambda: pf.Schedule(smooth).bind("S0", i="cores"),
    "two_rows": lambda: pf.Schedule(smooth).vectorize("S0", "j"),
    "loop": lambda: pf.Schedule(smooth),
}
"""A schedule in which a pattern prints a loop, by the pattern's name."""


def test_there_is_a_program_for_each_pattern() -> None:
    assert list(PROGRAMS) == [pattern.name for pattern in CPU_PATTERNS]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_pattern_prints_a_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []

    def spied(pattern: LoopPattern) -> LoopPattern:
        def lines(p: LoopPrinter, loop: For) -> list[str] | None:
            found = pattern.lines(p, loop)
            if found is not None:
                printed.append(pattern.name)
            return found

        return replace(pattern, lines=lines)

    s = PROGRAMS[name]()
    monkeypatch.setattr(printer, "CPU_PATTERNS", tuple(map(spied, CPU_PATTERNS)))
    program(s.nest, s.tree, "cpu")
    assert name in printed


def test_the_last_pattern_takes_any_loop() -> None:
    assert CPU_PATTERNS[-1].lines is loop_patterns._loop
