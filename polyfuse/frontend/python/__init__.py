"""`@pf.nest`: a Python function of loops, read from its source, as a nest."""
