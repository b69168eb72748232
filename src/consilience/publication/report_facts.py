"""What a report says, before it becomes words and pictures: gathered once, and bounded however large the domain is."""

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
from consilience.publication.associations import Associations, associations
from consilience.publication.bundle import Bundle
from consilience.publication.diagnostics import Diagnosis, diagnose
from consilience.publication.intervals import Interval, intervals

Floats = NDArray[np.float64]

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
    estimates: Floats
    """Not a number where nothing was measured."""
    interval: Interval | None
    basis: Basis

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
    asked = [each.query for each in estimate.measurements if each.kind == "linear" and each.query.factors]
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
    return Margin(name, attribute.kind, attribute.labels, counts, interval, basis)
