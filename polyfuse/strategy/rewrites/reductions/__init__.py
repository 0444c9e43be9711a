"""Decide where a rewrite of sums pays that splits them or computes half of them."""
