"""`estimate`: fit measurements with a named method, or with the one that `choose` picks and explains.

The order of preference: `Tree` where all measured sets are nested or disjoint, because its fit is exact and fast. For
marginals of several sets of attributes then `Graphical`, if its predicted junction tree fits, because it is the most
accurate on them (`python -m benchmarks marginals`); for other queries `Table`, where the full table fits in memory.
Where neither fits, `Residual`, which needs no junction tree, or `Views` before it where marginals have five attributes
or more: on those it was closer to the truth and a thousand times as fast (`python -m benchmarks views`), and `Residual`
on smaller ones. So too where a model fits and would take minutes, as with hundreds of marginals in one clique: all that
they say, residuals say as well. `Matrix` is for what the others cannot take.

The draws of DualQuery are read by `DualQueryModel`, which was closer to the truth than the records that were found on
every table (Figure 1b of `python -m benchmarks.reproduce`), or else by `DualQuery`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from consilience.domain.declarations import suggestion
from consilience.domain.factors import Identity, Total
from consilience.domain.queries import Query
from consilience.errors import DeclarationError, FileFormatError, TooLarge, readable_count
from consilience.estimators.base import Estimate, Estimator, Progress, SavedModel, Suitability
from consilience.estimators.evidence import refuse_record_sums
from consilience.estimators.registry import ESTIMATES, ESTIMATORS
from consilience.estimators.verdicts import is_proven, judged, refuse_misfit
from consilience.measurements import MeasurementSet
from consilience.measurements.parquet import refusing_what_is_odd
from consilience.solvers.fit import Status

PREFERRED_FOR_MARGINALS = ("tree", "graphical", "table", "residual", "matrix")
PREFERRED_FOR_VIEWS = ("tree", "graphical", "table", "views", "residual", "matrix")
PREFERRED_FOR_QUERIES = ("tree", "table", "graphical", "residual", "matrix")
PREFERRED_FOR_DRAWS = ("dual-query-model", "dual-query")
"""What `auto` considers, in this order. The others are for those who want a mechanism as published."""

LONGEST_FIT = 120.0
"""Seconds after which another method is taken, where there is one."""

ANSWERED_WITHOUT_MARGINALS = ("graphical", "dual-query-model", "tree", "table", "matrix")
"""The methods whose estimates answer a query without forming the marginal that it is about."""

LARGE_VIEW = 5
"""Marginals of so many attributes are views."""


@dataclass(frozen=True)
class Choice:
    """The estimator that was chosen, why, and what was said of each one considered."""

    estimator: Estimator
    reason: str
    considered: tuple[tuple[str, Suitability], ...]


def choose(measured: MeasurementSet) -> Choice:
    """The first estimator, in order of preference, that can fit these measurements in memory."""
    drawn = any((each.selection or {}).get("algorithm") == "dual-query" for each in measured)
    if not drawn:
        refuse_record_sums(measured)
    quick = "dual-query" if drawn else "residual"
    considered: list[tuple[str, Suitability]] = []
    for name in PREFERRED_FOR_DRAWS if drawn else _preferred(measured):
        estimator = ESTIMATORS[name]()
        suitable = estimator.suitability(measured)
        if is_slow(suitable) and name != quick and ESTIMATORS[quick]().suitability(measured).possible:
            suitable = replace(suitable, possible=False, reason=f"{suitable.reason}, but {waiting(suitable)}")
        considered.append((name, suitable))
        if suitable.possible:
            return Choice(estimator, _reason(considered), tuple(considered))
    reasons = "; ".join(f"{name}: {suitable.reason}" for name, suitable in considered)
    raise TooLarge(f"no estimator can fit these measurements. {reasons}. Measure fewer attributes, or coarser ones")


def is_slow(suitable: Suitability) -> bool:
    """Whether a fit would take longer than people wait for it without having asked."""
    return suitable.possible and suitable.predicted_seconds > LONGEST_FIT


def waiting(suitable: Suitability) -> str:
    """How long a fit would take, in words."""
    return f"would take some {max(1, round(suitable.predicted_seconds / 60))} minutes"


def _preferred(measured: MeasurementSet) -> tuple[str, ...]:
    """The order for these measurements: whether they are marginals of several sets of attributes, and how large."""
    factors = [each.query.factors for each in measured]
    if not all(isinstance(factor, Identity | Total) for query in factors for _, factor in query):
        return PREFERRED_FOR_QUERIES
    scopes = {frozenset(name for name, factor in query if isinstance(factor, Identity)) for query in factors}
    if len(scopes - {frozenset()}) < 2:
        return PREFERRED_FOR_QUERIES
    return PREFERRED_FOR_VIEWS if max(len(scope) for scope in scopes) >= LARGE_VIEW else PREFERRED_FOR_MARGINALS


def _reason(considered: list[tuple[str, Suitability]]) -> str:
    """Why the last one considered was taken, and why those before it were not."""
    *passed, (chosen, suitable) = considered
    turned_down = "".join(f"; not {name}: {why.reason}" for name, why in passed)
    return f"{chosen}: {suitable.reason}{turned_down}"


def check_method(measured: MeasurementSet, method: str) -> None:
    """Refuse a method that is not known or could not fit such measurements."""
    if method == "auto":
        choose(measured)
        return
    suitable = _named(method).suitability(measured)
    if not suitable.possible:
        raise TooLarge(f"{method} cannot fit these measurements: {suitable.reason}")


def check_answers(measured: MeasurementSet, method: str, queries: Sequence[Query]) -> None:
    """Refuse queries that an estimate of such measurements could not answer in memory, before anything is spent.

    Every estimator puts together marginals of up to LARGEST_ANSWER cells. A larger one is never formed by a graphical
    model, which needs memory for the answers alone, nor by one that holds the full table.
    """
    from consilience.estimators.marginals_estimate import LARGEST_ANSWER
    from consilience.models.elimination import MEMORY_LIMIT
    from consilience.models.elimination_plans import BYTES_PER_CELL

    domain = measured.domain
    large = [query for query in queries if math.prod(domain.sizes(query.attributes)) > LARGEST_ANSWER]
    if not large:
        return
    name = choose(measured).estimator.name if method == "auto" else method
    refused = large
    if name in ANSWERED_WITHOUT_MARGINALS:
        refused = [query for query in large if BYTES_PER_CELL * query.bind(domain).size > MEMORY_LIMIT]
    if refused:
        refused = sorted(refused, key=lambda query: -query.bind(domain).size)
        sizes = [
            f"{query.describe()!r} asks for {readable_count(query.bind(domain).size)} answers about "
            f"{readable_count(math.prod(domain.sizes(query.attributes)))} cells"
            for query in refused[:3]
        ]
        raise TooLarge(
            f"{len(refused)} of {len(queries)} queries of the workload could not be answered from the release: "
            f"{'; '.join(sizes)}{'; …' if len(refused) > 3 else ''}. Up to {LARGEST_ANSWER:,} cells are put together. "
            "Nothing was spent: ask about fewer attributes at once, or about coarser ones"
        )


def _named(method: str) -> Estimator:
    if method not in ESTIMATORS:
        raise DeclarationError(f"there is no estimator {method!r}; {suggestion(method, ['auto', *ESTIMATORS])}")
    return ESTIMATORS[method]()


def restore(saved: SavedModel, measured: MeasurementSet) -> Estimate:
    """The estimate of a saved model, by the method that it names."""
    method = str(saved.method.get("method"))
    if method not in ESTIMATES:
        raise FileFormatError(
            f"the model was fitted by {method!r}, which this version does not know; upgrade consilience"
        )
    with refusing_what_is_odd("the model", "model file"):
        return ESTIMATES[method].restore(saved, measured)


def estimate(
    measured: MeasurementSet,
    *,
    method: Estimator | str = "auto",
    allow_misfit: bool = False,
    progress: Progress | None = None,
) -> Estimate:
    """One consistent account of the data behind the measurements.

    `method` is "auto", the name of an estimator, or an estimator with settings of its own, such as
    `estimators.Table(tolerance=1e-8)`. The estimate's `method` says which one was used, and why if it was chosen here.
    Every estimate is judged by how far it is from its measurements (`verdicts`): where noise does not explain that,
    "auto" goes on with other methods, and if none does better `PoorFit` is raised, unless `allow_misfit`.
    """
    if method == "auto":
        fitted = _fitted_by_choice(measured, progress)
    else:
        estimator = _named(method) if isinstance(method, str) else method
        fitted = judged(estimator.fit(measured, progress=progress))
    if not allow_misfit:
        refuse_misfit(fitted, measured)
    return fitted


def _fitted_by_choice(measured: MeasurementSet, progress: Progress | None) -> Estimate:
    """The account of the method that `choose` picks, or of the first other one that explains the measurements."""
    choice = choose(measured)
    first = judged(choice.estimator.fit(measured, progress=progress))
    first = replace(first, method={**first.method, "chosen": "auto", "reason": choice.reason})
    if first.status is not Status.MISFIT or is_proven(first):
        return first
    others = [name for name in _preferred(measured) if name not in dict(choice.considered)]
    for name in others if choice.estimator.name not in PREFERRED_FOR_DRAWS else ():
        estimator = ESTIMATORS[name]()
        suitable = estimator.suitability(measured)
        if not suitable.possible or is_slow(suitable):
            continue
        found = judged(estimator.fit(measured, progress=progress))
        if found.status is not Status.MISFIT:
            why = f"{name}: {suitable.reason}; not {choice.estimator.name}: it missed the measurements by far"
            return replace(found, method={**found.method, "chosen": "auto", "reason": why})
    return first
