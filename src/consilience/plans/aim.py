"""AIM: rounds that measure the marginal from which a workload has most to gain (McKenna et al. 2022).

The candidates are the marginals of the workload and all their parts, with weights w_r (plans/aim.py).
First all one-way marginals are measured. Then every round selects a candidate privately, measures it, and fits a model
anew; plans/aim.py has the mathematics of the rounds.

*What is as published, and what is not.* Candidates, weights, scores, annealing and the growth of the model with the
budget spent are the paper's. The paper gives one-way marginals the noise of a round; here they get the share of the
budget that their noise asks for, because few records in many cells are known by little else. The paper considers all
candidates; here those are left out whose noise alone would move a large part of all records. The paper has ρ alone;
here pure ε works too.

*Sizes.* With "graphical" a candidate must keep the junction tree within `largest_model` cells times the share of the
budget spent by then. With "residual" there is no joint model and no such limit: `estimators.Residual` holds tables of
what was measured, for domains of any number of attributes. Nothing is allocated before its size is known. A model of
less than three million cells is fitted digit for digit the same whatever the number of cores, so that a run can be
taken up from its ledger when other cores are at hand.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

import numpy as np

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators.base import check_choice, check_whole
from consilience.estimators.graphical import Graphical
from consilience.estimators.residual import Residual
from consilience.measurements import Measurement, MeasurementSet
from consilience.plans.answering import AnswersWorkload, ModelSizes, RunningEstimate
from consilience.plans.base import best_selector, check_share
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate
from consilience.privacy.scores import MarginalError

# ----------------------------------------------------------------------------------------------------------------------
# The marginals that a plan may select from: those of a workload and all that are part of them, with weights.
#
# For a workload of queries over the sets of attributes s with weights w_s, a measured marginal r is worth
#
#     w_r = Σ_s w_s |r ∩ s| = Σ_{i ∈ r} v_i,      v_i = Σ_{s ∋ i} w_s        (McKenna, Mullins, Sheldon, Miklau 2022,
#       §3),
#
# so that a marginal counts for every query that it overlaps with. What there is to select from is decided by declared
# sizes alone: a marginal of more cells than `most_cells` is left out, and where there are more than `most_candidates`,
# those of fewer attributes come first, then those of fewer cells.


Names = tuple[str, ...]


@dataclass(frozen=True)
class AimSettings:
    """What the plan does where its options leave it open."""

    most_subsets: int = 2_000_000
    """The most sets of attributes that are gone through."""
    least_first_share: Fraction = Fraction(1, 20)
    """The least share of the budget for one-way marginals; with it they tell the number of records."""
    most_first_share: Fraction = Fraction(7, 10)
    """The largest share of the budget for them."""
    first_share_slope: float = 2.5
    """What the share is times √e between these, e being the error that their noise causes: fitted to few experiments,
    which stand below."""
    rounds_per_attribute: int = 16
    """Rounds for each attribute of the domain,"""
    most_rounds: int = 250
    """and in all."""
    selection_share_of_rho: float = 0.1
    """The share of a round for its selection, under ρ,"""
    selection_share_of_epsilon: float = 0.3
    """and under a pure ε: either way its noise is about three times that of a cell, per unit of score."""
    rough_tolerance: float = 0.05
    """The gap of fits between rounds, in parts of the expected noise: enough to tell candidates apart."""


AIM = AimSettings()


@dataclass(frozen=True)
class MarginalCandidate:
    """A set of attributes in the domain's order, the cells of its marginal, and how much it matters; at most 1."""

    names: Names
    cells: int
    weight: float


@dataclass(frozen=True, kw_only=True)
class CandidateLimits:
    """What is left out by declared sizes."""

    most_attributes: int
    most_cells: int
    most_candidates: int


def candidates_of_ways(domain: Domain, ways: int, limits: CandidateLimits) -> tuple[MarginalCandidate, ...]:
    """The candidates for all marginals over `ways` attributes, or over all attributes where there are fewer.

    Every attribute is in as many of them as any other, so that v_i is the same for all and need not be counted.
    """
    named = tuple(name for name in domain.counted_names if domain[name].size > 1)
    if not named:
        raise DeclarationError(f"no attribute of domain {domain.name!r} has two values; declare one that has")
    return _limited(domain, dict.fromkeys(named, 1.0), [named], min(ways, limits.most_attributes), limits)


