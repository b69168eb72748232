"""`Uniform`: the number of records, spread evenly over the cells that can occur; what any other method must beat.

Whatever was measured, only the total is taken from it: the public one, else the mean by inverse variance of the totals
that the measurements imply (McKenna et al. 2019, appendix E.1). A method that does no better says nothing about the
data (Qardaji, Yang, Li 2014, §5). It is never chosen by itself.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.factors import Identity, Total
from consilience.errors import readable_count
from consilience.estimators.base import Estimate, Progress, SavedModel, Suitability, independent_rows
from consilience.estimators.evidence import LARGEST_TABLE, Evidence, gather
from consilience.kernels.rng import Generator
from consilience.marginals.least_squares import TotalEstimate, combined_total, total_of_answers
from consilience.measurements import MeasurementSet
from consilience.solvers.fit import Status

Array = NDArray[np.float64]


BYTES_PER_ANSWER = 16
"""What each answer takes, and once more each of the largest query (`python -m benchmarks memory`)."""


@dataclass(frozen=True)
class Uniform:
    """The measured or public total, spread evenly."""

    name: ClassVar[str] = "uniform"

    def suitability(self, measured: MeasurementSet) -> Suitability:
        domain = measured.domain
        evidence = gather(measured)
        facts = [each.name for each in evidence if each.exact and each.query.factors]
        if facts:
            return Suitability(False, f"{facts[0]} is known exactly, and an even table keeps a total only; use Table")
        ruled = math.prod(domain.sizes(_ruled(domain)))
        if ruled > LARGEST_TABLE:
            return Suitability(
                False, f"impossible cells are declared among {readable_count(ruled)}, too many to go through"
            )
        if not any(_tells_the_total(each) for each in evidence):
            return Suitability(False, "no measurement tells the total; measure it, or a marginal, or declare it public")
        sizes = [each.values.size for each in evidence]
        need = 8 * ruled + BYTES_PER_ANSWER * (sum(sizes) + max(sizes))
        return Suitability(True, "the total is known, and nothing else is kept", need)

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> "UniformEstimate":
        self.suitability(measured).require(self.name)
        began = time.perf_counter()
        evidence = gather(measured)
        exact = [float(each.values[0]) for each in evidence if each.exact]
        if exact:
            found = TotalEstimate(exact[-1], 0.0)
        else:
            found = combined_total([_implied_total(each) for each in evidence], least=0.0)
        stats = {"objective": 0.0, "gap": 0.0, "total_variance": found.variance, "seconds": time.perf_counter() - began}
        return UniformEstimate(measured, {"method": self.name}, Status.CONVERGED, stats, found.total)


@dataclass(frozen=True, eq=False)
class UniformEstimate(Estimate):
    """The same count in every cell that can occur."""

    count: float
    """The estimated number of records."""

    @property
    def total(self) -> float:
        return self.count

    def marginal(self, *attributes: str) -> Array:
        self.check_names(attributes, LARGEST_TABLE)
        return self.count * _even_shares(self.domain, attributes)

    def draw(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        """Codes of synthetic records, one row each and a column for each counted attribute.

        Attributes are independent, and each value gets its share of rows rounded down or up; those that impossible
        cells are declared by are drawn together, and so are theirs.
        """
        together = _ruled(self.domain)
        groups = [*([together] if together else []), *((n,) for n in self.domain.counted_names if n not in together)]
        return independent_rows(self.domain, {group: _even_shares(self.domain, group) for group in groups}, rows, rng)

    def arrays(self) -> Mapping[str, Array]:
        return {"total": np.array([self.count])}

    @classmethod
    def restore(cls, saved: SavedModel, measured: MeasurementSet) -> "UniformEstimate":
        saved.check_arrays("an even model", ["total"])
        return cls(measured, saved.method, saved.status, saved.stats, saved.total)


def _tells_the_total(evidence: Evidence) -> bool:
    """Whether `_implied_total` finds one; of a marginal that needs no sum."""
    marginal = all(isinstance(factor, Identity | Total) for _, factor in evidence.query.factors)
    return evidence.whole if marginal and not evidence.exact else _implied_total(evidence) is not None


def _implied_total(evidence: Evidence) -> TotalEstimate | None:
    """The total that one measurement implies; None where it implies none, or was clipped or withheld in part."""
    if evidence.exact:
        return TotalEstimate(float(evidence.values[0]), 0.0) if not evidence.query.factors else None
    if not evidence.whole:
        return None
    return total_of_answers(evidence.bound.operator, evidence.values, 2.0 / evidence.weights**2)


def _ruled(domain: Domain) -> tuple[str, ...]:
    """The attributes that impossible cells are declared by, in the domain's order."""
    named = {name for rule in domain.impossible for name in rule.attributes}
    return tuple(name for name in domain.counted_names if name in named)


def _even_shares(domain: Domain, attributes: tuple[str, ...]) -> Array:
    """The share of all possible cells that lies in each cell of a marginal.

    Only the attributes that rules name make a difference: their possible cells are counted, the others' are all alike.
    """
    shape = domain.sizes(attributes)
    ruled = _ruled(domain)
    allowed = domain.project(ruled).allowed_cells() if ruled else None
    if allowed is None:
        return np.full(shape, 1.0 / max(math.prod(shape), 1))
    away = tuple(axis for axis, name in enumerate(ruled) if name not in attributes)
    possible = allowed.sum(axis=away, dtype=np.float64) / max(int(allowed.sum()), 1)
    kept = [name for name in ruled if name in attributes]
    named = [name for name in attributes if name in kept]
    turned = np.asarray(possible).transpose([kept.index(name) for name in named])
    spread = [size if name in kept else 1 for name, size in zip(attributes, shape, strict=True)]
    return np.array(np.broadcast_to(turned.reshape(spread) * (math.prod(spread) / max(math.prod(shape), 1)), shape))
