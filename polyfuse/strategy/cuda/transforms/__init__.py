"""Short programs of verbs for GPUs: staging, vector accesses, rasterisation, warp reductions."""
