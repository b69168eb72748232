"""PrivGene: clusters or a logistic regression by a genetic algorithm whose survivors are selected privately.

Zhang, Xiao, Yang, Zhang and Winslett (2013). In each generation some of the candidates are selected, one after the
other, by the exponential mechanism on minus their loss over all records; their children are the next candidates. The
last generation selects one. Candidates, children included, follow from a public seed and from earlier selections, so
that the records have a say in the selections alone.

*Generations* share the budget equally, and so do the selections of each. There are r = max(8, c·ε·N / m′) of them for
m′ survivors and N records, c = 0.00125, as in the paper, but no more than 500. N is public or measured with a share of
the budget. Under ρ, 2√ρ stands for ε.

*Selections* follow the idea of the paper's enhanced exponential mechanism: noise is scaled by Λ, how far one record can
move the difference of two candidates (privacy/model_statistics.py has the argument, whether records are added, removed
or replaced). Λ follows from the candidates alone and shrinks as they become alike. With ‖·‖* the largest a·x
over the region (the L1 norm for the box, the greatest coordinate for a ball), for any point x

    k-means               |ℓ(x; ω) − ℓ(x; ω′)| ≤ max_k |2x·(c′_k − c_k) + ‖c_k‖² − ‖c′_k‖²|
                                               ≤ max_k 2‖c′_k − c_k‖* + |‖c_k‖² − ‖c′_k‖²|
    logistic regression   |ℓ(x; ω) − ℓ(x; ω′)| ≤ |(ω − ω′)·(x, 1)| ≤ ‖slopes‖* + |intercepts|,

and never more than the largest loss there is. With the greatest of these over all pairs nothing is cut off.

*Children* take the first numbers of one survivor and the rest of another (crossover), and one of their numbers is moved
(mutation), less in later generations. The paper is not at hand; how far numbers are moved is set here.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.errors import DeclarationError
from consilience.estimators.base import check_choice, check_whole
from consilience.estimators.published.privgene import ChosenModel
from consilience.kernels.regions import LATTICE_BITS, REGION_KINDS, Region, RegionKind, in_original_units
from consilience.kernels.rng import Generator, generator
from consilience.measurements import MeasurementSet
from consilience.plans.base import PUBLISHED_TOTAL_SHARE, DescribedPlan, check_share
from consilience.plans.published.clusters import count_records, equivalent_epsilon
from consilience.plans.rounds import LOGISTIC_ROUNDS, LOGISTIC_STEP, KMeans, Logistic, asked_names
from consilience.privacy.budgets import Budget
from consilience.privacy.cluster_statistics import declared_bounds
from consilience.privacy.gate import Gate
from consilience.privacy.measure import Plan
from consilience.privacy.model_statistics import LOSS_BITS, RecordLosses
from consilience.privacy.scores import epsilon_for_rho, selection_scale

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GenerationSettings:
    """How many generations there are where the options leave it open: `per_record` is the paper's."""

    per_record: float = 1.25e-3
    """c, in generations times survivors for each record and ε."""
    fewest: int = 8
    most: int = 500
    """More take longer than they gain."""


GENERATIONS = GenerationSettings()


