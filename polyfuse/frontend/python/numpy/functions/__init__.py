"""NumPy's functions on values, one family a file: each evaluates a call, or is a short program that is inlined."""
