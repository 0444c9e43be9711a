"""Array expressions of `@pf.nest`, in NumPy's meaning, as loops over single elements."""
