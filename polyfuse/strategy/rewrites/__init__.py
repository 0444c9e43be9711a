"""Decide where a rewrite pays: one module for each, named as in `polyfuse.rewrite`."""
