"""What a model is judged by: the costs of its measured rows, or any convex loss of its marginals.

First-order optimisers need a loss, its gradient in the flat marginals, and a bound on how far it is above its least
value. For costs of rows the bound comes from prices (`certificate`); a loss that is known by value and gradient alone
has the bound g·μ + N·max(−g) of its gradient.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.models.counted_oracle import CountedOracle
from consilience.models.fitting.certificate import slack_of
from consilience.models.fitting.rows import MeasuredRows
from consilience.solvers.tables.row_costs import RowCosts

Array = NDArray[np.float64]


class ConvexLoss(Protocol):
    """Any convex function of answers with its gradient; answers are rows, or flat marginals where there are none."""

    def value_and_gradient(self, answers: Array) -> tuple[float, Array]: ...


class ModelLoss(Protocol):
    """A convex loss of flat marginals."""

    def value(self, marginals: Array) -> float: ...

    def value_and_gradient(self, marginals: Array) -> tuple[float, Array]: ...

    def gap(self, oracle: CountedOracle, marginals: Array) -> float:
        """By how much, at most, the loss at these marginals exceeds that of the best model."""
        ...


@dataclass(frozen=True, eq=False)
class RowLoss:
    """The costs of measured rows; where a cost has a kink its gradient is one of its slopes there."""

    rows: MeasuredRows
    costs: RowCosts

    def __post_init__(self) -> None:
        if self.costs.exact.any():
            raise DeclarationError(
                f"{np.count_nonzero(self.costs.exact)} rows are exact, which gradients cannot keep: use the proximal "
                "optimiser, or give these rows noise"
            )

    def value(self, marginals: Array) -> float:
        return self.costs.value(self.rows.apply(marginals) - self.costs.observed)

    def value_and_gradient(self, marginals: Array) -> tuple[float, Array]:
        residual = self.rows.apply(marginals) - self.costs.observed
        return self.costs.value(residual), self.rows.adjoint(self._prices(residual))

    def gap(self, oracle: CountedOracle, marginals: Array) -> float:
        residual = self.rows.apply(marginals) - self.costs.observed
        prices = self._prices(residual)
        return self.costs.gap(residual, prices, slack_of(oracle, self.rows.adjoint(prices), marginals))

    def _prices(self, residual: Array) -> Array:
        """φ'(r)."""
        felt = self.costs.felt(residual)
        return np.where(felt > 0, np.sign(residual) * (self.costs.slope + self.costs.curvature * felt), 0.0)


@dataclass(frozen=True, eq=False)
class CustomLoss:
    """A convex loss that someone else wrote, of rows or of flat marginals; what is not finite is refused."""

    loss: ConvexLoss
    rows: MeasuredRows | None

    def value(self, marginals: Array) -> float:
        return self.value_and_gradient(marginals)[0]

    def value_and_gradient(self, marginals: Array) -> tuple[float, Array]:
        answers = marginals if self.rows is None else self.rows.apply(marginals)
        value, gradient = self.loss.value_and_gradient(answers)
        gradient = np.asarray(gradient, dtype=np.float64)
        if gradient.shape != answers.shape:
            raise DeclarationError(
                f"the gradient of the loss has shape {gradient.shape} for answers of shape {answers.shape}: give one "
                "derivative for each answer"
            )
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            raise DeclarationError(
                f"the loss is {value} and {np.count_nonzero(~np.isfinite(gradient))} of its {gradient.size} "
                "derivatives are not finite: a loss must be finite at the marginals of every model, with zeros too"
            )
        return float(value), gradient if self.rows is None else self.rows.adjoint(gradient)

    def gap(self, oracle: CountedOracle, marginals: Array) -> float:
        return slack_of(oracle, self.value_and_gradient(marginals)[1], marginals)
