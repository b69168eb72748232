"""A small classifier: logistic regression on indicators of values, and how well it tells two labels apart.

With x the indicators of a record's values and y = ±1 its label it minimises Σ log(1 + exp(−y (b + w·x))) + ‖w‖²/2.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.stats import rankdata

Array = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Skill:
    """How well scores tell labels apart: the share guessed right, and the area under the ROC curve."""

    accuracy: float
    area: float


@dataclass(frozen=True, eq=False)
class Classifier:
    """A number for each value of each attribute; records score the sum of theirs."""

    sizes: tuple[int, ...]
    weights: Array

    def scores(self, codes: Codes) -> Array:
        return indicators(codes, self.sizes) @ self.weights[1:] + self.weights[0]

    def skill(self, codes: Codes, labels: Codes) -> Skill:
        """Its skill on records it has not seen."""
        scores = self.scores(codes)
        return Skill(float(np.mean((scores > 0) == labels)), area_under_curve(scores, labels))


def train(codes: Codes, labels: Codes, sizes: tuple[int, ...], *, ridge: float = 1.0) -> Classifier:
    """The classifier of records whose labels are 0 or 1."""
    x: Any = indicators(codes, sizes)
    signs = 2.0 * labels - 1.0

    def loss(weights: Array) -> tuple[float, Array]:
        margins = signs * (x @ weights[1:] + weights[0])
        pulls = -signs / (1.0 + np.exp(np.minimum(margins, 500.0)))
        value = np.logaddexp(0.0, -margins).sum() + 0.5 * ridge * weights[1:] @ weights[1:]
        return float(value), np.concatenate([[pulls.sum()], x.T @ pulls + ridge * weights[1:]])

    start = np.zeros(sum(sizes) + 1)
    found = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300})
    return Classifier(sizes, found.x)


def indicators(codes: Codes, sizes: tuple[int, ...]) -> Any:
    """A row for each record with a 1 for each of its values."""
    first = np.cumsum([0, *sizes[:-1]])
    columns = (codes + first).ravel()
    rows = np.repeat(np.arange(len(codes)), len(sizes))
    return sp.csr_array((np.ones(columns.size), (rows, columns)), (len(codes), sum(sizes)))


def area_under_curve(scores: Array, labels: Codes) -> float:
    """The chance that a record of label 1 scores higher than one of label 0; ties count half (Mann and Whitney)."""
    positive = int(labels.sum())
    ranks = float(rankdata(scores)[labels == 1].sum())
    return (ranks - positive * (positive + 1) / 2) / (positive * (len(labels) - positive))
