"""Check every CUDA case against the oracle, on a GPU, in the emulator, and under NVIDIA's sanitizers."""
