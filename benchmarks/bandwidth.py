"""`x / sum(x)` of 16M float32 numbers beside the bandwidth's limit: the same two passes written in C, in turns.

    read x; then read x and write y past the caches                     12 bytes an element

The limit is by gcc, vectors of 16 numbers and stores past the caches, an equal part for each thread; a sum in eight
vectors, and a product by a number instead of a quotient, so that nothing but memory counts. Wanted: 1.1.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks.fresh import fresh
from polyfuse import nn

COUNT = 1 << 24
BYTES = 12

LIMIT = """
#include <stdint.h>
typedef float vector __attribute__((vector_size(64), aligned(4)));
typedef float line __attribute__((vector_size(64)));
#if defined(__AVX512F__)
#include <immintrin.h>
#define past(to, value) _mm512_stream_ps(to, (__m512)(value))
#define done() _mm_sfence()
#else
#define past(to, value) (*(line *)(to) = (value))
#define done()
#endif

void limit(const float *x, float *y, int64_t n) {
    float sum = 0;
    #pragma omp parallel for reduction(+ : sum) schedule(static)
    for (int64_t block = 0; block < n; block += 65536) {
        vector sums[8] = {0};
        for (int64_t i = block; i < block + 65536; i += 128)
            for (int k = 0; k < 8; k++) sums[k] += *(const vector *)(x + i + 16 * k);
        for (int k = 0; k < 8; k++) for (int lane = 0; lane < 16; lane++) sum += sums[k][lane];
    }
    float factor = 1 / sum;
    #pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < n; block += 65536) {
        for (int64_t i = block; i < block + 65536; i += 16) past(y + i, factor * *(const vector *)(x + i));
        done();
    }
}
"""


def measure(turns: int) -> list[dict[str, Any]]:
    """A row for each side, with one thread and with one for each CPU; ratios are to the limit."""
    rows = []
    for threads in sorted({1, pf.measure.usable_cpus()}):
        rows += fresh("benchmarks.bandwidth", str(turns), str(threads), threads=threads)
    for row in rows:
        times = f"{row['median_ms']:>7.2f} ms (best {row['best_ms']:.2f}), {row['gb_per_s']:.1f} GB/s"
        print(
            f"{row['threads']} threads  {row['candidate']:<14} {times}, {row['ratio']:.2f} of the limit's time"
        )
    return rows


def in_this_process(turns: int, threads: int) -> list[dict[str, Any]]:
    """Times in turns: polyfuse with `out` and without, NumPy, and the limit."""
    value = nn.input("x", (COUNT,))
    net = pf.compile(pf.lower(value / nn.sum(value)), target="cpu")
    x, out = np.random.default_rng(0).random(COUNT, np.float32), in_lines(COUNT)
    call = limit_by_gcc()
    expected = x / x.sum(dtype=np.float64)
    candidates: dict[str, Callable[[], Any]] = {
        "limit": lambda: call(x.ctypes.data, out.ctypes.data, COUNT),
        "polyfuse, out": lambda: net(x, out=out),
        "polyfuse": lambda: net(x),
        "numpy": lambda: np.divide(x, x.sum(), out=out),
    }
    for candidate in candidates.values():
        out[:] = 0
        found = candidate()
        np.testing.assert_allclose(out if found is None else found, expected, rtol=1e-5)
    times = pf.measure.in_turns(candidates, turns)
    return [
        {
            "candidate": name,
            "threads": 1 if name == "numpy" else threads,
            "median_ms": round(1e3 * time.median, 3),
            "best_ms": round(1e3 * time.best, 3),
            "gb_per_s": round(BYTES * COUNT / time.median / 1e9, 2),
            "ratio": round(time.median / times["limit"].median, 3),
            "turns": time.turns,
        }
        for name, time in times.items()
    ]


def in_lines(count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Fresh memory that begins a cache line, as the limit's stores need it."""
    memory = np.zeros(count + 16, np.float32)
    first = -memory.ctypes.data % 64 // 4
    return memory[first : first + count]


def limit_by_gcc() -> Callable[[int, int, int], None]:
    """The two passes as machine code. Raises CalledProcessError or FileNotFoundError without gcc."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "limit.c", Path(folder) / "limit.so"
        source.write_text(LIMIT, encoding="utf-8")
        flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run(["gcc", *flags, "-o", str(library), str(source)], check=True, capture_output=True)
        call = ctypes.CDLL(str(library)).limit
    call.restype, call.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    return call  # type: ignore[no-any-return]  # ctypes says Any


if __name__ == "__main__":
    print(json.dumps(in_this_process(int(sys.argv[1]), int(sys.argv[2]))))
