"""What isl proves about a tree of statements: order, storage, synchronisation, footprints, live ranges."""