@dataclass(frozen=True)
class PrivGene(DescribedPlan):
    """A run of PrivGene: for so many `clusters`, or for a logistic regression of `label`; one of the two.

    `attributes` and `region` are those of `KMeans` and of `Logistic`. `candidates` and `survivors` are as in the paper.
    `step` is how far a mutation moves a number at most, in normalised coordinates, and `cooling` by how much it shrinks
    from one generation to the next. The number of records is public or measured with `total_share` of the budget; the
    number of `generations` follows from it by default.

    >>> PrivGene(clusters=3).to_json()["survivors"]
    10
    """

    name = "privgene"
    clusters: int | None = None
    label: str | None = None
    attributes: Sequence[str] | None = None
    _: KW_ONLY
    region: RegionKind = "box"
    candidates: int = 200
    survivors: int = 10
    generations: int | None = None
    step: float = 0.5
    cooling: float = 0.7
    total_share: float = PUBLISHED_TOTAL_SHARE
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.clusters is None) == (self.label is None):
            raise DeclarationError("PrivGene looks for clusters or for a regression: give clusters=, or else label=")
        check_choice(self.region, "the region", REGION_KINDS)
        object.__setattr__(self, "attributes", asked_names(self.attributes))
        self._points()
        check_whole(self.survivors, "the number of survivors", 2)
        check_whole(self.candidates, "the number of candidates", self.survivors + 1)
        check_whole(self.generations, "the number of generations", optional=True)
        check_whole(self.seed, "the seed", 0)
        check_share(self.total_share, "the number of records")
        for what, number, most in (("step", self.step, math.inf), ("cooling", self.cooling, 1.0)):
            if not (isinstance(number, int | float) and 0 < number <= most and math.isfinite(number)):
                raise DeclarationError(f"the {what} is {number!r}; give a number above 0, for the cooling at most 1")

    def run(self, gate: Gate) -> None:
        names = self._names(gate.domain)
        records, _, rest = count_records(gate, names, gate.budget, self.total_share)
        generations = self.generations or self._suggested(records / gate.rows_per_unit, rest)
        rng, part = generator(self.seed), rest.scaled(Fraction(1, generations))
        share = part.scaled(Fraction(1, self.survivors))
        population = self._first(len(names), rng)
        for number in range(1, generations):
            score, chosen = self._score(gate.domain, names, population), list[int]()
            for _ in range(self.survivors):
                chosen.append(gate.select(score, share, selector="exponential", besides=chosen))
            parents = population[chosen]
            children = self._children(parents, self.step * self.cooling ** (number - 1), rng)
            population = np.concatenate([parents, children])
        score = self._score(gate.domain, names, population)
        place = gate.select(score, part, selector="exponential")
        self._keep(gate, score, place, generations, part)

    def _suggested(self, records: float, budget: Budget) -> int:
        wanted = GENERATIONS.per_record * equivalent_epsilon(budget) * max(records, 0.0) / self.survivors
        return max(GENERATIONS.fewest, min(GENERATIONS.most, math.floor(wanted)))

    def _keep(self, gate: Gate, score: RecordLosses, place: int, generations: int, part: Budget) -> None:
        amount = float(part.amount)
        epsilon = amount if part.additive_unit == "epsilon" else epsilon_for_rho(amount, "exponential")
        moved = gate.rows_per_unit * score.sensitivity("add-remove")
        scale = math.ldexp(selection_scale(sensitivity=moved, epsilon=epsilon), -LOSS_BITS)
        model = "regression" if self.label is not None else "clusters"
        bounds, found = np.array(score.bounds), score.parameters[place]
        chosen = ChosenModel(model, score.attributes, bounds, self.region, found)
        gate.keep(chosen.measurement(place, generations, scale))

    def centroids(self, measured: MeasurementSet) -> Floats:
        """Centroids in original units, from what this plan measured."""
        found = ChosenModel.of(measured, "clusters")
        if found is None:
            raise DeclarationError("these measurements are of no run of PrivGene; give what this plan measured")
        return in_original_units(found.found, found.bounds)

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """How many generations there are, and what selections cost."""
        how = f"Each generation selects {self.survivors} of {self.candidates} candidates, the last one a single one."
        public = example.domain.public.total
        count = f"A share of {self.total_share:g} of the budget measures the number of records."
        counted = (count,) if public is None else ()
        if self.generations is not None or public is not None:
            generations = self.generations or self._suggested(float(public or 0), budget)
            return (*counted, f"{generations} generations share the rest of the budget. {how}")
        return (
            *counted,
            f"The number of generations follows from it: {GENERATIONS.fewest} to {GENERATIONS.most}; a preview shows "
            f"the fewest. {how}",
        )

    # What differs between clusters and a regression.

    def _points(self) -> KMeans | Logistic:
        """The plan whose attributes and region these are."""
        if self.label is not None:
            return Logistic(self.label, self.attributes, region=self.region)
        return KMeans(self.clusters or 0, self.attributes, region=self.region)

    def _names(self, domain: Domain) -> tuple[str, ...]:
        names = self._points().names(domain)
        return names if self.label is None else (*names, self.label)

    def _score(self, domain: Domain, names: tuple[str, ...], population: Floats) -> RecordLosses:
        cut = largest_difference(population, self.region)
        return RecordLosses(names, declared_bounds(domain, names), self.region, population, cut)

    def _first(self, dimensions: int, rng: Generator) -> Floats:
        """Centroids anywhere in the region, or coefficients up to a step from 0."""
        if self.clusters is None:
            return _on_lattice(rng.uniform(-self.step, self.step, (self.candidates, dimensions)))
        shape = (self.candidates, self.clusters, dimensions)
        return _on_lattice(rng.uniform(-1.0, 1.0, shape) if self.region == "box" else _uniform_in_ball(shape, rng))

    def _children(self, parents: Floats, step: float, rng: Generator) -> Floats:
        """Each with a head of one parent and a tail of another, and one number moved by up to a step."""
        count, flat = self.candidates - len(parents), parents.reshape(len(parents), -1)
        first, second = rng.integers(len(parents), size=(2, count))
        cut = rng.integers(1, flat.shape[1] + 1, size=count)
        children = np.where(np.arange(flat.shape[1]) < cut[:, None], flat[first], flat[second])
        children[np.arange(count), rng.integers(flat.shape[1], size=count)] += rng.uniform(-step, step, count)
        children = children.reshape(count, *parents.shape[1:])
        if self.clusters is not None:
            children = Region(self.region, parents.shape[2]).project(children)
        return _on_lattice(children)


