"""The cost model: counts by isl, then seconds on a machine."""
