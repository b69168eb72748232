"""What a measurement set says, as estimators over cells take it: answers with weights, exact facts, and the cells.

    MeasurementSet ─ gather ─ Evidence: values, weights, exact or noisy
        Tree, Matrix       rows over `MeasuredCells`
        Table              `MeasuredTable`: an operator on the full table, and what missing each of its rows costs
        Graphical          `MeasuredModel`: the same rows, each on the table of its scope (`QueryOnScope`)
        Residual, Views    noisy and exact tables over scopes

*Weights.* w = 1/b, where b is the scale of the Laplace law with the variance of the noise: b itself for Laplace noise,
σ/√2 for Gaussian noise, √(variance/2) for discrete laws, which near scale 1 is less than their parameter says. So one
number serves every loss, and answers of different laws compare by their variances.

*Facts.* The public total and margins of the domain, and measurements without noise, are met exactly.

*What was not released.* Answers below a threshold (censored ones) are left out: that they were small says little beyond
what the sums around them say, and a bound on the noisy value is none on the count.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.factors import Identity, Total
from consilience.domain.queries import BoundQuery, Query
from consilience.errors import DeclarationError, MeasurementError
from consilience.kernels.linear_maps import IdentityMap, LinearMap, SumMap
from consilience.marginals.table_stacks import Scope
from consilience.measurements import Exact, Measurement, MeasurementSet
from consilience.solvers.fit import LossName

Array = NDArray[np.float64]
NoiseLoss = Literal["by-noise", "l1", "l2", "elastic"]
"""The losses of estimators that take one for all measurements."""
OwnLoss = Literal["l2", "l1", "elastic", "likelihood"]
"""The losses of estimators that can take another for each measurement."""

LAPLACE_ALPHA = 0.7
"""What "by-noise" takes for Laplace noise: the elastic net with this share of the absolute value. On the histograms of
`python -m benchmarks histograms` it is close to the best of all losses at every length of ranges. The likelihood's own,
L1, gains a little on single cells and loses much on long ranges; α = 0.9, the paper's, lies between."""

LARGEST_TABLE = 2**25
"""The most cells of a full table that are kept: a quarter of a gigabyte."""

GAUSSIAN_LAWS = ("gaussian", "discrete-gaussian")

SMALLEST_SCALE = 1e-9
"""Discrete noise whose scale is a small part of its step hardly ever moves a value; b is at least this many steps."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """The answers to one query: noisy ones with their weights, or exact ones. Estimators over cells begin here."""

    domain: Domain
    query: Query
    values: Array
    weights: Array
    """1/b for each answer; 0 for one that was not released. Read only: where all are equal, one number is held."""
    exact: bool = False
    clipped: NDArray[np.bool_] | None = None
    measurement: Measurement | None = None
    """None for what the domain declares, or an estimator holds."""
    called: str = ""

    @property
    def name(self) -> str:
        """What messages call the query."""
        return self.called or (f"the public {self.query.describe()}" if self.exact else self.query.describe())

    @property
    def whole(self) -> bool:
        """Whether every answer was released as it was drawn, neither clipped nor withheld."""
        one_weight = self.weights.strides == (0,)  # None is withheld where one number stands for all.
        return self.clipped is None and (one_weight or bool(self.weights.all()))

    @cached_property
    def bound(self) -> BoundQuery:
        """The query bound to the domain."""
        return self.query.bind(self.domain)

    @cached_property
    def scoped(self) -> "QueryOnScope":
        """The query on its scope."""
        return QueryOnScope.of(self.bound)

    @property
    def marginal(self) -> tuple[int, ...] | None:
        """The axes, in the query's order, if this is a marginal; () for the total."""
        return self.scoped.axes if self.scoped.is_marginal else None

    def as_marginal(self) -> Array:
        """The values of a marginal, with one axis for each of `marginal`."""
        return self.values.reshape([each.rows for each in self.scoped.maps])

    def answer_name(self, answer: int) -> str:
        """What messages call one of the answers: the labels it counts."""
        bound = self.bound
        rows = np.unravel_index(answer, bound.shape) if bound.shape else ()
        labels = [names[int(row)] for names, row in zip(bound.row_labels, rows, strict=True)]
        parts = [f"{name}={label}" for name, label in zip(bound.axis_names, labels, strict=True)]
        return ", ".join(parts) or "the total"


def refuse_record_sums(measured: MeasurementSet) -> None:
    """Refuse measurements that answer no query of cells: sums over records of one algorithm."""
    for each in measured:
        if each.kind != "linear":
            each.bind(measured.domain)