def candidates_of_workload(
    workload: Workload, domain: Domain, limits: CandidateLimits
) -> tuple[MarginalCandidate, ...]:
    """The candidates for a workload: what its queries tell apart, and all parts of it.

    >>> domain = Domain.from_sizes({"a": 2, "b": 3, "c": 9})
    >>> limits = CandidateLimits(most_attributes=2, most_cells=20, most_candidates=100)
    >>> found = candidates_of_workload(Workload.marginals(domain, ways=3), domain, limits)
    >>> [(",".join(each.names), each.cells, each.weight) for each in found]
    [('a', 2, 0.5), ('b', 3, 0.5), ('c', 9, 0.5), ('a,b', 6, 1.0), ('a,c', 18, 1.0)]
    """
    places = {name: place for place, name in enumerate(domain.counted_names)}
    several = {name for name in places if domain[name].size > 1}
    found: dict[str, float] = {}
    sets: dict[Names, None] = {}
    for query, weight in workload:
        names = tuple(sorted(several.intersection(query.attributes), key=places.__getitem__))
        sets[names] = None
        for name in names:
            found[name] = found.get(name, 0.0) + weight
    if not found:
        raise DeclarationError("the workload asks for nothing but the total; name queries about attributes")
    weights = {name: found[name] for name in places if name in found}
    return _limited(domain, weights, list(sets), limits.most_attributes, limits)


def _limited(
    domain: Domain, weights: dict[str, float], sets: Sequence[Names], most_attributes: int, limits: CandidateLimits
) -> tuple[MarginalCandidate, ...]:
    """The parts of these sets within the limits, smaller ones first, in an order that declarations decide."""
    places = {name: place for place, name in enumerate(weights)}
    sizes = {name: domain[name].size for name in weights}
    parts = dict.fromkeys(_parts(sets, most_attributes))
    cells = {names: math.prod(sizes[name] for name in names) for names in parts}
    kept = [names for names in parts if cells[names] <= limits.most_cells]
    if not kept:
        raise DeclarationError(
            f"every marginal of the workload has more than {limits.most_cells:,} cells; raise that limit, or declare "
            "coarser attributes"
        )
    kept.sort(key=lambda names: (len(names), cells[names], [places[name] for name in names]))
    kept = kept[: limits.most_candidates]
    worth = {names: math.fsum(weights[name] for name in names) for names in kept}
    largest = max(worth.values())
    return tuple(MarginalCandidate(names, cells[names], worth[names] / largest) for names in kept)


def _parts(sets: Sequence[Names], most_attributes: int) -> Iterator[Names]:
    """All sets of 1 to `most_attributes` attributes that are part of one of these."""
    largest = min(most_attributes, max(len(names) for names in sets))
    work = sum(math.comb(len(names), size) for names in sets for size in range(1, min(largest, len(names)) + 1))
    if work > AIM.most_subsets:
        raise DeclarationError(
            f"the queries of the workload have {work:,} parts of up to {largest} attributes, and {AIM.most_subsets:,} "
            "are gone through; lower most_attributes, or name fewer or smaller queries"
        )
    for size in range(1, largest + 1):
        for names in sets:
            yield from itertools.combinations(names, size)


# ----------------------------------------------------------------------------------------------------------------------
# The rounds of AIM: what each of them costs, what it selects, and when the next ones get more.
#
# A round selects a candidate r by the score
#
#     w_r (‖M_r(D) − M_r(p̂)‖₁ − n_r E|noise|),      E|noise| = √(2/π) σ (Gaussian) or b (Laplace),
#
# what measuring r would take off the error less what its noise would add (McKenna et al. 2022, §3). One record changes
# the first term by at most w_r, twice that under replace-one; the second is public.
#
# *Annealing.* Where the estimate of the marginal just measured moved by no more than n_r E|noise|, there is little left
# to learn at that noise, and the rounds to come have half of it: four times the ρ, or twice the ε. A round that would
# leave less than another like it takes all that is left.
#
# *One-way marginals.* With n_i cells, the sum of n_i E|noise_i| is least when shares of ρ are in proportion to
# n_i^(2/3), and shares of a pure ε to n_i^(1/2). Let e be the mean total variation distance that their noise would
# cause if they got the whole budget. They get 2.5 √e of it, between 0.05 and 0.7. The rule is a fit to few experiments
# and no theorem: 0.14 for 48,842 records by 15 attributes at ε = 1, δ = 1e-9, and 0.7 for 1,304 by 9. The number of
# records in e comes from measuring them with 0.05 first.
#
# *No candidate.* Where noise alone would move too many records, or the model would become too large, a candidate is not
# considered. If none is left, a round is made larger; if none is left for all that remains, the one-way marginals are
# measured once more: then they are the better buy.


