"""Diagnostics of an estimate: is the noise what it was said to be, and what did the fit do to the measurements?

The residuals of a fit are smaller than the noise, because a fit absorbs part of it, and by how much depends on the
method, on the model and on where numbers had to stay above 0. Tests of residuals, also against refits of simulated
noise, would take all of that for noise. So the noise is tested where no fit is involved (`noise_checks`): on
contrasts, which hold noise alone, and on values at and below 0. Residuals are reported as what they are: how far the
account moved each measurement.

Post-processing: nothing here looks at the data or spends budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from consilience.errors import DeclarationError
from consilience.estimators import Estimate
from consilience.estimators.base import Progress
from consilience.kernels.rng import generator
from consilience.measurements import Measurement, MeasurementSet
from consilience.publication.noise_checks import (
    FEWEST_CONTRASTS,
    NoiseCheck,
    QuantilePlot,
    check_contrasts,
    check_depth,
    check_zeros,
    contrasts,
    is_of_sums,
)

LEVEL = 1e-4
"""Of right declarations at most about this part is doubted: who checks a file every day waits for that 27 years.

Only noise drawn elsewhere is tested at all. A level of a few percent would doubt every twentieth file that is right.
"""
AT_ZERO = 0.05
"""Answers below this part of a noise standard deviation count as 0: some fits come near it and never arrive."""

MEANINGS = {
    "spread": "the size of the noise, from differences between measurements that imply the same number",
    "shape": "the form of its distribution, from the same differences",
    "zeros": "clipping, from how many noisy values are exactly 0",
    "depth": "the size of the noise, from how far noisy values lie below 0",
}


AS_DRAWN = (
    "The noise was drawn here, and the measurements are as they were drawn: the checksum recorded then is theirs."
)
CHANGED = (
    "The measurements were changed after they were drawn: they do not have the checksum recorded then. What was "
    "declared of their noise may no longer hold."
)


@dataclass(frozen=True, eq=False)
class NoiseReport:
    """Whether the noise of some measurements is what was declared."""

    checks: tuple[NoiseCheck, ...]
    """None where the measurements are as they were drawn here: there is nothing to ask of such noise."""
    quantiles: QuantilePlot | None
    """For a Q–Q plot; None where nothing was checked or measured twice, and too little lies below 0."""
    as_drawn: bool | None = None
    """Whether the measurements are those that were drawn here; None of noise from elsewhere, which has no checksum."""

    @property
    def p_value(self) -> float:
        """The least of the checks' p-values times their number, so that all together err as rarely as one would."""
        return min([1.0, *(len(self.checks) * each.p_value for each in self.checks)])

    @property
    def worst(self) -> NoiseCheck | None:
        """The check that speaks most clearly against the declared noise; clipping first, which upsets the others."""
        clipped = [each for each in self.checks if each.name == "zeros" and len(self.checks) * each.p_value < LEVEL]
        return min(clipped or self.checks, key=lambda each: each.p_value, default=None)

    @property
    def testable(self) -> bool:
        """Whether there was anything that would have shown a wrong size of the noise."""
        return any(each.name in ("spread", "depth") for each in self.checks)

    @property
    def as_declared(self) -> bool:
        """Whether nothing speaks against the declared noise."""
        return self.as_drawn is not False and self.p_value >= LEVEL

    @property
    def verdict(self) -> str:
        """What the checks say, in a sentence."""
        if self.as_drawn:
            return AS_DRAWN
        if self.as_drawn is False:
            return CHANGED
        if not self.testable and self.as_declared:
            return (
                "The noise could not be tested: nothing was measured in two ways, and too few values lie below 0. "
                "What was declared is believed."
            )
        if self.as_declared:
            sizes = [each for each in self.checks if each.ratio is not None]
            seen = f" In all, {sizes[0].found}." if sizes else ""
            return f"The noise looks as declared, as far as the measurements can tell.{seen}"
        worst = self.worst
        found = "" if worst is None else worst.found
        return (
            f"The measurements and the noise declared for them do not fit together: {found}. Of files in which all is "
            f"as declared, fewer than one in {round(1 / LEVEL):,} looks like this."
        )

    @property
    def next_step(self) -> str:
        """What to do about it."""
        worst = self.worst
        if self.as_drawn is False:
            return (
                "Use the file as it was first written. Or ask for the same release again: its ledger answers with the "
                "recorded values, and nothing is charged."
            )
        if self.as_declared or worst is None:
            return "Nothing to do."
        if worst.name == "zeros":
            return (
                "It may be that negative values were set to 0. Ask who made the measurements. If so, take those from "
                "before, or declare these clipped (clipped=True), and estimate anew."
            )
        if worst.ratio is not None:
            size = f"{worst.ratio:.3g} times too small" if worst.ratio > 1 else f"{1 / worst.ratio:.3g} times too large"
            return (
                f"It may be that the scale of the noise was declared {size}. Ask who made the measurements which noise "
                "was drawn. If so, correct the scale and estimate anew: error bars are off by the same factor, and the "
                "privacy statement may be, too."
            )
        return "It may be that the noise has another law. Ask who made the measurements, correct it and estimate anew."


