"""What `Table` reads out of a measurement set: rows with costs, facts, a total, and the cells that can occur."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import BoundQuery
from consilience.estimators.evidence import (
    GAUSSIAN_LAWS,
    Evidence,
    OwnLoss,
    evidence_of,
    exact_marginal,
    known_exactly,
    noise_scale,
    refuse_nothing_to_fit,
)
from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, LinearMap, PrefixMap, SumMap
from consilience.marginals.least_squares import TotalEstimate, combined_total, total_of_answers
from consilience.measurements import Exact, MeasurementSet
from consilience.measurements.measurement import Measurement
from consilience.solvers.fit import Infeasible, LossName
from consilience.solvers.marginal_sums import MarginalSums
from consilience.solvers.tables.measured_fit import Facts
from consilience.solvers.tables.row_costs import RowCosts, RowProducts, Rows, are_affordable, are_worth_factoring

# ----------------------------------------------------------------------------------------------------------------------
# Measured queries as one linear operator on the full table, row by row divided by their noise.


Array = NDArray[np.float64]

LARGEST_DENSE_FACTOR = 4_000_000


class MeasuredOperator:
    """Queries one after the other, each row times its weight; a row of weight 0 was not measured."""

    def __init__(self, domain: Domain, queries: Sequence[BoundQuery], weights: Sequence[Array]) -> None:
        self.shape_in = domain.shape
        self.queries = tuple(queries)
        self.weights = tuple(weights)
        self._squared = [query.squared() for query in queries]
        names = domain.counted_names
        self._axes = [tuple(map(names.index, query.attributes)) for query in queries]
        self._sums = MarginalSums(domain.shape, self._axes)
        self.ends = np.cumsum([query.size for query in queries])

    @property
    def rows(self) -> int:
        """The number of answers that take part in the fit."""
        return sum(int(np.count_nonzero(weights)) for weights in self.weights)

    def apply(self, x: Array) -> Array:
        parts = zip(self.queries, self.weights, self._sums.of(x), strict=True)
        return np.concatenate([query.answer(marginal).ravel() * weights for query, weights, marginal in parts])

    def apply_squared(self, x: Array) -> Array:
        """The operator with every entry squared, for the solvers' preconditioners."""
        parts = zip(self._squared, self.weights, self._sums.of(x), strict=True)
        return np.concatenate([query.answer(marginal).ravel() * weights**2 for query, weights, marginal in parts])

    def adjoint(self, residuals: Array) -> Array:
        parts = zip(self.queries, self.weights, np.split(residuals, self.ends[:-1]), strict=True)
        return self._sums.spread(
            [query.adjoint((part * weights).reshape(query.shape)) for query, weights, part in parts]
        )

    def matrix(self) -> Array:
        """The operator written out, for small tables: a row for each answer and a column for each cell."""
        parts = zip(self.queries, self.weights, strict=True)
        return np.concatenate([query.written_out() * weights[:, None] for query, weights in parts])

    def products(self, *, squares: bool = False) -> RowProducts | None:
        """The products of rows with each other, where they can be factored; for `squares`, where that is worth it."""
        rows = self._product_rows()
        return RowProducts(self.shape_in, rows) if self.has_products(squares=squares) else None

    def has_products(self, *, squares: bool = False) -> bool:
        """Whether `products` has any."""
        rows = self._product_rows()
        return are_worth_factoring(self.shape_in, rows) if squares else are_affordable(self.shape_in, rows)

    def _product_rows(self) -> list[Rows]:
        parts = zip(self.queries, self._axes, self.weights, strict=True)
        return [Rows(axes, query.maps, weights) for query, axes, weights in parts]

    def cover(self) -> Array | None:
        """A vector v with Aᵀv > 0 on every cell that a query with such a vector touches; None when no query has one."""
        parts = []
        for query, weights in zip(self.queries, self.weights, strict=True):
            vectors = [_factor_cover(each) for each in query.maps] if weights.all() else [None]
            product = np.ones(1)
            for vector in vectors:
                product = np.zeros(1) if vector is None else np.outer(product, vector).ravel()
            usable = all(vector is not None for vector in vectors)
            parts.append(product / weights if usable else np.zeros(query.size))
        return np.concatenate(parts) if any(part.any() for part in parts) else None


def _factor_cover(each: LinearMap) -> Array | None:
    """A vector v with Fᵀv ≥ 0 everywhere and > 0 on every column of F that is not zero, or None."""
    if isinstance(each, IdentityMap | SumMap):
        return np.ones(each.rows)
    if isinstance(each, PrefixMap):
        return np.eye(each.rows)[-1]
    if isinstance(each, AllRangesMap):
        return np.eye(1, each.rows, each.columns - 1)[0]
    touched = each.column_norms(1) > 0
    matrix = each.dense() if each.rows * each.columns <= LARGEST_DENSE_FACTOR else None
    if matrix is None:
        return None
    rows_without_negatives: Array = np.all(matrix >= 0, axis=1, keepdims=True)[:, 0].astype(np.float64)
    if (rows_without_negatives @ matrix)[touched].min(initial=1.0) > 0:
        return rows_without_negatives
    solved = np.asarray(np.linalg.lstsq(matrix.T, touched.astype(np.float64), rcond=None)[0], dtype=np.float64)
    reached = solved @ matrix
    return solved if reached[touched].min(initial=1.0) > 1e-9 and reached.min(initial=0.0) > -1e-12 else None


