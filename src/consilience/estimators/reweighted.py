"""`Reweighted`: public records, weighted so that they agree with the measurements, and otherwise as they are.

A public table, such as that of another year or another country, has distinct records x_k with shares u_k. Of all
weightings w of these records with the total N, the fit is sought among

    w_k = N·u_k·exp(Σ_s θ_s(x_k)) / Z       over the measured scopes s,

which are the weightings nearest to the public shares, in relative entropy, among those with the same answers to what
was measured (Liu et al. 2021, "Leveraging public data for practical private query release", PMW^Pub; there with
multiplicative updates). It is the same convex problem as that of a graphical model, with records in place of cells, and
is solved by the same searches: from the public shares towards the least loss, and no farther than the estimated error
falls (`stop="least-risk"`), or to the optimum, with a proven gap (`stop="converged"`).

A pass over the potentials takes (records × scopes) additions, whatever the size of the table; there is no junction
tree. What the public records never have has no weight: it stays at 0, whatever was measured. So the fit is judged by
its measurements table by table (`PublicCheck`): where they lie outside their noise, the public records are of a
population too different to be of use.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtri, gammainccinv

from consilience.domain.domains import Domain
from consilience.domain.public_facts import PublicFacts
from consilience.domain.queries import Query
from consilience.errors import DeclarationError, FileFormatError, MeasurementError, TooLarge, readable_bytes
from consilience.estimators.base import (
    Estimate,
    Estimator,
    Progress,
    PublicTables,
    SavedModel,
    Suitability,
    are_codes,
    check_choice,
    check_rows,
    drawn_cells,
)
from consilience.estimators.evidence import GAUSSIAN_LAWS, OwnLoss, check_loss, noise_variance
from consilience.estimators.graphical import Graphical
from consilience.estimators.graphical_fitting import Fitting, GraphicalSettings, Stop
from consilience.estimators.graphical_model import MeasuredModel, PublicModel, along_the_way, gone_farther
from consilience.kernels.rng import Generator
from consilience.measurements import Exact, Gaussian, MeasurementSet, NoiseLaw
from consilience.measurements.measurement_set import MarginalKey
from consilience.models.fitting.retraced_fits import Way
from consilience.models.oracle import Oracle, RecordOracle
from consilience.models.tables import TableLayout, cells_of
from consilience.solvers.fit import Status

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

BYTES_OF_A_PLACE = 12
"""What a record takes for each scope: the place of its cell, and a one."""
VECTORS = 30
"""Vectors over the cells of all scopes, and over the records, that a search keeps."""
LONGEST_CHECK = 60.0
"""Seconds that a fit without public data may be expected to take, to be compared with."""
SECONDS_PER_PLACE, USUAL_CALLS = 3e-9, 800
"""What a record takes for each scope in a pass, and how many passes a fit to little noise makes."""


@dataclass(frozen=True, eq=False)
class PublicRecords:
    """The records of a published table, coded by the domain of the confidential one: each distinct one once.

    >>> domain = Domain.from_sizes({"a": 2, "b": 3})
    >>> PublicRecords.of(domain, [[0, 2], [1, 1], [0, 2]], name="Census 2021").counts
    array([2., 1.])
    """

    domain: Domain
    codes: Codes
    """A row for each record, a column for each counted attribute."""
    counts: Array
    """How often each record is there, or how much all of it weighs."""
    name: str
    """What statements and reports call the source, such as "Census 2021"."""
    files: tuple[str, ...] = ()
    """The files that they were read from, links resolved."""
    size: float = 0.0
    """How many records there are; of records with weights, as a survey's, how many equal ones tell as much."""

    @staticmethod
    def of(
        domain: Domain, codes: ArrayLike, *, name: str, weights: ArrayLike | None = None, files: Sequence[str] = ()
    ) -> "PublicRecords":
        """The records with these codes, without those that the domain calls impossible."""
        if not name.strip():
            raise DeclarationError('public records have a name that statements give, such as name="Census 2021"')
        found = np.asarray(codes)
        if found.ndim != 2 or found.shape[1] != len(domain.shape) or found.dtype.kind not in "iu":
            raise DeclarationError(
                f"public records are rows of whole codes, one for each of the {len(domain.shape)} counted attributes; "
                f"found {found.dtype} of the shape {found.shape}"
            )
        if np.any((found < 0) | (found >= np.array(domain.shape))):
            raise DeclarationError(f"the public records of {name!r} have codes that the domain {domain.name!r} has not")
        weighed = np.ones(len(found)) if weights is None else np.asarray(weights, dtype=np.float64)
        if weighed.shape != (len(found),) or not np.isfinite(weighed).all() or np.any(weighed < 0):
            raise DeclarationError(f"give one weight from 0 up for each of the {len(found):,} public records")
        kept = weighed > 0
        for rule in domain.impossible:
            places = [(domain.counted_names.index(each), list(ruled)) for each, ruled in rule.codes]
            kept &= ~np.logical_and.reduce([np.isin(found[:, place], ruled) for place, ruled in places])
        if not kept.any():
            raise DeclarationError(f"{name!r} has no record that the domain {domain.name!r} calls possible")
        distinct, where = np.unique(found[kept].astype(np.int64), axis=0, return_inverse=True)
        counts = np.bincount(where.ravel(), weighed[kept]).astype(np.float64)
        size = float(weighed[kept].sum() ** 2 / (weighed[kept] @ weighed[kept]))
        return PublicRecords(domain, distinct, counts, name, tuple(files), size)

    def __len__(self) -> int:
        return len(self.counts)

    def table(self, attributes: Sequence[str], weights: Array | None = None) -> Array:
        """The weights of the records added up by some attributes, in this order; by default as often as they are."""
        shape, names = self.domain.sizes(attributes), self.domain.counted_names
        columns = tuple(self.codes[:, names.index(name)] for name in attributes)
        cells = np.ravel_multi_index(columns, shape) if columns else np.zeros(len(self), dtype=np.intp)
        counted = np.bincount(cells, self.counts if weights is None else weights, minlength=math.prod(shape))
        return counted.astype(np.float64).reshape(shape)

    @property
    def scopes(self) -> tuple[tuple[str, ...], ...]:
        """None: as the prior of a graphical model they have the scopes that were measured."""
        return ()

    def public_model(self, measured: MeasurementSet) -> PublicModel:
        """The graphical model of the records on the measured scopes, as far as it can be told from their chance.

        A table of records has the noise of sampling: of M records in n cells, a variance of M/n on average.
        """
        domain, names = replace(measured.domain, public=PublicFacts()), measured.domain.counted_names
        places = MeasuredModel.of(measured, loss="l2", alpha=0.0).scopes
        scopes = [tuple(names[place] for place in scope) for scope in places]
        scale = self.size / float(self.counts.sum())
        own = self.coded_by(measured.domain)
        tables: dict[MarginalKey, Array] = {scope: scale * own.table(scope) for scope in scopes}
        noise: dict[MarginalKey, NoiseLaw] = {s: Gaussian(math.sqrt(self.size / t.size)) for s, t in tables.items()}
        told = MeasurementSet.from_marginals(domain, tables, noise=noise, public=self.name)
        return Graphical(total=self.size).fit(told).public_model(measured)

    def coded_by(self, domain: Domain) -> "PublicRecords":
        """The records with their columns in the order of this domain; refused if its attributes are not theirs."""
        if self.domain.counted == domain.counted:
            return self
        names = self.domain.counted_names
        if {each.name: each for each in self.domain.counted} != {each.name: each for each in domain.counted}:
            raise DeclarationError(
                f"the public records {self.name!r} were coded by {', '.join(names)} of {self.domain.name!r}, the "
                f"measurements are of {', '.join(domain.counted_names)} of {domain.name!r}; read them with the domain "
                "of the measurements"
            )
        columns = [names.index(name) for name in domain.counted_names]
        return replace(self, domain=domain, codes=self.codes[:, columns])


