"""The error for constraints that no numbers can satisfy together."""

from collections.abc import Sequence

from consilience.errors import ConsilienceError


class Infeasible(ConsilienceError):
    """Constraints that contradict each other: how far apart they stay at best, and which they are.

    >>> raise Infeasible("the total is 3 and its parts sum to 5", violation=2.0, constraints=("total", "parts"))
    Traceback (most recent call last):
    consilience.solvers.infeasible.Infeasible: the total is 3 and its parts sum to 5
    """

    def __init__(self, message: str, *, violation: float, constraints: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.violation = float(violation)
        """The least violation found: the largest amount, in counts, by which a condition stays broken."""
        self.constraints = tuple(constraints)
        """The names of the constraints that cannot hold together."""