# ----------------------------------------------------------------------------------------------------------------------
# What `Table` reads out of a measurement set: rows with costs, facts, a total, and the cells that can occur.


Mask = NDArray[np.bool_]

HELD_TOTAL = "the total that the measurements tell"


@dataclass(frozen=True, eq=False)
class NoisyAnswers:
    """The noisy answers to one query, with the loss that is taken for their noise.

    An answer that was not released, or was clipped at zero where it could be negative, counts as "at most `values`".
    """

    query: BoundQuery
    values: Array
    weights: Array
    """1/b for each answer, with b the scale of Laplace noise of the same variance; for squares 1/σ = 1/(b√2)."""
    at_most: Mask
    loss: LossName
    measurement: Measurement

    @staticmethod
    def of(measurement: Measurement, domain: Domain, loss: LossName) -> "NoisyAnswers":
        evidence = evidence_of(measurement, domain)
        query = evidence.bound
        values, weight = evidence.values, 1.0 / noise_scale(measurement)
        at_most: Mask = np.broadcast_to(np.False_, values.shape)
        if measurement.censored is not None:
            at_most = at_most | measurement.censored
            values = np.where(measurement.censored, float(measurement.threshold or 0.0), values)
        if evidence.clipped is not None and not all(each.nonnegative for each in query.maps):
            at_most = at_most | evidence.clipped
        weights = np.broadcast_to(weight if loss != "l2" else weight / math.sqrt(2.0), values.shape)
        return NoisyAnswers(query, values, weights, at_most, loss, measurement)

    @property
    def biased(self) -> bool:
        """Whether the noise of an answer is not what its law says: some were clipped or withheld."""
        censored = self.measurement.censored
        return self.measurement.clipped or (censored is not None and bool(censored.any()))

    def total(self) -> TotalEstimate | None:
        """The total that these answers tell, if they tell one."""
        variances = (1.0 if self.loss == "l2" else 2.0) / self.weights**2
        return total_of_answers(self.query.operator, self.values, variances)

    def factors(self, alpha: float) -> tuple[float, float]:
        """The factors a of |r| and q of ½r², r in units of 1/weight."""
        if self.loss == "elastic":
            return alpha, 2.0 * (1.0 - alpha)
        return (1.0, 0.0) if self.loss == "l1" else (0.0, 1.0)

    @property
    def is_full_table(self) -> bool:
        """Whether these are the cells of the full table themselves."""
        domain, named = self.query.domain, self.query.attributes
        whole = all(domain[name].size == 1 for name in domain.counted_names if name not in named)
        return whole and all(isinstance(each, IdentityMap) for each in self.query.maps)

    def as_table(self, values: Array) -> Array:
        """Values with one axis for each of the domain's attributes, where these are the cells of the full table."""
        names = [name for name in self.query.domain.counted_names if name in self.query.attributes]
        order = [self.query.attributes.index(name) for name in names]
        return values.reshape(self.query.shape).transpose(order).reshape(self.query.domain.shape)


def law_of_noise(measurement: Measurement) -> LossName:
    """The loss that is the likelihood of a measurement's noise: squares for Gaussian noise, else absolute values."""
    return "l2" if measurement.noise.law in GAUSSIAN_LAWS else "l1"


