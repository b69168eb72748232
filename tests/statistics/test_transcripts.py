"""Whole runs of every mechanism, replayed on a neighbouring table: what one record can be betrayed by.

A run's only contact with exact numbers are the primitives of its noise source: noise added to whole numbers, and the
greatest of noisy scores. A run on table D is written down; the same plan then runs on a neighbour D′ and is given the
outcomes of the first run, so that it asks the same questions in the same order. For each primitive the probabilities of
its outcome under D and under D′ are known exactly. Under a pure ε the sum of their log-ratios, the privacy loss of the
whole transcript, may never exceed ε, and neither may the sum of what the worst outcome of each would have had. Under ρ
the Rényi divergences of the primitives, given the transcript so far, may not sum to more than α·ρ, for any α, and the
exponential moment of the loss keeps its bound.

Halving the noise on purpose must break the bounds: the test can fail.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Domain, Workload
from consilience.domain.domains import PublicFacts
from consilience.plans import (
    Aim,
    DualQuery,
    Forest,
    Hdmm,
    Independent,
    Mst,
    Mwem,
    MwemModels,
    PrivBayes,
    ResidualPlanner,
)
from consilience.privacy.budgets import budget
from consilience.privacy.gate import DataGate
from consilience.privacy.noise import SimulatedNoise
from consilience.privacy.selection import selection_probabilities
from consilience.source import open_table

SIZES = {"a": 2, "b": 3, "c": 2}
ORDERS = (1.5, 2.0, 4.0, 16.0)
PAIRS = 20
EPSILON, RHO = 1.0, 0.5
SELECTOR_OF_LAW: dict[str, Any] = {
    "gumbel": "exponential",
    "exponential": "permute-and-flip",
    "laplace": "report-noisy-max",
}


@dataclass(frozen=True, eq=False)
class Primitive:
    """One use of noise: its law, what it was applied to, its scale, and what came out."""

    law: str
    exact: np.ndarray
    scale: float
    outcome: Any

    def log_ratio(self, other: "Primitive") -> float:
        """ln of how much likelier this outcome is here than there."""
        here, there = self.exact, other.exact
        if self.law == "laplace":
            return float((np.abs(self.outcome - there) - np.abs(self.outcome - here)).sum()) / self.scale
        if self.law == "gaussian":
            return float(((self.outcome - there) ** 2 - (self.outcome - here) ** 2).sum()) / (2 * self.scale**2)
        return float(np.log(self.chances()[self.outcome] / other.chances()[self.outcome]))

    def worst_log_ratio(self, other: "Primitive") -> float:
        """The greatest log-ratio of any outcome, here over there."""
        if self.law == "laplace":
            return float(np.abs(self.exact - other.exact).sum()) / self.scale
        if self.law == "gaussian":
            return math.inf
        return float(np.log(self.chances() / other.chances()).max())

    def chances(self) -> np.ndarray:
        """The probability of each candidate of a selection, whose scale is 1/ε for a sensitivity of 1/2."""
        return selection_probabilities(
            self.exact,
            sensitivity=0.5,
            epsilon=1 / self.scale,
            selector=SELECTOR_OF_LAW[self.law.removeprefix("select-")],
        )

    def divergence(self, other: "Primitive", order: float) -> float:
        """The Rényi divergence of this order, from the law here to the law there; noise counts as continuous."""
        if self.law == "gaussian":
            return order * float(((self.exact - other.exact) ** 2).sum()) / (2 * self.scale**2)
        if self.law == "laplace":
            shifts = np.abs(self.exact - other.exact) / self.scale
            parts = order / (2 * order - 1) * np.exp((order - 1) * shifts)
            parts += (order - 1) / (2 * order - 1) * np.exp(-order * shifts)
            return float(np.log(parts).sum()) / (order - 1)
        here, there = self.chances(), other.chances()
        return float(np.log(np.sum(there * (here / there) ** order))) / (order - 1)


@dataclass
class Writing:
    """A noise source that writes down every use; `factor` scales its noise, for noise that is wrong on purpose."""

    noise: SimulatedNoise
    factor: float = 1.0
    written: list[Primitive] = field(default_factory=list)
    private: bool = False

    def laplace(self, exact: np.ndarray, scale: float, *, progress: Any = None) -> np.ndarray:
        return self._write("laplace", exact, scale, self.noise.laplace(exact, scale * self.factor))

    def gaussian(self, exact: np.ndarray, stddev: float, *, progress: Any = None) -> np.ndarray:
        return self._write("gaussian", exact, stddev, self.noise.gaussian(exact, stddev * self.factor))

    def noisy_argmax(self, scores: np.ndarray, scale: float, *, law: Any) -> int:
        chosen = self.noise.noisy_argmax(scores, scale * self.factor, law=law)
        return self._write(f"select-{law}", scores, scale, chosen)

    def _write(self, law: str, exact: np.ndarray, scale: float, outcome: Any) -> Any:
        self.written.append(Primitive(law, exact.copy(), scale * self.factor, outcome))
        return outcome


@dataclass
class Replaying:
    """A noise source that gives the outcomes of an earlier run, and notes what they would have been made of."""

    earlier: list[Primitive]
    written: list[Primitive] = field(default_factory=list)
    private: bool = False

    def laplace(self, exact: np.ndarray, scale: float, *, progress: Any = None) -> np.ndarray:
        return self._next("laplace", exact)

    def gaussian(self, exact: np.ndarray, stddev: float, *, progress: Any = None) -> np.ndarray:
        return self._next("gaussian", exact)

    def noisy_argmax(self, scores: np.ndarray, scale: float, *, law: Any) -> int:
        return self._next(f"select-{law}", scores)

    def _next(self, law: str, exact: np.ndarray) -> Any:
        first = self.earlier[len(self.written)]
        assert (first.law, first.exact.shape) == (law, exact.shape), "the plan saw more than the outcomes"
        self.written.append(Primitive(law, exact.copy(), first.scale, first.outcome))
        return first.outcome


def domain_of(total: int | None) -> Domain:
    found = Domain.from_sizes(SIZES)
    return Domain(found.name, found.attributes, (), PublicFacts(total=total))


def tables(seed: int, relation: str) -> tuple[np.ndarray, np.ndarray]:
    """A tiny table and a neighbour of it."""
    rng = np.random.default_rng(seed)
    records = rng.integers(0, list(SIZES.values()), (int(rng.integers(1, 9)), 3))
    other = rng.integers(0, list(SIZES.values()), 3)
    if relation == "replace-one":
        return records, np.vstack([records[1:], other])
    return (records, np.vstack([records, other])) if seed % 2 else (np.vstack([records, other]), records)


def run(plan: Any, records: np.ndarray, noise: Any, amounts: Any, relation: Any, total: int | None) -> None:
    columns = {name: pa.array([str(code) for code in records[:, place]]) for place, name in enumerate(SIZES)}
    source = open_table(pa.table(columns), domain_of(total))
    gate = DataGate(source, budget(**amounts), neighbours=relation, noise=noise, release_id="transcript")
    plan.run(gate)


def transcripts(
    plan: Any, pair: int, seed: int, amounts: dict[str, float], relation: str, *, factor: float = 1.0
) -> list[tuple[Primitive, Primitive]]:
    """The primitives of a run, each beside what it would have been made of on a neighbouring table."""
    first, second = tables(pair, relation)
    total = len(first) if relation == "replace-one" else None
    writing = Writing(SimulatedNoise(seed), factor)
    run(plan, first, writing, amounts, relation, total)
    replaying = Replaying(writing.written)
    run(plan, second, replaying, amounts, relation, total)
    assert len(replaying.written) == len(writing.written)
    return list(zip(writing.written, replaying.written, strict=True))


def triples() -> Workload:
    return Workload.marginals(Domain.from_sizes(SIZES), ways=2)


PLANS: dict[str, Callable[[], Any]] = {
    "independent": Independent,
    "mst": Mst,
    "forest": Forest,
    "aim": lambda: Aim(ways=2, rounds=4),
    "aim on residual": lambda: Aim(ways=2, rounds=4, model="residual"),
    "mwem": lambda: Mwem(triples(), rounds=3, sweeps=3),
    "mwem with graphical estimation": lambda: MwemModels(triples(), rounds=3),
    "mwem with factored weights": lambda: MwemModels(triples(), rounds=3, estimation="factored"),
    "privbayes": lambda: PrivBayes(usefulness=0.05),
    "privbayes by mutual information": lambda: PrivBayes(usefulness=0.05, score="I"),
    "hdmm": lambda: Hdmm(triples()),
    "residual planner": lambda: ResidualPlanner(triples()),
    "dual query": lambda: DualQuery(triples(), rounds=4, draws=3),
}
CASES = [
    (name, unit, relation)
    for name, unit, relation in itertools.product(PLANS, ("epsilon", "rho"), ("add-remove", "replace-one"))
    if not (name == "residual planner" and unit == "epsilon")
]


QUICK_CASES = [each for each in CASES if each[1:] in (("epsilon", "add-remove"), ("rho", "replace-one"))]


def losses(name: str, unit: str, relation: str, *, runs: int, factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """The loss of every transcript; and what the worst outcomes had, or the divergences of each order in ORDERS."""
    amounts = {unit: EPSILON if unit == "epsilon" else RHO}
    plan = PLANS[name]()
    found, bounds = [], []
    for pair in range(PAIRS):
        for seed in range(runs):
            both = transcripts(plan, pair, 1000 * pair + seed, amounts, relation, factor=factor)
            found.append(sum(here.log_ratio(there) for here, there in both))
            if unit == "epsilon":
                bounds.append([sum(here.worst_log_ratio(there) for here, there in both)])
            else:
                bounds.append([sum(here.divergence(there, order) for here, there in both) for order in ORDERS])
    return np.array(found), np.array(bounds)


def within_bounds(name: str, unit: str, relation: str, *, runs: int, factor: float = 1.0) -> bool:
    loss, bounds = losses(name, unit, relation, runs=runs, factor=factor)
    if unit == "epsilon":
        return bool(loss.max() <= bounds.max() * (1 + 1e-9) and bounds.max() <= EPSILON * (1 + 1e-9))
    if not (bounds <= np.array(ORDERS) * RHO * (1 + 1e-9)).all():
        return False
    # ln E exp((α − 1) L) ≤ (α − 1) α ρ, at α = 2, with three standard errors for the mean of finitely many runs.
    weights = np.exp(loss)
    slack = 3 * weights.std() / math.sqrt(len(weights))
    return bool(weights.mean() - slack <= math.exp(2 * RHO))


@pytest.mark.parametrize(("name", "unit", "relation"), QUICK_CASES)
def test_no_transcript_tells_more_than_the_budget(name: str, unit: str, relation: str) -> None:
    assert within_bounds(name, unit, relation, runs=1)


@pytest.mark.parametrize(("name", "unit"), sorted({(name, unit) for name, unit, _ in CASES}))
def test_half_the_noise_breaks_the_bound(name: str, unit: str) -> None:
    assert not all(
        within_bounds(name, unit, relation, runs=1, factor=0.5) for relation in ("add-remove", "replace-one")
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "unit", "relation"), CASES)
def test_no_transcript_of_a_thousand_runs_tells_more_than_the_budget(name: str, unit: str, relation: str) -> None:
    assert within_bounds(name, unit, relation, runs=1000 // PAIRS)
