"""Softmax, normalisation along axes and by channel, and reductions of several statements."""
