"""DataCube: which marginals to measure so that the marginals of a workload come out best (Ding et al. 2011).

Marginals are ordered in a lattice: one over C′ ⊇ C holds the one over C, whose cells each sum mag(C, C′) of its own,
the product of the sizes of the attributes in C′ but not in C. With s marginals measured together a cell has the noise
variance 2s²/ε² (for ρ-zCDP: s/2ρ), so the best of them gives C with the variance

    2s²/ε² · min { mag(C, C′) : C′ measured, C′ ⊇ C }.

The plan bounds the largest of these variances over the workload ("bound max variance"). That is NP-hard, and Ding et
al. solve it to within (ln |workload| + 1)²: for a number s and a bound on the variance, each marginal of the lattice
covers those of the workload that it would give within the bound, and greedy set cover tells whether about s of them
cover all; the bound is searched by bisection, for each s. Here a bound on mag takes the place of the two: for every
value M that a magnitude can have, greedy set cover finds few marginals that give each of the workload with mag ≤ M, and
of all M that with the least s² M (s M for ρ) is taken. Bisection for an s ends at one of these covers. (Where
magnitudes have more than 64 values, 64 of them are tried.) Two steps are added that can only help: a marginal whose
part the others do is dropped, and M is what the cover attains.

This is written from memory of the paper, which also has a second objective (as many marginals as possible within a
given variance) and its own ways to consistency. Here the measured marginals are fitted by
`estimators.Residual(nonnegative=False)`, least squares in closed form, or by `Table`.

The choice looks at the domain, the workload and the budget's unit, never at the data. It goes through all marginals of
the lattice, 2^d of them: for few attributes. There, the full table alone is often best: all pairs of 9 flags come from
it with variance 128, in units of 2/ε²; from all 36 pairs with 1296; and from three views of six flags with 144.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.domain.workloads import attribute_sets
from consilience.errors import DeclarationError, TooLarge
from consilience.privacy.gate import Gate

MOST_PAIRS = 2**23
"""How many pairs of a marginal of the lattice and one of the workload are gone through."""

MOST_BOUNDS = 64
"""So many bounds on the magnitude are tried, spread evenly over all where there are more."""


@dataclass(frozen=True)
class DataCube:
    """The marginals from which those of a workload follow with the least largest variance, in equal shares.

    The workload is all marginals over `ways` attributes, or those named in `marginals`.

    >>> flags = Domain.from_sizes({name: 2 for name in "abcd"})
    >>> DataCube(ways=2).chosen(flags)
    (('a', 'b', 'c', 'd'),)
    """

    ways: int = 2
    marginals: Sequence[tuple[str, ...] | str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.ways, int) or isinstance(self.ways, bool) or self.ways < 1:
            raise DeclarationError(f"{self.ways!r}-way marginals were asked for; a number of ways is from 1 up")
        if self.marginals is None:
            return
        named = tuple((each,) if isinstance(each, str) else tuple(each) for each in self.marginals)
        object.__setattr__(self, "marginals", named)
        if not any(named):
            raise DeclarationError("no marginals were named; name at least one, such as [('age', 'sex')]")

    def chosen(self, domain: Domain, *, pure: bool = True) -> tuple[tuple[str, ...], ...]:
        """The marginals to measure; `pure` says that noise grows with their number and not with its root."""
        names = domain.counted_names
        if self.marginals is None:
            wanted = attribute_sets(domain, min(self.ways, len(names)))
        else:
            wanted = [domain.ordered((each,) if isinstance(each, str) else each) for each in self.marginals]
        places = {name: place for place, name in enumerate(names)}
        for name in (name for each in wanted for name in each if name not in places):
            raise DeclarationError(f"the attribute {name!r} is continuous and has no cells; leave it out")
        masks = tuple(sorted({sum(1 << places[name] for name in each) for each in wanted}))
        found = least_variance_cover(domain.shape, masks, 2 if pure else 1)
        return tuple(tuple(name for name, place in places.items() if mask >> place & 1) for mask in found)

    def run(self, gate: Gate) -> None:
        chosen = self.chosen(gate.domain, pure=gate.budget.additive_unit == "epsilon")
        gate.measure([Query.marginal(*names) for names in chosen], gate.budget)

    def to_json(self) -> dict[str, Any]:
        if self.marginals is None:
            return {"plan": "data-cube", "ways": self.ways}
        return {"plan": "data-cube", "marginals": [list(names) for names in self.marginals]}


@lru_cache(maxsize=32)
def least_variance_cover(sizes: tuple[int, ...], wanted: tuple[int, ...], power: int) -> tuple[int, ...]:
    """The sets to measure, as bit masks over attributes of these sizes, by the search of the module's head.

    `power` is that of the number of sets in the variance: 2 for Laplace, 1 for Gaussian noise.
    """
    if len(sizes) > 40 or len(wanted) << len(sizes) > MOST_PAIRS:
        raise TooLarge(
            f"{len(wanted):,} marginals of {len(sizes)} attributes have a lattice of 2^{len(sizes)} to choose from, "
            f"and {MOST_PAIRS:,} pairs are gone through at most; use the plan Views, or fewer attributes"
        )
    magnitudes = _magnitudes(sizes, wanted)
    best, least = (), math.inf
    for bound in _bounds(magnitudes):
        cover = _without_idle(magnitudes, _greedy_cover(magnitudes <= bound), bound)
        variance = float(len(cover)) ** power * _attained(magnitudes, cover)
        if variance < least:
            best, least = cover, variance
    return tuple(best)


def _magnitudes(sizes: tuple[int, ...], wanted: tuple[int, ...]) -> NDArray[np.float64]:
    """mag(C, C′) for each set C′ of the lattice (rows, by mask) and wanted C; infinite where C′ does not hold C."""
    masks = np.arange(1 << len(sizes), dtype=np.int64)
    cells = np.ones(masks.size)
    for place, size in enumerate(sizes):
        cells *= np.where(masks >> place & 1, float(size), 1.0)
    targets = np.array(wanted, dtype=np.int64)
    found = cells[:, None] / cells[targets][None, :]
    found[(targets[None, :] & ~masks[:, None]) != 0] = np.inf
    return found


def _bounds(magnitudes: NDArray[np.float64]) -> NDArray[np.float64]:
    """The magnitudes to try as bounds, ascending."""
    distinct = np.unique(magnitudes[np.isfinite(magnitudes)])
    if distinct.size <= MOST_BOUNDS:
        return distinct
    return distinct[np.unique(np.linspace(0, distinct.size - 1, MOST_BOUNDS).round().astype(np.intp))]


def _greedy_cover(covers: NDArray[np.bool_]) -> list[int]:
    """Rows that together cover all columns, each time the one that covers most of what is left; ties to the smallest.

    Every column is covered by some row: each wanted set holds itself.
    """
    gains = covers.sum(axis=1, dtype=np.int64)
    left = np.ones(covers.shape[1], dtype=np.bool_)
    chosen = []
    while left.any():
        row = int(np.argmax(gains))
        chosen.append(row)
        newly = np.flatnonzero(covers[row] & left)
        left[newly] = False
        gains -= covers[:, newly].sum(axis=1, dtype=np.int64)
    return chosen


def _without_idle(magnitudes: NDArray[np.float64], cover: list[int], bound: float) -> list[int]:
    """The cover without rows whose columns the others cover, too; earlier choices are kept first."""
    kept = list(cover)
    for row in reversed(cover):
        others = [each for each in kept if each != row]
        if others and bool(np.all(magnitudes[others].min(axis=0) <= bound)):
            kept = others
    return kept


def _attained(magnitudes: NDArray[np.float64], cover: list[int]) -> float:
    """The largest of the least magnitudes with which the cover gives each wanted set."""
    return float(magnitudes[cover].min(axis=0).max())
