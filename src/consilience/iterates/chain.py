"""One chain over datasets: where it starts, how it is tuned, and what it leaves behind.

Beside the compiled steps (chain_kernels.py) a chain may change the total of all masses now and then, which all moves
leave alone: every mass is multiplied by e^u, u ~ N(0, τ²), accepted with probability min{1, e^u π(D')/π(D)}. The factor
e^u makes the prior of the total flat, and not that of its logarithm.
"""

import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.iterates.chain_kernels import (
    BEST,
    LOG_POSTERIOR,
    Chance,
    Proposal,
    State,
    Target,
    advance,
    is_inside,
    keep_all_for_best,
    log_posterior,
    settle,
)
from consilience.kernels.rng import Generator, generator

Array = NDArray[np.float64]
Ratio = Literal["mixture", "component"]

STEPS_AT_ONCE = 8192
TUNINGS = 20
"""Burn-in is cut into so many parts, after each of which the spreads are tuned."""
WANTED_ACCEPTANCE = 0.4
LARGEST_WALK = 1.0
RESCALINGS = 5
"""The total is tried to change so often between draws, and between tunings."""
FIRST_RESCALING, LARGEST_RESCALING = 0.02, 0.5
FARTHEST_TUNING = 10.0
"""δ stays within this factor of what was asked for."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """What new points are drawn from: component c is N(centre_c, diag(δ · width_c² + extra_c²)).

    A coordinate without width and extra takes the centre's value: so do labels, and discrete domains.
    """

    centres: Array
    weights: Array
    widths: Array
    extra: Array


@dataclass(frozen=True, eq=False)
class ChainProblem:
    """What a chain needs to know of an algorithm and what it released."""

    target: Target
    mixture: Mixture
    total: float
    """The mass that the points share: an estimate of the number of records."""
    starts: tuple[Array, ...]
    """Chains start with the components' centres in these shares, one after another."""


@dataclass(frozen=True)
class ChainSettings:
    """How to run a chain. `walk_share` and `transfer_share` of the steps are no jumps, as published ones all are."""

    size: int
    steps: int = 30_000
    burn_in: int = 10_000
    delta: float = 0.001
    ratio: Ratio = "mixture"
    tune: bool = True
    walk_share: float = 0.0
    transfer_share: float = 0.0
    scatter_start: bool = True
    """Whether the first points scatter as the components do; published ones lie at the centres."""
    prior_power: float = 0.0
    rescale: bool = False
    """Whether the total is unknown too; else it is the problem's."""
    draws: int = 100


@dataclass(frozen=True, eq=False)
class Simulated:
    """A dataset: points, and how many records each stands for."""

    points: Array
    masses: Array


@dataclass(frozen=True, eq=False)
class ChainRun:
    """What one chain leaves behind."""

    best: Simulated
    best_log_posterior: float
    trace: Array
    """The log posterior after each step, from the first on."""
    draws: tuple[Simulated, ...]
    """The dataset at equal distances after burn-in."""
    tried: Array
    accepted: Array
    """Steps after burn-in: jumps, walks, transfers."""
    delta: float


