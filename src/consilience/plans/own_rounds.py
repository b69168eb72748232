"""Rounds of a private algorithm of one's own: noisy sums of a user's statistic, and a rule that says where they lead.

Round t = 1 … T measures, with the θ_{t−1} of the round before, how many records there are and the sum over them of
φ(x, θ_{t−1}), clipped (privacy/model_statistics.py), and takes θ_t = step(θ_{t−1}, number of records, sums). The rounds
share the budget equally; within a round the count gets `count_share` of it. Measurements keep θ_{t−1} with every
answer, so that all rounds can be used afterwards (estimators/own_records.py), not only the last.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError
from consilience.estimators.base import check_choice, check_whole
from consilience.kernels.record_functions import RecordFunction, code_digest
from consilience.kernels.regions import REGION_KINDS, RegionKind
from consilience.plans.base import DescribedPlan, check_share
from consilience.plans.kmeans import KMeans, asked_names
from consilience.privacy.gate import Gate
from consilience.privacy.model_statistics import own_statistics

Step = Callable[[NDArray[np.float64], float, NDArray[np.float64]], ArrayLike]
"""The next θ, from this one, the noisy number of records (at least 1) and the noisy sums."""


@dataclass(frozen=True, eq=False)
class OwnRounds(DescribedPlan):
    """Rounds of noisy sums of `statistic` over records, of which each leads to the next θ by `step`.

    `start` is the first θ, a matrix. `attributes` are continuous ones, all that the domain declares by default, and
    `region` is as for `KMeans`. Both functions are part of the plan: with other ones it is another request, and so it
    is in another version of Python, which compiles them otherwise.

    >>> def squares(theta, record, found):
    ...     found[0] = (record[0] - theta[0, 0]) ** 2
    >>> plan = OwnRounds(RecordFunction("squares", squares, 1, 4.0), [[0.0]], lambda theta, records, sums: theta)
    >>> plan.to_json()["name"], plan.to_json()["rounds"]
    ('squares', 10)
    """

    name = "own-rounds"
    statistic: RecordFunction
    start: ArrayLike
    step: Step
    attributes: Sequence[str] | None = None
    _: KW_ONLY
    rounds: int = 10
    region: RegionKind = "box"
    count_share: float = 0.1

    def __post_init__(self) -> None:
        check_choice(self.region, "the region", REGION_KINDS)
        check_whole(self.rounds, "the number of rounds")
        check_share(self.count_share, "the count")
        object.__setattr__(self, "attributes", asked_names(self.attributes))
        object.__setattr__(self, "start", _matrix(self.start))

    def to_json(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ("rounds", "region", "count_share")}
        names = None if self.attributes is None else list(self.attributes)
        asked = {"plan": "own-rounds", "attributes": names, "start": np.asarray(self.start).tolist()}
        rule = {"step": code_digest(self.step), "size": self.statistic.size}
        return asked | options | self.statistic.describe() | rule

    def run(self, gate: Gate) -> None:
        names = KMeans(1, self.attributes, region=self.region).names(gate.domain)
        theta = _matrix(self.start)
        part = gate.budget.scaled(Fraction(1, self.rounds))
        shares = (self.count_share, 1 - self.count_share)
        counts: list[float] = []
        for number in range(1, self.rounds + 1):
            asked = own_statistics(gate.domain, names, self.region, self.statistic, theta)
            count, values = gate.sum_records(asked, part, shares=shares, round=number)
            counts.append(float(count.values[0]))
            theta = _matrix(self.step(theta.copy(), max(1.0, float(np.mean(counts))), values.values.copy()))


def _matrix(theta: ArrayLike) -> NDArray[np.float64]:
    found = np.array(theta, dtype=np.float64)
    if found.ndim != 2 or not found.size or not np.isfinite(found).all():
        raise DeclarationError(
            f"theta of the shape {found.shape} is no matrix of finite numbers; give one to start from, and by each step"
        )
    return found
