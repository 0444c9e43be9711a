"""From a scheduled nest to readable numba source, and what builds and checks that source."""