class Chain:
    """A chain in progress."""

    def __init__(self, problem: ChainProblem, settings: ChainSettings, rng: Generator, *, start: int = 0) -> None:
        self.target, self.mixture, self.settings, self.rng = problem.target, problem.mixture, settings, rng
        self.delta = settings.delta
        self.walk = math.sqrt(settings.delta)
        self.transfer = problem.total / settings.size / 2
        self.rescaling = FIRST_RESCALING
        self._build_proposal()
        self.state = self._first_state(problem.starts[start % len(problem.starts)], problem.total)
        self.refresh()
        self.state.scores[BEST] = self.state.scores[LOG_POSTERIOR]

    def run(self) -> ChainRun:
        """All steps of the settings."""
        settings = self.settings
        traces = [self.burn()] if settings.burn_in else []
        before = self.state.tally.copy()
        draws = []
        ends = np.linspace(settings.burn_in, settings.steps, settings.draws + 1).round().astype(int)
        for steps in np.diff(ends):
            traces.append(self.take(int(steps)))
            self.rescale()
            draws.append(Simulated(self.state.images.copy(), self.state.masses.copy()))
        tried, accepted = (self.state.tally - before).astype(np.float64)
        return ChainRun(
            best=self.best(),
            best_log_posterior=float(self.state.scores[BEST]),
            trace=np.concatenate(traces),
            draws=tuple(draws),
            tried=tried,
            accepted=accepted,
            delta=self.delta,
        )

    def burn(self) -> Array:
        """The steps of burn-in, with spreads that are tuned on the way and frozen at the end."""
        ends = np.linspace(0, self.settings.burn_in, TUNINGS + 1).round().astype(int)
        traces = []
        for part, steps in enumerate(np.diff(ends)):
            before = self.state.tally.copy()
            traces.append(self.take(int(steps)))
            gain = 2.0 / math.sqrt(part + 1.0)
            rescaled = self.rescale()
            if self.settings.tune:
                self.rescaling *= math.exp(gain * (rescaled - WANTED_ACCEPTANCE))
                self.rescaling = min(self.rescaling, LARGEST_RESCALING)
                self._tune(self.state.tally - before, gain=gain)
        return np.concatenate(traces)

    def take(self, steps: int) -> Array:
        """The log posterior after each of some more steps."""
        trace = np.empty(steps)
        for begin in range(0, steps, STEPS_AT_ONCE):
            part = trace[begin : begin + STEPS_AT_ONCE]
            n, dimensions = self.state.points.shape
            chance = Chance(
                picks=self.rng.integers(0, n, len(part)),
                uniforms=self.rng.random((len(part), 3)),
                normals=self.rng.standard_normal((len(part), dimensions)),
            )
            advance(self.target, self.proposal, self.state, chance, part)
        return trace

    def rescale(self) -> float:
        """Try some other totals; the share of them that were accepted."""
        if not self.settings.rescale:
            return WANTED_ACCEPTANCE
        state, accepted = self.state, 0
        for normal, uniform in zip(self.rng.standard_normal(RESCALINGS), self.rng.random(RESCALINGS), strict=True):
            logarithm = self.rescaling * float(normal)
            factor = math.exp(logarithm)
            after = log_posterior(self.target, factor * state.sums)
            if math.log(max(uniform, 1e-300)) < logarithm + after - state.scores[LOG_POSTERIOR]:
                keep_all_for_best(state)
                state.masses[:] *= factor
                state.sums[:] *= factor
                state.scores[LOG_POSTERIOR] = after
                if after > state.scores[BEST]:
                    state.scores[BEST] = after
                    state.version[0] += 1
                accepted += 1
        return accepted / RESCALINGS

    def refresh(self) -> None:
        """Compute sums, densities and the log posterior anew from the points."""
        settle(self.target, self.proposal, self.state)

    def best(self) -> Simulated:
        """The dataset at which the log posterior was greatest so far."""
        state = self.state
        changed = state.stamps == state.version[0]
        points = np.where(changed[:, None], state.saved_images, state.images)
        return Simulated(points, np.where(changed, state.saved_masses, state.masses))

    def _first_state(self, shares: Array, total: float) -> State:
        n, rounds = self.settings.size, len(self.target.thetas)
        ends = np.round(np.cumsum(shares) / shares.sum() * n).astype(np.int64)
        components = np.repeat(np.arange(len(shares)), np.diff(ends, prepend=0))
        points = self.mixture.centres[components].copy()
        if self.settings.scatter_start:
            moved = points + self.proposal.spreads[components] * self.rng.standard_normal(points.shape)
            for i in range(n):
                if is_inside(self.target.region, self.target.bounded, moved[i]):
                    points[i] = moved[i]
        masses = np.full(n, total / n)
        return State(
            points=points,
            images=points.copy(),
            masses=masses,
            cells=np.zeros((n, rounds), np.int64),
            sums=np.zeros(self.target.released.shape),
            components=components,
            log_densities=np.zeros(n),
            saved_images=points.copy(),
            saved_masses=masses.copy(),
            stamps=np.full(n, -1, np.int64),
            version=np.zeros(1, np.int64),
            scores=np.full(2, -np.inf),
            tally=np.zeros((2, 3), np.int64),
        )

    def _build_proposal(self) -> None:
        mixture, settings = self.mixture, self.settings
        spreads = np.sqrt(self.delta * mixture.widths**2 + mixture.extra**2)
        moving = spreads > 0
        cumulative = np.cumsum(mixture.weights / mixture.weights.sum())
        # No uniform number falls behind the last component that has any weight.
        cumulative[np.flatnonzero(mixture.weights)[-1] :] = 1.0
        sizes = np.log(np.where(moving, spreads, 1.0)).sum(axis=1)
        with np.errstate(divide="ignore"):
            heights = np.log(mixture.weights / mixture.weights.sum()) - sizes
        self.proposal = Proposal(
            whole_mixture=settings.ratio == "mixture",
            centres=np.ascontiguousarray(mixture.centres, dtype=np.float64),
            spreads=spreads,
            log_heights=heights,
            cumulative=cumulative,
            prior_power=float(settings.prior_power),
            walk_share=float(settings.walk_share),
            walk_spreads=np.where(moving.any(axis=0), self.walk, 0.0),
            transfer_share=float(settings.transfer_share),
            transfer_spread=float(self.transfer),
        )

    def _tune(self, tally: NDArray[np.int64], *, gain: float) -> None:
        """Lengthen the moves that are accepted often, and shorten those that are not (Robbins and Monro 1951)."""
        rates = tally[1] / np.maximum(tally[0], 1)
        jump, walk, transfer = np.exp(gain * (rates - WANTED_ACCEPTANCE))
        asked = self.settings.delta
        if self.settings.prior_power == 0:
            self.delta = float(np.clip(self.delta * jump, asked / FARTHEST_TUNING, asked * FARTHEST_TUNING))
        self.walk = min(float(self.walk * walk), LARGEST_WALK)
        self.transfer = float(self.transfer * transfer)
        self._build_proposal()
        self.refresh()