@dataclass(frozen=True, eq=False)
class MeasuredTable:
    """A measurement set as costs and facts about the cells of its domain's full table."""

    domain: Domain
    noisy: tuple[NoisyAnswers, ...]
    facts: tuple[Evidence, ...]
    alpha: float

    @staticmethod
    def of(measured: MeasurementSet, *, loss: OwnLoss, alpha: float) -> "MeasuredTable":
        refuse_nothing_to_fit(measured)
        noisy = noisy_answers(measured.domain, measured, loss)
        return MeasuredTable(measured.domain, noisy, exact_answers(measured), alpha)

    def with_total_held(self, *, whole: bool) -> "MeasuredTable":
        """The table with the total that the noisy answers tell without bias, by inverse variance, as a fact.

        The table itself where facts are known, which such a total might contradict, or where no query tells a total.
        Queries with answers that were clipped or withheld are biased and stay out.
        """
        if self.facts:
            return self
        told = [each.total() for each in self.noisy if not each.biased]
        if not any(told):
            return self
        found = combined_total(told, least=0.0).total
        return replace(self, facts=(exact_marginal(self.domain, (), [round(found) if whole else found], HELD_TOTAL),))

    @cached_property
    def total(self) -> float | None:
        """The number of records, where a fact says it."""
        totals = [math.fsum(fact.values) for fact in self.facts if fact.marginal is not None]
        return totals[0] if totals and totals[0] >= 0 else None

    @cached_property
    def other_facts(self) -> tuple[Evidence, ...]:
        """The facts that say more than the total."""
        return tuple(fact for fact in self.facts if fact.marginal != () or fact.values[0] != self.total)

    @cached_property
    def allowed(self) -> Mask | None:
        """The cells that can occur: neither declared impossible nor part of a sum that is known to be 0."""
        allowed = self.domain.allowed_cells()
        for fact in self.facts:
            empty = fact.values == 0
            if not empty.any() or not all(each.nonnegative for each in fact.bound.maps):
                continue
            touched = MeasuredOperator(self.domain, [fact.bound], [np.ones(empty.size)]).adjoint(empty.astype(float))
            allowed = (touched == 0) if allowed is None else allowed & (touched == 0)
        if allowed is not None and self.total and not allowed.any():
            raise Infeasible(
                f"the total is {self.total:g}, but no cell can hold it: all are impossible, or part of a sum that is "
                "known to be 0; correct the facts or the impossible cells",
                violation=self.total,
                constraints=[fact.name for fact in self.facts],
            )
        return allowed

    @property
    def measured_answers(self) -> int:
        """How many noisy answers were released."""
        return sum(each.values.size - int(np.count_nonzero(each.at_most)) for each in self.noisy)

    @property
    def bounded_answers(self) -> int:
        """Of how many answers no more is known than that they were at most some number."""
        return sum(int(np.count_nonzero(each.at_most)) for each in self.noisy)

    @cached_property
    def fact_weight(self) -> float:
        """What the rows of facts are times: a usual weight of the noisy rows, so that all rows are of one size."""
        logarithms = [math.log(float(each.weights[0])) for each in self.noisy]
        return math.exp(sum(logarithms) / len(logarithms))

    def operator(self, *, facts: bool) -> MeasuredOperator:
        """The rows of the noisy answers, if wished after those of the facts beyond the total."""
        exact = self.other_facts if facts else ()
        weights = [np.full(fact.values.size, self.fact_weight) for fact in exact]
        return MeasuredOperator(
            self.domain,
            [*(fact.bound for fact in exact), *(each.query for each in self.noisy)],
            [*weights, *(each.weights for each in self.noisy)],
        )

    def facts_operator(self, facts: Sequence[Evidence]) -> MeasuredOperator:
        """The rows of these facts alone."""
        weights = [np.full(fact.values.size, self.fact_weight) for fact in facts]
        return MeasuredOperator(self.domain, [fact.bound for fact in facts], weights)

    def as_solvers_take(self, facts: Sequence[Evidence]) -> Facts | None:
        """These facts in the words of the solvers; None where there are none."""
        if not facts:
            return None
        operator = self.facts_operator(facts)
        values = np.concatenate([fact.values for fact in facts]) * self.fact_weight
        names = [fact.name for fact in facts]
        return Facts(operator, values, names, operator.ends, operator.products(), unit=1.0 / self.fact_weight)

    def costs(self) -> RowCosts:
        """What missing each row costs; facts first."""
        facts = sum(fact.values.size for fact in self.other_facts)
        values = [fact.values * self.fact_weight for fact in self.other_facts]
        values += [each.values * each.weights for each in self.noisy]
        factors = [each.factors(self.alpha) for each in self.noisy]
        sizes = [each.values.size for each in self.noisy]
        slope = np.repeat([0.0, *(a for a, _ in factors)], [facts, *sizes])
        curvature = np.repeat([0.0, *(q for _, q in factors)], [facts, *sizes])
        exact = np.arange(slope.size) < facts
        at_most = np.concatenate([np.zeros(facts, dtype=np.bool_), *(each.at_most for each in self.noisy)])
        return RowCosts(np.concatenate(values), slope, curvature, exact, at_most)

    def fact_marginals(self) -> dict[tuple[int, ...], Evidence] | None:
        """All facts as marginals by their axes; None where one is no marginal."""
        found: dict[tuple[int, ...], Evidence] = {}
        for fact in self.facts:
            if fact.marginal is None or fact.marginal in found:
                return None
            found[fact.marginal] = fact
        return found


def noisy_answers(domain: Domain, measurements: Iterable[Measurement], loss: OwnLoss) -> tuple[NoisyAnswers, ...]:
    """The noisy answers with the loss that is chosen for them, or with that of their own noise."""
    noisy = [each for each in measurements if not isinstance(each.noise, Exact) and each.values.size]
    return tuple(NoisyAnswers.of(each, domain, law_of_noise(each) if loss == "likelihood" else loss) for each in noisy)


def exact_answers(measured: MeasurementSet) -> tuple[Evidence, ...]:
    """What is known exactly, measured or public, each once."""
    kept: list[Evidence] = []
    for found in known_exactly(measured):
        same = [each for each in kept if each.query == found.query]
        if not any(np.array_equal(each.values, found.values) for each in same):
            kept.append(found)
    return tuple(kept)