def refuse_nothing_to_fit(measured: MeasurementSet, *, keeps_places: bool = False) -> None:
    """Refuse measurements of which none is noisy and released, and those that no estimator over cells takes.

    So are facts about single places by all but `Geographic`: no other estimator keeps them.
    """
    refuse_record_sums(measured)
    if measured.domain.public.places and not keeps_places:
        raise DeclarationError(
            f"the domain knows {measured.domain.public.places[0].describe()}, which Geographic alone keeps; measure "
            "marginals of places, or take these facts out of the domain"
        )
    if not any(_is_released(each) for each in measured if not isinstance(each.noise, Exact)):
        raise MeasurementError("there is no noisy measurement to fit; measure something first")


def first_fact(measured: MeasurementSet) -> str | None:
    """What is known exactly beyond the total, which some published accounts cannot keep; None where nothing is."""
    facts = [each.query.describe() for each in measured if isinstance(each.noise, Exact) and each.query.factors]
    facts += [", ".join(margin.attributes) for margin in measured.domain.public.margins]
    return facts[0] if facts else None


def _is_released(measurement: Measurement) -> bool:
    """Whether there is an answer that was not withheld."""
    return measurement.values.size > 0 if measurement.censored is None else not measurement.censored.all()


def gather(measured: MeasurementSet, *, keeps_places: bool = False) -> tuple[Evidence, ...]:
    """The evidence of a measurement set and of what its domain declares public, but for facts about places."""
    refuse_nothing_to_fit(measured, keeps_places=keeps_places)
    return (*(evidence_of(each, measured.domain) for each in measured), *_public_facts(measured.domain))


def known_exactly(measured: MeasurementSet) -> tuple[Evidence, ...]:
    """The part of `gather` that has no noise."""
    exact = (evidence_of(each, measured.domain) for each in measured if isinstance(each.noise, Exact))
    return (*exact, *_public_facts(measured.domain))


def _public_facts(domain: Domain) -> list[Evidence]:
    public = domain.public
    total = [] if public.total is None else [exact_marginal(domain, (), [float(public.total)])]
    return [*total, *(exact_marginal(domain, margin.attributes, margin.counts) for margin in public.margins)]


def exact_marginal(domain: Domain, attributes: Sequence[str], counts: Sequence[float], called: str = "") -> Evidence:
    """A marginal that is known exactly."""
    values = np.array(counts, dtype=np.float64)
    ones = np.broadcast_to(1.0, values.shape)
    return Evidence(domain, Query.marginal(*attributes), values, ones, exact=True, called=called)


def evidence_of(measurement: Measurement, domain: Domain) -> Evidence:
    """What one measurement says."""
    values = measurement.values
    if isinstance(measurement.noise, Exact):
        ones = np.broadcast_to(1.0, values.shape)
        return Evidence(domain, measurement.query, values, ones, exact=True, measurement=measurement)
    weights = np.broadcast_to(1.0 / noise_scale(measurement), values.shape)
    if measurement.censored is not None:
        weights = np.where(measurement.censored, 0.0, weights)
        values = np.where(measurement.censored, 0.0, values)
    clipped = values == 0.0 if measurement.clipped else None
    return Evidence(domain, measurement.query, values, weights, clipped=clipped, measurement=measurement)


def noise_scale(measurement: Measurement) -> float:
    """b: the scale of the Laplace noise that has the variance of this noise."""
    noise = measurement.noise
    return max(math.sqrt(noise.variance / 2), SMALLEST_SCALE * (noise.lattice_step or 0.0))


def noise_variance(measurement: Measurement) -> float:
    """The variance 2b² that goes with `noise_scale`: positive also where the noise hardly ever moves a value."""
    return 2.0 * noise_scale(measurement) ** 2


def check_loss(loss: str, known: Sequence[str], *, was_auto: str) -> None:
    """Refuse a loss that is not known, and "auto", which used to stand for another one in each estimator."""
    if loss == "auto":
        raise DeclarationError(
            f'the loss "auto" stood for another loss in each estimator; write loss="{was_auto}" here'
        )
    if loss not in known:
        raise DeclarationError(f"the loss is {loss!r}; choose one of {', '.join(known)}")


def loss_by_noise(loss: NoiseLoss, alpha: float, measured: MeasurementSet) -> tuple[LossName, float]:
    """The loss and α as named; "by-noise" is L2 for Gaussian noise, else the elastic net with LAPLACE_ALPHA."""
    if loss != "by-noise":
        return loss, alpha
    laws = {each.noise.law for each in measured if not isinstance(each.noise, Exact)}
    return ("l2", alpha) if laws <= set(GAUSSIAN_LAWS) else ("elastic", LAPLACE_ALPHA)


