"""What all first-order optimisers over models share: where they start, what they minimise, who watches."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.models.counted_oracle import CountedOracle
from consilience.models.fitting.model_losses import ModelLoss
from consilience.models.fitting.monitor import Monitor
from consilience.solvers.fit import Status

Array = NDArray[np.float64]

STEPS_BETWEEN_BOUNDS = 20


@dataclass(frozen=True, eq=False)
class SmoothSearch:
    """A loss to be made small over models, from some potentials on."""

    oracle: CountedOracle
    loss: ModelLoss
    monitor: Monitor
    start: Array

    def note(self, potentials: Array, marginals: Array, objective: float) -> Status | None:
        """Take note of a model, and now and then of what its gradient proves; a status if it is time to stop."""
        status = self.monitor.meet(potentials, marginals, objective)
        if status is None and self.monitor.steps % STEPS_BETWEEN_BOUNDS == 0:
            status = self.monitor.prove(objective - self.loss.gap(self.oracle, marginals))
        return status
