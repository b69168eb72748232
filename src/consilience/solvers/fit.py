"""What every solver returns: the counts, how far from the best they can be at most, and why it stopped.

Also the settings that solvers share, so that the same question has one answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from consilience.errors import ConsilienceError
from consilience.kernels.rng import Generator


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
