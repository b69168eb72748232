"""What a release is after it was written: a bundle that answers, with error bars, records and a report."""

import os
from collections.abc import Sequence

import pyarrow as pa

from consilience.domain.queries import Query, Question
from consilience.estimators.base import Progress
from consilience.publication import answering, intervals, synthetic
from consilience.publication import report as reports
from consilience.publication.answers import AnswerTable
from consilience.publication.bundle import Bundle, Finding, open_bundle
from consilience.publication.cross_tables import CrossTable


class Release(Bundle):
    """A bundle, opened: what it answers, and what can be made of it. Nothing here spends budget."""

    def answer(
        self,
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
        """The table of the answers to a query, as `consilience.answer` gives it."""
        return answering.answer(
            self,
            query,
            per=per,
            interval=interval,
            refits=refits,
            seed=seed,
            integers=integers,
            cross=cross,
            columns=columns,
            guess=guess,
            progress=progress,
        )

    def interval(
        self,
        query: Query | Question | str,
        level: float = 0.95,
        *,
        per: Query | str | None = None,
        refits: int = 200,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> intervals.Interval:
        """Error bars of the answers to a query, as `consilience.interval` gives them."""
        return intervals.interval(self.estimate, query, level, per=per, refits=refits, seed=seed, progress=progress)

    def synthesize(
        self,
        rows: int | None = None,
        *,
        seed: int = 0,
        spread: synthetic.Spread = "even",
        fill_unmeasured: bool = False,
        progress: Progress | None = None,
    ) -> pa.Table:
        """Synthetic records, as `consilience.synthesize` makes them; `write_synthetic` writes them to a file."""
        return synthetic.synthesize(
            self, rows, seed=seed, spread=spread, fill_unmeasured=fill_unmeasured, progress=progress
        )

    def report(
        self,
        *,
        out: str | os.PathLike[str] | None = None,
        level: float = 0.95,
        refits: int = 200,
        seed: int = 0,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> reports.Report:
        """The report, written into the bundle or the page alone to `out`, as `consilience.report` does."""
        return reports.report(
            self, out=out, level=level, refits=refits, seed=seed, overwrite=overwrite, progress=progress
        )

    def check(self) -> Finding:
        """What the bundle on disk is now, and what speaks against publishing it; an error says what is wrong."""
        return open_bundle(self.path).finding


def open_release(path: str | os.PathLike[str]) -> Release:
    """The bundle at a path, checked: all files there with their checksums and in agreement, and nothing foreign."""
    opened = open_bundle(path)
    return Release(opened.path, opened.manifest, opened.estimate)
