"""Tiles of a product on a GPU: candidates by instruction and by copy, their layouts and their price."""
