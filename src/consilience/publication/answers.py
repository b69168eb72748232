"""Answers as people read them: labels, the noisy measurement where there was one, and the estimate."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.queries import Query
from consilience.estimators import Estimate


@dataclass(frozen=True, eq=False)
class AnswerTable:
    """The answers to one query: a row for each, with its labels."""

    query: Query
    columns: tuple[str, ...]
    """The attribute of each label column."""
    labels: tuple[tuple[str, ...], ...]
    estimates: NDArray[np.float64]
    noisy: NDArray[np.float64] | None
    """The measured values, where this very query was measured once."""
    private: bool

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each answer as a mapping from column names to values."""
        for i, labels in enumerate(self.labels):
            row: dict[str, Any] = dict(zip(self.columns, labels, strict=True))
            row["estimate"] = float(self.estimates[i])
            if self.noisy is not None:
                row["noisy"] = float(self.noisy[i])
            yield row

    @property
    def header(self) -> tuple[str, ...]:
        return (*self.columns, "estimate", *(() if self.noisy is None else ("noisy",)))

    def to_csv(self) -> str:
        """The answers as comma-separated text, numbers in full."""
        stream = io.StringIO()
        writer = csv.DictWriter(stream, self.header, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows())
        return stream.getvalue()

    def to_json(self) -> str:
        """The answers as JSON: the query, whether the noise was real, and a list of rows."""
        document = {"query": self.query.describe(), "private": self.private, "answers": list(self.rows())}
        return json.dumps(document, indent=2, ensure_ascii=False)


def answer_table(estimate: Estimate, query: Query | str) -> AnswerTable:
    """The estimate's answers to a query, with labels."""
    asked = Query.parse(query) if isinstance(query, str) else query
    bound = asked.bind(estimate.domain)
    noisy = [each.values for each in estimate.measurements if each.query == asked]
    return AnswerTable(
        query=asked,
        columns=bound.attributes,
        labels=tuple(bound.label_rows()),
        estimates=estimate.answer(asked).ravel(),
        noisy=noisy[0] if len(noisy) == 1 else None,
        private=estimate.private,
    )
