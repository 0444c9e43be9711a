"""Lowers statements on arrays to statements on elements."""
