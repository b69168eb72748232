"""Datasets that make every iterate of a noisy algorithm likely: chains over datasets, on plain arrays."""

from consilience.iterates.chain import Chain, ChainProblem, ChainSettings, Mixture, Simulated
from consilience.iterates.cluster_problem import NoisyRounds, cluster_problem
from consilience.iterates.runs import ChainRuns, run_chains

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
