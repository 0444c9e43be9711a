"""From CUDA source to a cubin on any machine, and back to its instructions."""
