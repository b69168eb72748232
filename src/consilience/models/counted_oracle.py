"""What optimisers ask of an oracle of marginals, and how often they asked."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.models.layout import TableLayout
from consilience.models.oracle import Marginals

Array = NDArray[np.float64]


class Oracle(Protocol):
    """The marginals of a model, and the largest potential of a cell, as `MarginalOracle` gives them."""

    @property
    def layout(self) -> TableLayout: ...

    @property
    def total(self) -> float: ...

    def marginals(self, potentials: Array) -> Marginals: ...

    def largest(self, potentials: Array) -> float: ...

    def derivative(self, potentials: Array, direction: Array) -> Array: ...


@dataclass
class CountedOracle:
    """An oracle that counts its calls."""

    oracle: Oracle
    calls: int = 0

    @property
    def layout(self) -> TableLayout:
        return self.oracle.layout

    @property
    def total(self) -> float:
        return self.oracle.total

    def marginals(self, potentials: Array) -> Marginals:
        self.calls += 1
        return self.oracle.marginals(potentials)

    def largest(self, potentials: Array) -> float:
        self.calls += 1
        return self.oracle.largest(potentials)

    def derivative(self, potentials: Array, direction: Array) -> Array:
        self.calls += 1
        return self.oracle.derivative(potentials, direction)
