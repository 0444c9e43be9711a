"""From a kernel to LLVM: the passes of numba that emitted source needs, and shorter code than numba makes."""
