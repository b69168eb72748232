"""Whether an estimate explains its measurements: the same question to every estimator, whatever its solver says.

The data that were measured miss their own noisy answers by the noise alone. So an account that is as good as the noise
allows has a mean squared residual, in units of each answer's variance, of about 1 or less, for every kind of loss; its
*misfit*. One that is far above says that the search failed, or that facts, impossible cells or the declared noise
contradict the measurements. `judged` computes it from the answers of the estimate itself and takes the word
"converged", "least risk" or "usable" away from an estimate that has not earned it.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from consilience.errors import PoorFit, TooLarge
from consilience.estimators.base import Estimate
from consilience.estimators.evidence import noise_variance
from consilience.measurements import Exact, Measurement, MeasurementSet
from consilience.solvers.fit import Status

FAR = 3.0
"""A misfit beyond this is not noise, where the answers are many."""

ONCE_IN_A_MILLION = 14.0
"""For few answers: −log of how seldom Laplace noise, whose tails are the heavier ones, may be called a misfit."""

ROUNDING = 1e-12
"""What arithmetic may add to a residual, in units of the largest answer: its variance counts as noise."""

PUBLISHED = frozenset(
    {
        "bayesian-network",
        "dual-query",
        "dual-query-model",
        "factored-weights",
        "fourier",
        "learning",
        "multiplicative-weights",
        "uniform",
    }
)
"""Mechanisms as published, which do not set out to explain all measurements: their misfit is said, and not refused."""


@dataclass(frozen=True)
class Misfit:
    """How far an account is from its measurements: the mean squared residual in units of the noise, of so many."""

    mean: float
    answers: int

    @property
    def largest_explained(self) -> float:
        """The mean above which noise alone is no explanation.

        >>> Misfit(1.0, 1000).largest_explained, round(Misfit(1.0, 10).largest_explained, 1)
        (3.0, 14.3)
        """
        if not self.answers:
            return math.inf
        tail = (math.log(self.answers) + ONCE_IN_A_MILLION) ** 2 / 2.0
        return max(FAR, 1.0 + tail / self.answers)

    @property
    def is_explained(self) -> bool:
        return self.mean <= self.largest_explained


def misfit(fitted: Estimate) -> Misfit:
    """The misfit of an estimate on the noisy answers that it was fitted to.

    Answers that were clipped to zero or not released say only what they are not, and do not count.
    """
    counted = [each for each in fitted.measurements if _counts(each)]
    size = max((float(np.abs(each.values[_known(each)]).max(initial=0.0)) for each in counted), default=0.0)
    squares, answers = 0.0, 0
    for each, found in zip(counted, fitted.answers([each.query for each in counted]), strict=True):
        known = _known(each)
        residual = (found.ravel() - each.values)[known]
        squares += float(residual @ residual) / (noise_variance(each) + (ROUNDING * size) ** 2)
        answers += residual.size
    return Misfit(squares / max(answers, 1), answers)


def _counts(each: Measurement) -> bool:
    return each.kind == "linear" and not isinstance(each.noise, Exact)


def _known(each: Measurement) -> NDArray[np.bool_]:
    """Which answers were released as they are."""
    known = np.ones(each.values.size, dtype=np.bool_)
    if each.censored is not None:
        known &= ~each.censored
    return known & (each.values != 0.0) if each.clipped else known


def judged(fitted: Estimate) -> Estimate:
    """The estimate with its misfit among its stats, and with the status "misfit" where noise does not explain that.

    >>> from consilience.domain import Domain
    >>> from consilience.estimators.tree import Tree
    >>> from consilience.measurements import Laplace
    >>> domain = Domain.from_sizes({"a": 2})
    >>> known = MeasurementSet.from_marginals(domain, {"a": [300.0, 400.0]}, noise=Laplace(1.0)).with_public(total=9)
    >>> fitted = Tree().fit(known)
    >>> str(fitted.status), str(judged(fitted).status)
    ('converged', 'misfit')
    """
    try:
        found = misfit(fitted)
    except TooLarge:  # a published mechanism may be unable to answer what it was fitted to
        return fitted
    stats = {**fitted.stats, "misfit": found.mean}
    if found.is_explained:
        return replace(fitted, stats=stats)
    return replace(fitted, status=Status.MISFIT, stats={**stats, "stopped": fitted.status.value})


def is_proven(fitted: Estimate) -> bool:
    """Whether the search is known to have ended near its optimum: no other solver of its loss would come closer."""
    converged = fitted.stats.get("stopped", fitted.status.value) == Status.CONVERGED.value
    return converged and float(fitted.stats.get("gap", 0.0)) <= 0.5 * float(fitted.stats.get("objective", 0.0))


def refuse_misfit(fitted: Estimate, measured: MeasurementSet) -> None:
    """Raise `PoorFit` where an estimate does not explain its measurements, and say what to do."""
    method = str(fitted.method.get("method"))
    if fitted.status is not Status.MISFIT or method in PUBLISHED:
        return
    size = math.sqrt(float(fitted.stats["misfit"]))
    said = f"the account that {method} found misses the noisy answers by {size:.3g} times their noise, on average"
    accept = "accept the account as it is with allow_misfit=True, or estimate and release with --allow-misfit"
    if is_proven(fitted):
        relied = [*measured.privacy.public_facts, *(["impossible cells"] if measured.domain.impossible else [])]
        named = f" ({'; '.join(relied[:6])}{' …' if len(relied) > 6 else ''})" if relied else ""
        raise PoorFit(
            f"{said}, and none comes closer: what is declared, the noise, the public facts or the impossible cells"
            f"{named}, contradicts the measurements. Correct it, or {accept}",
            fitted,
        )
    raise PoorFit(
        f"{said}: the search ended too early ({fitted.stats['stopped']}). Choose another method, such as table, "
        f"residual or local-squares, or {accept}",
        fitted,
    )
