"""Accesses to shared memory of a whole launch, enumerated as it runs."""

from __future__ import annotations

import numpy as np

import polyfuse as pf
from polyfuse.codegen import lockstep
from polyfuse.codegen.program import Launch


def assert_no_waits(nest: pf.Nest, launch: Launch) -> None:
    """Every address of every warp: none waits for a bank, and there are barriers, so that memory was shared."""
    generator = np.random.default_rng(1)
    tensors = [nest.tensor(name) for name in launch.tensors]
    sizes = [int(np.prod(np.array(tensor.shape, dtype=int))) for tensor in tensors]
    arrays = [
        generator.standard_normal(size).astype(tensor.dtype)
        for size, tensor in zip(sizes, tensors, strict=True)
    ]
    arrays = [
        array.view(np.uint16) if tensor.is_half else array
        for array, tensor in zip(arrays, tensors, strict=True)
    ]
    report = lockstep.run(launch.source, launch.name, *launch.extents({}), arrays, counts_waits=True)
    assert report.barriers > 0
    assert report.waits == 0
