"""Several chains at once, and what they say together.

Chain i draws from its own stream of random numbers, split off the seed, and starts where the problem says chain i
starts: what comes out does not depend on how many threads there are or which of them is fast.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from consilience.iterates.chain import Chain, ChainProblem, ChainRun, ChainSettings, Simulated
from consilience.iterates.convergence import effective_sample_size, split_rhat
from consilience.kernels.rng import generator

Array = NDArray[np.float64]

MOST_DRAWN = 20_000_000
"""Draws of all chains together hold at most so many numbers; more would be thinned."""


@dataclass(frozen=True, eq=False)
class ChainRuns:
    """Draws from the posterior of datasets, the best dataset, and how the chains went."""

    chains: tuple[ChainRun, ...]
    settings: ChainSettings
    seconds: float

    @property
    def best(self) -> Simulated:
        """The dataset with the greatest log posterior that any chain met."""
        return max(self.chains, key=lambda chain: chain.best_log_posterior).best

    @property
    def best_log_posterior(self) -> float:
        return max(chain.best_log_posterior for chain in self.chains)

    @property
    def draws(self) -> tuple[Simulated, ...]:
        """The draws of all chains, one chain after another."""
        return tuple(draw for chain in self.chains for draw in chain.draws)

    @property
    def pooled(self) -> Simulated:
        """All draws in one dataset, each with its part of the mass: the posterior mean of where records are."""
        draws = self.draws
        points = np.concatenate([draw.points for draw in draws])
        return Simulated(points, np.concatenate([draw.masses for draw in draws]) / len(draws))

    @property
    def traces(self) -> Array:
        """The log posterior after each step, a row for each chain."""
        return np.array([chain.trace for chain in self.chains])

    @property
    def acceptance(self) -> float:
        """The share of steps after burn-in that were accepted."""
        tried = sum(chain.tried.sum() for chain in self.chains)
        return float(sum(chain.accepted.sum() for chain in self.chains) / max(tried, 1))

    @property
    def acceptance_by_move(self) -> tuple[float, float, float]:
        """The same for jumps, walks and transfers; 0 where there were none."""
        tried = np.sum([chain.tried for chain in self.chains], axis=0)
        accepted = np.sum([chain.accepted for chain in self.chains], axis=0)
        jumps, walks, transfers = (accepted / np.maximum(tried, 1)).tolist()
        return jumps, walks, transfers

    @property
    def effective_sample_size(self) -> float:
        """Of the log posterior after burn-in."""
        return effective_sample_size(self.traces[:, self.settings.burn_in :])

    @property
    def rhat(self) -> float:
        """Of the log posterior after burn-in."""
        return split_rhat(self.traces[:, self.settings.burn_in :])


def run_chains(
    problem: ChainProblem,
    settings: ChainSettings,
    *,
    chains: int = 2,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> ChainRuns:
    """The same chains for the same seed, on as many cores as there are."""
    began = time.perf_counter()
    numbers = problem.mixture.centres.shape[1] + 1
    room = MOST_DRAWN // (chains * settings.size * numbers)
    settings = replace(settings, draws=max(1, min(settings.draws, settings.steps - settings.burn_in, room)))
    streams = generator(seed).spawn(chains)

    def run(index: int) -> ChainRun:
        return Chain(problem, settings, streams[index], start=index).run()

    found: list[ChainRun] = []
    with ThreadPoolExecutor(min(chains, _cores()), thread_name_prefix="consilience-chains") as threads:
        for run_of_chain in threads.map(run, range(chains)):
            found.append(run_of_chain)
            if progress is not None:
                progress("chains", len(found), chains)
    return ChainRuns(tuple(found), settings, time.perf_counter() - began)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
