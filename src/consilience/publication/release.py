"""What a release is after it was written: a bundle that answers, with error bars, records and a report."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from consilience.domain.queries import Query, Question
from consilience.errors import ConsilienceError, DeclarationError, TooLarge
from consilience.estimators import Estimate
from consilience.estimators.base import Progress
from consilience.publication import report as reports
from consilience.publication import synthetic
from consilience.publication.answers import AnswerTable, answer_table, in_whole_numbers
from consilience.publication.bundle import Bundle, Finding, open_bundle
from consilience.publication.cross_tables import CrossTable, cross_table, margin_queries
from consilience.publication.intervals import Interval, as_question, interval, intervals
from consilience.publication.whole_numbers import whole_answers

# ----------------------------------------------------------------------------------------------------------------------
# `answer`: a question as a person would type it becomes a table, with error bars, in whole numbers or crossed.
#
#     questions ──► answer_table ──► whole_answers ──► intervals ──► cross_table
#                   (always)         (integers)        (interval)    (cross)
#
# Several questions share the refits of their error bars, and the joint table that their whole numbers add up to.


logger = logging.getLogger("consilience")


@dataclass(frozen=True)
class Answers:
    """The tables of several questions, and why there is none of the others."""

    tables: tuple[AnswerTable | CrossTable, ...]
    unanswered: dict[str, str]
    """Why there is no answer, by the queries that need too much memory."""


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
    guess: bool = False,
    progress: Progress | None = None,
) -> AnswerTable | CrossTable:
    """The table of the answers to a query, with labels and with what each stands on. Spends nothing.

    `interval` is the level of error bars, such as 0.95. `per` divides the answers by those to another query. `integers`
    gives whole numbers that add up. `cross` gives a cross-table with totals, and `columns` says what goes across in it.
    `guess` adds what the account assumes where nothing was measured.

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
    guess: bool = False,
    progress: Progress | None = None,
) -> Answers:
    """What `answer` gives of each query, with the same refits for all; those that are too large are told, not raised.

    A single query that is too large raises `TooLarge`.
    """
    if per is not None and integers:
        raise DeclarationError("ratios are no whole numbers; choose one of per= and integers=True")
    if columns and not cross:
        raise DeclarationError("columns= says what goes across in a cross-table; add cross=True")
    estimate = source.estimate if isinstance(source, Bundle) else source
    questions = [as_question(each, per).over(estimate.domain) for each in queries]
    asked = _Asked(estimate, questions, tuple(columns) if columns else None, integers, cross, guess)
    asked.check()
    bars = {} if interval is None else asked.error_bars(interval, refits, seed, progress)
    return Answers(tuple(asked.form(table, bars) for table in asked.plain), asked.unanswered)


@dataclass(frozen=True, eq=False)
class _Asked:
    """What was asked for, once it is known of what."""

    estimate: Estimate
    questions: list[Question]
    columns: tuple[str, ...] | None
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
                tables.append(answer_table(self.estimate, each, guess=self.guess))
            except TooLarge as error:
                if len(self.questions) == 1:
                    raise
                self.unanswered[each.describe()] = str(error)
        if not self.integers:
            return tables
        whole = whole_answers(self.estimate, [table.query for table in tables], columns=self.columns)
        logger.info("whole numbers: %s", whole.note)
        return [in_whole_numbers(*pair) for pair in zip(tables, whole.answers, strict=True)]

    def check(self) -> None:
        """Refuse what cannot be answered or printed, before error bars take their time."""
        for table in self.plain:
            self.form(table, {})

    def margins(self, table: AnswerTable) -> list[Question]:
        """What the totals of a cross-table ask for."""
        return [Question(query) for query in margin_queries(table, columns=self.columns)] if self.cross else []

    def form(self, table: AnswerTable, bars: dict[Question, Interval]) -> AnswerTable | CrossTable:
        """The table with its error bars as it is to be shown."""
        table = replace(table, interval=bars.get(table.question))
        if not self.cross:
            return table
        margins = [answer_table(self.estimate, each, bars.get(each)) for each in self.margins(table)]
        return cross_table(table, columns=self.columns, margins=margins)

    def error_bars(self, level: float, refits: int, seed: int, progress: Progress | None) -> dict[Question, Interval]:
        """The intervals of all queries and margins, from the same refits; none, and why, where there can be none."""
        totals = [each for table in self.plain for each in self.margins(table)]
        wanted = list(dict.fromkeys([*(table.question for table in self.plain), *totals]))
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


# ----------------------------------------------------------------------------------------------------------------------
# What a release is after it was written: a bundle that answers, with error bars, records and a report.


class Release(Bundle):
    """A bundle, opened: what it answers, and what can be made of it. Nothing here spends budget.

    `answer`, `interval`, `synthesize` and `report` are those of `consilience`, of this bundle.

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
        return interval(self.estimate, query, level, per=per, refits=refits, seed=seed, progress=progress)

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
