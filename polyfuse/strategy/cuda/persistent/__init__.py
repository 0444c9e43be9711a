"""Kernels whose blocks stay on the GPU for all steps of a time loop."""
