"""What a release is after it was written: a bundle that answers, with error bars, records and a report."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from consilience.domain.descriptions import Described, Description
from consilience.domain.files import shown_path
from consilience.domain.queries import Query
from consilience.domain.questions import Question
from consilience.errors import ConsilienceError, DeclarationError, MeasurementError, TooLarge
from consilience.estimators import Estimate
from consilience.estimators.amount_sums import measured_sums
from consilience.estimators.base import Progress
from consilience.publication import explorer, maps, synthetic
from consilience.publication import report as reports
from consilience.publication.answers import AnswerTable, Change, Style, answer_table, in_order, in_whole_numbers
from consilience.publication.answers.cross_tables import (
    Answers,
    CrossTable,
    Percent,
    cross_table,
    margin_queries,
    share_of,
)
from consilience.publication.answers.whole_numbers import whole_answers
from consilience.publication.bundle import Bundle, Finding, check_bundle, keep_refits, open_bundle, write_bundle
from consilience.publication.intervals import Interval, interval, intervals
from consilience.publication.questions import as_question

# ----------------------------------------------------------------------------------------------------------------------
# `answer`: a question as a person would type it becomes a table, with error bars, in whole numbers or crossed.
#
#     questions ──► answer_table ──► whole_answers ──► intervals ──► cross_table
#                   (always)         (integers)        (interval)    (cross)
#
# Several questions share the refits of their error bars, and the joint table that their whole numbers add up to.


logger = logging.getLogger("consilience")

TOP_LEVEL = 0.95
"""Of the error bars that the largest answers always have: their order is nothing without the noise."""


def answer(
    source: Estimate | Bundle,
    query: Query | Question | str,
    *,
    per: Query | str | None = None,
    interval: float | None = None,
    refits: int = 200,
    seed: int = 0,
    integers: bool = False,
    cross: bool = False,
    columns: Sequence[str] | None = None,
    percent: Percent | None = None,
    guess: bool = False,
    progress: Progress | None = None,
) -> AnswerTable | CrossTable:
    """The table of the answers to a query, with labels and with what each stands on. Spends nothing.

    `interval` is the level of error bars, such as 0.95. `per` divides the answers by those to another query. `integers`
    gives whole numbers that add up. `cross` gives a cross-table with totals, and `columns` says what goes across in it.
    `percent` gives shares of each row, of each column, or of the total, where the last attribute, or `columns`, go
    across. `guess` adds what the account assumes where nothing was measured.

    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"age": 3, "sex": 2})
    >>> noisy = {"age": [4.1, -1.2, 9.0], "sex": [7.5, 5.1]}
    >>> account = cs.estimate(cs.MeasurementSet.from_marginals(domain, noisy, noise=cs.Laplace(2.0)))
    >>> print(answer(account, "by sex", integers=True))
    sex
    sex,estimate,noisy,basis
    0,7,7.5,measured
    1,5,5.1,measured
    """
    return answers(
        source,
        [query],
        per=per,
        interval=interval,
        refits=refits,
        seed=seed,
        integers=integers,
        cross=cross,
        columns=columns,
        percent=percent,
        guess=guess,
        progress=progress,
    ).tables[0]


def answers(
    source: Estimate | Bundle,
    queries: Sequence[Query | Question | str],
    *,
    per: Query | str | None = None,
    interval: float | None = None,
    refits: int = 200,
    seed: int = 0,
    integers: bool = False,
    cross: bool = False,
    columns: Sequence[str] | None = None,
    percent: Percent | None = None,
    guess: bool = False,
    progress: Progress | None = None,
) -> Answers:
    """What `answer` gives of each query, with the same refits for all; those that are too large are told, not raised.

    A single query that is too large raises `TooLarge`.
    """
    if per is not None and integers:
        raise DeclarationError("ratios are no whole numbers; choose one of per= and integers=True")
    if percent is not None and (per is not None or integers):
        raise DeclarationError("percent= says what answers are shares of; leave per= and integers= away")
    if columns and not cross and percent is None:
        raise DeclarationError("columns= says what goes across in a cross-table; add cross=True")
    estimate = source.estimate if isinstance(source, Bundle) else source
    questions = [as_question(each, per).over(estimate.domain) for each in queries]
    for each in questions:
        if integers and (each.per is not None or each.quantiles_of is not None or each.word):
            raise DeclarationError(
                f"{each.describe()!r} is no count, and integers=True gives whole numbers of counts; leave one away"
            )
        if integers and measured_sums(estimate, each.query) is not None:
            raise DeclarationError(
                f"{each.describe()!r} was measured as sums, which integers=True does not round; leave it away"
            )
    asked = _Asked(estimate, questions, tuple(columns) if columns else None, percent, integers, cross, guess)
    asked.check()
    level = TOP_LEVEL if interval is None and any(each.top is not None for each in questions) else interval
    bars = {} if level is None else asked.error_bars(level, refits, seed, progress, only_top=interval is None)
    if bars and isinstance(source, Bundle):
        keep_refits(source)
    return Answers(tuple(asked.form(table, bars) for table in asked.plain), asked.unanswered)


@dataclass(frozen=True, eq=False)
class _Asked:
    """What was asked for, once it is known of what."""

    estimate: Estimate
    questions: list[Question]
    columns: tuple[str, ...] | None
    percent: Percent | None
    integers: bool
    cross: bool
    guess: bool
    unanswered: dict[str, str] = field(default_factory=dict)

    @cached_property
    def plain(self) -> list[AnswerTable]:
        """The answers without error bars; whole numbers where they are wanted."""
        tables = []
        for each in self.questions:
            try:
                tables.append(self._table(each))
            except TooLarge as error:
                if len(self.questions) == 1:
                    raise
                self.unanswered[each.describe()] = str(error)
        if not self.integers:
            return tables
        whole = whole_answers(self.estimate, [table.query for table in tables], columns=self.columns)
        logger.info("whole numbers: %s", whole.note)
        return [in_whole_numbers(*pair) for pair in zip(tables, whole.answers, strict=True)]

    def _table(self, question: Question) -> AnswerTable:
        table = answer_table(self.estimate, question, guess=self.guess)
        if self.percent is None:
            return table
        shares = share_of(table, self.percent, columns=self.columns)
        return answer_table(self.estimate, shares, guess=self.guess, percent=True)

    def check(self) -> None:
        """Refuse what cannot be answered or printed, before error bars take their time."""
        for table in self.plain:
            self.form(table, {})

    def margins(self, table: AnswerTable) -> list[Question]:
        """What the totals of a cross-table ask for."""
        return list(margin_queries(table, columns=self.columns)) if self.cross else []

    def form(self, table: AnswerTable, bars: dict[Question, Interval]) -> AnswerTable | CrossTable:
        """The table with its error bars as it is to be shown."""
        table = replace(table, interval=bars.get(table.question))
        if table.question.top is not None:
            return in_order(table)
        if not self.cross:
            return table
        percent = table.style.percent
        margins = [answer_table(self.estimate, each, bars.get(each), percent=percent) for each in self.margins(table)]
        return cross_table(table, columns=self.columns, margins=margins)

    def error_bars(
        self, level: float, refits: int, seed: int, progress: Progress | None, *, only_top: bool
    ) -> dict[Question, Interval]:
        """The intervals of all queries and margins, from the same refits; none, and why, where there can be none."""
        tables = [table for table in self.plain if table.question.top is not None or not only_top]
        totals = [each for table in tables for each in self.margins(table) if table.question.top is None]
        wanted = list(dict.fromkeys([*(table.question for table in tables), *totals]))
        try:
            found = intervals(self.estimate, wanted, level=level, refits=refits, seed=seed, progress=progress)
        except DeclarationError:
            raise
        except ConsilienceError as error:
            logger.warning("no error bars: %s", error)
            return {}
        how = (
            "exact covariances" if all(each.how == "covariances" for each in found) else f"{refits} refits, seed {seed}"
        )
        logger.info("error bars: %g %% intervals by %s", level * 100, how)
        for line in dict.fromkeys(line for each in found for line in each.notes):
            logger.info("  %s", line)
        return dict(zip(wanted, found, strict=True))


def compare(
    before: Estimate | Bundle,
    after: Estimate | Bundle,
    queries: Sequence[Query | Question | str],
    *,
    level: float = 0.95,
    refits: int = 200,
    seed: int = 0,
    names: tuple[str, str] = ("before", "after"),
    progress: Progress | None = None,
) -> list[AnswerTable]:
    """The change of each answer between two releases of one series, with its interval. Spends nothing.

    The noise of the two is independent, so that distances to the ends of both intervals add up in squares (Zou and
    Donner 2008): from a change d = b − a to the lower end √((b − lowᵇ)² + (highᵃ − a)²), and likewise up.

    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"sex": 2})
    >>> years = [{"sex": [90.2, 80.1]}, {"sex": [95.3, 20.4]}]
    >>> sets = [cs.MeasurementSet.from_marginals(domain, year, noise=cs.Laplace(2.0)) for year in years]
    >>> (table,) = compare(*map(cs.estimate, sets), ["by sex"])
    >>> [row["note"] for row in table.rows()]
    ['not told apart from no difference: the interval holds 0', 'fell']
    """
    pair = [source.estimate if isinstance(source, Bundle) else source for source in (before, after)]
    _refuse_shared_noise(pair, names)
    asked = [as_question(each) for each in queries]
    for each in asked:
        if each.top is not None or each.word == "minus":
            raise DeclarationError(
                f"{each.describe()!r} orders or compares within one release; ask for its answers alone"
            )
    tables = [[answer_table(one, each) for each in asked] for one in pair]
    for early, late in zip(*tables, strict=True):
        if early.axes != late.axes:
            raise DeclarationError(
                f"{early.title!r} has the labels {_some(early)} in {names[0]} and {_some(late)} in {names[1]}; a "
                "change needs the same in both: ask about attributes that both declare alike"
            )
    was, now = (intervals(one, asked, level, refits=refits, seed=seed, progress=progress) for one in pair)
    for source in (before, after):
        if isinstance(source, Bundle):
            keep_refits(source)
    each = zip(zip(*tables, strict=True), zip(was, now, strict=True), strict=True)
    return [_changed(early, late, ends, names) for (early, late), ends in each]


def _changed(
    early: AnswerTable, late: AnswerTable, ends: tuple[Interval, Interval], names: tuple[str, str]
) -> AnswerTable:
    """The later answers less the earlier ones."""
    was, now = ends
    with np.errstate(invalid="ignore"):
        change = late.numbers - early.numbers
        below = np.hypot(now.estimates - now.low, was.high - was.estimates)
        above = np.hypot(now.high - now.estimates, was.estimates - was.low)
        low, high = change - below, change + above
    basis = early.basis.worse(late.basis)
    question = replace(early.question, word="minus", other=early.question)
    notes = tuple(dict.fromkeys((*was.notes, *now.notes)))
    change = np.where(basis.not_measured, np.nan, change)
    interval = Interval(question, was.level, change, low, high, basis.worst, was.how, was.refits, notes)
    told = np.where(low > 0.0, "rose", np.where(high < 0.0, "fell", ""))
    return replace(
        early,
        question=question,
        numbers=change,
        noisy=None,
        private=early.private and late.private,
        basis=basis,
        adds_up=False,
        interval=interval,
        remarks=tuple(told.tolist()),
        style=replace(early.style, days=None, beyond=Style.beyond),
        change=Change(names, (early.estimates, late.estimates), early.style),
    )


def _some(table: AnswerTable) -> str:
    labels = [label for axis in table.axes for label in axis]
    return ", ".join(labels[:6]) + ", ..." * (len(labels) > 6)


def _refuse_shared_noise(pair: Sequence[Estimate], names: tuple[str, str]) -> None:
    for early in pair[0].measurements:
        for late in pair[1].measurements:
            if early.query == late.query and early.values.size > 1 and np.array_equal(early.values, late.values):
                raise DeclarationError(
                    f"{names[0]} and {names[1]} hold the same noisy values of {early.query.describe()!r}: they are no "
                    "two releases of a series, and their noise is not independent; compare releases that were measured "
                    "apart"
                )


# ----------------------------------------------------------------------------------------------------------------------
# What a release is after it was written: a bundle that answers, with error bars, records and a report.


class Release(Described, Bundle):
    """A bundle, opened: what it answers, and what can be made of it. Nothing here spends budget.

    `answer`, `interval`, `synthesize`, `report` and `map` are those of `consilience`, of this bundle. `explore` writes
    a page that answers anything.

    >>> import tempfile
    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"age": 3, "sex": 2})
    >>> noisy = {"age": [4.1, -1.2, 9.0], "sex": [7.5, 5.1]}
    >>> account = cs.estimate(cs.MeasurementSet.from_marginals(domain, noisy, noise=cs.Laplace(2.0)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     release = open_release(cs.write_bundle(account, f"{folder}/release"))
    >>> print(release.answer("by sex", integers=True))
    sex
    sex,estimate,noisy,basis
    0,7,7.5,measured
    1,5,5.1,measured
    """

    answer = answer
    synthesize = synthetic.synthesize
    report = reports.report
    explore = explorer.explore
    map = maps.map

    def interval(
        self,
        query: Query | Question | str,
        level: float = 0.95,
        *,
        per: Query | str | None = None,
        refits: int = 200,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Interval:
        """Error bars of the answers to a query, as `consilience.interval` gives them."""
        found = interval(self.estimate, query, level, per=per, refits=refits, seed=seed, progress=progress)
        keep_refits(self)
        return found

    def described(self) -> Description:
        """Whose release it is, how it was made, and what it promises."""
        made = self.estimate.described()
        promise = self.estimate.measurements.privacy.describe().split("\n")
        title = f"Release of {self.estimate.domain.name!r} in {shown_path(self.path)}"
        return replace(made, title=title, lines=(made.title, *made.lines, *promise))

    def check(self) -> Finding:
        """What the bundle on disk is now, and what speaks against publishing it; an error says what is wrong."""
        return open_bundle(self.path).finding


def open_release(path: str | os.PathLike[str]) -> Release:
    """The bundle at a path, checked: all files there with their checksums and in agreement, and nothing foreign.

    >>> import tempfile
    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"age": 3, "sex": 2})
    >>> noisy = {"age": [4.1, -1.2, 9.0], "sex": [7.5, 5.1]}
    >>> account = cs.estimate(cs.MeasurementSet.from_marginals(domain, noisy, noise=cs.Laplace(2.0)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(open_release(cs.write_bundle(account, f"{folder}/release")).estimate.domain.names)
    ('age', 'sex')
    """
    opened = open_bundle(path)
    return Release(opened.path, opened.manifest, opened.estimate)


def publish(
    fitted: Estimate,
    out: str | os.PathLike[str],
    *,
    interval: float | None = None,
    refits: int = 200,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Release:
    """The bundle of an estimate, written with error bars if asked for; where there can be none, without, saying why."""
    try:
        path = write_bundle(
            fitted, out, overwrite=overwrite, interval=interval, refits=refits, seed=seed, progress=progress
        )
    except MeasurementError as error:
        if interval is None:
            raise
        logger.warning("no error bars: %s", error)
        path = write_bundle(fitted, out, overwrite=overwrite)
    return Release(path, check_bundle(path), fitted)
