"""Products on a CPU: blocks for registers and caches, packing, recurrences, factorisations."""
