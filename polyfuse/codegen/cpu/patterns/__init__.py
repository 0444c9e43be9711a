"""Loops that become one call of an intrinsic: products, rows, transposes, stores."""
