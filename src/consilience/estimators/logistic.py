"""`regress`: a logistic regression from all rounds of a noisy one (after Lee and Kifer 2016).

The private algorithm returns the coefficients of its last round. Here the chain's draws are datasets D that make the
noisy gradients of *all* rounds likely (estimators/iterates.py). The reported coefficients minimise the expected loss

    E[ Σ_records ln(1 + exp(−θ·z)) | released ] + ridge/2 ‖θ‖²,

by one fit to all draws put together, without noise and without clipping. So they correct for three things at once: the
noise of single rounds, rounds that were too few to arrive, and the bias of clipped gradients.

*Intervals.* That of a coefficient is about the fit to the real records with the same ridge, without noise and without
clipping. Two things are open, and a draw has both. What records there may be at all, and with them the curvature of the
loss: a draw starts from the fit to a draw of a chain. Half of them come from chains of few points: the more points, the
more the prior has to say, and where noise is small chains of many points are too sure of it. And what the rounds, with
the law of their noise, leave open beyond those datasets: with G(θ) the sum of the records' gradients at the reported θ,
drawn given all rounds (iterates/kriging.py), the draw is moved by −H⁻¹(G(θ) + ridge θ), H the expected
curvature.

Nothing here sees data or spends budget.
"""

from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import ConsilienceError, DeclarationError, MeasurementError
from consilience.estimators.base import Progress, check_level
from consilience.estimators.cell_clusters import grid_total
from consilience.estimators.iterates import Iterates, Observed, SavedIterates, diagnostics
from consilience.estimators.published.privgene import NO_BARS_OF_CHOICE, ChosenModel
from consilience.iterates.kriging import Kriging
from consilience.iterates.problems import (
    NoisyGradients,
    followed,
    logistic_problem,
    refit,
    signed_records,
    simulated_size,
)
from consilience.kernels.regions import Region, RegionKind, middles_and_halves, normalised
from consilience.kernels.rng import Generator, generator
from consilience.measurements import MeasurementSet

Array = NDArray[np.float64]

INTERCEPT = "(intercept)"
RECORDS_PER_POINT = 3.0
FEW_POINTS = 24
"""On 40 points or so, a half to three quarters of the 90 % intervals held with ε = 1; on 8, fits to
single draws are all over."""
LUMPS = 8.0
"""Half of what clusters have: with as many, 5 of 6 coefficients of Adult were held with ε = 1 (seeds 0 and 1)."""