# ----------------------------------------------------------------------------------------------------------------------
# The estimator and its estimate.


@dataclass(frozen=True)
class Reweighted:
    """The public records, weighted to agree with the measurements; for tables of any size.

    `loss`, `alpha`, `stop`, `tolerance`, `max_steps`, `time_limit` and `total` are those of `Graphical`; with
    `stop="converged"` it is, of all weightings of least loss, the one nearest to the public shares.

    >>> from consilience.measurements import Laplace
    >>> domain = Domain.from_sizes({"a": 2, "b": 2})
    >>> census = PublicRecords.of(domain, [[0, 0], [0, 1], [1, 1]], name="Census 2021")
    >>> measured = MeasurementSet.from_marginals(domain, {"a": [60.0, 40.0]}, noise=Laplace(0.1))
    >>> Reweighted(census, stop="converged").fit(measured).marginal("a", "b").round(1)
    array([[30., 30.],
           [ 0., 40.]])
    """

    public: PublicRecords | None = None
    loss: OwnLoss = "l2"
    alpha: float = 0.9
    stop: Stop = "auto"
    tolerance: float = 1e-3
    max_steps: int = 10_000
    time_limit: float | None = None
    total: float | None = None
    memory_limit: int = 4_000_000_000

    name: ClassVar[str] = "reweighted"

    def __post_init__(self) -> None:
        check_loss(self.loss, get_args(OwnLoss), was_auto="l2")
        check_choice(self.stop, "the stop", get_args(Stop))
        self._settings  # noqa: B018 - checks the other options

    @property
    def _settings(self) -> GraphicalSettings:
        shared = ("loss", "alpha", "stop", "tolerance", "max_steps", "time_limit", "total")
        return GraphicalSettings(**{each: getattr(self, each) for each in shared})

    def suitability(self, measured: MeasurementSet) -> Suitability:
        problem = MeasuredModel.of(measured, loss=self.loss, alpha=self.alpha)
        if self.public is None:
            return Suitability(False, "there are no public records; give them with public= or --public-records")
        self.public.coded_by(measured.domain)
        if self.total is None and not problem.tells_the_total:
            return Suitability(False, "no measurement has answers that add up to the number of records")
        places = len(self.public) * len(problem.scopes)
        cells = sum(cells_of(measured.domain.shape, scope) for scope in problem.scopes)
        need = BYTES_OF_A_PLACE * places + 8 * VECTORS * (cells + len(self.public))
        text = f"{len(self.public):,} distinct public records and {len(problem.scopes):,} measured tables"
        if need > self.memory_limit:
            return Suitability(
                False, f"{text} take {readable_bytes(need)}; the limit is {readable_bytes(self.memory_limit)}", need
            )
        seconds = SECONDS_PER_PLACE * USUAL_CALLS * (places + cells)
        return Suitability(True, f"{text} fit in memory ({readable_bytes(need)})", need, seconds)

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> "ReweightedEstimate":
        return self._fitting(measured).run(measured, progress, None)

    def refit(
        self,
        measured: MeasurementSet,
        fitted: "ReweightedEstimate",
        *,
        times: float = 1.0,
        least_steps: int = 0,
        way: Way | None = None,
    ) -> "ReweightedEstimate":
        """What `fitted` would have been with the noise of these measurements, as `Graphical.refit` has it."""
        return self._fitting(measured).run_again(measured, fitted, times=times, least_steps=least_steps, way=way)

    def way(self, measured: MeasurementSet, fitted: "ReweightedEstimate") -> Way | None:
        """The way that refits to measurements like these go; None where `fitted` did not stop on such a way."""
        return self._fitting(measured).way(fitted)

    def _fitting(self, measured: MeasurementSet) -> "_RecordFitting":
        suitable = self.suitability(measured)
        if not suitable.possible or self.public is None:
            error = TooLarge if suitable.predicted_bytes else MeasurementError
            raise error(f"reweighted cannot fit these measurements: {suitable.reason}")
        problem = MeasuredModel.of(measured, loss=self.loss, alpha=self.alpha)
        return _RecordFitting(self._settings, problem, problem.scopes, self.public.coded_by(measured.domain))


