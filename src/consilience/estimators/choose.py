"""`estimate`: fit measurements with a named method, or with the one that `choose` picks and explains.

The order of preference: `Tree` where all measured sets are nested or disjoint, because its fit is exact and fast. For
marginals of several sets of attributes then `Graphical`, if its predicted junction tree fits, because it is the most
accurate on them (`python -m benchmarks marginals`); for other queries `Table`, where the full table fits in memory.
Where neither fits, `Residual`, which needs no junction tree, or `Views` before it where marginals have five attributes
or more: on those it was closer to the truth and a thousand times as fast (`python -m benchmarks views`), and `Residual`
on smaller ones. So too where a model fits and would take minutes, as with hundreds of marginals in one clique: all that
they say, residuals say as well. `Matrix` is for what the others cannot take. Where the domain marks a geography,
`Geographic` comes first: no other method fits marginals of many places at all levels together.

The draws of DualQuery are read by `DualQueryModel`, which was closer to the truth than the records that were found on
every table (Figure 1b of `python -m benchmarks.reproduce`), or else by `DualQuery`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Hierarchy
from consilience.domain.declarations import suggestion
from consilience.domain.factors import Factor, Identity, Matrix, Total
from consilience.domain.queries import Query
from consilience.errors import DeclarationError, FileFormatError, MeasurementError, PoorFit, TooLarge, readable_count
from consilience.estimators.base import LARGEST_ANSWER, Estimate, Estimator, Progress, SavedModel, Suitability
from consilience.estimators.evidence import noise_variance, refuse_record_sums
from consilience.measurements import Exact, Measurement, MeasurementSet
from consilience.measurements.parquet import refusing_what_is_odd
from consilience.solvers.fit import Status

if TYPE_CHECKING:
    from consilience.estimators.reweighted import PublicRecords

# ----------------------------------------------------------------------------------------------------------------------
# The estimators and their estimates by the names that files and commands use, imported when they are asked for.


Found = TypeVar("Found")

_FULL_TABLE = "base.FullTableEstimate"
_HOMES = {
    "tree": ("tree.Tree", _FULL_TABLE),
    "table": ("table.Table", _FULL_TABLE),
    "matrix": ("matrix.Matrix", _FULL_TABLE),
    "graphical": ("graphical.Graphical", "graphical_model.GraphicalEstimate"),
    "reweighted": ("reweighted.Reweighted", "reweighted.ReweightedEstimate"),
    "residual": ("residual.Residual", "marginals.MarginalsEstimate"),
    "geographic": ("geographic.Geographic", "geographic.GeographicEstimate"),
    "views": ("views.Views", "marginals.ViewsEstimate"),
    "multiplicative-weights": ("published.multiplicative_weights.MultiplicativeWeights", _FULL_TABLE),
    "fourier": ("published.fourier.Fourier", "published.fourier.FourierEstimate"),
    "learning": ("published.learning.Learning", "published.learning.LearningEstimate"),
    "uniform": ("published.uniform.Uniform", "published.uniform.UniformEstimate"),
    "bayesian-network": (
        "published.bayesian_network.BayesianNetwork",
        "published.bayesian_network.BayesianNetworkEstimate",
    ),
    "dual-query": ("published.dual_query.DualQuery", "published.dual_query.SyntheticRecords"),
    "dual-query-model": (
        "published.dual_query_model.DualQueryModel",
        "published.dual_query_model.DualQueryModelEstimate",
    ),
    "factored-weights": (
        "published.multiplicative_weights.FactoredWeights",
        "published.multiplicative_weights.FactoredEstimate",
    ),
    "local-squares": ("published.local_squares.LocalSquares", "published.local_squares.LocalSquaresEstimate"),
}
"""Of each method where the estimator is, and where the estimate."""


class _Imported(Mapping[str, Found]):
    """Classes of this package by method, each imported at its first use."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes

    def __getitem__(self, method: str) -> Found:
        module, _, name = self._homes[method].rpartition(".")
        return getattr(import_module(f"consilience.estimators.{module}"), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


ESTIMATOR_HOMES = {name: homes[0] for name, homes in _HOMES.items()}
ESTIMATORS: Mapping[str, type[Estimator]] = _Imported(ESTIMATOR_HOMES)
ESTIMATES: Mapping[str, type[Estimate]] = _Imported({name: homes[1] for name, homes in _HOMES.items()})


# ----------------------------------------------------------------------------------------------------------------------
# Whether an estimate explains its measurements: the same question to every estimator, whatever its solver says.
#
# The data that were measured miss their own noisy answers by the noise alone. So an account that is as good as the
# noise allows has a mean squared residual, in units of each answer's variance, of about 1 or less, for every kind of
# loss; its *misfit*. One that is far above says that the search failed, or that facts, impossible cells or the declared
# noise contradict the measurements. `judged` computes it from the answers of the estimate itself and takes the word
# "converged", "least risk" or "usable" away from an estimate that has not earned it.


FAR = 3.0
"""A misfit beyond this is not noise, where the answers are many."""

ONCE_IN_A_MILLION = 14.0
"""For few answers: −log of how seldom Laplace noise, whose tails are the heavier ones, may be called a misfit."""

ROUNDING = 1e-12
"""What arithmetic may add to a residual, in units of the largest answer: its variance counts as noise."""

PUBLISHED = {name for name, (home, _) in _HOMES.items() if home.startswith("published.")} - {"local-squares"}
"""Mechanisms as published, which do not set out to explain all measurements: their misfit is said, and not refused."""


@dataclass(frozen=True)
class Misfit:
    """How far an account is from its measurements: the mean squared residual in units of the noise, of so many."""

    mean: float
    answers: int
    table: str = ""
    """The measured table that it is about; empty where it is about all answers."""

    @property
    def largest_explained(self) -> float:
        """The mean above which noise alone is no explanation.

        >>> Misfit(1.0, 1000).largest_explained, round(Misfit(1.0, 10).largest_explained, 1)
        (3.0, 14.3)
        """
        if not self.answers:
            return math.inf
        tail = (math.log(self.answers) + ONCE_IN_A_MILLION) ** 2 / 2.0
        return max(FAR, 1.0 + tail / self.answers)

    @property
    def is_explained(self) -> bool:
        return self.mean <= self.largest_explained


def misfit(fitted: Estimate) -> Misfit:
    """The misfit of an estimate on the noisy answers that it was fitted to.

    Answers that were clipped to zero or not released say only what they are not, and do not count. Where each measured
    table is judged by itself, the misfit is that of the worst of them, or of all answers together.
    """
    counted = [each for each in fitted.measurements if each.kind == "linear" and not isinstance(each.noise, Exact)]
    size = max((float(np.abs(each.values[_known(each)]).max(initial=0.0)) for each in counted), default=0.0)
    squares, answers, tables = 0.0, 0, []
    for each, found in zip(counted, fitted.answers([each.query for each in counted]), strict=True):
        known = _known(each)
        residual = (found.ravel() - each.values)[known]
        own = float(residual @ residual) / (noise_variance(each) + (ROUNDING * size) ** 2)
        tables.append(Misfit(own / max(residual.size, 1), residual.size, each.query.describe()))
        squares += own
        answers += residual.size
    together = Misfit(squares / max(answers, 1), answers)
    alone = tables if fitted.judged_by_tables else []
    return max([together, *alone], key=lambda each: each.mean / each.largest_explained)


def _known(each: Measurement) -> NDArray[np.bool_]:
    """Which answers were released as they are."""
    known = np.ones(each.values.size, dtype=np.bool_)
    if each.censored is not None:
        known &= ~each.censored
    return known & (each.values != 0.0) if each.clipped else known


def judged(fitted: Estimate) -> Estimate:
    """The estimate with its misfit among its stats, and with the status "misfit" where noise does not explain that.

    >>> from consilience.domain import Domain
    >>> from consilience.estimators.tree import Tree
    >>> from consilience.measurements import Laplace
    >>> domain = Domain.from_sizes({"a": 2})
    >>> known = MeasurementSet.from_marginals(domain, {"a": [300.0, 400.0]}, noise=Laplace(1.0)).with_public(total=9)
    >>> fitted = Tree().fit(known)
    >>> str(fitted.status), str(judged(fitted).status)
    ('converged', 'misfit')
    """
    try:
        found = misfit(fitted)
    except TooLarge:  # a published mechanism may be unable to answer what it was fitted to
        return fitted
    stats = {**fitted.stats, "misfit": found.mean}
    if found.is_explained:
        return replace(fitted, stats=stats)
    if found.table:
        stats["misfit_of"] = found.table
    return replace(fitted, status=Status.MISFIT, stats={**stats, "stopped": fitted.status.value})


def is_proven(fitted: Estimate) -> bool:
    """Whether the search is known to have ended near its optimum: no other solver of its loss would come closer."""
    converged = fitted.stats.get("stopped", fitted.status.value) == Status.CONVERGED.value
    return converged and float(fitted.stats.get("gap", 0.0)) <= 0.5 * float(fitted.stats.get("objective", 0.0))


def refuse_misfit(fitted: Estimate, measured: MeasurementSet) -> None:
    """Raise `PoorFit` where an estimate does not explain its measurements, and say what to do."""
    method = str(fitted.method.get("method"))
    if fitted.status is not Status.MISFIT or method in PUBLISHED:
        return
    size = math.sqrt(float(fitted.stats["misfit"]))
    said = f"the account that {method} found misses the noisy answers by {size:.3g} times their noise, on average"
    accept = "accept the account as it is with allow_misfit=True"
    if method == "reweighted":
        raise PoorFit(f"{said}: {fitted.stats['public_check']}, or {accept}", fitted)
    if "misfit_of" in fitted.stats:
        raise PoorFit(
            f"the account that {method} found misses the noisy answers of one table, {fitted.stats['misfit_of']}, by "
            f"{size:.3g} times their noise, on average. Tables that overlap, such as age by sex and sex by group, are "
            f"kept together only where a finer one holds both: measure that one, too, or {accept}",
            fitted,
        )
    if is_proven(fitted):
        relied = [*measured.privacy.public_facts, *(["impossible cells"] if measured.domain.impossible else [])]
        named = f" ({'; '.join(relied[:6])}{' …' if len(relied) > 6 else ''})" if relied else ""
        raise PoorFit(
            f"{said}, and none comes closer: what is declared, the noise, the public facts or the impossible cells"
            f"{named}, contradicts the measurements. Correct it, or {accept}",
            fitted,
        )
    raise PoorFit(
        f"{said}: the search ended too early ({fitted.stats['stopped']}). Choose another method, such as table, "
        f"residual or local-squares, or {accept}",
        fitted,
    )


# ----------------------------------------------------------------------------------------------------------------------
# `estimate`: fit measurements with a named method, or with the one that `choose` picks and explains.


PREFERRED_FOR_MARGINALS = ("tree", "graphical", "table", "residual", "matrix")
PREFERRED_FOR_VIEWS = ("tree", "graphical", "table", "views", "residual", "matrix")
PREFERRED_FOR_QUERIES = ("tree", "table", "graphical", "residual", "matrix")
PREFERRED_FOR_PLACES = ("geographic", *PREFERRED_FOR_MARGINALS)
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
    if drawn:
        raise MeasurementError(f"no estimator can fit these draws. {reasons}")
    raise TooLarge(f"no estimator can fit these measurements. {reasons}. Measure fewer attributes, or coarser ones")


def is_slow(suitable: Suitability) -> bool:
    """Whether a fit would take longer than people wait for it without having asked."""
    return suitable.possible and suitable.predicted_seconds > LONGEST_FIT


def waiting(suitable: Suitability) -> str:
    """How long a fit would take, in words."""
    return f"would take some {max(1, round(suitable.predicted_seconds / 60))} minutes"


def _preferred(measured: MeasurementSet) -> tuple[str, ...]:
    """The order for these measurements: whether they are marginals of several sets of attributes, and how large.

    Differences between the values of an attribute, in place of its values, make no other kind of table: plans that
    share the budget for the least variance measure flags that way.
    """
    if _is_geographic(measured):
        return PREFERRED_FOR_PLACES
    factors = [each.query.factors for each in measured]
    if not all(isinstance(factor, Identity | Total) or _tells_differences(factor) for q in factors for _, factor in q):
        return PREFERRED_FOR_QUERIES
    scopes = {frozenset(name for name, factor in query if not isinstance(factor, Total)) for query in factors}
    if len(scopes - {frozenset()}) < 2:
        return PREFERRED_FOR_QUERIES
    return PREFERRED_FOR_VIEWS if max(len(scope) for scope in scopes) >= LARGE_VIEW else PREFERRED_FOR_MARGINALS


def _is_geographic(measured: MeasurementSet) -> bool:
    """Whether some query is about the places of the geography that the domain marks."""
    marked = {each.name for each in measured.domain.counted if isinstance(each, Hierarchy) and each.geography}
    return bool(marked) and any(not marked.isdisjoint(each.query.attributes) for each in measured)


def _tells_differences(factor: Factor) -> bool:
    """Whether a factor is a matrix of which every row sums to 0."""
    if not isinstance(factor, Matrix) or not factor.entries:
        return False
    rows, _, values = np.array(factor.entries).T
    places = np.unique(rows, return_inverse=True)[1]
    return bool(np.all(np.abs(np.bincount(places, values)) <= 1e-9 * np.bincount(places, np.abs(values))))


def _reason(considered: list[tuple[str, Suitability]]) -> str:
    """Why the last one considered was taken, and why those before it were not."""
    *passed, (chosen, suitable) = considered
    turned_down = "".join(f"; not {name}: {why.reason}" for name, why in passed)
    return f"{chosen}: {suitable.reason}{turned_down}"


def check_method(measured: MeasurementSet, method: Estimator | str) -> Suitability:
    """What the fit of such measurements would take; a method that is not known or could not fit them is refused."""
    if method == "auto":
        return choose(measured).considered[-1][1]
    estimator = _named(method) if isinstance(method, str) else method
    suitable = estimator.suitability(measured)
    suitable.require(estimator.name)
    return suitable


def check_answers(measured: MeasurementSet, method: Estimator | str, queries: Sequence[Query]) -> None:
    """Refuse queries that an estimate of such measurements could not answer in memory, before anything is spent.

    Every estimator puts together marginals of up to LARGEST_ANSWER cells. A larger one is never formed by a graphical
    model, which needs memory for the answers alone, nor by one that holds the full table.
    """
    from consilience.models.elimination import QUERY_MEMORY
    from consilience.models.elimination_plans import ELIMINATION

    domain = measured.domain
    large = [query for query in queries if math.prod(domain.sizes(query.attributes)) > LARGEST_ANSWER]
    if not large:
        return
    name = choose(measured).estimator.name if method == "auto" else method if isinstance(method, str) else method.name
    refused = large
    if name in ANSWERED_WITHOUT_MARGINALS:
        refused = [
            query
            for query in large
            if ELIMINATION.bytes_per_cell * query.bind(domain).size > QUERY_MEMORY
            or (name == "graphical" and not query.is_product)
        ]
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
        return ESTIMATES[method].restore(replace(saved, method=_in_words_of_today(saved.method)), measured)


def _in_words_of_today(method: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a saved model such that its estimator, given them, fits as it did when the model was saved."""
    stood_for = {"table": "likelihood", "graphical": "l2"}.get(str(method.get("method")))
    if method.get("loss") == "auto" and stood_for is not None:
        method = {**method, "loss": stood_for}
    # Tables that were saved before totals were held.
    return {"hold_total": False, **method} if method.get("method") == "table" else method


def estimate(
    measured: MeasurementSet,
    *,
    method: Estimator | str = "auto",
    public: "PublicRecords | None" = None,
    allow_misfit: bool = False,
    progress: Progress | None = None,
) -> Estimate:
    """One consistent account of the data behind the measurements.

    `method` is "auto", the name of an estimator, or an estimator with settings of its own, such as
    `estimators.Table(tolerance=1e-8)`. The estimate's `method` says which one was used, and why if it was chosen here.
    Every estimate is judged by how far it is from its measurements (`verdicts`): where noise does not explain that,
    "auto" goes on with other methods, and if none does better `PoorFit` is raised, unless `allow_misfit`. `public` are
    records of a published table that the account begins with; whether they help is among the estimate's `stats`.

    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"age": 3, "sex": 2})
    >>> noisy = {"age": [4.1, -1.2, 9.0], "sex": [7.5, 5.1]}
    >>> measured = cs.MeasurementSet.from_marginals(domain, noisy, noise=cs.Laplace(2.0))
    >>> account = estimate(measured, method="table")
    >>> account.method["method"], bool(abs(account.marginal("age").sum() - account.total) < 1e-6)
    ('table', True)
    """
    if public is not None:
        from consilience.estimators.reweighted import with_public

        method = with_public(method, public, measured)
    if method == "auto":
        fitted = _fitted_by_choice(measured, progress)
    else:
        estimator = _named(method) if isinstance(method, str) else method
        fitted = judged(estimator.fit(measured, progress=progress))
    if fitted.public_tables.name:
        from consilience.estimators.reweighted import public_check

        fitted = replace(fitted, stats={**fitted.stats, **public_check(fitted, progress=progress)})
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
