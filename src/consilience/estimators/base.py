"""What every estimator is and what every estimate offers.

An estimator is a small frozen configuration with a `fit`. An estimate answers any linear query about its domain and
says how it came about: the method, a status that gives the reason when it is not "converged", and the optimality gap.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.errors import DeclarationError, all_or_unanswered, refused
from consilience.kernels.rng import Generator
from consilience.measurements import MeasurementSet
from consilience.measurements.basis import Basis, basis
from consilience.solvers.fit import Status

Progress = Callable[[str, int, int], None]
"""Told (what is going on, how much of it is done, out of how much)."""


@dataclass(frozen=True)
class Suitability:
    """Whether an estimator can fit some measurements, what that would take, and why."""

    possible: bool
    reason: str
    predicted_bytes: int = 0
    predicted_seconds: float = 0.0
    """Roughly, on one core of today; 0 where nobody has to wait."""


class Estimator(Protocol):
    """A way to turn measurements into one account of the data."""

    name: ClassVar[str]

    def suitability(self, measured: MeasurementSet) -> Suitability:
        """Whether this estimator can fit these measurements, found without allocating anything large."""
        ...

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> "Estimate":
        """One consistent account of the data.

        Its status says how the search ended, and nothing of the noise: plans and intervals fit hundreds of times and
        need no verdict. `estimate` gives one, and so does `judged` of what was fitted here.
        """
        ...


@dataclass(frozen=True, eq=False)
class SavedModel:
    """What a model file holds of an estimate."""

    method: Mapping[str, Any]
    status: Status
    stats: Mapping[str, float | int | str]
    arrays: Mapping[str, NDArray[np.float64]]
    origin: Mapping[str, Any] | None = None
    """What the file says of the measurements that the estimate was fitted to; None where it says nothing."""


@dataclass(frozen=True, eq=False)
class Estimate(ABC):
    """One account of the data: consistent, and non-negative unless its method says otherwise."""

    measurements: MeasurementSet
    method: Mapping[str, Any]
    """The estimator's name and settings, as plain data."""
    status: Status
    stats: Mapping[str, float | int | str]
    """How the fit went: steps, seconds, objective, gap."""

    @property
    def domain(self) -> Domain:
        return self.measurements.domain

    @property
    def private(self) -> bool:
        """False when any of the noise was simulated, and protects nothing."""
        return self.measurements.private

    @property
    def total(self) -> float:
        """The estimated number of records."""
        return float(self.marginal())

    def check_names(self, attributes: Sequence[str]) -> None:
        """Refuse attributes that have no cells, are unknown, or are named twice."""
        for name in attributes:
            self.domain[name].labels  # noqa: B018 - refuses unknown and continuous attributes
            if attributes.count(name) > 1:
                raise DeclarationError(f"the attribute {name!r} is named twice; name it once")

    @abstractmethod
    def marginal(self, *attributes: str) -> NDArray[np.float64]:
        """The estimated counts by these attributes, one axis for each, in this order."""

    @abstractmethod
    def sample(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        """Codes of synthetic records, one row each and a column for each counted attribute.

        Each cell of a full table gets its share of rows rounded down or up. Where tables share attributes, as in a
        graphical model, what rounding gains and loses can add up to a few records; `publication.synthesize` settles it.
        """

    @abstractmethod
    def arrays(self) -> Mapping[str, NDArray[np.float64]]:
        """The numbers that a saved model holds; `restore` reads them back."""

    @classmethod
    @abstractmethod
    def restore(cls, saved: "SavedModel", measured: MeasurementSet) -> "Estimate":
        """The estimate that was saved."""

    def answer(self, query: Query | str) -> NDArray[np.float64]:
        """The estimated answers to a query, or to a text in the query language; one axis for each factor.

        Bare numbers, for computing: `basis` says what each of them stands on, and `publication.answer_table` gives
        both with labels, and no number for what was not measured.
        """
        bound = (Query.parse(query) if isinstance(query, str) else query).bind(self.domain)
        return np.asarray(bound.answer(self.marginal(*bound.attributes)), dtype=np.float64)

    def basis(self, query: Query | str, per: Query | str | None = None) -> Basis:
        """Whether each answer is measured, modelled or not measured; of ratios the worse of both parts."""
        return basis(self.measurements, query, per)

    def answers(self, queries: Sequence[Query | str]) -> list[NDArray[np.float64]]:
        """The answers to several queries; methods that can share work between them do.

        Where some need too much memory, `errors.Unanswered` says which and why, and holds the answers to the others.
        """
        return all_or_unanswered([refused(partial(self.answer, query)) for query in queries])


def check_rows(rows: int) -> int:
    """The number of synthetic rows, refused when it is not one."""
    if not isinstance(rows, int | np.integer) or isinstance(rows, bool) or rows < 0:
        raise DeclarationError(f"{rows!r} synthetic rows were asked for; ask for a whole number from 0 up")
    return int(rows)
