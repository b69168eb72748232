"""A convex loss of marginals that the user wrote, with its gradient."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.errors import DeclarationError
from consilience.models.layout import TableLayout

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MarginalLoss:
    """Any convex function of some marginals, such as the log-likelihood of a mechanism that adds no noise to counts.

    `marginals` names the attributes of each marginal. `evaluate` is given these marginals in counts, one array each
    with its axes in the order named, and returns the loss and its gradient, one array of the same shape for each.
    """

    marginals: tuple[tuple[str, ...], ...]
    evaluate: Callable[[Sequence[Array]], tuple[float, Sequence[Array]]]

    def __post_init__(self) -> None:
        named = tuple((each,) if isinstance(each, str) else tuple(each) for each in self.marginals)
        object.__setattr__(self, "marginals", named)
        if not named or not all(named):
            raise DeclarationError("a loss of marginals names at least one marginal, and an attribute in each")
        if len({frozenset(each) for each in named}) < len(named):
            raise DeclarationError(f"the loss names a marginal twice among {list(named)}; name each once")

    def scopes(self, domain: Domain) -> tuple[tuple[int, ...], ...]:
        """The places of the attributes of each marginal, ascending."""
        names = domain.counted_names
        return tuple(tuple(sorted(names.index(name) for name in domain.ordered(each))) for each in self.marginals)

    def of_layout(self, layout: TableLayout, domain: Domain) -> "FlatLoss":
        """The loss as a function of flat marginals."""
        names = domain.counted_names
        orders = [tuple(np.argsort([names.index(name) for name in each])) for each in self.marginals]
        places = [layout.scopes.index(scope) for scope in self.scopes(domain)]
        return FlatLoss(self, layout, places, orders)


@dataclass(frozen=True, eq=False)
class FlatLoss:
    """A loss of named marginals on the flat marginals of a layout."""

    loss: MarginalLoss
    layout: TableLayout
    places: list[int]
    orders: list[tuple[int, ...]]
    """For each marginal the axes of its own order, ascending by attribute."""

    def value_and_gradient(self, answers: Array) -> tuple[float, Array]:
        tables = self.layout.unpack(answers)
        asked = [
            tables[place].transpose(np.argsort(order)) for place, order in zip(self.places, self.orders, strict=True)
        ]
        value, gradients = self.loss.evaluate(asked)
        if len(gradients) != len(asked):
            raise DeclarationError(f"the loss has {len(asked)} marginals and returned {len(gradients)} gradients")
        flat = [np.zeros(self.layout.shape(k)) for k in range(len(self.layout.scopes))]
        for place, order, table, gradient in zip(self.places, self.orders, asked, gradients, strict=True):
            found = np.asarray(gradient, dtype=np.float64)
            if found.shape != table.shape:
                raise DeclarationError(
                    f"a gradient of the loss has shape {found.shape} and its marginal {table.shape}; they must agree"
                )
            flat[place] = found.transpose(order)
        return float(value), self.layout.pack(flat)
