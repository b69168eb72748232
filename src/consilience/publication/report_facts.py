"""What a report says, before it becomes words and pictures: gathered once, and bounded however large the domain is."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.queries import Query
from consilience.errors import ConsilienceError
from consilience.estimators import Estimate
from consilience.estimators.base import Progress
from consilience.measurements.basis import Basis
from consilience.publication.answers import table_of
from consilience.publication.bundle import Bundle
from consilience.publication.diagnostics import Diagnosis, diagnose
from consilience.publication.intervals import Interval, intervals

# ----------------------------------------------------------------------------------------------------------------------
# How strongly attributes go together, from an estimate's 2-way margins.
#
# Cramér's V = √(χ² / (N · (min(r, c) − 1))) with χ² = Σ (n_ij − n_i n_j / N)² / (n_i n_j / N): 0 where two attributes
# are independent, 1 where one says all of the other. Of two attributes that were never looked at together there is
# none: the model takes them to be independent, which nobody measured. Noise that a fit has not taken out counts as
# association: of small tables with much noise V is too large.


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
        for pair, table in zip(part, _association_tables(estimate, part), strict=True):
            found[frozenset(pair)] = float("nan") if table is None else cramers_v(table)
        if progress is not None:
            progress("associations", start + len(part), len(fitting))
    return found


def _association_tables(estimate: Estimate, pairs: list[tuple[str, str]]) -> list[Floats | None]:
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


# ----------------------------------------------------------------------------------------------------------------------
# What a report says, before it becomes words and pictures: gathered once, and bounded however large the domain is.


MOST_MARGINS = 24
"""1-way margins of more attributes than these are left to the tables of the bundle."""
MOST_TABLES = 200
MOST_ANSWERS = 100_000
"""No more answers than these get error bars: as many numbers are kept for every refit."""


@dataclass(frozen=True)
class Settings:
    """How a report is made; it is printed there, because anyone may want to repeat it."""

    level: float = 0.95
    refits: int = 200
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Margin:
    """The counts of each value of one attribute, or, without an attribute, of all records."""

    attribute: str | None
    kind: str
    labels: tuple[str, ...]
    """The values as people read them."""
    estimates: Floats
    """Not a number where nothing was measured."""
    interval: Interval | None
    basis: Basis
    heading: str = "total"
    """The attribute's title with its unit, or its name."""
    ordinary: int | None = None
    """How many of the labels are its own values; those after them stand for what is missing or unlisted."""

    @property
    def uncertain(self) -> NDArray[np.bool_]:
        """Where the interval is wider than the answer; nowhere without an interval."""
        return np.zeros(len(self.labels), dtype=np.bool_) if self.interval is None else self.interval.uncertain


@dataclass(frozen=True)
class Certainty:
    """How wide the intervals of one table are."""

    asks: str
    answers: int
    relative: float
    """The half-widths of all intervals in parts of the sum of all answers."""
    uncertain: int
    """How many answers have an interval wider than themselves."""
    covers: str


@dataclass(frozen=True, eq=False)
class ReportFacts:
    """Everything that a report shows."""

    release: Bundle
    settings: Settings
    checksum: str
    """Of the measurement file."""
    diagnosis: Diagnosis
    total: Margin
    margins: tuple[Margin, ...]
    margins_left_out: int
    certainty: tuple[Certainty, ...]
    """From the most certain to the least certain table; those with answers that were not measured have no rank."""
    tables_left_out: int
    associations: Associations | None
    no_intervals: str | None
    """Why there are no error bars; None where there are."""
    notes: tuple[str, ...]

    @property
    def estimate(self) -> Estimate:
        return self.release.estimate

    @property
    def manifest(self) -> Mapping[str, Any]:
        return self.release.manifest


def gather(release: Bundle, settings: Settings, *, progress: Progress | None = None) -> ReportFacts:
    """All that the report of a release shows. Post-processing: nothing is spent."""
    estimate = release.estimate
    diagnosis = diagnose(estimate, seed=settings.seed, progress=progress)
    shown = estimate.domain.counted_names[:MOST_MARGINS]
    margins = [Query.marginal(), *(Query.marginal(name) for name in shown)]
    tables, left_out = _tables(estimate, margins)
    found, reason = _intervals(estimate, [*margins, *tables], settings, progress)
    ranked = [each for each in found.values() if each.query.factors and each.covers != "not measured"]
    certainty = [_certainty(each) for each in ranked]
    together = associations(estimate, progress=progress) if len(estimate.domain.counted_names) > 1 else None
    return ReportFacts(
        release=release,
        settings=settings,
        checksum=release.manifest["files"]["measurements.parquet"],
        diagnosis=diagnosis,
        total=_margin(estimate, None, found.get(margins[0])),
        margins=tuple(_margin(estimate, name, found.get(Query.marginal(name))) for name in shown),
        margins_left_out=len(estimate.domain.counted_names) - len(shown),
        certainty=tuple(sorted(certainty, key=lambda each: each.relative)),
        tables_left_out=left_out,
        associations=together,
        no_intervals=reason,
        notes=tuple(dict.fromkeys(note for each in found.values() for note in each.notes)),
    )


def _tables(estimate: Estimate, margins: Sequence[Query]) -> tuple[list[Query], int]:
    """The measured tables that get error bars besides the margins, and how many measured ones do not."""
    linear = [each.query for each in estimate.measurements if each.kind == "linear" and each.query.factors]
    asked = [table_of(query) for query in linear]
    queries = [query for query in dict.fromkeys(asked) if query not in margins]
    kept: list[Query] = []
    room = MOST_ANSWERS - sum(query.bind(estimate.domain).size for query in margins)
    for query in sorted(queries, key=lambda query: query.bind(estimate.domain).size)[:MOST_TABLES]:
        room -= query.bind(estimate.domain).size
        if room >= 0:
            kept.append(query)
    return kept, len(queries) - len(kept)


def _intervals(
    estimate: Estimate, queries: Sequence[Query], settings: Settings, progress: Progress | None
) -> tuple[dict[Query, Interval], str | None]:
    """The interval of each query; none of them, and the reason, where the estimate cannot have any."""
    try:
        found = intervals(
            estimate, queries, level=settings.level, refits=settings.refits, seed=settings.seed, progress=progress
        )
    except ConsilienceError as error:
        return {}, str(error)
    return dict(zip(queries, found, strict=True)), None


def _certainty(interval: Interval) -> Certainty:
    half = float((interval.high - interval.low).sum() / 2)
    whole = float(np.abs(interval.estimates).sum())
    return Certainty(
        asks=interval.query.describe(),
        answers=interval.estimates.size,
        relative=half / whole if whole > 0 else math.inf,
        uncertain=int(interval.uncertain.sum()),
        covers=interval.covers,
    )


def _margin(estimate: Estimate, name: str | None, interval: Interval | None) -> Margin:
    query = Query.marginal() if name is None else Query.marginal(name)
    basis = estimate.basis(query)
    counts = np.where(basis.not_measured, np.nan, estimate.answer(query).ravel())
    if name is None:
        return Margin(None, "total", ("all records",), counts, interval, basis)
    attribute = estimate.domain[name]
    labels = tuple(attribute.say(label) for label in attribute.labels)
    return Margin(
        name, attribute.kind, labels, counts, interval, basis, attribute.heading, len(attribute.ordinary_labels)
    )
