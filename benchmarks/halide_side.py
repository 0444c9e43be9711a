"""The pipelines in Halide, scheduled by its autoschedulers: a process that another one asks for calls.

It runs in an environment of its own, which has `halide` and NumPy and nothing of polyfuse:

    python -m venv build/halide && build/halide/bin/pip install halide

    python benchmarks/halide_side.py FOLDER THREADS     image-NAME.npy there; on each line of its input a request,
    answered by its seconds, or by what Halide has against it:
      build NAME AUTOSCHEDULER                          -> seconds to schedule and compile
      call NAME AUTOSCHEDULER                           -> seconds of one call
      save NAME AUTOSCHEDULER                           -> results in FOLDER as NAME-AUTOSCHEDULER-0.npy, …
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np

BLUR = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)
LIBRARIES = Path(hl.__file__).parent / "lib64"
x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")


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
    weight, threshold = hl.f32(3.0), hl.f32(0.05)
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


PIPELINES = {"harris": harris, "unsharp": unsharp, "blurs": blurs, "pyramid": pyramid}


class Built:
    """One pipeline, scheduled and compiled for one image."""

    def __init__(
        self, name: str, autoscheduler: str, image: Any, shapes: list[tuple[int, ...]], threads: int
    ) -> None:
        given = hl.ImageParam(hl.Float(32), image.ndim)
        outputs = PIPELINES[name](given)
        given.set_estimates([hl.Range(0, extent) for extent in reversed(image.shape)])
        for output, shape in zip(outputs, shapes, strict=True):
            output.set_estimates([hl.Range(0, extent) for extent in reversed(shape)])
        self.target = hl.get_jit_target_from_environment()
        self.pipeline = hl.Pipeline(outputs)
        options = {"parallelism": threads}
        if autoscheduler == "Mullapudi2016":
            options["last_level_cache_size"] = 32 << 20
        self.pipeline.apply_autoscheduler(self.target, hl.AutoschedulerParams(autoscheduler, options))
        self.image = image  # Halide's buffers do not keep NumPy's memory
        given.set(hl.Buffer(image))
        self.results = [np.zeros(shape, np.float32) for shape in shapes]
        self.buffers = [hl.Buffer(result) for result in self.results]
        self.pipeline.compile_jit(self.target)

    def call(self) -> None:
        """One run into the results."""
        self.pipeline.realize(self.buffers, self.target)


def main(folder: Path, threads: int) -> None:
    os.environ["HL_NUM_THREADS"] = str(threads)
    for library in ("adams2019", "mullapudi2016"):
        hl.load_plugin(str(LIBRARIES / f"libautoschedule_{library}.so"))
    built: dict[tuple[str, str], Built] = {}
    for line in sys.stdin:
        request, name, autoscheduler = line.split()
        start = time.perf_counter()
        try:
            if request == "build":
                image = np.load(folder / f"image-{name}.npy")
                shapes = [np.load(path).shape for path in sorted(folder.glob(f"result-{name}-*.npy"))]
                built[name, autoscheduler] = Built(name, autoscheduler, image, shapes, threads)
            elif request == "call":
                built[name, autoscheduler].call()
            else:
                for number, result in enumerate(built[name, autoscheduler].results):
                    np.save(folder / f"{name}-{autoscheduler}-{number}.npy", result)
        except hl.HalideError as error:
            # Adams2019's schedule of Harris for two threads reads the image at -16
            print(str(error).strip().splitlines()[0], flush=True)
            continue
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
