"""Schedule one group of statements for a GPU, in public verbs."""
