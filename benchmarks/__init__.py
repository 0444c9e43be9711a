"""Benchmarks: side by side in one run, results kept with the machine they ran on. Public API only."""
