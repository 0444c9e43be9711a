"""Device operations that emitted CUDA source calls, written as PTX."""
