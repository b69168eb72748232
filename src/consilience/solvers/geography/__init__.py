"""A table of counts for every place of a geography: least squares, then non-negative and whole counts.

    cell_basis     what marginals, over groups of values too, tell of the cells of a table, in their residual basis
    subtrees       what the measurements below a place say of it: covariances, shared by places measured alike
    least_squares  noisy marginals of any places ──► the best unbiased tables and their variances
    nonnegative    these ──► tables without negative counts, from the top down, parents held, public facts kept
    rounding       whole numbers in place of a table's, its margins kept

Everything is linear in places times cells. Places are numbered as in `solvers.trees.layout`: parents before children,
the children of one place side by side.
"""
