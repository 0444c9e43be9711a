"""Loop trees as numba.cuda source, and that source as machine code."""
