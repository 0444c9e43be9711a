"""Short programs of public verbs that both targets use: bands, packing, skewing, time tiling."""
