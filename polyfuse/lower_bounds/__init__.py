"""The least work and traffic of any schedule of a nest, as formulas, and the traffic of one schedule, counted."""
