"""Error against the truth. NOT PRIVATE: what it finds is computed from confidential records without noise.

It is for people who may see the records: to compare methods, or to judge a release before it is published. Results say
that they are not private wherever they are shown, and none of them may be published or used to choose what is.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain.factors import Identity
from consilience.domain.queries import BoundQuery, Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators import Estimate
from consilience.measurements.basis import BasisName
from consilience.publication import Release
from consilience.source import Source

# ----------------------------------------------------------------------------------------------------------------------
# What an evaluation found: the errors of every query and their means, marked NOT PRIVATE wherever they are shown.


MARK = "NOT PRIVATE"
NOTICE = f"{MARK}: computed from the confidential records without noise; do not publish these numbers"

HEADER = ("query", "basis", "weight", "answers", "workload error", "total variation", "max error")


@dataclass(frozen=True)
class QueryError:
    """How far the estimate is from the truth on one query W over the attributes C. NOT PRIVATE."""

    query: Query
    weight: float
    answers: int
    """How many numbers the query asks for."""
    workload_error: float
    """‖Wμ − Wμ̂‖₁ / 2‖Wμ‖₁; where all true answers are 0, as if they summed to 1."""
    total_variation: float
    """‖μ − μ̂‖₁ / 2N on the marginal μ over C."""
    max_error: float
    """The largest |Wμ − Wμ̂| of a single answer, in records."""
    basis: BasisName
    """What the answer with the least stands on; of one that is not measured this is the error of an assumption."""

    def to_json(self) -> dict[str, Any]:
        return {
            "query": self.query.describe(),
            "private": False,
            "basis": self.basis,
            "weight": self.weight,
            "answers": self.answers,
            "workload_error": self.workload_error,
            "total_variation": self.total_variation,
            "max_error": self.max_error,
        }

    def cells(self) -> tuple[str, ...]:
        """The row of a table."""
        numbers = (self.workload_error, self.total_variation)
        shown = tuple(f"{value:.4f}" for value in numbers)
        return (
            self.query.describe(),
            self.basis,
            f"{self.weight:g}",
            f"{self.answers:,}",
            *shown,
            f"{self.max_error:,.1f}",
        )


@dataclass(frozen=True)
class Evaluation:
    """The errors of an estimate on a workload. NOT PRIVATE: made from the confidential records."""

    dataset: str
    method: str
    """The name of the estimator that made the estimate."""
    rows: tuple[QueryError, ...]

    @property
    def private(self) -> Literal[False]:
        """Never: the truth is in these numbers."""
        return False

    # Error = 1/|C| Σ_C ‖W_C μ_C − W_C μ̂_C‖₁ / 2‖W_C μ_C‖₁ (McKenna, Sheldon and Miklau 2019, §5.1); with weights the
    # mean is by weight, and equal weights give the paper's.
    @property
    def workload_error(self) -> float:
        """The weighted mean over the queries of ‖Wμ − Wμ̂‖₁ / 2‖Wμ‖₁."""
        return self._mean([row.workload_error for row in self.rows])

    @property
    def total_variation(self) -> float:
        """The weighted mean over the queries' marginals of ‖μ − μ̂‖₁ / 2N: 1 is as far apart as two tables can be."""
        return self._mean([row.total_variation for row in self.rows])

    # Error = 1/(kN) Σᵢ cᵢ ‖Mᵢ(D) − Mᵢ(D̂)‖₁ for k marginals of weights cᵢ (McKenna, Mullins, Sheldon and Miklau 2022,
    # Definition 2). Unlike a mean by weight it grows with the weights.
    @property
    def l1_error(self) -> float:
        """The mean over the queries' marginals of weight × ‖μ − μ̂‖₁ / N."""
        return float(np.mean([2.0 * row.weight * row.total_variation for row in self.rows]))

    @property
    def max_error(self) -> float:
        """The largest error of any single answer, in records."""
        return max(row.max_error for row in self.rows)

    def _mean(self, values: Sequence[float]) -> float:
        return float(np.average(values, weights=[row.weight for row in self.rows]))

    def to_json(self) -> str:
        """The errors as JSON, which says that they are not private."""
        document = {"private": False, "notice": NOTICE, "dataset": self.dataset, "method": self.method}
        document |= {"workload_error": self.workload_error, "total_variation": self.total_variation}
        document |= {"l1_error": self.l1_error, "max_error": self.max_error}
        return json.dumps(document | {"queries": [row.to_json() for row in self.rows]}, indent=2, ensure_ascii=False)

    def table(self) -> str:
        """The errors as text; every line says that they are not private."""
        cells = [HEADER, *(row.cells() for row in self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(HEADER))]
        lines = [f"{self.dataset}, estimated by {self.method}: error against the truth on {len(self.rows)} queries"]
        for query, *numbers in cells:
            aligned = (number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True))
            lines.append("  ".join([query.ljust(widths[0]), *aligned]))
        lines += self.summary()
        return "\n".join(f"{MARK}  {line}" for line in lines)

    def summary(self) -> list[str]:
        """A line for each error over the whole workload."""
        return [
            f"workload error {self.workload_error:.4f}: mean of ‖Wμ − Wμ̂‖₁ / 2‖Wμ‖₁ over the queries W",
            f"total variation {self.total_variation:.4f}: mean of ‖μ − μ̂‖₁ / 2N over their marginals μ",
            f"L1 error {self.l1_error:.4f}: mean of weight × ‖μ − μ̂‖₁ / N",
            f"max error {self.max_error:,.1f} records, of a single answer",
        ]

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"Evaluation({MARK}, {self.dataset!r}, {self.method!r}, {len(self.rows)} queries)"


