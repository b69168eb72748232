"""What every solver returns: the numbers, how good they are, and why the solver stopped."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray


class Status(StrEnum):
    """Why a solver stopped."""

    CONVERGED = "converged"
    STEP_LIMIT = "step limit"
    STALLED = "stalled"
    TIME_LIMIT = "time limit"

    @property
    def explanation(self) -> str:
        """A sentence that says what happened, and what to do about it."""
        return _EXPLANATIONS[self]


_EXPLANATIONS = {
    Status.CONVERGED: "the optimality gap is within the tolerance",
    Status.STEP_LIMIT: "the steps ran out before the gap came within the tolerance; allow more steps or a larger gap",
    Status.STALLED: "rounding keeps the gap above the tolerance; ask for a larger gap, or rescale the problem",
    Status.TIME_LIMIT: "the time ran out before the gap came within the tolerance; allow more time or a larger gap",
}


@dataclass(frozen=True, eq=False)
class Fit:
    """A solution with its certificate: the objective is at most `gap` above the optimum."""

    counts: NDArray[np.float64]
    objective: float
    gap: float
    status: Status
    stats: Mapping[str, float | int | str]
