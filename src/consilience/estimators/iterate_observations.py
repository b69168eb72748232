"""The rounds of an iterative algorithm, read from a measurement set and checked to belong together.

Every measurement of kind "record-sums" describes what it sums: the algorithm, the part of its statistics, what all
rounds share (attributes, bounds, region, …), and the θ that was in force. An algorithm is known here by its parts and
by what its rounds share: `ALGORITHMS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.declarations import suggestion
from consilience.errors import MeasurementError
from consilience.measurements import Measurement, MeasurementSet

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Algorithm:
    """What each round of an algorithm releases, and where its θ and its declarations are found."""

    parts: tuple[str, ...]
    theta: str
    shared: tuple[str, ...]
    plan: str


ALGORITHMS: Mapping[str, Algorithm] = {
    "k-means": Algorithm(("counts", "sums"), "centroids", ("attributes", "bounds", "region", "bits"), "plans.KMeans"),
    "logistic": Algorithm(
        ("count", "gradient"),
        "coefficients",
        ("attributes", "label", "bounds", "region", "bits", "clip", "clip_norm", "step", "radius"),
        "plans.Logistic",
    ),
}


@dataclass(frozen=True, eq=False)
class Observed:
    """What T rounds of one run released: for each round its parts, all under one set of declarations."""

    algorithm: str
    shared: Mapping[str, Any]
    thetas: Array
    """θ_{t−1} for each round t."""
    rounds: tuple[Mapping[str, Measurement], ...]

    @staticmethod
    def of(measured: MeasurementSet, *, algorithm: str = "k-means") -> "Observed":
        """The rounds of a set that holds one run of the algorithm and nothing else."""
        known = ALGORITHMS.get(algorithm)
        if known is None:
            raise MeasurementError(f"the algorithm {algorithm!r} is not known; {suggestion(algorithm, ALGORITHMS)}")
        rounds = _by_round(measured, algorithm, known)
        first = _statistic(rounds[0][known.parts[0]])
        for parts in rounds:
            for measurement in parts.values():
                _refuse_difference(first, measurement, known)
        missing = [key for key in known.shared if key not in first]
        if missing:
            raise MeasurementError(
                f"the rounds of {algorithm} do not say their {', '.join(missing)}; measure with {known.plan}"
            )
        shared = {key: first[key] for key in known.shared}
        return Observed(algorithm, shared, _thetas(rounds, known), tuple(rounds))

    def values(self, part: str) -> Array:
        """What the part was released as, a row for each round."""
        return np.array([parts[part].values for parts in self.rounds])

    def scales(self, part: str) -> Array:
        """The scale of the part's Laplace noise, or the standard deviation of Gaussian noise, for each round."""
        return np.array([parts[part].noise.scale_parameter for parts in self.rounds])

    @property
    def laplace(self) -> bool:
        """Whether all noise is of Laplace's kind, and not Gaussian; refused where laws mix or values are exact."""
        laws = {each.noise.law.removeprefix("discrete-") for parts in self.rounds for each in parts.values()}
        if laws not in ({"laplace"}, {"gaussian"}):
            raise MeasurementError(
                f"the rounds have {' and '.join(sorted(laws))} noise; give rounds whose noise is all Laplace or all "
                "Gaussian"
            )
        return laws == {"laplace"}


def _by_round(measured: MeasurementSet, algorithm: str, known: Algorithm) -> list[dict[str, Measurement]]:
    """For each round, in order, its parts."""
    found: dict[int, dict[str, Measurement]] = {}
    for each in measured.measurements:
        number, part = _placed(each, algorithm, known)
        parts = found.setdefault(number, {})
        if part in parts:
            raise MeasurementError(
                f"round {number} has its {part} twice; give the measurements of one run, not of several merged ones"
            )
        parts[part] = each
    if not found:
        raise MeasurementError(
            f"there are no measurements, and {algorithm} needs its rounds; measure with {known.plan}"
        )
    for number in range(1, max(found) + 1):
        missing = [part for part in known.parts if part not in found.get(number, {})]
        if missing:
            raise MeasurementError(
                f"round {number} of {max(found)} lacks its {' and '.join(missing)}; give all rounds of the run"
            )
    return [found[number] for number in range(1, max(found) + 1)]


def _placed(measurement: Measurement, algorithm: str, known: Algorithm) -> tuple[int, str]:
    """The round and the part that the measurement is of."""
    statistic = measurement.statistic
    if statistic is None or statistic.get("algorithm") != algorithm:
        raise MeasurementError(
            f"measurement {measurement.name} is no round of {algorithm}, and the set must hold nothing else; "
            f"measure with {known.plan}, or fit a set of other measurements with `estimate`"
        )
    part = statistic.get("part")
    if part not in known.parts or measurement.round is None or measurement.round < 1:
        raise MeasurementError(
            f"measurement {measurement.name} is the part {part!r} of round {measurement.round}; rounds of {algorithm} "
            f"are numbered from 1 and have the parts {' and '.join(known.parts)}"
        )
    if measurement.clipped or measurement.censored is not None:
        raise MeasurementError(
            f"measurement {measurement.name} is clipped or censored; the chain needs every noisy value as it was drawn"
        )
    return measurement.round, str(part)


def _statistic(measurement: Measurement) -> Mapping[str, Any]:
    return measurement.extra["statistic"]


def _refuse_difference(first: Mapping[str, Any], measurement: Measurement, known: Algorithm) -> None:
    other = _statistic(measurement)
    for key in known.shared:
        if first.get(key) != other.get(key):
            raise MeasurementError(
                f"round 1 has the {key} {first.get(key)!r} and round {measurement.round} {other.get(key)!r}; give the "
                "measurements of one run"
            )


def _thetas(rounds: list[dict[str, Measurement]], known: Algorithm) -> Array:
    """θ of each round, on which its parts must agree."""
    found: list[Array] = []
    for number, parts in enumerate(rounds, start=1):
        each = [_plain_theta(measurement, known) for measurement in parts.values()]
        if any(not np.array_equal(each[0], other) for other in each[1:]):
            raise MeasurementError(f"the parts of round {number} were measured under different {known.theta}")
        if found and each[0].shape != found[0].shape:
            raise MeasurementError(
                f"round 1 has {known.theta} of the shape {found[0].shape} and round {number} of {each[0].shape}; give "
                "the measurements of one run"
            )
        found.append(each[0])
    return np.array(found)


def _plain_theta(measurement: Measurement, known: Algorithm) -> Array:
    try:
        theta = np.array(_statistic(measurement)[known.theta], dtype=np.float64)
    except (KeyError, TypeError, ValueError):
        theta = np.array(np.nan)
    if theta.size == 0 or not np.isfinite(theta).all():
        raise MeasurementError(
            f"measurement {measurement.name} does not say its {known.theta} in finite numbers; "
            f"measure with {known.plan}"
        )
    return theta
