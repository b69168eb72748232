"""Datasets that make every iterate of a noisy algorithm likely: chains over datasets, on plain arrays."""

from consilience.iterates.chain import Chain, ChainProblem, ChainRuns, ChainSettings, Mixture, Simulated, run_chains
from consilience.iterates.problems import NoisyRounds, cluster_problem

__all__ = [
    "Chain",
    "ChainProblem",
    "ChainRuns",
    "ChainSettings",
    "Mixture",
    "NoisyRounds",
    "Simulated",
    "cluster_problem",
    "run_chains",
]
