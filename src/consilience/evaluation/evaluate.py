"""`evaluate`: an estimate against the confidential records. NOT PRIVATE."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from consilience.domain.factors import Identity
from consilience.domain.queries import BoundQuery
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators import Estimate
from consilience.evaluation.errors import Evaluation, QueryError
from consilience.publication import Release
from consilience.source import Source

CELLS_AT_ONCE = 20_000_000
"""How many exact counts are held at a time; each part of a larger workload is a pass over the records of its own."""

Part = list[tuple[BoundQuery, float]]


def evaluate(estimated: Estimate | Release, source: Source, workload: Workload) -> Evaluation:
    """How far the estimate is from the records on each query of the workload. NOT PRIVATE: no noise, no ledger.

    Workload errors are those of McKenna et al. (2019, §5.1), total variation and L1 errors those of the AIM paper
    (McKenna et al. 2022). Nothing that was found may be published or used to choose what is.
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
    exact = dict(zip(sets, source.exact_counts(sets), strict=True))
    answers = estimate.answers([bound.query for bound, _ in part])
    for (bound, weight), found in zip(part, answers, strict=True):
        yield _error(bound, weight, exact[bound.attributes], found, estimate)


def _error(
    bound: BoundQuery,
    weight: float,
    exact: NDArray[np.int64],
    answers: NDArray[np.float64],
    estimate: Estimate,
) -> QueryError:
    plain = all(isinstance(factor, Identity) for _, factor in bound.query.factors)
    truth = exact if plain else np.asarray(bound.answer(exact.astype(np.float64)))
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