class AimRounds:
    """One run: what is left of the budget, what was measured, and the model so far."""

    def __init__(self, gate: Gate, plan: "Aim") -> None:
        self.gate, self.plan, self.candidates = gate, plan, plan.candidates(gate.domain)
        self.pure = gate.budget.additive_unit == "epsilon"
        usual_share = AIM.selection_share_of_epsilon if self.pure else AIM.selection_share_of_rho
        self.selection_share = Fraction(plan.selection_share or usual_share).limit_denominator(10**6)
        self.singles = [each for each in self.candidates if len(each.names) == 1]
        if not self.singles:
            raise DeclarationError("no attribute is small enough to be measured by itself; raise most_cells")
        residual = plan.model == "residual"
        between = Residual(tolerance=AIM.rough_tolerance) if residual else Graphical()
        self.running = RunningEstimate(gate.domain, between)
        asked = () if plan.workload is None else [query.attributes for query in plan.workload.queries]
        self.sizes = None if residual else ModelSizes(gate.domain, asked)
        self.left = Fraction(1)
        self.unit_noise = math.nan
        """E|noise| on each cell of a marginal that is measured with the whole budget."""

    def run(self) -> None:
        self._first()
        part = self.left / self.plan.most_rounds(self.gate.domain)
        while self.left > 0:
            part = self.left if self.left < 2 * part else part
            eligible = self._eligible(part)
            if eligible:
                learnt = self._round(eligible, part)
                part = part if learnt else part * self._growth
            elif part < self.left:
                part = min(self.left, part * self._growth)
            else:
                self._measure_singles(self.left)

    @property
    def _growth(self) -> int:
        """How many times the budget halves the noise."""
        return 2 if self.pure else 4

    def _noise(self, share: float) -> float:
        """E|noise| on each cell of a marginal that is measured with this share of the budget."""
        return self.unit_noise / (share if self.pure else math.sqrt(share))

    def _first(self) -> None:
        """Measure the one-way marginals with the share that is given, or that their noise asks for."""
        if self.plan.first_share is not None:
            self._measure_singles(Fraction(self.plan.first_share))
            return
        self._measure_singles(AIM.least_first_share)
        shares = self._single_shares()
        noise = math.fsum(each.cells * self._noise(s) for each, s in zip(self.singles, shares, strict=True))
        error = noise / (2.0 * max(self.running.estimate.total, 1.0) * len(self.singles))
        asked = Fraction(AIM.first_share_slope * math.sqrt(min(error, 1.0))).limit_denominator(1000)
        if asked > AIM.least_first_share:
            self._measure_singles(min(asked, AIM.most_first_share) - AIM.least_first_share)

    def _single_shares(self) -> list[float]:
        power = 1 / 2 if self.pure else 2 / 3
        wanted = [(each.weight * each.cells) ** power for each in self.singles]
        return [each / math.fsum(wanted) for each in wanted]

    def _measure_singles(self, share: Fraction) -> None:
        shares = self._single_shares()
        queries = [Query.marginal(*each.names) for each in self.singles]
        found = self.gate.measure(queries, self.gate.budget.scaled(share), shares=shares)
        # All marginals of several cells have one sensitivity, so that the noise of one tells that of any other.
        spent, scale = float(share) * shares[0], found[0].noise.scale_parameter
        self.unit_noise = scale * spent if self.pure else math.sqrt(2.0 / math.pi) * scale * math.sqrt(spent)
        self._take(share, found)

    def _take(self, share: Fraction, found: Sequence[Measurement]) -> None:
        self.left -= share
        self.running.add(found)
        if self.sizes is not None:
            self.sizes.add([each.query.attributes for each in found])

    def _eligible(self, part: Fraction) -> list[MarginalCandidate]:
        """The candidates of a round with this share: not too noisy, and small enough for the model."""
        noise = self._noise(float(part * (1 - self.selection_share)))
        # A total of exactly 0 is that of a dry run, where nothing is known of the records.
        most = self.plan.most_noise * (self.running.estimate.total or math.inf)
        found = [each for each in self.candidates if noise * each.cells <= most]
        if self.sizes is None:
            return found
        limit = self.plan.largest_model * float(1 - self.left + part)
        return [each for each in found if self.sizes.allows(each.names, limit)]

    def _round(self, eligible: Sequence[MarginalCandidate], part: Fraction) -> bool:
        """Select and measure one candidate; whether its estimate moved by more than noise explains."""
        selecting = part * self.selection_share
        noise = self._noise(float(part - selecting))
        before = self.running.marginals([each.names for each in eligible])
        score = MarginalError(
            before,
            weights={each.names: each.weight for each in eligible},
            penalties={each.names: each.weight * noise * each.cells for each in eligible},
        )
        selector = best_selector(self.gate.budget.additive_unit)
        chosen = self.gate.select(score, self.gate.budget.scaled(selecting), selector=selector)
        found = self.gate.measure(Query.marginal(*chosen), self.gate.budget.scaled(part - selecting))
        self._take(part, found)
        change = float(np.abs(self.running.marginal(*chosen) - before[chosen]).sum())
        return change > noise * before[chosen].size


