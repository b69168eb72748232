"""Marginals through their residuals: least squares in closed form, then local non-negativity; and views.

    table_stacks ──► decomposition: residuals to marginals and back ──► least_squares: the residuals that fit best
                                    ──► level_fits, nonnegative_marginals: consistent and non-negative, near them
    consistency ──► nonnegativity: the same for overlapping views (Qardaji et al. 2014)
    margins ──► reconstruction: any other marginal, by greatest entropy, least squares or a linear programme

No step is exponential in the number of attributes.
"""
