"""Bayesian networks on plain arrays: how much an attribute depends on others, whom it may depend on, and the model."""