# ----------------------------------------------------------------------------------------------------------------------
# AIM: rounds that measure the marginal from which a workload has most to gain (McKenna et al. 2022).


ModelName = Literal["graphical", "residual"]


@dataclass(frozen=True)
class Aim(AnswersWorkload):
    """Rounds of selecting and measuring one marginal each, of those that the workload overlaps with.

    Without a `workload` it is all marginals over `ways` attributes; queries that are no marginals count by their
    attributes. `rounds` is how many rounds there are if none is made larger; unless given, 16 for each attribute, at
    most 250.
    `model` fits what was measured, between rounds and in the end (`estimator`); `largest_model` bounds the cells of its
    junction tree. `first_share` of the budget goes to one-way marginals, by default what their noise asks for;
    `selection_share` of each round to its selection, by default 0.1 of ρ or 0.3 of a pure ε. `most_noise` is the most
    that a marginal's noise may add up to, in parts of all records. `most_attributes` (3, or 2 with "residual"),
    `most_cells` and `most_candidates` bound what there is to select from, by declared sizes: fewer attributes and fewer
    cells come first.

    >>> Aim(ways=2).to_json()["ways"]
    2
    """

    name = "aim"
    workload: Workload | None = None
    ways: int = 3
    rounds: int | None = None
    model: ModelName = "graphical"
    largest_model: int = 2_000_000
    first_share: float | None = None
    selection_share: float | None = None
    most_noise: float = 1.0
    most_attributes: int | None = None
    most_cells: int = 100_000
    most_candidates: int = 6_000

    def __post_init__(self) -> None:
        check_choice(self.model, "the model", get_args(ModelName))
        for option in ("ways", "largest_model", "most_cells", "most_candidates"):
            check_whole(getattr(self, option), option)
        for option in ("rounds", "most_attributes"):
            check_whole(getattr(self, option), option, optional=True)
        if self.first_share is not None:
            check_share(self.first_share, "one-way marginals")
        if self.selection_share is not None:
            check_share(self.selection_share, "selections")
        if not 0 < self.most_noise < float("inf"):
            raise DeclarationError(f"most_noise is {self.most_noise}; give a part of all records, such as 1")

    def estimator(self) -> Graphical | Residual:
        """The estimator for what was measured; between rounds the plan fits with it too, residuals more roughly."""
        return Residual() if self.model == "residual" else Graphical()

    def candidates(self, domain: Domain) -> tuple[MarginalCandidate, ...]:
        """The marginals that may be selected, by declarations alone."""
        limits = CandidateLimits(
            most_attributes=self.most_attributes or (2 if self.model == "residual" else 3),
            most_cells=self.most_cells,
            most_candidates=self.most_candidates,
        )
        if self.workload is None:
            return candidates_of_ways(domain, self.ways, limits)
        self.workload.check(domain)
        return candidates_of_workload(self.workload, domain, limits)

    def run(self, gate: Gate) -> None:
        AimRounds(gate, self).run()

    def most_rounds(self, domain: Domain) -> int:
        """How many rounds there are if none is made larger."""
        return self.rounds or min(AIM.most_rounds, AIM.rounds_per_attribute * len(domain.counted))

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What there is to select from, how the budget is used, and what the model may grow to."""
        domain = example.domain
        found = self.candidates(domain)
        most = max(found, key=lambda each: each.cells)
        lines = [
            f"{len(found):,} candidates of 1 to {max(len(each.names) for each in found)} attributes and up to "
            f"{most.cells:,} cells",
            f"at most {self.most_rounds(domain)} rounds after the one-way marginals, fewer and more precise ones where "
            "there is little to learn; the rounds above are an example, the whole budget is spent in any case",
        ]
        alone = {each.names for each in found if len(each.names) == 1}
        left = [name for name in domain.counted_names if domain[name].size > 1 and (name,) not in alone]
        if left:
            lines.append(f"never measured by themselves: {', '.join(left)}")
        if self.model == "graphical":
            lines.append(f"the junction tree may have {self.largest_model:,} cells when the whole budget is spent")
        return tuple(lines)
