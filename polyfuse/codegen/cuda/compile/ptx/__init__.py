"""Improve a kernel's PTX: hoisting, strength reduction, interleaved copies."""
