"""Constrained maximum-likelihood fits on plain arrays: trees, tables, matrices, and ADMM for everything else.

Every solver returns a `fit.Fit`: the counts, a bound on how far from the best they are, and why it stopped.
"""
