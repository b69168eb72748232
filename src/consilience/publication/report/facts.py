"""What a report says, before it becomes words and pictures: gathered once, and bounded however large the domain is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.factors import Identity
from consilience.domain.queries import Query
from consilience.domain.questions import Question
from consilience.errors import ConsilienceError
from consilience.estimators import Estimate
from consilience.estimators.base import Progress
from consilience.publication.about import Publication
from consilience.publication.answers import AnswerTable, table_of
from consilience.publication.bundle import Bundle
from consilience.publication.diagnostics import Diagnosis, diagnose
from consilience.publication.intervals import Interval, intervals
from consilience.publication.report.associations import Associations, associations
from consilience.publication.report.tables import (
    Asked,
    Choice,
    Margin,
    ShownTable,
    answered,
    choose_tables,
    shown_table,
    totals_of,
)
from consilience.publication.report.texts import Texts, english

Floats = NDArray[np.float64]

MOST_MARGINS = 24
"""1-way margins of more attributes than these are left to the tables of the bundle."""
MOST_RANKED = 200
"""So many of the measured tables, the smallest, are ranked by how certain they are."""
MOST_ANSWERS = 100_000
"""No more answers than these get error bars: as many numbers are kept for every refit."""


@dataclass(frozen=True)
class Settings:
    """How a report is made; it is printed there, because anyone may want to repeat it."""

    level: float = 0.95
    refits: int = 200
    seed: int = 0
    say: Texts = field(default_factory=english)
    """The catalogue that the page is written with."""

    def to_json(self) -> dict[str, Any]:
        """The settings that a manifest holds."""
        return {"level": self.level, "refits": self.refits, "seed": self.seed}


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
    tables: tuple[ShownTable, ...]
    """The measured tables that the page shows, sums and means last."""
    choice: Choice
    """Which they are, and which are left out."""
    no_intervals: str | None
    """Why there are no error bars; None where there are."""
    notes: tuple[str, ...]

    @property
    def estimate(self) -> Estimate:
        return self.release.estimate

    @property
    def details(self) -> Publication:
        """Who publishes the release, about whom and for what."""
        return self.release.publication

    def headings(self, names: Sequence[str]) -> list[str]:
        """What people read in place of these attributes' names."""
        domain = self.estimate.domain
        return [domain[name].heading if name in domain else name for name in names]

    @property
    def by_name(self) -> dict[str, str]:
        """The headings of all attributes that are counted."""
        names = self.estimate.domain.counted_names
        return dict(zip(names, self.headings(names), strict=True))

    @property
    def say(self) -> Texts:
        return self.settings.say

    @property
    def manifest(self) -> Mapping[str, Any]:
        return self.release.manifest


def gather(release: Bundle, settings: Settings, *, progress: Progress | None = None) -> ReportFacts:
    """All that the report of a release shows. Post-processing: nothing is spent."""
    estimate = release.estimate
    names = estimate.domain.counted_names
    diagnosis = diagnose(estimate, seed=settings.seed, progress=progress)
    together = associations(estimate, progress=progress) if len(names) > 1 else None
    shown = names[:MOST_MARGINS]
    margins = [Question(Query.marginal()), *(Question(Query.marginal(name)) for name in shown)]
    choice = choose_tables(estimate, shown, {} if together is None else together.looked_at)
    ranked, left_out = _ranked(estimate, margins)
    answers = [answered(estimate, each) for each in choice.shown]
    room, wanted = MOST_ANSWERS, dict.fromkeys(margins)
    for table in answers:
        room -= len(table)
        if room >= 0:
            wanted |= dict.fromkeys([table.question, *totals_of(table)])
    found, reason = _intervals(estimate, list(dict.fromkeys([*wanted, *ranked])), settings, progress)
    certain = [each for question, each in found.items() if question in {*margins[1:], *ranked}]
    certainty = [_certainty(estimate, each) for each in certain if each.covers != "not measured"]
    return ReportFacts(
        release=release,
        settings=settings,
        checksum=release.manifest["files"]["measurements.parquet"],
        diagnosis=diagnosis,
        total=_margin(estimate, None, found.get(margins[0]), settings.say),
        margins=tuple(
            _margin(estimate, name, found.get(asked), settings.say)
            for name, asked in zip(shown, margins[1:], strict=True)
        ),
        margins_left_out=len(names) - len(shown),
        certainty=tuple(sorted(certainty, key=lambda each: each.relative)),
        tables_left_out=left_out,
        associations=together,
        tables=_tables(estimate, choice.shown, answers, found),
        choice=choice,
        no_intervals=reason,
        notes=tuple(dict.fromkeys(note for each in found.values() for note in each.notes)),
    )


def _tables(
    estimate: Estimate, asked: Sequence[Asked], answers: Sequence[AnswerTable], found: Mapping[Question, Interval]
) -> tuple[ShownTable, ...]:
    return tuple(shown_table(estimate, *each, found) for each in zip(asked, answers, strict=True))


def _ranked(estimate: Estimate, margins: Sequence[Question]) -> tuple[list[Question], int]:
    """The measured tables that are ranked by their certainty besides the margins, and how many are not."""
    linear = [each.query for each in estimate.measurements if each.kind == "linear" and each.query.factors]
    asked = dict.fromkeys(Question(table_of(query)) for query in linear)
    sizes = {each: each.query.bind(estimate.domain).size for each in asked if each not in margins}
    kept: list[Question] = []
    room = MOST_ANSWERS - sum(each.query.bind(estimate.domain).size for each in margins)
    for each in sorted(sizes, key=sizes.__getitem__)[:MOST_RANKED]:
        room -= sizes[each]
        if room >= 0:
            kept.append(each)
    return kept, len(sizes) - len(kept)


def _intervals(
    estimate: Estimate, asked: Sequence[Question], settings: Settings, progress: Progress | None
) -> tuple[dict[Question, Interval], str | None]:
    """The interval of each question; none of them, and the reason, where the estimate cannot have any."""
    try:
        found = intervals(
            estimate, asked, level=settings.level, refits=settings.refits, seed=settings.seed, progress=progress
        )
    except ConsilienceError as error:
        return {}, str(error)
    return dict(zip(asked, found, strict=True)), None


def _certainty(estimate: Estimate, interval: Interval) -> Certainty:
    half = float((interval.high - interval.low).sum() / 2)
    whole = float(np.abs(interval.estimates).sum())
    return Certainty(
        asks=(
            " × ".join(estimate.domain[name].heading for name in interval.query.attributes)
            if all(isinstance(factor, Identity) for _, factor in interval.query.factors)
            else interval.query.describe()
        ),
        answers=interval.estimates.size,
        relative=half / whole if whole > 0 else math.inf,
        uncertain=int(interval.uncertain.sum()),
        covers=interval.covers,
    )


def _margin(estimate: Estimate, name: str | None, interval: Interval | None, say: Texts) -> Margin:
    query = Query.marginal() if name is None else Query.marginal(name)
    basis = estimate.basis(query)
    counts = np.where(basis.not_measured, np.nan, estimate.answer(query).ravel())
    if name is None:
        return Margin(None, "total", (say("all_records"),), counts, interval, basis, say("total"))
    attribute = estimate.domain[name]
    labels = tuple(attribute.say(label) for label in attribute.labels)
    return Margin(
        name, attribute.kind, labels, counts, interval, basis, attribute.heading, len(attribute.ordinary_labels)
    )
