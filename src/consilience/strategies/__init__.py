"""Strategies: which linear queries to measure so that the answers to a workload come out best.

A workload W is known here by its Gram matrix WᵀW, because the expected error depends on nothing else; so that all
ranges of a thousand values are a matrix of a thousand columns and not of half a million rows. Workloads over several
attributes are unions of products, known by the Gram matrices of their factors.
"""

from consilience.strategies.attribute_strategies import eigen_design, p_identity, semidefinite_strategy
from consilience.strategies.high_dimensional import ChosenStrategy, best_strategy
from consilience.strategies.low_rank import LowRankFactors, low_rank_factors
from consilience.strategies.residual_noise import ResidualNoise, ResidualQueries, residual_noise, residual_queries
from consilience.strategies.workload_grams import ProductTerm, ProductWorkload, gram_matrix, gram_root, strategy_error

__all__ = [
    "ChosenStrategy",
    "LowRankFactors",
    "ProductTerm",
    "ProductWorkload",
    "ResidualNoise",
    "ResidualQueries",
    "best_strategy",
    "eigen_design",
    "gram_matrix",
    "gram_root",
    "low_rank_factors",
    "p_identity",
    "residual_noise",
    "residual_queries",
    "semidefinite_strategy",
    "strategy_error",
]
