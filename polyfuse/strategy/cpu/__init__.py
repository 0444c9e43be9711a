"""Schedule one group of statements for a CPU, in public verbs."""
