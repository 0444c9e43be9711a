"""Rewrites of what is stored where: expansion, private copies, snapshots, element types."""
