"""Flux.jl issue 558: bias and activation after a convolution."""
