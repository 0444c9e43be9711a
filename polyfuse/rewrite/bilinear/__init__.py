"""Compute a contraction by a bilinear algorithm, such as Strassen's."""
