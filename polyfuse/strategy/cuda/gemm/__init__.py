"""Products and convolutions on a GPU, in public verbs."""
