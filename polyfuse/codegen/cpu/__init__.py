"""Loop trees as numba source for CPUs."""
