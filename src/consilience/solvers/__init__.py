"""Constrained maximum-likelihood fits on plain arrays: trees, tables, matrices, and ADMM for everything else.

trees            one pass up a forest of sums, exact for every loss
marginal_tables  tables with known marginals: Newton's method and an interior point on the dual
matrices         answers to the rows of any matrix: an interior point
tables           measured rows of a table: `proximal_point`, which models share
admm             everything that has a projection                                (projections)

Every solver returns a `fit.Fit`: the counts, a bound on how far from the best they are, and why it stopped.
"""
