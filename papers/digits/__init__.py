"""A convolutional network for handwritten digits, with trained weights."""
