"""How far answers are expected to be off: by the noise alone in closed form, or in one simulated release of a stand-in.

*Least squares.* Where measurements determine an answer, weighted least squares with counts of either sign give it with
the error L·noise for a fixed matrix L, whatever the data. Its law is drawn: noise in the place of all noisy values,
fitted as they would be. What is released is not negative either, and so as a rule is closer, most of all where many
counts are zero: the number is what an answer is off by at most, on average.

*Simulated.* Where the plan chooses by the data, or a model fills in, the whole release is run on a stand-in, with
simulated noise, and its answers are compared with the stand-in's own.

Both give, for every query, the mean absolute error of an answer, and its margin: 95 % of answers are off by less. Of
simulated ones these are answers that are not zero in the stand-in; zeros are easy, and nobody asks for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import PublicFacts
from consilience.domain.queries import BoundQuery
from consilience.estimators import Estimate
from consilience.estimators.choose import ESTIMATORS
from consilience.kernels.rng import Generator
from consilience.measurements import Exact, MeasurementSet
from consilience.measurements.basis import Evidence
from consilience.publication.intervals.refits import without_rules
from consilience.source import Source

Array = NDArray[np.float64]

LEVEL = 0.95
DRAWN = 20_000
"""Answers whose errors are drawn in closed form, at least: their mean is known to about one percent."""
FEWEST_DRAWS, MOST_DRAWS = 4, 400


@dataclass(frozen=True)
class ExpectedError:
    """How far answers to one query are expected to be off."""

    query: str
    answers: int
    weight: float
    error: float
    """The mean absolute error of an answer, in records, or in the unit of the amount that is summed."""
    margin: float
    """95 % of the answers are off by less."""
    basis: str
    """What the answers stand on: "measured", "modelled", "public"; of "not measured" the error is of an assumption."""
    amount: str | None = None
    """Of sums of an amount, its name."""

    def to_json(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "answers": self.answers,
            "weight": self.weight,
            "error": self.error,
            "margin": self.margin,
            "basis": self.basis,
        } | ({} if self.amount is None else {"sum_of": self.amount})


@dataclass(frozen=True)
class AskedQuery:
    """A query of the workload, bound to the domain, with its weight."""

    bound: BoundQuery
    weight: float

    def error(self, errors: Array, basis: str, *, counted: NDArray[np.bool_] | None = None) -> ExpectedError:
        """The expectation from errors of its answers, one or several draws; the margin is of those that are counted."""
        kept = errors if counted is None or not counted.any() else errors[counted]
        margin = float(np.quantile(kept, LEVEL))
        text = self.bound.query.describe()
        return ExpectedError(text, self.bound.size, self.weight, float(errors.mean()), margin, basis)


def bases(measured: MeasurementSet, asked: Sequence[AskedQuery]) -> list[str]:
    """What the answers to each query stand on."""
    evidence = Evidence.of(measured, [margin.attributes for margin in measured.domain.public.margins])
    return [evidence.basis(each.bound.query).worst for each in asked]


def least_squares_errors(
    measured: MeasurementSet, asked: Sequence[AskedQuery], rng: Generator
) -> list[ExpectedError] | None:
    """The errors of least squares, whatever the data; None where these are not to be had of such measurements."""
    if any(each.kind != "linear" or each.clipped or each.threshold is not None for each in measured):
        return None
    everywhere = without_rules(measured)
    everywhere = replace(everywhere, domain=replace(everywhere.domain, public=PublicFacts()))
    methods = [ESTIMATORS["residual"](nonnegative=False), ESTIMATORS["matrix"](nonnegative=False)]  # type: ignore[call-arg]
    method = next((each for each in methods if each.suitability(everywhere).possible), None)
    if method is None:
        return None
    answers = sum(each.bound.size for each in asked)
    draws = int(np.clip(DRAWN // max(answers, 1), FEWEST_DRAWS, MOST_DRAWS))
    found: list[list[Array]] = [[] for _ in asked]
    for _ in range(draws):
        noise = [
            replace(
                each,
                values=each.values * 0.0
                if isinstance(each.noise, Exact)
                else each.noise.simulate(each.values.size, rng),
            )
            for each in everywhere
        ]
        fitted = method.fit(replace(everywhere, measurements=tuple(noise)))
        for errors, answer in zip(found, fitted.answers([each.bound.query for each in asked]), strict=True):
            errors.append(np.abs(np.ravel(answer)))
    return [each.error(np.stack(errors), "measured") for each, errors in zip(asked, found, strict=True)]


def exact_answers(source: Source, asked: Sequence[AskedQuery]) -> list[Array]:
    """The answers of a stand-in itself."""
    sets = list(dict.fromkeys(each.bound.attributes for each in asked))
    step = 1.0 if source.domain.weight is None else source.domain.weight.step
    exact = {names: counts * step for names, counts in zip(sets, source.exact_counts(sets), strict=True)}
    return [np.ravel(each.bound.answer(exact[each.bound.attributes])) for each in asked]


def simulated_errors(
    estimates: Sequence[Estimate], truth: Sequence[Array], asked: Sequence[AskedQuery]
) -> list[ExpectedError]:
    """How far the estimates of several simulated releases of one stand-in are from it."""
    answers = [each.answers([one.bound.query for one in asked]) for each in estimates]
    standing = bases(estimates[0].measurements, asked)
    found = []
    for place, (each, own) in enumerate(zip(asked, truth, strict=True)):
        errors = np.abs(np.stack([np.ravel(given[place]) - own for given in answers]))
        found.append(each.error(errors, standing[place], counted=np.broadcast_to(own != 0, errors.shape)))
    return found


def sum_errors(measured: MeasurementSet) -> list[ExpectedError]:
    """How far sums of amounts that were measured are off, by their noise."""
    found = []
    for each in measured.sums:
        deviation = each.noise.variance**0.5
        error, margin = deviation * (2.0 / np.pi) ** 0.5, float(each.noise.quantile(0.5 + LEVEL / 2.0))
        found.append(ExpectedError(each.asks, each.values.size, 1.0, float(error), margin, "measured", each.amount))
    return found
