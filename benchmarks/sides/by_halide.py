"""Halide, scheduled by its autoschedulers, which are its forms: image pipelines, and what else is natural in Halide.

A Halide function's first variable is the innermost one, the last dimension of NumPy's array.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np

from benchmarks.peers.workloads import ALPHA, BETA, EPSILON, THRESHOLD, WEIGHT

FORMS = ("Mullapudi2016", "Adams2019")
PACKAGES = ("halide",)
LIBRARIES = Path(hl.__file__).parent / "lib64"
Arrays = Mapping[str, Any]
Shape = tuple[int, ...]

BLUR = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)
x, y, c, n = hl.Var("x"), hl.Var("y"), hl.Var("c"), hl.Var("n")


def total(terms: Any) -> Any:
    first, *rest = terms
    for term in rest:
        first = first + term
    return first


def defined(name: str, *arguments: Any) -> Any:
    *dims, value = arguments
    func = hl.Func(name)
    func[tuple(dims) if len(dims) > 1 else dims[0]] = value
    return func


def harris(image: Any) -> list[Any]:
    twelfth = hl.f32(1 / 12)
    smooth, slope = (1.0, 2.0, 1.0), (-1.0, 0.0, 1.0)
    nine = [(i, j) for i in range(3) for j in range(3)]

    def gradient(name: str, weights: Any) -> Any:
        return defined(
            name, x, y, twelfth * total(hl.f32(w) * image[x + j, y + i] for i, j, w in weights if w)
        )

    Ix = gradient("Ix", [(i, j, smooth[i] * slope[j]) for i, j in nine])
    Iy = gradient("Iy", [(i, j, slope[i] * smooth[j]) for i, j in nine])

    def box(name: str, product: Any) -> Any:
        return defined(f"S{name}", x, y, total(product[x + j, y + i] for i, j in nine))

    Sxx = box("xx", defined("Ixx", x, y, Ix[x, y] * Ix[x, y]))
    Sxy = box("xy", defined("Ixy", x, y, Ix[x, y] * Iy[x, y]))
    Syy = box("yy", defined("Iyy", x, y, Iy[x, y] * Iy[x, y]))
    trace = defined("trace", x, y, Sxx[x, y] + Syy[x, y])
    determinant = Sxx[x, y] * Syy[x, y] - Sxy[x, y] * Sxy[x, y]
    return [defined("corners", x, y, determinant - hl.f32(0.04) * trace[x, y] * trace[x, y])]


def rows(name: str, of: Any, step: int = 1) -> Any:
    return defined(name, x, y, total(hl.f32(w) * of[x, step * y + k] for k, w in enumerate(BLUR)))


def columns(name: str, of: Any, step: int = 1) -> Any:
    return defined(name, x, y, total(hl.f32(w) * of[step * x + k, y] for k, w in enumerate(BLUR)))


def unsharp(image: Any) -> list[Any]:
    weight, threshold = hl.f32(WEIGHT), hl.f32(THRESHOLD)
    along = defined("rows", x, y, c, total(hl.f32(w) * image[x, y + k, c] for k, w in enumerate(BLUR)))
    blurred = defined("blurred", x, y, c, total(hl.f32(w) * along[x + k, y, c] for k, w in enumerate(BLUR)))
    middle = image[x + 2, y + 2, c]
    sharpened = defined("sharpened", x, y, c, (hl.f32(1.0) + weight) * middle - weight * blurred[x, y, c])
    small = hl.abs(middle - blurred[x, y, c]) < threshold
    return [defined("sharp", x, y, c, hl.select(small, middle, sharpened[x, y, c]))]


def blurs(image: Any) -> list[Any]:
    second = columns("second", rows("first", image))
    return [columns("blurred", rows("third", second))]


def pyramid(image: Any) -> list[Any]:
    down = columns("down", rows("rows", image, 2), 2)
    four = (down[x // 2, y // 2], down[x // 2, (y + 1) // 2], down[(x + 1) // 2, y // 2])
    between = total((*four, down[(x + 1) // 2, (y + 1) // 2]))
    detail = defined("detail", x, y, image[x + 2, y + 2] - hl.f32(0.25) * between)
    return [defined("coarse", x, y, down[x, y]), detail]


def mlp(given: Mapping[str, Any], arrays: Arrays) -> list[Any]:
    layer = given["x"]
    for n in range(sum(name.startswith("w") for name in arrays)):
        product = summed(f"product{n}", arrays[f"w{n}"].shape[0], layer, given[f"w{n}"])
        layer = defined(f"layer{n}", x, y, hl.max(product[x, y] + given[f"b{n}"][x], hl.f32(0)))
    return [layer]


def summed(name: str, steps: int, left: Any, right: Any) -> Any:
    """left [y, k] times right [k, x]."""
    k, product = hl.RDom([hl.Range(0, steps)]), hl.Func(name)
    product[x, y] = hl.f32(0)
    product[x, y] += left[k.x, y] * right[x, k.x]
    return product


def two_mm(given: Mapping[str, Any], arrays: Arrays) -> list[Any]:
    first = summed("first", arrays["b"].shape[0], given["a"], given["b"])
    second = summed("second", arrays["c"].shape[0], first, given["c"])
    return [defined("result", x, y, hl.f32(ALPHA) * second[x, y] + hl.f32(BETA) * given["d"][x, y])]


def conv(given: Mapping[str, Any], arrays: Arrays) -> list[Any]:
    padded = hl.BoundaryConditions.constant_exterior(
        given["x"], hl.f32(0), [hl.Range(0, extent) for extent in reversed(arrays["x"].shape)]
    )
    window = hl.RDom([hl.Range(0, 3), hl.Range(0, 3), hl.Range(0, arrays["x"].shape[1])])
    sums = hl.Func("sums")
    sums[x, y, c, n] = given["bias"][c]
    sums[x, y, c, n] += (
        padded[x + window.x - 1, y + window.y - 1, window.z, n]
        * given["weight"][window.x, window.y, window.z, c]
    )
    return [defined("relu", x, y, c, n, hl.max(sums[x, y, c, n], hl.f32(0)))]


def bias_gradient(given: Mapping[str, Any], arrays: Arrays) -> list[Any]:
    images, _, height, width = arrays["gradient"].shape
    each = hl.RDom([hl.Range(0, width), hl.Range(0, height), hl.Range(0, images)])
    sums = hl.Func("sums")
    sums[x] = hl.f32(0)
    sums[x] += given["gradient"][each.x, each.y, x, each.z]
    return [sums]


def along(name: str, columns: int, start: float, combine: Callable[[Any, Any], Any], of: Any) -> Any:
    """A row's reduction of what `of` gives for a column and a row."""
    k, result = hl.RDom([hl.Range(0, columns)]), hl.Func(name)
    result[y] = hl.f32(start)
    result[y] = combine(result[y], of(k.x, y))
    return result


