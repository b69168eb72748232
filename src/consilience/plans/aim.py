"""AIM: rounds that measure the marginal from which a workload has most to gain (McKenna et al. 2022).

The candidates are the marginals of the workload and all their parts, with weights w_r (plans/marginal_candidates.py).
First all one-way marginals are measured. Then every round selects a candidate privately, measures it, and fits a model
anew; plans/aim_rounds.py has the mathematics of the rounds.

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

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

from consilience.domain.domains import Domain
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators.graphical import Graphical
from consilience.estimators.residual import Residual
from consilience.measurements import MeasurementSet
from consilience.plans.aim_rounds import AimRounds, RoundSettings
from consilience.plans.answering import AnswersWorkload
from consilience.plans.budget_parts import check_share
from consilience.plans.marginal_candidates import (
    CandidateLimits,
    MarginalCandidate,
    candidates_of_ways,
    candidates_of_workload,
)
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate

ModelName = Literal["graphical", "residual"]

ROUNDS_PER_ATTRIBUTE, MOST_ROUNDS = 16, 250
SELECTION_SHARE_OF_RHO, SELECTION_SHARE_OF_EPSILON = 0.1, 0.3
"""Either way the noise of a selection is about three times that of a cell, per unit of score."""

ROUGHLY = 0.05
"""The gap of fits between rounds, in parts of the expected noise: enough to tell candidates apart."""


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
        if self.model not in get_args(ModelName):
            raise DeclarationError(f"the model is {self.model!r}; choose one of {', '.join(get_args(ModelName))}")
        for option in ("ways", "rounds", "largest_model", "most_attributes", "most_cells", "most_candidates"):
            value = getattr(self, option)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise DeclarationError(f"{option} is {value!r}; give a whole number from 1 up")
        if self.first_share is not None:
            check_share(self.first_share, "one-way marginals")
        if self.selection_share is not None:
            check_share(self.selection_share, "selections")
        if not 0 < self.most_noise < float("inf"):
            raise DeclarationError(f"most_noise is {self.most_noise}; give a part of all records, such as 1")

    def estimator(self) -> Graphical | Residual:
        """The estimator for what was measured; between rounds the plan fits with it too, residuals more roughly."""
        return Residual() if self.model == "residual" else Graphical()

    def _between_rounds(self) -> Graphical | Residual:
        return Residual(tolerance=ROUGHLY) if self.model == "residual" else Graphical()

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
        settings = self._settings(gate.domain, gate.budget)
        AimRounds(gate, self.candidates(gate.domain), self._between_rounds(), settings).run()

    def _settings(self, domain: Domain, budget: Budget) -> RoundSettings:
        share = self.selection_share
        if share is None:
            pure = budget.additive_unit == "epsilon"
            share = SELECTION_SHARE_OF_EPSILON if pure else SELECTION_SHARE_OF_RHO
        return RoundSettings(
            rounds=self.rounds or min(MOST_ROUNDS, ROUNDS_PER_ATTRIBUTE * len(domain.counted)),
            first_share=None if self.first_share is None else Fraction(self.first_share),
            selection_share=Fraction(share).limit_denominator(10**6),
            most_noise=self.most_noise,
            largest_model=None if self.model == "residual" else self.largest_model,
            asked=() if self.workload is None else tuple(query.attributes for query in self.workload.queries),
        )

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What there is to select from, how the budget is used, and what the model may grow to."""
        domain = example.domain
        found, settings = self.candidates(domain), self._settings(domain, budget)
        most = max(found, key=lambda each: each.cells)
        lines = [
            f"{len(found):,} candidates of 1 to {max(len(each.names) for each in found)} attributes and up to "
            f"{most.cells:,} cells",
            f"at most {settings.rounds} rounds after the one-way marginals, fewer and more precise ones where there is "
            "little to learn; the rounds above are an example, the whole budget is spent in any case",
        ]
        alone = {each.names for each in found if len(each.names) == 1}
        left = [name for name in domain.counted_names if domain[name].size > 1 and (name,) not in alone]
        if left:
            lines.append(f"never measured by themselves: {', '.join(left)}")
        if settings.largest_model is not None:
            lines.append(f"the junction tree may have {settings.largest_model:,} cells when the whole budget is spent")
        return tuple(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "plan": "aim",
            "workload": None if self.workload is None else self.workload.to_json(),
            "ways": self.ways,
            "rounds": self.rounds,
            "model": self.model,
            "largest_model": self.largest_model,
            "first_share": self.first_share,
            "selection_share": self.selection_share,
            "most_noise": self.most_noise,
            "most_attributes": self.most_attributes,
            "most_cells": self.most_cells,
            "most_candidates": self.most_candidates,
        }
