"""Attention as one kernel on a GPU, in public verbs."""