def add(left: Any, right: Any) -> Any:
    return left + right


def softmax(given: Mapping[str, Any], arrays: Arrays) -> list[Any]:
    rows, columns = given["x"], arrays["x"].shape[1]
    largest = along("largest", columns, -np.inf, hl.max, lambda column, row: rows[column, row])
    exponential = defined("exponential", x, y, hl.exp(rows[x, y] - largest[y]))
    total_of = along("total", columns, 0, add, lambda column, row: exponential[column, row])
    return [defined("softmax", x, y, exponential[x, y] / total_of[y])]


def layer_norm(given: Mapping[str, Any], arrays: Arrays) -> list[Any]:
    rows, columns = given["x"], arrays["x"].shape[1]
    part = hl.f32(1 / columns)
    mean = along("mean", columns, 0, add, lambda column, row: part * rows[column, row])
    centred = defined("centred", x, y, rows[x, y] - mean[y])
    variance = along("variance", columns, 0, add, lambda i, row: part * centred[i, row] * centred[i, row])
    factor = defined("factor", y, hl.f32(1) / hl.sqrt(variance[y] + hl.f32(EPSILON)))
    return [defined("norm", x, y, centred[x, y] * factor[y] * given["gamma"][x] + given["beta"][x])]


def image(pipeline: Callable[[Any], list[Any]]) -> Callable[[Mapping[str, Any], Arrays], list[Any]]:
    return lambda given, arrays: pipeline(given["image"])


