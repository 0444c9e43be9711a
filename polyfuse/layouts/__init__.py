"""Layouts of tiles in a GPU's shared memory: core matrices and swizzled lines."""