@dataclass(frozen=True)
class Moved:
    """How far the account moved one measurement, in units of its noise's standard deviation."""

    asks: str
    values: int
    stddev: float
    """Of the noise, in records; 0 of what is known exactly."""
    root_mean_square: float
    largest: float
    negative: int
    """How many noisy values were below 0 though they stand for counts."""
    raised: int
    """How many of these are 0 in the account: where non-negativity bit."""
    most_negative: float
    """The lowest noisy value, in units of the noise; 0 where none is below 0."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What `diagnose` found."""

    noise: NoiseReport
    moved: tuple[Moved, ...]
    """One for each measurement that answers a query, in their order."""

    @property
    def p_value(self) -> float:
        return self.noise.p_value

    @property
    def verdict(self) -> str:
        return self.noise.verdict

    @property
    def next_step(self) -> str:
        return self.noise.next_step


def diagnose(
    estimate: Estimate, *, seed: int = 0, simulations: int = 399, progress: Progress | None = None
) -> Diagnosis:
    """Whether the noise is as declared, and how far the account moved each measurement.

    `simulations` of the noise from `seed` say how far contrasts scatter. Nothing is refitted.
    """
    noise = check_noise(estimate.measurements, seed=seed, simulations=simulations, progress=progress)
    return Diagnosis(noise, tuple(moves(estimate)))


def check_noise(
    measured: MeasurementSet, *, seed: int = 0, simulations: int = 399, progress: Progress | None = None
) -> NoiseReport:
    """Whether the noise of measurements is as declared; no estimate is needed for that.

    Noise that was drawn here is as declared unless the measurements were changed since. Other noise is tested.
    """
    if simulations < 1:
        raise DeclarationError(f"{simulations} simulations of the noise were asked for; ask for 1 or more")
    if measured.as_drawn:
        return NoiseReport((), None, as_drawn=True)
    found = contrasts(measured)
    checks: list[NoiseCheck] = []
    plot = None
    if found is not None and found.size >= FEWEST_CONTRASTS:
        checks, plot = check_contrasts(found, simulations=simulations, rng=generator(seed), progress=progress)
    zeros, depth = check_zeros(measured.measurements), check_depth(measured.measurements)
    checks += [] if zeros is None else [zeros]
    checks += [] if depth is None else [depth[0]]
    if plot is None and depth is not None:
        plot = depth[1]
    return NoiseReport(tuple(checks), plot, measured.as_drawn)


def moves(estimate: Estimate) -> list[Moved]:
    """How far each measurement lies from the account's own answer."""
    linear = [each for each in estimate.measurements if each.kind == "linear"]
    answers = estimate.answers([each.query for each in linear])
    return [_moved(each, answer.ravel()) for each, answer in zip(linear, answers, strict=True)]


def _moved(measurement: Measurement, answers: np.ndarray) -> Moved:
    known = np.isfinite(measurement.values)
    values, fitted = measurement.values[known], answers[known]
    stddev = measurement.noise.stddev_of_noise
    unit = stddev or 1.0
    away = np.abs(values - fitted) / unit
    below = (values < 0) & is_of_sums(measurement)
    return Moved(
        asks=measurement.asks,
        values=int(measurement.values.size),
        stddev=stddev,
        root_mean_square=float(np.sqrt(np.mean(away**2))) if away.size else 0.0,
        largest=float(away.max(initial=0.0)),
        negative=int(below.sum()),
        raised=int((below & (fitted <= AT_ZERO * unit)).sum()),
        most_negative=float(values[below].min() / unit) if below.any() else 0.0,
    )


def _p(value: float) -> str:
    return "below 0.0001" if value < 1e-4 else f"{value:.2g}"


def checks_in_words(checks: Sequence[NoiseCheck]) -> list[tuple[str, str, str, str]]:
    """Each check as a row for people: its name, what it is about, what was found, and its p-value."""
    return [(each.name, MEANINGS[each.name], each.found, _p(each.p_value)) for each in checks]