@dataclass(frozen=True, eq=False)
class _RecordFitting(Fitting["ReweightedEstimate"]):
    """A fit among weightings of the public records."""

    public: PublicRecords

    @cached_property
    def _possible(self) -> NDArray[np.bool_]:
        """Which records what is known exactly leaves possible."""
        kept = np.ones(len(self.public), dtype=np.bool_)
        for scope, table in self.problem.allowed:
            kept &= table[tuple(self.public.codes[:, place] for place in scope)]
        if not kept.any():
            raise MeasurementError(f"what is known exactly leaves no record of {self.public.name!r} possible")
        return kept

    def _sizes(self) -> dict[str, float | int | str]:
        return {"public_records": len(self.public)}

    @property
    def _most_free(self) -> float:
        return max(1, int(self._possible.sum()) - 1)

    def _oracle(self, total: float) -> Oracle:
        layout, kept = TableLayout(self.problem.domain.shape, self.scopes), self._possible
        return RecordOracle(layout, self.public.codes[kept], self.public.counts[kept], total)

    def _origin(self, layout: TableLayout) -> Array:
        """The public shares."""
        return np.zeros(layout.size)

    def _estimate(
        self,
        measured: MeasurementSet,
        oracle: Oracle,
        potentials: Array,
        status: Status,
        stats: dict[str, float | int | str],
    ) -> "ReweightedEstimate":
        assert isinstance(oracle, RecordOracle)
        weights = np.zeros(len(self.public))
        weights[self._possible] = oracle.weights(potentials)
        measured = measured.relying_on(f"the records of {self.public.name}, which were reweighted")
        kept = ("loss", "alpha", "stop", "tolerance")
        method: dict[str, Any] = {"method": Reweighted.name, "public": self.public.name, "stopped": self._stop}
        method |= {key: value for key, value in self.settings.describe().items() if key in kept}
        return ReweightedEstimate(measured, method, status, stats, self.public, weights)


