"""Rewrites of storage: expansion, private copies, snapshots, element types."""
