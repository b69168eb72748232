"""The same method on other noise: what an estimate would have been, had its noise come out differently.

A refit is the estimator with its settings on a simulated measurement set. Where a fit decides by the data when to stop
(`Estimate.refitter`), a refit goes as far as the first fit did, by the same steps, which takes a third of the
time and repeats the fit rather than the decision. Other fits begin anew.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.queries import Query
from consilience.errors import MeasurementError
from consilience.estimators.base import Estimate, Estimator
from consilience.estimators.choose import ESTIMATORS
from consilience.kernels.rng import Generator
from consilience.measurements import Exact, Measurement, MeasurementSet

Array = NDArray[np.float64]


def estimator_of(fitted: Estimate) -> Estimator:
    """The estimator that made an estimate, with its settings; refused where they are not all known.

    >>> from consilience.domain import Domain
    >>> from consilience.measurements import Laplace
    >>> domain = Domain.from_sizes({"a": 2})
    >>> measured = MeasurementSet.from_marginals(domain, {"a": [3.0, 4.0]}, noise=Laplace(1.0))
    >>> from consilience.estimators import Table
    >>> estimator_of(Table(tolerance=1e-6).fit(measured)).tolerance
    1e-06
    """
    method = dict(fitted.method)
    name = str(method.get("method"))
    if name not in ESTIMATORS or method.get("loss") == "custom":
        raise MeasurementError(
            f"an estimate by {name!r} with a loss of its own cannot be fitted again; ask for intervals of an estimate "
            "whose settings are all in its method"
        )
    known = {each.name for each in fields(ESTIMATORS[name])}  # type: ignore[arg-type]
    settings: dict[str, Any] = {key: _frozen(value) for key, value in method.items() if key in known}
    settings |= fitted.inputs
    if "total" in known and fitted.stats.get("total_from") == "the caller":
        settings["total"] = fitted.total
    return ESTIMATORS[name](**settings)


def _frozen(value: Any) -> Any:
    """Lists of saved settings as the tuples that estimators take."""
    return tuple(_frozen(each) for each in value) if isinstance(value, list | tuple) else value


def noisy_answers(fitted: Estimate) -> list[Array]:
    """What the estimate itself says to every measured query, flat; refused where a measurement is no linear query."""
    for each in fitted.measurements:
        if each.kind != "linear":
            raise MeasurementError(
                f"measurement {each.name} is of kind {each.kind!r}: its noise cannot be drawn again around an account "
                "of the cells, so there are no intervals"
            )
    asking = fitted.asking([each.query for each in fitted.measurements])
    return [np.ravel(found) for found in asking(fitted)]


def simulated(measured: MeasurementSet, answers: Sequence[Array], rng: Generator) -> MeasurementSet:
    """A measurement set with the given answers and new noise of the same laws, clipped and withheld as before.

    Facts stay as they are. The set is marked as not private: its noise protects nothing.
    """
    pairs = zip(measured, answers, strict=True)
    return replace(measured, measurements=tuple(_simulated(each, found, rng) for each, found in pairs), private=False)


def _simulated(measurement: Measurement, answers: Array, rng: Generator) -> Measurement:
    if isinstance(measurement.noise, Exact):
        return measurement
    values = answers + measurement.noise.simulate(answers.size, rng)
    if measurement.clipped:
        values = np.maximum(values, 0.0)
    censored = None
    if measurement.threshold is not None:
        censored = values < measurement.threshold
    return replace(measurement, values=values, censored=censored)


def refit(fitted: Estimate, measured: MeasurementSet) -> Estimate:
    """The estimate by the same method from other measurements of the same queries."""
    return fitted.refitter(estimator_of(fitted))(measured)


@dataclass(frozen=True, eq=False)
class Refits:
    """Everything that the refits of one estimate share, and what they are asked."""

    fitted: Estimate
    account: Estimate
    """The account that stands in for the data."""
    exact: list[Array]
    """What it says to every measured query."""
    again: Callable[[MeasurementSet], Estimate]
    """The refit to other noise."""
    answers: Callable[[Estimate], list[Array]]
    """The answers of a refit, or of the account, to what is asked."""

    @classmethod
    def of(cls, fitted: Estimate, queries: Sequence[Query]) -> "Refits":
        """Prepare refits: find the account that stands in for the data, and what it says of all that was measured."""
        estimator = estimator_of(fitted)
        account = fitted.stand_in(estimator)
        exact = noisy_answers(account)
        pairs = zip(fitted.measurements, exact, strict=True)
        told = tuple(replace(each, values=found) for each, found in pairs)
        without_noise = replace(fitted.measurements, measurements=told, private=False)
        again = fitted.refitter(estimator, None if account is fitted else without_noise)
        return cls(fitted, account, exact, again, fitted.asking(queries))

    def draw(self, rng: Generator) -> list[Array]:
        """The answers of one refit to new noise."""
        return self.answers(self.again(simulated(self.fitted.measurements, self.exact, rng)))
