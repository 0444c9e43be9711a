"""Run compiled kernels: memory, launches, caches."""
