"""What every solver is given and returns: the loss, and the counts, how far from the best they are, and why it ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import ConsilienceError, DeclarationError, MeasurementError
from consilience.kernels.rng import Generator

# ----------------------------------------------------------------------------------------------------------------------
# The losses that the solvers minimise, and the checks of what goes into them.
#
# With residual r = x − y between a count x and its noisy value y, and weight w = 1/b (b the scale of the noise):
#
#     "l1"       w·|r|                        Laplace noise: minus the log-likelihood, up to a constant
#     "l2"       w²·r²                        Gaussian noise, likewise
#     "elastic"  α·w·|r| + (1 − α)·w²·r²      the elastic net of Lee, Wang and Kifer (2015), §4.2
#
# All three are a·|r| + q·r² with a = linear·w and q = square·w², and all are free of units: multiplying the noisy
# values by c and dividing the weights by c multiplies the fitted counts by c. Weight 0 says that a value was not
# measured; such a value costs nothing and is not looked at.
#
# *Clipped values.* A publisher who replaces negative noisy values by 0 says of such a value only that it was at most 0.
# Its cost is one-sided: nothing for x ≤ 0, and a·x + q·x² above. Where x ≥ 0 anyhow this is the cost of a measured 0.
# For "l1" it is the tail of the Laplace law, exact up to a constant for x ≥ 0 and a flat bound of it below. For "l2" it
# is a parabola in place of −log Φ(−x/σ): the same minimisers, a simpler curve, no likelihood.


Array = NDArray[np.float64]
LossName = Literal["l1", "l2", "elastic"]

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-100, 1e100
"""Weights are squared and compared with each other; beyond these bounds the results leave the range of numbers."""

LARGEST_NOISY = 1e100
"""Likewise for noisy values."""


@dataclass(frozen=True)
class Loss:
    """The loss linear·w·|r| + square·w²·r².

    >>> Loss.named("elastic", alpha=0.75)
    Loss(linear=0.75, square=0.25)
    """

    linear: float
    square: float

    @staticmethod
    def named(loss: str, *, alpha: float = 0.9) -> "Loss":
        """The loss of this name; α is the share of the absolute value in the elastic net."""
        if loss not in get_args(LossName):
            raise DeclarationError(f"the loss is {loss!r}; choose one of {', '.join(get_args(LossName))}")
        if not (isinstance(alpha, int | float | np.number) and 0 <= alpha <= 1):
            raise DeclarationError(f"alpha is {alpha!r}; the share of the absolute value lies between 0 and 1")
        if loss == "elastic":
            return Loss(float(alpha), 1.0 - float(alpha))
        return Loss(1.0, 0.0) if loss == "l1" else Loss(0.0, 1.0)

    def coefficients(self, weights: Array) -> tuple[Array, Array]:
        """The factors a of |r| and q of r² for values with these weights."""
        return self.linear * weights, self.square * weights**2

    def value(self, counts: Array, noisy: Array, weights: Array) -> float:
        """The sum of all losses.

        >>> Loss.named("l1").value(np.array([3.0, 1.0]), np.array([1.0, 1.5]), np.array([1.0, 2.0]))
        3.0
        """
        a, q = self.coefficients(weights)
        residual = np.abs(counts - noisy)
        return float(np.sum(a * residual) + np.sum(q * residual**2))

    def prox(self, points: Array, noisy: Array, weights: Array, *, step: float) -> Array:
        """The x that minimises loss(x) + (x − point)²/(2·step), for each value.

        The minimiser of a·|r| + q·r² + (r − u)²/2t is S(u, a·t) / (1 + 2·q·t), where S(u, c) draws u towards 0 by c.

        >>> Loss.named("l1").prox(np.array([5.0, 1.5]), np.array([1.0, 1.0]), np.ones(2), step=1.0)
        array([4., 1.])
        """
        a, q = self.coefficients(weights)
        return noisy + drawn_to_zero(points - noisy, a * step) / (1.0 + 2.0 * q * step)


def drawn_to_zero(values: Array, amount: Array) -> Array:
    """S: the values moved towards 0 by the amount, but not beyond."""
    return np.sign(values) * np.maximum(np.abs(values) - amount, 0.0)


def checked_weights(weights: ArrayLike | None, shape: tuple[int, ...]) -> Array:
    """Weights of this shape, each 0 or a usual positive number; None stands for 1 everywhere.

    >>> checked_weights(None, (2,))
    array([1., 1.])
    """
    if weights is None:
        return np.ones(shape)
    numbers = _as_numbers(weights, "weights")
    if numbers.shape != shape and numbers.shape != ():
        raise MeasurementError(f"there are weights of shape {numbers.shape} for noisy values of shape {shape}")
    least, most = numbers.min(initial=0.0), numbers.max(initial=0.0)
    if not (least >= 0 and most < np.inf):
        place = _first(~(np.isfinite(numbers) & (numbers >= 0)))
        raise MeasurementError(
            f"the weight{place[0]} is {numbers[place[1]]}; a weight is 1/(scale of the noise), or 0 for not measured"
        )
    unusual = (numbers > 0) & (numbers < SMALLEST_WEIGHT) if np.any(numbers < SMALLEST_WEIGHT) else np.False_
    if most > LARGEST_WEIGHT or np.any(unusual):
        place = _first(unusual | (numbers > LARGEST_WEIGHT))
        raise MeasurementError(
            f"the weight{place[0]} is {numbers[place[1]]}, outside {SMALLEST_WEIGHT:g} … {LARGEST_WEIGHT:g}; multiply "
            "the noisy values and divide the weights by a common factor"
        )
    return np.array(np.broadcast_to(numbers, shape), dtype=np.float64)


def checked_noisy(noisy: ArrayLike, *, weights: Array | None = None) -> Array:
    """The noisy values as floating-point numbers, finite; where the weight is 0 they may be anything and become 0.

    >>> checked_noisy([2, float("nan")], weights=np.array([1.0, 0.0]))
    array([2., 0.])
    """
    numbers = _as_numbers(noisy, "noisy values")
    if weights is not None and weights.shape == numbers.shape and not np.all(weights):
        numbers = np.where(weights > 0, numbers, 0.0)
    if not (numbers.min(initial=0.0) >= -LARGEST_NOISY and numbers.max(initial=0.0) <= LARGEST_NOISY):
        place = _first(~(np.abs(numbers) <= LARGEST_NOISY))
        raise MeasurementError(
            f"the noisy value{place[0]} is {numbers[place[1]]}; give a number of size at most {LARGEST_NOISY:g}, "
            "or weight 0 if it was not measured"
        )
    return np.ascontiguousarray(numbers, dtype=np.float64)


def checked_clipped(clipped: ArrayLike | None, noisy: Array) -> NDArray[np.bool_] | None:
    """Which values were clipped at zero, all of them 0; None where none was."""
    if clipped is None:
        return None
    mask = np.asarray(clipped)
    if mask.dtype != np.bool_ or mask.shape != noisy.shape:
        raise MeasurementError(
            f"`clipped` has shape {mask.shape} and type {mask.dtype} for noisy values of shape {noisy.shape}; "
            "give True or False for each"
        )
    if np.any(noisy[mask] != 0):
        place = _first(mask & (noisy != 0))
        raise MeasurementError(
            f"the noisy value{place[0]} is {noisy[place[1]]} and marked as clipped; clipping leaves 0: mark only those"
        )
    return mask if np.any(mask) else None


def _as_numbers(values: ArrayLike, name: str) -> NDArray[Any]:
    """An array of real numbers."""
    try:
        numbers = np.asarray(values)
        if numbers.dtype.kind not in "iufb":
            numbers = numbers.astype(np.float64, casting="same_kind" if numbers.dtype.kind == "c" else "unsafe")
    except (TypeError, ValueError) as error:
        raise MeasurementError(f"the {name} are not an array of numbers: {error}") from error
    return numbers.astype(np.float64, copy=False)


def _first(wrong: NDArray[np.bool_]) -> tuple[str, tuple[int, ...]]:
    """The place of the first offender, as text and as an index."""
    place = tuple(int(each[0]) for each in np.nonzero(np.atleast_1d(wrong)))
    return (f" at {place[0] if len(place) == 1 else place}", place) if wrong.ndim else ("", ())


# ----------------------------------------------------------------------------------------------------------------------
# What every solver returns: the counts, how far from the best they can be at most, and why it stopped.
#
# Also the settings that solvers share, so that the same question has one answer.


@dataclass(frozen=True)
class SharedSettings:
    """What several solvers take for rounding; by trial, no figures kept, unless a reason is named."""

    dependent: float = 1e-10
    """A row follows from others if an eigenvalue or a pivot of its Gram matrix is this part of the largest."""
    contradiction: float = 1e-9
    """Exact values that miss each other by more than this part of the largest of them contradict each other."""
    tolerated: float = 1e-8
    """Exact values that an iteration misses by this part of the largest of them can be met."""
    unnoticed: float = 1e-12
    """A residual of this part of a noisy value is lost in the rounding of the data."""
    memory_limit: int = 8_000_000_000
    """Bytes; a problem that would need more is refused before anything is allocated, unless its caller raises it."""


SHARED = SharedSettings()


@dataclass(frozen=True)
class InteriorPointSettings:
    """What tunes a primal–dual interior point (Mehrotra 1992); pure numbers, by trial, no figures kept."""

    patience: int
    """Iterations without progress after which the iteration ends."""
    to_the_end: float = 0.995
    """The share of the way to the nearest bound that a step may go."""
    centring: float = 0.3
    """How strongly a short predicted step asks for centring first."""

    def reach_of_step(self, left: float, allowed: float) -> float:
        """The share of the way that a step may go where so large a share of the objective is the gap.

        Nearly all of it where little is left, but not beyond what is allowed, where rounding takes over.
        """
        return max(self.to_the_end, 1.0 - max(left, 0.1 * allowed / left if left > 0.0 else 1.0))


class Status(StrEnum):
    """Why a solver stopped; `explanation` is the sentence that says so and what to do next.

    >>> Status("converged").explanation
    'The optimality gap is below the tolerance: nothing to do.'
    """

    CONVERGED = "converged"
    UNCERTIFIED = "uncertified"
    STEP_LIMIT = "step limit"
    TIME_LIMIT = "time limit"
    STALLED = "stalled"
    LEAST_RISK = "least risk"
    NOISE_LEVEL = "noise level"
    MISFIT = "misfit"

    @property
    def on_purpose(self) -> bool:
        """Whether the solver stopped because it had what was asked for."""
        return self in (Status.CONVERGED, Status.LEAST_RISK, Status.NOISE_LEVEL)

    @property
    def explanation(self) -> str:
        """One sentence for a person: what happened and the next step."""
        return _EXPLANATIONS[self]


_EXPLANATIONS: Mapping[Status, str] = {
    Status.CONVERGED: "The optimality gap is below the tolerance: nothing to do.",
    Status.UNCERTIFIED: (
        "The optimality conditions hold to the tolerance, but nothing measured bounds the total, so no "
        "gap could be certified: give the total, or a cover of the measured rows."
    ),
    Status.STEP_LIMIT: (
        "The steps ran out before the gap reached the tolerance; the gap says how good the counts are: "
        "raise max_steps or the tolerance."
    ),
    Status.TIME_LIMIT: (
        "The time ran out before the gap reached the tolerance; the gap says how good the counts are: "
        "raise time_limit or the tolerance."
    ),
    Status.STALLED: (
        "Rounding stopped the gap from shrinking further, and the gap says how good the counts are: accept it, raise "
        "the tolerance, or bring the noise scales closer together."
    ),
    Status.LEAST_RISK: (
        "The fit stopped on purpose where its estimated error is least, because the optimum fits noise: nothing to "
        'do; stop="converged" goes on to the optimum.'
    ),
    Status.NOISE_LEVEL: (
        "The fit stopped on purpose where the misfit is what noise alone leads one to expect: nothing to do; "
        'stop="converged" goes on to the optimum.'
    ),
    Status.MISFIT: (
        "The fit misses the measurements by far more than their noise explains, so its counts are not to be relied on: "
        "the search failed, or public facts, impossible cells or the declared noise contradict the measurements."
    ),
}


@dataclass(frozen=True, eq=False)
class Fit:
    """Counts with a certificate: their objective exceeds the smallest possible one by at most `gap`.

    `objective - gap` is a proven lower bound of the optimum, whatever the status says. `counts` is
    read-only. `stats` tells what the solver did (steps, seconds, ...), for reports and for curiosity.
    """

    counts: NDArray[np.float64]
    objective: float
    gap: float
    status: Status
    stats: Mapping[str, float | int | str]

    def __post_init__(self) -> None:
        counts = self.counts.view()
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)


# ----------------------------------------------------------------------------------------------------------------------
# The error for constraints that no numbers can satisfy together.


class Infeasible(ConsilienceError):
    """Constraints that contradict each other: how far apart they stay at best, and which they are.

    >>> raise Infeasible("the total is 3 and its parts sum to 5", violation=2.0, constraints=("total", "parts"))
    Traceback (most recent call last):
    consilience.solvers.fit.Infeasible: the total is 3 and its parts sum to 5
    """

    def __init__(self, message: str, *, violation: float, constraints: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.violation = float(violation)
        """The least violation found: the largest amount, in counts, by which a condition stays broken."""
        self.constraints = tuple(constraints)
        """The names of the constraints that cannot hold together."""


# ----------------------------------------------------------------------------------------------------------------------
# Whole numbers that follow given shares.


def shares_of_rows(weights: NDArray[np.float64], rows: int, rng: Generator) -> NDArray[np.int64]:
    """Whole counts that sum to `rows`, each its exact share rounded down or up, right on average.

    Systematic rounding: with cumulated shares C_k and one uniform u, cell k gets ⌊C_k + u⌋ − ⌊C_{k−1} + u⌋.
    """
    largest = float(weights.max(initial=0.0))
    # In parts of the largest, so that neither the least nor the largest numbers there are overflow.
    parts = weights / largest if largest > 0 else np.ones_like(weights)
    cumulated = np.cumsum(parts) * (rows / float(parts.sum()))
    cumulated[-1] = rows
    floors = np.floor(np.minimum(cumulated, rows) + rng.random())
    floors[-1] = rows
    return np.diff(np.minimum(floors, rows), prepend=0.0).astype(np.int64)
