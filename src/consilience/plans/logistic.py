"""Logistic regression in rounds of noisy gradients, each record's clipped (Song et al. 2013; Abadi et al. 2016).

Round t = 1 … T measures, with the coefficients θ_{t−1} of the round before, how many records there are and the sum of
the gradients of their losses, each clipped (privacy/model_statistics.py proves the sensitivities), and takes the step

    θ_t = θ_{t−1} − step · gradient / n̂,      n̂ = the mean of the noisy counts so far,

then moves θ_t to the nearest point with ‖θ‖₂ ≤ radius. Where n̂ is below 1 the coefficients stay where they were. The
rounds share the budget equally; within a round the count gets `count_share` of it.

θ₀ = 0. Measurements keep θ_{t−1} with every answer, so that all rounds can be used afterwards, not only the last.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction

import numpy as np

from consilience.domain.attributes import Continuous
from consilience.domain.domains import Domain
from consilience.errors import DeclarationError
from consilience.estimators.base import check_choice, check_whole
from consilience.iterates.problems import next_coefficients
from consilience.kernels.regions import REGION_KINDS, RegionKind
from consilience.measurements import MeasurementSet
from consilience.plans.base import DescribedPlan, check_share
from consilience.plans.kmeans import asked_names
from consilience.privacy.budgets import Budget
from consilience.privacy.cluster_statistics import declared_bounds
from consilience.privacy.gate import Gate
from consilience.privacy.model_statistics import gradient_statistics, largest_gradient

LOGISTIC_ROUNDS = 20
LOGISTIC_STEP = 4.0
"""Rounds and the step along a gradient, unless asked otherwise."""

EXAMPLE_RECORDS = 10_000
"""The records by which noise is described."""


@dataclass(frozen=True)
class Logistic(DescribedPlan):
    """Rounds of noisy gradient sums of a logistic regression of `label` on `attributes`.

    The label is a continuous attribute: the upper half of its bounds is one class, the lower half the other.
    `attributes` are continuous ones, by default all the others that the domain declares. `region` is where points live
    after their bounds were mapped to −1 and 1: "box" leaves them there, "ball" moves them to the nearest point of the
    L1 ball, and "radial-ball" to the one on the line to the origin. `clip` bounds the gradient of one record, as a part
    of the largest that the region allows, in the L1 norm for pure ε and in the L2 norm for ρ. At θ = 0 half of the
    largest clips nothing. A `step` of 4 suits attributes of which few lie at the same end of their bounds; where rounds
    swing to and fro, which θ_{t−1} in the measurements show, take a smaller one.

    Records with a missing value are dropped, and those out of bounds follow the attribute's `unlisted`.

    >>> Logistic("income", rounds=5).to_json()["rounds"]
    5
    """

    name = "logistic"
    label: str
    attributes: Sequence[str] | None = None
    _: KW_ONLY
    rounds: int = LOGISTIC_ROUNDS
    step: float = LOGISTIC_STEP
    region: RegionKind = "box"
    clip: float = 0.5
    count_share: float = 0.1
    radius: float = 10.0

    def __post_init__(self) -> None:
        if not isinstance(self.label, str):
            raise DeclarationError(f"the label is {self.label!r}; name one attribute")
        check_choice(self.region, "the region", REGION_KINDS)
        check_whole(self.rounds, "the number of rounds")
        check_share(self.count_share, "the count")
        names = asked_names(self.attributes)
        if names is not None and self.label in names:
            raise DeclarationError(f"the label {self.label!r} is also among the attributes; leave it out of them")
        object.__setattr__(self, "attributes", names)
        for option, what, most in (
            ("step", "the step", math.inf),
            ("clip", "the part of the largest gradient that is kept", 1.0),
            ("radius", "the radius", math.inf),
        ):
            object.__setattr__(self, option, _number(getattr(self, option), what, most=most))

    def run(self, gate: Gate) -> None:
        names = self.names(gate.domain)
        coefficients = np.zeros(len(names) + 1)
        part = gate.budget.scaled(Fraction(1, self.rounds))
        shares = (self.count_share, 1 - self.count_share)
        norm = 1 if gate.budget.additive_unit == "epsilon" else 2
        clip = self.clip * largest_gradient(self.region, len(names), norm)
        counts: list[float] = []
        for round_number in range(1, self.rounds + 1):
            asked = gradient_statistics(
                gate.domain,
                names,
                self.label,
                self.region,
                coefficients,
                clip=clip,
                clip_norm=norm,
                step=self.step,
                radius=self.radius,
            )
            count, gradient = gate.sum_records(asked, part, shares=shares, round=round_number)
            counts.append(float(count.values[0]))
            records = float(np.mean(counts))
            coefficients = next_coefficients(coefficients, gradient.values, records, step=self.step, radius=self.radius)

    def names(self, domain: Domain) -> tuple[str, ...]:
        """The attributes that the label is explained by: those asked for, or all continuous ones but the label."""
        continuous = [each.name for each in domain.attributes if isinstance(each, Continuous)]
        others = [name for name in continuous if name != self.label]
        names = tuple(others if self.attributes is None else self.attributes)
        if not names:
            raise DeclarationError(
                f"the domain {domain.name!r} declares no continuous attribute besides the label {self.label!r}; "
                'declare kind = "continuous" and bounds = [low, high]'
            )
        declared_bounds(domain, (*names, self.label))
        return names

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What each round costs, and how far its noise moves a coefficient."""
        count, gradient = example.measurements[:2]
        part = budget.scaled(Fraction(1, self.rounds))
        spread = [math.sqrt(each.noise.variance) for each in (count, gradient)]
        return (
            f"{self.rounds} rounds spend {part.describe()} each, a share of {self.count_share:g} of it on the number "
            "of records and the rest on the sum of their gradients.",
            f"In each round the noise on the count has the standard deviation {spread[0]:.3g}, and that on the sum "
            f"moves each coefficient by about {self.step * spread[1] / EXAMPLE_RECORDS:.2g} where there are "
            f"{EXAMPLE_RECORDS:,} records, and by less in proportion where there are more.",
        )


def _number(value: object, what: str, *, most: float) -> float:
    """A finite number above 0 and up to `most`."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (0 < value <= most and math.isfinite(value))
    ):
        upper = "" if math.isinf(most) else f" and up to {most:.3g}"
        raise DeclarationError(f"{what} is {value!r}; give a finite number above 0{upper}")
    return float(value)