# ----------------------------------------------------------------------------------------------------------------------
# `evaluate`: an estimate against the confidential records. NOT PRIVATE.


CELLS_AT_ONCE = 20_000_000
"""How many exact counts are held at a time; each part of a larger workload is a pass over the records of its own."""

Part = list[tuple[BoundQuery, float]]


def evaluate(estimated: Estimate | Release, source: Source, workload: Workload) -> Evaluation:
    """How far the estimate is from the records on each query of the workload. NOT PRIVATE: no noise, no ledger.

    Workload errors are those of McKenna et al. (2019, §5.1), total variation and L1 errors those of the AIM paper
    (McKenna et al. 2022). Nothing that was found may be published or used to choose what is.

    >>> import consilience as cs
    >>> import pyarrow as pa
    >>> domain = cs.Domain("people", (cs.Attribute.categorical("sex", ["F", "M"]),))
    >>> people = pa.table({"sex": ["F", "M", "F"]})
    >>> noisy = cs.MeasurementSet.from_marginals(domain, {"sex": [2.5, 0.5]}, noise=cs.Laplace(2.0))
    >>> found = evaluate(cs.estimate(noisy), cs.open_table(people, domain), cs.Workload.of(["by sex"]))
    >>> round(found.workload_error, 2), found.private
    (0.17, False)
    """
    estimate = estimated.estimate if isinstance(estimated, Release) else estimated
    _refuse_other_table(estimate, source)
    if not len(workload):
        raise DeclarationError("the workload has no queries, so there is no error to tell; name at least one query")
    bounds = [(query.bind(source.domain), weight) for query, weight in workload]
    rows = [row for part in _parts(bounds) for row in _errors(estimate, source, part)]
    return Evaluation(source.name, str(estimate.method.get("method", "unnamed")), tuple(rows))


def _refuse_other_table(estimate: Estimate, source: Source) -> None:
    """Refuse an estimate of other attributes than the source has."""
    ours, theirs = estimate.domain, source.domain
    if ours.attributes == theirs.attributes:
        return
    pairs = zip(ours.names, theirs.names, strict=False)
    different = next((a for a, b in pairs if ours[a] != theirs[b]), f"number {min(len(ours.names), len(theirs.names))}")
    raise DeclarationError(
        f"the estimate is of {ours.name!r} with {len(ours.names)} attributes, the table is declared as "
        f"{theirs.name!r} with {len(theirs.names)}; they first differ at attribute {different!r}: open the table with "
        "the domain that was released"
    )


def _parts(bounds: Part) -> Iterator[Part]:
    """The queries in order, in parts whose marginals fit into CELLS_AT_ONCE, or that have one query."""
    part: Part = []
    cells = 0
    for bound, weight in bounds:
        size = int(np.prod(bound.table_shape, dtype=np.int64))
        if part and cells + size > CELLS_AT_ONCE:
            yield part
            part, cells = [], 0
        part.append((bound, weight))
        cells += size
    yield part


def _errors(estimate: Estimate, source: Source, part: Part) -> Iterator[QueryError]:
    sets = list(dict.fromkeys(bound.attributes for bound, _ in part))
    step = 1.0 if source.domain.weight is None else source.domain.weight.step
    exact = {names: counts * step for names, counts in zip(sets, source.exact_counts(sets), strict=True)}
    answers = estimate.answers([bound.query for bound, _ in part])
    for (bound, weight), found in zip(part, answers, strict=True):
        yield _error(bound, weight, exact[bound.attributes], found, estimate)


def _error(
    bound: BoundQuery,
    weight: float,
    exact: NDArray[np.floating[Any]],
    answers: NDArray[np.float64],
    estimate: Estimate,
) -> QueryError:
    plain = all(isinstance(factor, Identity) for _, factor in bound.query.factors)
    truth = exact if plain else np.asarray(bound.answer(exact))
    missed = np.abs(truth - answers)
    apart = (missed if plain else np.abs(exact - estimate.marginal(*bound.attributes))).sum()
    return QueryError(
        query=bound.query,
        weight=weight,
        answers=bound.size,
        workload_error=float(missed.sum() / (2.0 * (np.abs(truth).sum() or 1.0))),
        total_variation=float(apart / (2.0 * (exact.sum() or 1))),
        max_error=float(missed.max()),
        basis=estimate.basis(bound.query).worst,
    )
