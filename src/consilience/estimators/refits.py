"""The same method on other noise: what an estimate would have been, had its noise come out differently.

A refit is the estimator with its settings on a simulated measurement set. Where a fit decides by the data when to stop
(`Graphical` with "least-risk"), a refit goes as far as the first fit did, by the same steps, which takes a third of the
time and repeats the fit rather than the decision. Other fits begin anew.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.queries import Query
from consilience.errors import MeasurementError
from consilience.estimators.base import Estimate, Estimator
from consilience.estimators.choose import ESTIMATORS
from consilience.kernels.rng import Generator
from consilience.measurements import Exact, Measurement, MeasurementSet

if TYPE_CHECKING:
    from consilience.estimators.graphical import Graphical
    from consilience.estimators.graphical_model import GraphicalEstimate
    from consilience.models.fitting.retraced_fits import Way

Array = NDArray[np.float64]

FURTHER = 10.0
"""Three and ten times as far gave the same coverage and widths on the model of `python -m benchmarks coverage`; on its
pairs of 12 flags, where noise leaves little to be seen, 30 times held 97 % of what four times held 93 % of."""

LEAST_STEPS = 20
"""In draws of those pairs that stayed at the beginning, 0, 12 and 20 steps held 84, 92 and 93 % of seen counts and 74,
88 and 89 % of modelled ones."""


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
    if "total" in known and fitted.stats.get("total_from") == "the caller":
        settings["total"] = fitted.total
    return ESTIMATORS[name](**settings)


def _frozen(value: Any) -> Any:
    """Lists of saved settings as the tuples that estimators take."""
    return tuple(_frozen(each) for each in value) if isinstance(value, list | tuple) else value


def stand_in(fitted: Estimate) -> Estimate:
    """The account around which noise is drawn again: the estimate itself, or a less smooth one.

    A model that stopped early is smoother than the data. Fitted again to data that are as smooth as itself it would
    hide how much it smooths away; so the stand-in has gone `FURTHER` times as far, and `LEAST_STEPS` at least: where
    the noise lets nothing be seen the model stays at its beginning, where four times nothing is nothing.
    """
    model = _model(estimator_of(fitted), fitted)
    if model is None or "effort" not in fitted.stats:
        return fitted
    return model[0].refit(fitted.measurements, model[1], times=FURTHER, least_steps=LEAST_STEPS)


def noisy_answers(fitted: Estimate) -> list[Array]:
    """What the estimate itself says to every measured query, flat; refused where a measurement is no linear query."""
    for each in fitted.measurements:
        if each.kind != "linear":
            raise MeasurementError(
                f"measurement {each.name} is of kind {each.kind!r}: its noise cannot be drawn again around an account "
                "of the cells, so there are no intervals"
            )
    asking = asking_for(fitted, [each.query for each in fitted.measurements])
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


def refit(
    fitted: Estimate, measured: MeasurementSet, estimator: Estimator | None = None, way: "Way | None" = None
) -> Estimate:
    """The estimate by the same method from other measurements of the same queries, on a way known before if any."""
    again = estimator_of(fitted) if estimator is None else estimator
    model = _model(again, fitted)
    return again.fit(measured) if model is None else model[0].refit(measured, model[1], way=way)


def _model(estimator: Estimator, fitted: Estimate) -> "tuple[Graphical, GraphicalEstimate] | None":
    """Both as what they are, if they are a graphical model's; nothing is imported for others."""
    if estimator.name != "graphical":
        return None
    from consilience.estimators.graphical import Graphical
    from consilience.estimators.graphical_model import GraphicalEstimate

    return (estimator, fitted) if isinstance(estimator, Graphical) and isinstance(fitted, GraphicalEstimate) else None


Asking = Callable[[Any], list[Array]]
"""Takes estimates of one kind with the same measured queries."""


def asking_for(fitted: Estimate, queries: Sequence[Query]) -> Asking:
    """How this estimate and its refits are best asked these queries."""
    model = _model(estimator_of(fitted), fitted)
    if model is not None:
        from consilience.estimators.graphical_model import ModelAnswers

        prepared = ModelAnswers.of(model[1], queries)
        if prepared is not None:
            return prepared.answers
    return lambda estimate: estimate.answers(queries)


@dataclass(frozen=True, eq=False)
class Refits:
    """Everything that the refits of one estimate share, and what they are asked."""

    fitted: Estimate
    estimator: Estimator
    account: Estimate
    """The account that stands in for the data."""
    exact: list[Array]
    """What it says to every measured query."""
    way: "Way | None"
    answers: Asking
    """The answers of a refit, or of the account, to what is asked."""

    @classmethod
    def of(cls, fitted: Estimate, queries: Sequence[Query]) -> "Refits":
        """Prepare refits: find the stand-in, and on its answers without noise the way that refits go."""
        estimator, account = estimator_of(fitted), stand_in(fitted)
        exact, way, model = noisy_answers(account), None, _model(estimator, fitted)
        if model is not None and account is not fitted:
            pairs = zip(fitted.measurements, exact, strict=True)
            without_noise = tuple(replace(each, values=found) for each, found in pairs)
            way = model[0].way(replace(fitted.measurements, measurements=without_noise, private=False), model[1])
        return cls(fitted, estimator, account, exact, way, asking_for(fitted, queries))

    def draw(self, rng: Generator) -> list[Array]:
        """The answers of one refit to new noise."""
        other = simulated(self.fitted.measurements, self.exact, rng)
        return self.answers(refit(self.fitted, other, self.estimator, self.way))
