"""Recognise products, epilogues, stencils, attention and reductions along rows in a nest."""
