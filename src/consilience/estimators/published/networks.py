"""A Bayesian network as conditional tables: made of noisy counts, sampled, and asked for its marginals.

With attributes in an order, and for each group of attributes X that the order brings a table Pr[X | Π] on attributes Π
that came before,

    Pr[x] = Π_X Pr[x_X | x_Π].

The tables are factors of a graphical model, from which any marginal follows exactly as long as its junction tree is
small. Records are drawn one attribute group after the other (Zhang et al. 2017, section 3).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.rng import Generator
from consilience.models.model import GraphicalModel

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Conditional:
    """Pr[children | parents], an axis for each parent and then one for each child; the children's axes sum to 1."""

    parents: tuple[int, ...]
    children: tuple[int, ...]
    shares: Array

    @property
    def scope(self) -> tuple[int, ...]:
        return (*self.parents, *self.children)

    @property
    def rows(self) -> Array:
        """A row for each combination of the parents' values."""
        children = int(np.prod(self.shares.shape[len(self.parents) :], dtype=np.int64))
        return self.shares.reshape(-1, children)


def conditional_of_counts(
    counts: Array, parents: Sequence[int], children: Sequence[int], allowed: NDArray[np.bool_] | None = None
) -> Conditional:
    """The conditional table of noisy counts over parents, then children: what is negative is 0, each row sums to 1.

    Where nothing is left of a row, it is the mean of all rows; where nothing is left at all, it is even. Cells that are
    not allowed stay empty, unless a whole row is, which then no record has and which is even.

    >>> conditional_of_counts(np.array([[3.0, 1.0], [-2.0, -1.0]]), [0], [1]).shares.tolist()
    [[0.75, 0.25], [0.75, 0.25]]
    """
    shape = counts.shape
    kept = np.maximum(counts, 0.0)
    possible = np.ones(shape, dtype=np.bool_) if allowed is None else allowed
    rows = np.where(possible, kept, 0.0).reshape(int(np.prod(shape[: len(parents)], dtype=np.int64)), -1)
    possible = possible.reshape(rows.shape)
    largest = float(rows.max(initial=0.0))
    rows = rows / largest if largest > 0 else rows
    for instead in (np.broadcast_to(rows.sum(axis=0), rows.shape), np.ones(rows.shape)):
        empty = rows.sum(axis=1, keepdims=True) <= 0
        rows = np.where(empty, np.where(possible, instead, 0.0), rows)
    rows = np.where(rows.sum(axis=1, keepdims=True) <= 0, 1.0, rows)
    shares = rows / rows.sum(axis=1, keepdims=True)
    return Conditional(tuple(parents), tuple(children), shares.reshape(shape))


@dataclass(frozen=True, eq=False)
class Network:
    """Conditional tables in an order in which parents come before children; attributes in none are even."""

    sizes: tuple[int, ...]
    conditionals: tuple[Conditional, ...]

    def model(self, total: float, allowed: Sequence[tuple[Sequence[int], NDArray[np.bool_]]] = ()) -> GraphicalModel:
        """The same distribution as a graphical model, given that what is not allowed does not occur."""
        with np.errstate(divide="ignore"):  # log 0 = −∞ says that a cell is impossible
            logs = [np.log(each.shares) for each in self.conditionals]
        scopes = [each.scope for each in self.conditionals]
        return GraphicalModel.of(self.sizes, scopes, logs, total=total, allowed=allowed)

    def sample(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        """Codes of independent records, a row each and a column for each attribute."""
        codes = np.empty((rows, len(self.sizes)), dtype=np.int64)
        drawn = {place for each in self.conditionals for place in each.children}
        for each in self.conditionals:
            _draw(codes, each, rng)
        for place in sorted(set(range(len(self.sizes))) - drawn):
            codes[:, place] = rng.integers(0, self.sizes[place], rows)
        return codes


def _draw(codes: NDArray[np.int64], conditional: Conditional, rng: Generator) -> None:
    """Give every record the children's values, by its parents' row of the table.

    Row ρ's cumulated shares, plus ρ, lie between those of the rows around it: one search in the whole table finds the
    cell of every record.
    """
    cumulated = np.cumsum(conditional.rows, axis=1)
    cumulated /= cumulated[:, -1:]
    width = cumulated.shape[1]
    last = width - 1 - np.argmax(conditional.rows[:, ::-1] > 0, axis=1)
    shape = conditional.shares.shape
    held = tuple(codes[:, place] for place in conditional.parents)
    row = np.ravel_multi_index(held, shape[: len(held)]) if held else np.zeros(len(codes), dtype=np.int64)
    ends = (cumulated + np.arange(len(cumulated))[:, None]).ravel()
    found = np.searchsorted(ends, row + rng.random(len(codes)), side="right") - row * width
    cells = np.minimum(found, last[row])
    for place, values in zip(conditional.children, np.unravel_index(cells, shape[len(held) :]), strict=True):
        codes[:, place] = values