@dataclass(frozen=True, eq=False)
class ReweightedEstimate(Estimate):
    """The public records with weights that sum to the estimated number of records."""

    public: PublicRecords
    weights: Array

    def marginal(self, *attributes: str) -> Array:
        self.check_names(attributes)
        return self.public.table(attributes, self.weights)

    @property
    def total(self) -> float:
        return float(self.weights.sum())

    @property
    def smooths(self) -> bool:
        """Always: what the public records never have is 0 in all draws alike."""
        return True

    @property
    def inputs(self) -> Mapping[str, Any]:
        return {"public": self.public}

    @property
    def public_tables(self) -> PublicTables:
        """All tables: the records say how every attribute goes with every other."""
        return PublicTables(self.public.name, (self.domain.counted_names,))

    def never_has(self, query: Query) -> NDArray[np.bool_]:
        """Which answers count nothing but cells that no public record is in."""
        bound = query.bind(self.domain)
        if not all(each.nonnegative for each in bound.maps):
            return super().never_has(query)
        return np.ravel(bound.answer(self.public.table(bound.attributes))) == 0.0

    def stand_in(self, estimator: Any) -> Estimate:
        """The weights, or where they stopped early those that have gone farther (`GraphicalEstimate.stand_in`)."""
        return gone_farther(self, estimator)

    def refitter(
        self, estimator: Any, without_noise: MeasurementSet | None = None
    ) -> Callable[[MeasurementSet], Estimate]:
        """Refits go as far as this fit went, along the way that leads there without noise."""
        return along_the_way(self, estimator, without_noise)

    def draw(self, rows: int, rng: Generator) -> Codes:
        """Public records, each as often as its weight has it, rounded down or up."""
        return self.public.codes[drawn_cells(self.weights, check_rows(rows), rng)]

    def arrays(self) -> Mapping[str, Array]:
        return {"records": self.public.codes.astype(np.float64), "public": self.public.counts, "weights": self.weights}

    @classmethod
    def restore(cls, saved: SavedModel, measured: MeasurementSet) -> "ReweightedEstimate":
        saved.check_arrays("a model of public records", ["records", "public", "weights"])
        codes, counts, weights = (saved.arrays[each] for each in ("records", "public", "weights"))
        domain, name = measured.domain, str(saved.method.get("public"))
        if not are_codes(codes, domain) or not counts.shape == weights.shape == (len(codes),) or weights.min() < 0:
            raise FileFormatError(
                f"a model of {codes.shape} public records with {counts.size} counts and {weights.size} weights does "
                f"not fit the domain {domain.name!r}; write the bundle anew"
            )
        public = PublicRecords(domain, codes.astype(np.int64), counts, name, size=float(counts.sum()))
        return cls(measured, saved.method, saved.status, saved.stats, public, weights)


# ----------------------------------------------------------------------------------------------------------------------
# Whether public data help, from the noisy answers alone.
#
# Of the truth the squared residuals of n answers, in units of their variance, add up to about n; of a fit to somewhat
# less, as it follows some of the noise. A table whose sum exceeds what noise exceeds once in a thousand releases lies
# outside its noise: no weighting of the public records that was found has these counts. Beside it stands the estimated
# error of the measured answers (`models/fitting/least_risk.py`), which a fit without public data has as well.


ONCE = 1e-3
"""How seldom noise alone may put a table outside, in all tables of a release together."""


def largest_by_noise(answers: int, chance: float, *, gaussian: bool) -> float:
    """The mean square of so many answers' noise, of variance 1, that it exceeds with at most about this chance.

    Gaussian noise has a χ² law. For Laplace noise, where Σx² has the variance 5n, a Γ law of that mean and variance is
    right in the middle, and for the tail one answer by itself is looked at: P(max x² > t) ≤ n·exp(−√(2t)).

    >>> [round(largest_by_noise(n, 1e-3, gaussian=True), 2) for n in (1, 100)]
    [10.83, 1.49]
    """
    if gaussian:
        return float(chdtri(answers, chance)) / answers
    together = 5.0 * float(gammainccinv(answers / 5.0, chance / 2.0))
    alone = answers + math.log(2.0 * answers / chance) ** 2 / 2.0
    return max(together, alone) / answers