# ----------------------------------------------------------------------------------------------------------------------
# How much a chain's draws are worth, and whether several chains tell the same story.
#
# Effective sample size: n draws whose autocorrelations are ρ_k tell as much about their mean as n/τ independent ones,
#
#     τ = −1 + 2 Σ_{j ≥ 0} Γ_j,      Γ_j = ρ_{2j} + ρ_{2j+1}.
#
# For a reversible chain Γ_j is positive, decreasing and convex in truth. The sum stops before the first estimate that
# is not positive, and each Γ_j is lowered to the least of those before it: the initial monotone sequence estimator
# (Geyer 1992, Stat. Sci. 7). Several chains share one variance, of all draws together, so that chains at different
# places are worth little (Gelman et al. 2013, Bayesian Data Analysis, §11.5).
#
# Split R̂: each chain is cut into halves, and R̂ = √((W (h − 1)/h + B/h) / W) with W the mean variance within the
# halves of length h, and B/h the variance of their means. Near 1 the halves agree; from about 1.1 up they do not.


def effective_sample_size(chains: ArrayLike) -> float:
    """The number of independent draws that the draws of these chains are worth; a row for each chain.

    Draws that are all equal tell nothing new: they are worth one.

    >>> bool(effective_sample_size([[1.0, -1.0] * 50]) > 100)  # each draw makes good for the one before it
    True
    """
    draws = np.atleast_2d(np.asarray(chains, dtype=np.float64))
    length = draws.shape[1]
    if length < 4:
        return float(draws.size)
    centred = draws - draws.mean(axis=1, keepdims=True)
    within = _autocovariances(centred).mean(axis=0)
    between = draws.mean(axis=1).var(ddof=1) if len(draws) > 1 else 0.0
    whole = within[0] + between
    if not whole > 1e-300:
        return 1.0
    correlations = 1.0 - (within[0] - within) / whole
    pairs = correlations[: length // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0)
    used = pairs[: negative[0]] if negative.size else pairs
    inefficiency = -1.0 + 2.0 * float(np.minimum.accumulate(used).sum()) if used.size else 1.0
    return draws.size / max(inefficiency, 1.0 / np.log10(max(draws.size, 10)))


def split_rhat(chains: ArrayLike) -> float:
    """R̂ of the halves of all chains; 1 where nothing moves, and NaN where a half has less than two draws.

    >>> round(split_rhat([[0.0, 1.0, 0.0, 1.0], [5.0, 6.0, 5.0, 6.0]]), 1)
    4.1
    """
    draws = np.atleast_2d(np.asarray(chains, dtype=np.float64))
    half = draws.shape[1] // 2
    if half < 2:
        return float("nan")
    halves = np.concatenate([draws[:, :half], draws[:, -half:]])
    within = float(halves.var(axis=1, ddof=1).mean())
    between = float(halves.mean(axis=1).var(ddof=1))
    if within <= 0:
        return 1.0 if between <= 0 else float("inf")
    return float(np.sqrt((within * (half - 1) / half + between) / within))


def _autocovariances(centred: Array) -> Array:
    """Σ_i x_i x_{i+k} / n of each row for k = 0 … n − 1, by the Fourier transform of the row padded with zeros."""
    length = centred.shape[1]
    padded = 1 << (2 * length - 1).bit_length()
    spectrum = np.fft.rfft(centred, padded, axis=1)
    return np.fft.irfft(spectrum * np.conj(spectrum), padded, axis=1)[:, :length] / length


# ----------------------------------------------------------------------------------------------------------------------
# Several chains at once, and what they say together.
#
# Chain i draws from its own stream of random numbers, split off the seed, and starts where the problem says chain i
# starts: what comes out does not depend on how many threads there are or which of them is fast.


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
