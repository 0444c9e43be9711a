"""Decide where a rewrite of sums pays that splits them, renumbers their loops or computes half of them."""
