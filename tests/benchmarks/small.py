"""Every kind of workload at sizes that take no time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from benchmarks.peers import workloads as of
from benchmarks.peers.workloads import Workload

SMALL: Mapping[str, Workload] = {
    workload.kind: workload
    for workload in (
        of.mlp(3, 32, 5),
        Workload("conv", "conv", partial(of.conv_arrays, 2, 3, 7, 4)),
        Workload("grouped", "grouped", partial(of.conv_arrays, 2, 6, 7, 9, 3)),
        Workload("first_layers", "first_layers", partial(of.conv_arrays, 1, 3, 16, 4, window=7)),
        Workload("separable", "separable", partial(of.separable_arrays, 2, 4, 7, 5)),
        Workload("normed", "normed", partial(of.normed_arrays, 2, 16, 6)),
        Workload("upsampled", "upsampled", partial(of.conv_arrays, 2, 3, 5, 4)),
        Workload("bias_gradient", "bias_gradient", partial(of.normal, gradient=(3, 8, 6, 5))),
        Workload("lstm", "lstm", partial(of.lstm_arrays, 2, 8, 3, 4)),
        Workload("ensemble", "ensemble", partial(of.ensemble_arrays, 3, 2, 8, 4)),
        Workload("softmax", "softmax", partial(of.normal, x=(5, 33))),
        Workload("layer_norm", "layer_norm", partial(of.normal, x=(5, 33), gamma=(33,), beta=(33,))),
        Workload("chain", "chain", partial(of.normal, x=(1000,))),
        Workload("jacobi", "jacobi", partial(of.jacobi_arrays, 12)),
        Workload("two_mm", "two_mm", partial(of.normal, a=(8, 9), b=(9, 10), c=(10, 11), d=(8, 11))),
        Workload("three_mm", "three_mm", partial(of.normal, a=(8, 9), b=(9, 10), c=(10, 11), d=(11, 7))),
        Workload("atax", "atax", partial(of.normal, a=(9, 10), x=(10,))),
        Workload("gemver", "gemver", partial(of.gemver_arrays, 9)),
        Workload("harris", "harris", partial(of.image_arrays, 12, 17)),
        Workload("unsharp", "unsharp", partial(of.image_arrays, 3, 12, 17)),
    )
}
