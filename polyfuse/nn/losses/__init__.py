"""Losses: cross-entropy, negative log-likelihood, squared, absolute and logistic errors, as functions and layers."""
