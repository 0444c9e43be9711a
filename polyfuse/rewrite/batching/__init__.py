"""Run isomorphic statements over different tensors as one with a batch dimension."""
