"""Evaluates expressions of arrays and numbers to values."""
