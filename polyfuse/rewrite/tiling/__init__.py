"""Rewrites that tile and recompute: overlapped tiling and blocked factorisations."""
