"""How strongly attributes go together, from an estimate's 2-way margins.

Cramér's V = √(χ² / (N · (min(r, c) − 1))) with χ² = Σ (n_ij − n_i n_j / N)² / (n_i n_j / N): 0 where two attributes are
independent, 1 where one says all of the other. Of two attributes that were never looked at together there is none: the
model takes them to be independent, which nobody measured. Noise that a fit has not taken out counts as association: of
small tables with much noise V is too large.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.domain.queries import Query
from consilience.errors import ConsilienceError
from consilience.estimators import Estimate
from consilience.estimators.base import Progress

Floats = NDArray[np.float64]

MOST_ATTRIBUTES = 30
MOST_RANKED = 40
"""Of more attributes than these only the measured pairs are looked at to find the strongest ones."""
LARGEST_PAIR = 1_000_000
"""Pairs with more cells are left out."""


@dataclass(frozen=True, eq=False)
class Associations:
    """Cramér's V for each pair of some attributes; NaN where it could not be computed."""

    attributes: tuple[str, ...]
    strengths: Floats
    left_out: int
    """How many other attributes there are, all with weaker associations."""
    measured: frozenset[frozenset[str]]
    """The pairs that measurements determine."""
    not_measured: frozenset[frozenset[str]]
    """The pairs of which nobody measured how they go together; of all others the model says what there is to say."""

    def strongest(self) -> list[tuple[str, str, float]]:
        """All pairs, the strongest first."""
        pairs = [
            (one, other, float(self.strengths[i, j]))
            for (i, one), (j, other) in itertools.combinations(enumerate(self.attributes), 2)
            if np.isfinite(self.strengths[i, j])
        ]
        return sorted(pairs, key=lambda pair: -pair[2])


def cramers_v(table: Floats) -> float:
    """Cramér's V of a table of counts; NaN where an attribute has one value, or nothing was counted.

    >>> cramers_v(np.array([[10.0, 0.0], [0.0, 10.0]])), cramers_v(np.array([[5.0, 5.0], [5.0, 5.0]]))
    (1.0, 0.0)
    """
    counts = np.maximum(table, 0.0)
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    if min(counts.shape) < 2:
        return float("nan")
    total = counts.sum()
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / total
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    return float(min(np.sqrt(chi_squared / (total * (min(counts.shape) - 1))), 1.0))


def associations(estimate: Estimate, *, progress: Progress | None = None) -> Associations:
    """Cramér's V of every pair of the attributes with the strongest associations.

    Attributes of which no pair has one, because none was looked at together with another, are left out.
    """
    names = estimate.domain.counted_names
    many = len(names) > MOST_RANKED
    together = _named_together(estimate) if many else frozenset()
    ranked = [pair for pair in itertools.combinations(names, 2) if not many or frozenset(pair) in together]
    found = _strengths(estimate, ranked, progress)
    known = {name for pair, strength in found.items() for name in pair if np.isfinite(strength)}
    kept = tuple(name for name in names if name in known)
    kept = kept if len(kept) <= MOST_ATTRIBUTES else _most_associated(kept, found)
    pairs = list(itertools.combinations(kept, 2))
    found |= _strengths(estimate, [pair for pair in pairs if frozenset(pair) not in found], progress)
    strengths = np.full((len(kept), len(kept)), np.nan)
    for i, j in itertools.permutations(range(len(kept)), 2):
        strengths[i, j] = found.get(frozenset((kept[i], kept[j])), np.nan)
    bases = {frozenset(pair): estimate.basis(Query.marginal(*pair)).worst for pair in pairs}
    measured, missing = (frozenset(p for p, word in bases.items() if word == w) for w in ("measured", "not measured"))
    return Associations(kept, strengths, len(known) - len(kept), measured, missing)


def _named_together(estimate: Estimate) -> frozenset[frozenset[str]]:
    """The pairs of attributes that some measurement is about."""
    scopes = [each.query.attributes for each in estimate.measurements]
    return frozenset(frozenset(pair) for scope in scopes for pair in itertools.combinations(scope, 2))


def _strengths(
    estimate: Estimate, pairs: list[tuple[str, str]], progress: Progress | None
) -> dict[frozenset[str], float]:
    sizes = estimate.domain.sizes
    fitting = [pair for pair in pairs if np.prod(sizes(pair), dtype=float) <= LARGEST_PAIR]
    fitting = [pair for pair in fitting if estimate.basis(Query.marginal(*pair)).worst != "not measured"]
    found: dict[frozenset[str], float] = {}
    for start in range(0, len(fitting), 50):
        part = fitting[start : start + 50]
        for pair, table in zip(part, _tables(estimate, part), strict=True):
            found[frozenset(pair)] = float("nan") if table is None else cramers_v(table)
        if progress is not None:
            progress("associations", start + len(part), len(fitting))
    return found


def _tables(estimate: Estimate, pairs: list[tuple[str, str]]) -> list[Floats | None]:
    """The 2-way margins; None for those that the estimate cannot give."""
    try:
        return list(estimate.answers([Query.marginal(*pair) for pair in pairs]))
    except ConsilienceError:
        return [_table(estimate, pair) for pair in pairs]


def _table(estimate: Estimate, pair: tuple[str, str]) -> Floats | None:
    try:
        return estimate.marginal(*pair)
    except ConsilienceError:
        return None


def _most_associated(names: tuple[str, ...], found: dict[frozenset[str], float]) -> tuple[str, ...]:
    """The attributes of the strongest pairs, in the domain's order."""
    kept: dict[str, None] = {}
    for pair, _ in sorted(found.items(), key=lambda item: -np.nan_to_num(item[1], nan=-1.0)):
        if len(kept) < MOST_ATTRIBUTES:
            kept |= dict.fromkeys(sorted(pair - kept.keys())[: MOST_ATTRIBUTES - len(kept)])
    chosen = set(kept)
    return tuple(name for name in names if name in chosen)
