"""Decide which statements run in one kernel."""
