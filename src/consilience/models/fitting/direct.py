"""The direct method of McKenna, Sheldon & Miklau (2019), appendix A.3: L-BFGS on θ ↦ L(μ(θ)).

The derivative of the marginals by the potentials is their covariance under the model, which is symmetric. So the
gradient of L(μ(θ)) is the derivative of the marginals in the direction ∇L. The function is not convex in θ, and each
gradient costs a call of the oracle and a derivative; it is here to compare with.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from consilience.models.fitting.optimisers import SmoothSearch
from consilience.solvers.fit import Status

Array = NDArray[np.float64]


class _Stop(Exception):
    """Ends the minimiser from within."""

    def __init__(self, status: Status) -> None:
        self.status = status


@dataclass(frozen=True)
class Direct:
    """L-BFGS on the potentials, keeping so many corrections."""

    corrections: int = 10

    name = "direct"

    def run(self, search: SmoothSearch) -> Status:
        """Steps until the monitor says why to stop, or L-BFGS finds nothing lower."""
        first = max(search.loss.value(search.oracle.marginals(search.start).values), 1.0)

        def lower(potentials: Array) -> tuple[float, Array]:
            marginals = search.oracle.marginals(potentials).values
            objective, gradient = search.loss.value_and_gradient(marginals)
            status = search.note(potentials.copy(), marginals, objective)
            if status is not None:
                raise _Stop(status)
            return objective / first, search.oracle.derivative(potentials, gradient) / first

        options = {"maxcor": self.corrections, "maxiter": 10**6, "maxfun": 10**6, "ftol": 0.0, "gtol": 0.0}
        try:
            minimize(lower, search.start, jac=True, method="L-BFGS-B", options=options)
        except _Stop as stop:
            return stop.status
        monitor = search.monitor
        proven = monitor.prove(monitor.objective - search.loss.gap(search.oracle, monitor.marginals))
        return proven or Status.STALLED
