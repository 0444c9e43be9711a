"""A GPU emulator: runs a CUDA kernel's source for all threads in lock-step, and finds races."""
