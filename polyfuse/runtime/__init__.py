"""What runs compiled kernels: memory, launches, caches."""
