"""Exact analyses of a schedule tree by isl: order, storage, synchronisation, footprints, live ranges."""
