"""Rewrites of a CUDA kernel's loop tree before it is printed."""
