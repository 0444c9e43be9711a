"""PolyBench 4.2: its 30 kernels as `@pf.nest` functions, with inputs, two sizes, and what NumPy says they compute.

from papers.polybench import KERNELS

kernel = KERNELS["gemm"]
inputs = kernel.inputs(kernel.mini, np.random.default_rng(0))
pf.compile(kernel.nest)(**inputs)
"""

from papers.polybench.registry import KERNELS, Kernel

__all__ = ["KERNELS", "Kernel"]