def largest_difference(candidates: Floats, region: RegionKind) -> float:
    """No point of the region tells two of these candidates further apart, by the loss that it has under them.

    >>> largest_difference(np.array([[[0.5, 0.0]], [[-0.5, 0.0]]]), "box")
    2.0
    """
    if candidates.ndim == 2:
        slopes, intercepts = candidates[:, :-1], candidates[:, -1]
        most = np.logaddexp(0.0, (_dual_norm(slopes, region) + np.abs(intercepts)).max())
        apart = [
            _dual_norm(slopes - a, region) + np.abs(intercepts - b) for a, b in zip(slopes, intercepts, strict=True)
        ]
    else:
        most, squares = 4.0 * (candidates.shape[2] if region == "box" else 1.0), (candidates**2).sum(axis=2)
        apart = [
            2.0 * _dual_norm(candidates - one, region) + np.abs(squares - square)
            for one, square in zip(candidates, squares, strict=True)
        ]
    return min(float(most), max(float(each.max()) for each in apart))


def _dual_norm(vectors: Floats, region: RegionKind) -> Floats:
    """The largest product of each vector, along the last axis, with a point of the region."""
    return np.abs(vectors).sum(axis=-1) if region == "box" else np.abs(vectors).max(axis=-1)


def _on_lattice(numbers: Floats) -> Floats:
    """The numbers rounded toward zero to 2^−20, so that no last place of a processor is among what is recorded."""
    return np.ldexp(np.trunc(np.ldexp(numbers, LATTICE_BITS)), -LATTICE_BITS)


def _uniform_in_ball(shape: tuple[int, ...], rng: Generator) -> Floats:
    """Points uniform in the unit L1 ball: d of the d + 1 shares of a random partition of 1, with random signs."""
    parts = rng.exponential(size=(*shape[:-1], shape[-1] + 1))
    return parts[..., :-1] / parts.sum(axis=-1, keepdims=True) * rng.choice((-1.0, 1.0), size=shape)


def regression_plan(
    method: str,
    label: str,
    attributes: Sequence[str] | None = None,
    *,
    rounds: int = LOGISTIC_ROUNDS,
    step: float = LOGISTIC_STEP,
    region: RegionKind = "box",
    seed: int = 0,
) -> Plan:
    """The plan of a method of logistic regression; `rounds` and `step` are refused where there are none.

    >>> regression_plan("privgene", "income").name
    'privgene'
    """
    check_choice(method, "the method", ("rounds", "privgene"))
    if method == "rounds":
        return Logistic(label, attributes, rounds=rounds, step=step, region=region)
    if (rounds, step) != (LOGISTIC_ROUNDS, LOGISTIC_STEP):
        raise DeclarationError(f"the method {method!r} has neither rounds nor a step along a gradient; leave them out")
    return PrivGene(label=label, attributes=attributes, region=region, seed=seed)
