"""Check every CUDA case on a GPU, in the emulator and under NVIDIA's sanitizers; reduce programs that fail."""