@dataclass(frozen=True, eq=False)
class RegressionEstimate(SavedIterates):
    """Coefficients for attributes whose bounds are mapped to −1 and 1, the intercept last."""

    FORMAT = "regression"
    ARRAYS = MappingProxyType(
        {
            "bounds": ("attributes", "ends"),
            "coefficients": ("terms",),
            "last_iterate": ("terms",),
            "drawn": ("draws", "terms"),
        }
    )
    TEXTS = ("label", "region")
    NUMBERS = ("records",)
    UNKNOWN = ("drawn",)

    label: str
    region: RegionKind
    bounds: Array
    """A row of two ends for each attribute."""
    coefficients: Array
    last_iterate: Array
    """The coefficients of the last round: what the private algorithm alone gives."""
    drawn: Array
    """Draws of where the fit to the real records lies, a row each; NaN where there are `no_intervals`."""
    records: float
    """The noisy number of records."""

    def __post_init__(self) -> None:
        Region(self.region, len(self.attributes))

    @property
    def terms(self) -> tuple[str, ...]:
        """What each coefficient belongs to: the attributes, and the intercept last."""
        return (*self.attributes, INTERCEPT)

    def probability(self, points: ArrayLike) -> Array:
        """The probability of the label's upper half for points in original units, a column for each attribute."""
        found = np.atleast_2d(np.asarray(points, dtype=np.float64))
        if found.ndim != 2 or found.shape[1] != len(self.attributes):
            raise DeclarationError(
                f"points of the shape {found.shape} were given; give a column for each of {', '.join(self.attributes)}"
            )
        inside = Region(self.region, len(self.attributes)).project(np.clip(normalised(found, self.bounds), -1, 1))
        return np.exp(-np.logaddexp(0.0, -(inside @ self.coefficients[:-1] + self.coefficients[-1])))

    def in_original_units(self) -> Array:
        """The coefficients for attributes as they are, the intercept last; for the region "box", within bounds."""
        return self._per_unit(self.coefficients)

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Where each coefficient of the fit to the real records lies with this probability, the reported one within.

        All ends are NaN where there are `no_intervals`.
        """
        return _ends(self.coefficients, self.drawn, level)

    def interval_in_original_units(self, level: float = 0.9) -> tuple[Array, Array]:
        """The intervals of the coefficients for attributes as they are; for the region "box"."""
        return _ends(self._per_unit(self.coefficients), self._per_unit(self.drawn), level)

    def _per_unit(self, coefficients: Array) -> Array:
        """With x = middle + half · z: θ·z + c = Σ (θ/half) x + c − Σ (θ/half) middle."""
        if self.region != "box":
            raise DeclarationError(
                f"points are moved to the region {self.region!r}, so no coefficients of the attributes as they are "
                "give the same answers; use `probability`, or measure with region='box'"
            )
        middles, halves = middles_and_halves(self.bounds)
        slopes = coefficients[..., :-1] / halves
        return np.concatenate([slopes, (coefficients[..., -1] - slopes @ middles)[..., None]], axis=-1)


def _ends(reported: Array, drawn: Array, level: float) -> tuple[Array, Array]:
    """The quantiles of the draws, moved apart where the reported values lie beyond."""
    check_level(level)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.minimum(low, reported), np.maximum(high, reported)


def regress(
    measured: MeasurementSet,
    settings: Iterates | None = None,
    *,
    ridge: float = 1.0,
    progress: Progress | None = None,
) -> RegressionEstimate:
    """The coefficients that all rounds of a run of `plans.Logistic` together speak for, or that `plans.PrivGene` chose.

    `ridge` is the weight of ‖θ‖²/2 beside the sum of the losses of all records. Without a `size` in the settings, a
    simulated point stands for three standard deviations of a gradient's noise. A `target` of corrected values does not
    exist here: only counts have totals to agree on.
    """
    settings = settings or Iterates()
    chosen = ChosenModel.of(measured, "regression")
    if chosen is not None:
        return _as_chosen(chosen, measured)
    if settings.target != "released":
        raise DeclarationError("gradients have no totals to correct; use target='released' for a logistic regression")
    check_ridge(ridge)
    observed = Observed.of(measured, algorithm="logistic")
    rounds = noisy_gradients(observed)
    if settings.size is None:
        settings = replace(settings, size=simulated_size(rounds, records_per_point=RECORDS_PER_POINT))
    problem = logistic_problem(rounds)
    runs = settings.run(problem, clusters=1, progress=progress)
    chosen = runs.pooled if settings.use == "posterior" else runs.best
    penalty = ridge / rounds.records
    coefficients = refit(chosen.points, chosen.masses, ridge=penalty)
    rng = generator(settings.seed)
    conditional = Kriging.of(problem.target, runs.pooled, rounds.region, rng, lumps=LUMPS)
    few = replace(settings, size=FEW_POINTS)
    wider = few.run(problem, clusters=1) if settings.points(1, rounds.records) > FEW_POINTS else runs
    both = (*runs.draws[::2], *wider.draws[1::2])
    drawn = np.array([refit(draw.points, draw.masses, ridge=penalty, start=coefficients) for draw in both])
    if conditional is not None:
        drawn += _steps(conditional, coefficients, ridge, len(drawn), rng)
    return RegressionEstimate(
        attributes=tuple(observed.shared["attributes"]),
        label=str(observed.shared["label"]),
        region=rounds.region.kind,
        bounds=np.array(observed.shared["bounds"], dtype=np.float64)[:-1],
        coefficients=coefficients,
        last_iterate=last_iterate(observed),
        drawn=drawn,
        records=rounds.records,
        private=measured.private,
        method={"name": "iterates", "algorithm": "logistic", "ridge": ridge, "settings": settings.to_json()},
        diagnostics=diagnostics(runs, conditional),
    )


def _as_chosen(chosen: ChosenModel, measured: MeasurementSet) -> RegressionEstimate:
    """The coefficients that a private selection chose, of which nothing else is known."""
    counts = [each for each in measured if each.kind == "record-sums"]
    return RegressionEstimate(
        attributes=chosen.attributes[:-1],
        label=chosen.attributes[-1],
        region=chosen.region,
        bounds=chosen.bounds[:-1],
        coefficients=chosen.found,
        last_iterate=chosen.found,
        drawn=np.full((1, chosen.found.size), np.nan),
        records=grid_total(counts, measured.domain),
        private=measured.private,
        method={"name": "privgene", "no_intervals": NO_BARS_OF_CHOICE},
    )


def check_ridge(ridge: float) -> None:
    """Refuse what is no weight of the squared coefficients."""
    if not (np.isfinite(ridge) and ridge > 0):
        raise DeclarationError(f"the ridge is {ridge!r}; give a finite number above 0, such as 1")


def _steps(conditional: Kriging, coefficients: Array, ridge: float, number: int, rng: Generator) -> Array:
    """The Newton step from the reported coefficients for each of some drawn sums of gradients."""
    points = conditional.base.points
    signed = signed_records(points[:, :-1], points[:, -1])
    misfits = np.exp(-np.logaddexp(0.0, signed @ coefficients))
    _, gradients = conditional.draws(-(signed * misfits[:, None]).T, number, rng)
    curvature = signed.T @ (signed * (conditional.masses() * misfits * (1 - misfits))[:, None])
    curvature[np.diag_indices_from(curvature)] += ridge
    return -np.asarray(np.linalg.solve(curvature, (gradients + ridge * coefficients).T), dtype=np.float64).T


def last_iterate(observed: Observed) -> Array:
    """The coefficients that the last round led to: the result of the private algorithm alone."""
    try:
        step, radius = float(observed.shared["step"]), float(observed.shared["radius"])
    except (TypeError, ValueError) as error:
        raise MeasurementError(f"the rounds do not say how they step: {error}; measure with plans.Logistic") from None
    return followed(noisy_gradients(observed), step=step, radius=radius)


def noisy_gradients(observed: Observed) -> NoisyGradients:
    """The rounds as arrays, for normalised attributes."""
    shared, thetas = observed.shared, observed.thetas
    try:
        dimensions = len(shared["attributes"])
        region = Region(shared["region"], dimensions)
        middles_and_halves(shared["bounds"])
        clip, clip_norm = float(shared["clip"]), shared["clip_norm"]
    except (ConsilienceError, TypeError, ValueError) as error:
        raise MeasurementError(f"the rounds describe no gradients of points: {error}") from None
    counts, gradients = _values(observed, "count", 1), _values(observed, "gradient", dimensions + 1)
    if thetas.shape != gradients.shape or len(shared["bounds"]) != dimensions + 1:
        raise MeasurementError(
            f"coefficients of the shape {thetas.shape[1:]} and {len(shared['bounds'])} bounds do not fit {dimensions} "
            "attributes and a label; measure with plans.Logistic"
        )
    if clip_norm not in (1, 2) or not clip > 0:
        raise MeasurementError(
            f"gradients clipped to {clip} in the norm {clip_norm!r} are not known; use the norm 1 or 2"
        )
    return NoisyGradients(
        thetas=thetas,
        counts=counts[:, 0],
        gradients=gradients,
        count_scales=observed.scales("count"),
        gradient_scales=observed.scales("gradient"),
        laplace=observed.laplace,
        clip=clip,
        clip_norm=clip_norm,
        region=region,
    )


def _values(observed: Observed, part: str, size: int) -> Array:
    for parts in observed.rounds:
        if parts[part].values.size != size:
            raise MeasurementError(
                f"measurement {parts[part].name} has {parts[part].values.size} values where {size} belong; measure "
                "with plans.Logistic"
            )
    return observed.values(part)
