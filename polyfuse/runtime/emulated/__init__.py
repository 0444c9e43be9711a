"""Run CUDA programs without a GPU."""
