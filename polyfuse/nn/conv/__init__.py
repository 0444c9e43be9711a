"""Convolution and pooling: operations, functions on values, layers."""
