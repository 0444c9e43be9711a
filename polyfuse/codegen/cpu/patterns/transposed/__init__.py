"""Results and factors that lie across memory: whole vectors of them, turned in registers."""
