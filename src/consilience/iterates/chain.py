"""One chain over datasets: where it starts, how it is tuned, and what it leaves behind.

Beside the compiled steps (chain_kernels.py) a chain may change the total of all masses now and then, which all moves
leave alone: every mass is multiplied by e^u, u ~ N(0, τ²), accepted with probability min{1, e^u π(D')/π(D)}. The factor
e^u makes the prior of the total flat, and not that of its logarithm.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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
from consilience.kernels.compilation import announce
from consilience.kernels.rng import Generator

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
        announce(advance)
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
