"""Tiles of a product on a GPU: values of parts (sizes, instruction, copies, operands), candidates and prices."""
