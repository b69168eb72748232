"""The rounds of AIM: what each of them costs, what it selects, and when the next ones get more.

A round selects a candidate r by the score

    w_r (‖M_r(D) − M_r(p̂)‖₁ − n_r E|noise|),      E|noise| = √(2/π) σ (Gaussian) or b (Laplace),

what measuring r would take off the error less what its noise would add (McKenna et al. 2022, §3). One record changes
the first term by at most w_r, twice that under replace-one; the second is public.

*Annealing.* Where the estimate of the marginal just measured moved by no more than n_r E|noise|, there is little left
to learn at that noise, and the rounds to come have half of it: four times the ρ, or twice the ε. A round that would
leave less than another like it takes all that is left.

*One-way marginals.* With n_i cells, the sum of n_i E|noise_i| is least when shares of ρ are in proportion to n_i^(2/3),
and shares of a pure ε to n_i^(1/2). Let e be the mean total variation distance that their noise would cause if they got
the whole budget. They get 2.5 √e of it, between 0.05 and 0.7. The rule is a fit to few experiments and no theorem: 0.14
for 48,842 records by 15 attributes at ε = 1, δ = 1e-9, and 0.7 for 1,304 by 9. The number of records in e comes from
measuring them with 0.05 first.

*No candidate.* Where noise alone would move too many records, or the model would become too large, a candidate is not
considered. If none is left, a round is made larger; if none is left for all that remains, the one-way marginals are
measured once more: then they are the better buy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from consilience.domain.queries import Query
from consilience.errors import DeclarationError
from consilience.estimators.base import Estimator
from consilience.measurements import Measurement
from consilience.plans.marginal_candidates import MarginalCandidate
from consilience.plans.model_sizes import ModelSizes
from consilience.plans.running_estimates import RunningEstimate
from consilience.privacy.gate import Gate
from consilience.privacy.scores import MarginalError

LEAST_FIRST_SHARE, MOST_FIRST_SHARE = Fraction(1, 20), Fraction(7, 10)
FIRST_SHARE_SLOPE = 2.5


@dataclass(frozen=True, kw_only=True)
class RoundSettings:
    """How the budget is spread over rounds, and what a round may select."""

    rounds: int
    first_share: Fraction | None
    selection_share: Fraction
    most_noise: float
    largest_model: int | None
    asked: tuple[tuple[str, ...], ...] = ()
    """The attributes of each query that the model will be asked."""


class AimRounds:
    """One run: what is left of the budget, what was measured, and the model so far."""

    def __init__(
        self, gate: Gate, candidates: Sequence[MarginalCandidate], estimator: Estimator, settings: RoundSettings
    ) -> None:
        self.gate, self.candidates, self.settings = gate, candidates, settings
        self.pure = gate.budget.additive_unit == "epsilon"
        self.singles = [each for each in candidates if len(each.names) == 1]
        if not self.singles:
            raise DeclarationError("no attribute is small enough to be measured by itself; raise most_cells")
        self.running = RunningEstimate(gate.domain, estimator)
        self.sizes = None if settings.largest_model is None else ModelSizes(gate.domain, settings.asked)
        self.left = Fraction(1)
        self.unit_noise = math.nan
        """E|noise| on each cell of a marginal that is measured with the whole budget."""

    def run(self) -> None:
        self._first()
        part = self.left / self.settings.rounds
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
        if self.settings.first_share is not None:
            self._measure_singles(self.settings.first_share)
            return
        self._measure_singles(LEAST_FIRST_SHARE)
        shares = self._single_shares()
        noise = math.fsum(each.cells * self._noise(s) for each, s in zip(self.singles, shares, strict=True))
        error = noise / (2.0 * max(self.running.estimate.total, 1.0) * len(self.singles))
        asked = Fraction(FIRST_SHARE_SLOPE * math.sqrt(min(error, 1.0))).limit_denominator(1000)
        if asked > LEAST_FIRST_SHARE:
            self._measure_singles(min(asked, MOST_FIRST_SHARE) - LEAST_FIRST_SHARE)

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
        noise = self._noise(float(part * (1 - self.settings.selection_share)))
        # A total of exactly 0 is that of a dry run, where nothing is known of the records.
        most = self.settings.most_noise * (self.running.estimate.total or math.inf)
        found = [each for each in self.candidates if noise * each.cells <= most]
        if self.sizes is None or self.settings.largest_model is None:
            return found
        limit = self.settings.largest_model * float(1 - self.left + part)
        return [each for each in found if self.sizes.allows(each.names, limit)]

    def _round(self, eligible: Sequence[MarginalCandidate], part: Fraction) -> bool:
        """Select and measure one candidate; whether its estimate moved by more than noise explains."""
        selecting = part * self.settings.selection_share
        noise = self._noise(float(part - selecting))
        before = self.running.marginals([each.names for each in eligible])
        score = MarginalError(
            before,
            weights={each.names: each.weight for each in eligible},
            penalties={each.names: each.weight * noise * each.cells for each in eligible},
        )
        selector = "permute-and-flip" if self.pure else "exponential"
        chosen = self.gate.select(score, self.gate.budget.scaled(selecting), selector=selector)
        found = self.gate.measure(Query.marginal(*chosen), self.gate.budget.scaled(part - selecting))
        self._take(part, found)
        change = float(np.abs(self.running.marginal(*chosen) - before[chosen]).sum())
        return change > noise * before[chosen].size