def smaller(by: int) -> Callable[[Arrays], list[Shape]]:
    """The image without a border."""
    return lambda a: [(*a["image"].shape[:-2], *(extent - by for extent in a["image"].shape[-2:]))]


def levels(a: Arrays) -> list[Shape]:
    """The coarse image has every other pixel that a blur of five leaves, the detail all between them."""
    coarse = tuple((extent - 4) // 2 for extent in a["image"].shape)
    return [coarse, tuple(2 * (extent - 1) for extent in coarse)]


PROGRAMS: dict[str, tuple[Callable[..., list[Any]], Callable[[Arrays], list[Shape]]]] = {
    "harris": (image(harris), smaller(4)),
    "unsharp": (image(unsharp), smaller(4)),
    "blurs": (image(blurs), smaller(8)),
    "pyramid": (image(pyramid), levels),
    "mlp": (mlp, lambda a: [a["x"].shape]),
    "two_mm": (two_mm, lambda a: [a["d"].shape]),
    "conv": (conv, lambda a: [(a["x"].shape[0], a["weight"].shape[0], *a["x"].shape[2:])]),
    "bias_gradient": (bias_gradient, lambda a: [a["gradient"].shape[1:2]]),
    "softmax": (softmax, lambda a: [a["x"].shape]),
    "layer_norm": (layer_norm, lambda a: [a["x"].shape]),
}
"""The outputs of a kind, given its inputs as Halide sees them; and their shapes."""

scheduling: dict[str, Any] = {}


def use(form: str, threads: int) -> None:
    os.environ["HL_NUM_THREADS"] = str(threads)
    hl.load_plugin(str(LIBRARIES / f"libautoschedule_{form.lower()}.so"))
    options = {"parallelism": threads}
    if form == "Mullapudi2016":
        options["last_level_cache_size"] = 32 << 20
    scheduling["parameters"] = hl.AutoschedulerParams(form, options)


def built(kind: str, arrays: Arrays) -> Callable[[], Any]:
    """Scheduled and compiled for these arrays; each call runs into the same results."""
    program, shapes = PROGRAMS[kind]
    given = {name: hl.ImageParam(hl.Float(32), array.ndim) for name, array in arrays.items()}
    outputs, results = program(given, arrays), [np.zeros(shape, np.float32) for shape in shapes(arrays)]
    for function, array in [*((given[n], arrays[n]) for n in given), *zip(outputs, results, strict=True)]:
        function.set_estimates([hl.Range(0, extent) for extent in reversed(array.shape)])
    target, pipeline = hl.get_jit_target_from_environment(), hl.Pipeline(outputs)
    pipeline.apply_autoscheduler(target, scheduling["parameters"])
    for name, array in arrays.items():
        given[name].set(hl.Buffer(array))
    buffers = [hl.Buffer(result) for result in results]
    pipeline.compile_jit(target)

    return partial(realized, pipeline, buffers, target, results, arrays)


def realized(pipeline: Any, buffers: list[Any], target: Any, results: list[Any], kept: Arrays) -> list[Any]:
    """One run into the results. Halide's buffers do not keep NumPy's memory, so the arrays they are of are kept."""
    pipeline.realize(buffers, target)
    return results


KINDS = {kind: partial(built, kind) for kind in PROGRAMS}