@dataclass(frozen=True, eq=False)
class MeasuredCells:
    """The cells of the attributes that some query tells apart. The others are never measured: counts are spread evenly
    over the cells that these leave possible, which is the account of greatest entropy."""

    domain: Domain
    names: tuple[str, ...]

    @staticmethod
    def of(domain: Domain, evidence: Sequence[Evidence]) -> "MeasuredCells":
        factors = (pair for each in evidence for pair in each.query.factors)
        named = {
            each for name, factor in factors if not isinstance(factor, Total) for each in factor.attributes_of(name)
        }
        return MeasuredCells(domain, tuple(name for name in domain.counted_names if name in named))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.domain.sizes(self.names)

    @property
    def cells(self) -> int:
        return math.prod(self.shape)

    def axes(self, query: Query) -> Iterator[tuple[int, int]]:
        """For each factor that tells values apart, its place in the query and its axis here; of products alone."""
        for place, (name, factor) in enumerate(query.factors):
            if not isinstance(factor, Total):
                yield place, self.names.index(name)

    @cached_property
    def room(self) -> NDArray[np.int64] | None:
        """How many possible cells of the full table lie behind each of these, flat; None where all cells are possible.

        Only the attributes that impossible cells are declared by can make a difference.
        """
        if not self.domain.impossible:
            return None
        allowed = self.domain.allowed_cells()
        if allowed is None:
            return None
        away = tuple(axis for axis, name in enumerate(self.domain.counted_names) if name not in self.names)
        return np.asarray(allowed.sum(axis=away, dtype=np.int64)).ravel()

    @property
    def allowed(self) -> NDArray[np.bool_] | None:
        """Which of these cells can occur, flat; None where all can."""
        return None if self.room is None else self.room > 0

    @property
    def behind(self) -> int:
        """How many cells of the full table lie behind each of these, possible or not."""
        return self.domain.cells // self.cells

    def spread(self, each: Array) -> Array:
        """The full table in which every possible cell behind one of these has the count given for that."""
        shape = [self.domain[name].size if name in self.names else 1 for name in self.domain.counted_names]
        table = np.broadcast_to(each.reshape(shape), self.domain.shape)
        allowed = self.domain.allowed_cells() if self.domain.impossible else None
        return np.array(table) if allowed is None else np.where(allowed, table, 0.0)


# ----------------------------------------------------------------------------------------------------------------------
# A query as what it says of one scope, the set of attributes whose values it tells apart.


def places_of(domain: Domain) -> Mapping[str, int]:
    """The place of each counted attribute."""
    return _places(domain.counted_names)


@lru_cache(maxsize=64)
def _places(names: tuple[str, ...]) -> Mapping[str, int]:
    return MappingProxyType({name: place for place, name in enumerate(names)})


def marginal_scope(query: Query, places: Mapping[str, int]) -> Scope | None:
    """The scope of a marginal, read off its factors alone; None of other queries."""
    kept = []
    for name, factor in query.factors:
        if isinstance(factor, Identity):
            kept.append(places[name])
        elif not isinstance(factor, Total):
            return None
    return tuple(sorted(kept))


def marginal_bits(query: Query, bits: dict[str, int]) -> int | None:
    """The scope of a marginal as the sum of its attributes' bits, to go through thousands; None of other queries."""
    scope = 0
    for name, factor in query.factors:
        if isinstance(factor, Identity):
            scope |= bits[name]
        elif not isinstance(factor, Total):
            return None
    return scope


@dataclass(frozen=True, eq=False)
class QueryOnScope:
    """A query as a linear map on the table of one scope: only the factors that tell values apart."""

    scope: Scope
    axes: Scope
    """The attributes in the query's own order."""
    maps: tuple[LinearMap, ...]
    """One for each of the axes; a joint one for several."""

    @classmethod
    def of(cls, query: BoundQuery) -> Self:
        places = places_of(query.domain)
        pairs = zip(query.groups, query.maps, strict=True)
        kept = [(names, each) for names, each in pairs if not isinstance(each, SumMap)]
        axes = tuple(places[name] for names, _ in kept for name in names)
        return cls(tuple(sorted(axes)), axes, tuple(each for _, each in kept))

    @property
    def rows(self) -> int:
        """How many answers there are."""
        return math.prod(each.rows for each in self.maps)

    @property
    def is_marginal(self) -> bool:
        return all(isinstance(each, IdentityMap) for each in self.maps)

    @property
    def is_joint(self) -> bool:
        """Whether some factor is about several attributes together."""
        return len(self.maps) < len(self.axes)


def query_on_scope(query: Query, domain: Domain) -> QueryOnScope:
    """A query on its scope; only what is no marginal is bound to the domain to find it."""
    places = places_of(domain)
    if marginal_scope(query, places) is None:
        return QueryOnScope.of(query.bind(domain))
    axes = tuple(places[name] for name, factor in query.factors if isinstance(factor, Identity))
    return QueryOnScope(tuple(sorted(axes)), axes, tuple(IdentityMap(domain.shape[axis]) for axis in axes))