def public_check(fitted: Estimate, *, progress: Progress | None = None) -> dict[str, float | int | str]:
    """Whether public data explain the measurements, and how much they help: a sentence, and the numbers in it."""
    name, told = fitted.public_tables.name, {}
    begun = f"{name} is what the fit began with"
    if isinstance(fitted, ReweightedEstimate):
        told = _explained(fitted)
        tables, outside, chi_square = (told[key] for key in ("tables", "tables_outside", "chi_square"))
        measured = f"chi-square per answer {chi_square:.2f}"
        if outside:
            said = f"{outside} of {tables} tables {'lies' if outside == 1 else 'lie'} outside their noise ({measured})"
            return told | {"public_check": f"{name} does not explain the measurements: {said}; leave it out"}
        begun = f"{name} explains the measurements: all {tables} tables lie within their noise ({measured})"
    without = _without(fitted, progress)
    if without is None:
        return told | {"public_check": f"{begun}; how large the error would be without is not known"}
    ratio, better, worse = without
    times = f"the estimated error of the measured answers is {ratio:.2f} times what it is without"
    if better:
        return told | {"error_ratio": ratio, "public_check": f"{begun}, and {times}"}
    if worse:
        return told | {"error_ratio": ratio, "public_check": f"{begun}, but {times}; leave it out"}
    said = f"{begun}; whether it helps cannot be told from so few answers: {times}, which may be chance"
    return told | {"error_ratio": ratio, "public_check": said}


def _explained(fitted: Estimate) -> dict[str, float | int | str]:
    """How many tables there are, how many of them lie outside their noise, and the mean square of all residuals."""
    noisy = [
        each
        for each in fitted.measurements
        if each.kind == "linear" and not isinstance(each.noise, Exact) and each.censored is None and not each.clipped
    ]
    found = fitted.answers([each.query for each in noisy])
    pairs = zip(noisy, found, strict=True)
    squares = [(np.ravel(answers) - each.values) ** 2 / noise_variance(each) for each, answers in pairs]
    outside = sum(
        float(each.mean()) > largest_by_noise(each.size, ONCE / len(noisy), gaussian=of.noise.law in GAUSSIAN_LAWS)
        for of, each in zip(noisy, squares, strict=True)
    )
    chi_square = float(np.concatenate(squares).mean()) if noisy else 0.0
    return {"tables": len(noisy), "tables_outside": outside, "chi_square": chi_square}


def _without(fitted: Estimate, progress: Progress | None) -> tuple[float, bool, bool] | None:
    """The estimated error in parts of that of a graphical model without public data, and whether it is surely smaller,
    or larger; None where one of the errors is not known.

    The estimates of two squared errors from the same noise ε differ by chance mostly by 2ε·(difference of the fits), of
    which twice the length of that difference, in units of the noise, is the standard deviation.
    """
    method, measured = Graphical(), fitted.measurements
    suitable = method.suitability(measured)
    if "estimated_risk" not in fitted.stats or not suitable.possible or suitable.predicted_seconds > LONGEST_CHECK:
        return None
    other = method.fit(measured, progress=progress)
    if "estimated_risk" not in other.stats:
        return None
    # An estimate of a square may be negative; none is taken to be less than that of one answer.
    own, others = (max(float(each.stats["estimated_risk"]), 1.0) for each in (fitted, other))
    queries = [each.query for each in measured if not isinstance(each.noise, Exact)]
    scales = [noise_variance(each) for each in measured if not isinstance(each.noise, Exact)]
    pairs = zip(fitted.answers(queries), other.answers(queries), scales, strict=True)
    chance = 2.0 * math.sqrt(sum(float(np.sum((one - two) ** 2)) / variance for one, two, variance in pairs))
    return math.sqrt(own / others), own < others - chance, own > others + chance


def with_public(method: Estimator | str, public: PublicRecords, measured: MeasurementSet) -> Estimator:
    """The estimator of that name with these records; "auto" is a graphical model that begins with them, if one fits."""
    if method == "auto":
        begun = Graphical(prior=public)
        suitable = begun.suitability(measured)
        return begun if suitable.possible and suitable.predicted_seconds <= LONGEST_CHECK else Reweighted(public)
    if method == Reweighted.name:
        return Reweighted(public)
    if method == Graphical.name:
        return Graphical(prior=public)
    raise DeclarationError(
        f"public records are for the methods {Reweighted.name} and {Graphical.name}, or auto; the method is {method!r}"
    )
