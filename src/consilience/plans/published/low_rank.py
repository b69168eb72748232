"""LRM, the low-rank mechanism: measure few rows L from which the workload follows as W = B L (Yuan et al. 2012).

The factors depend on the workload and the attribute's declared size alone. They are found for Laplace noise, whose
sensitivity is the L1 norm; with other budgets the same rows are measured. Answering W by B times the noisy answers, B
= W L⁺, is W x̂ with x̂ the least-squares counts of least norm: `estimators.Matrix(loss="l2", nonnegative=False)`.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.plans.strategy_queries import AttributeWorkload, strategy_query
from consilience.privacy.gate import Gate
from consilience.strategies.low_rank import low_rank_factors


@dataclass(frozen=True)
class LowRank:
    """The rows L of a factorisation of a workload about one attribute.

    The workload is a `Workload`, or "identity", "prefix" or "ranges" with the `attribute`. `rank` is the number of
    rows; by default 1.2 times the workload's rank, as the authors have it, or the values themselves where those serve
    better.
    """

    workload: Workload | str
    attribute: str | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        self._target()
        if self.rank is not None and (not isinstance(self.rank, int) or self.rank < 1):
            raise DeclarationError(f"a rank of {self.rank!r} was asked for; ask for a whole number from 1 up")

    def matrix(self, domain: Domain) -> NDArray[np.float64]:
        """L for a domain, before it is rounded to the lattice."""
        return _rows(self._target().gram(domain).tobytes(), self.rank)

    def run(self, gate: Gate) -> None:
        gate.measure(strategy_query(self._target().attribute, self.matrix(gate.domain)), gate.budget)

    def to_json(self) -> dict[str, Any]:
        target = self._target()
        return {
            "plan": "low-rank",
            "attribute": target.attribute,
            "workload": target.workload.to_json(),
            "rank": self.rank,
        }

    def _target(self) -> AttributeWorkload:
        return AttributeWorkload.of(self.workload, self.attribute)


@lru_cache(maxsize=8)
def _rows(gram: bytes, rank: int | None) -> NDArray[np.float64]:
    """L for a Gram matrix, kept for the next run: a plan runs twice, once to tell its price."""
    flat = np.frombuffer(gram)
    size = round(len(flat) ** 0.5)
    found = low_rank_factors(flat.reshape(size, size), rank=rank).strategy
    found.setflags(write=False)
    return found
