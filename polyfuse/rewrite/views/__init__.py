"""Compose views into the statements that use them."""
