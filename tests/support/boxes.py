"""What tests of copies in boxes share: nests, the shapes they take, and the arguments of their kernels."""

# ruff: noqa: F821

import polyfuse as pf
from polyfuse.codegen.program import Launch
from polyfuse.ir.precision import Math
from polyfuse.rewrite import expand
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from tests.support.on_tensor_cores import bits_of_halves, by_steps, groups_of, kind_of, matmul, schedule_with


@pf.nest
def squared(x: "bf16[136, 128]", z: "f32[136, 136]"):
    """A factor with itself, in boxes of 64 and of 128 rows."""
    for i in range(136):
        for j in range(136):
            s = 0
            for k in range(128):
                s += x[i, k] * x[j, k]
            z[i, j] = s


NESTS = {
    "four stages": (lambda: matmul(70, 320, 136, dtype="bfloat16"), "bf16", (1, 1, 2, 16, 4)),
    "one tile in four stages": (lambda: matmul(66, 64, 72, dtype="bfloat16"), "bf16", (1, 1, 2, 16, 4)),
    "two down": (lambda: matmul(130, 192, 72, dtype="float16"), "f16", (2, 1, 2, 16, 4)),
    "two across": (lambda: matmul(72, 128, 136, dtype="bfloat16"), "bf16", (1, 2, 2, 16, 2)),
    "128 columns": (lambda: matmul(66, 128, 136, dtype="bfloat16"), "bf16", (1, 1, 2, 32, 2)),
    "256 columns": (lambda: matmul(66, 128, 264, dtype="bfloat16"), "bf16", (1, 1, 2, 64, 2)),
    "by steps": (by_steps, "f16", (1, 1, 2, 16, 4)),
    "a factor with itself": (lambda: expand(squared).nest, "bf16", (1, 1, 2, 32, 2)),
    "batched": (lambda: matmul(66, 128, 72, (3,), "bfloat16"), "bf16", (1, 1, 2, 16, 2)),
}


def schedule_of(nest: pf.Nest, math: Math, sizes: tuple[int, ...], kind: str = "boxed") -> pf.Schedule:
    """The schedule with one tile: warpgroups down and across, a thread's rows and columns, stages."""

    def wanted(t: ThreadblockTile) -> bool:
        return kind_of(t) == kind and (*groups_of(t), t.shape.rows, t.shape.columns, t.stages) == sizes

    return schedule_with(nest, math, wanted)


def arguments_of(net: pf.Executable, launch: Launch) -> list[object]:
    """A kernel's arrays and their maps."""
    arrays = bits_of_halves(net, launch)
    return [*arrays, *(each.of(arrays[each.position], {}) for each in launch.code.maps)]
