"""`Learning`: k-way marginals from marginals of fewer attributes, by a polynomial in the literals of a cell.

A cell of a marginal over k attributes is a conjunction of k literals, and g(z), a polynomial of degree D in the number
of literals that a record misses, is nearly [z = 0]. Summed over all records it is

    Σ_{j≤D} c_j Σ_{|T|=j} n_T,     T ⊆ the cell's literals, n_T = the records that match (or miss) all of T,

and n_T is a cell of a measured marginal (`plans.Learning` says how this relates to Thaler, Ullman, Vadhan
2012). The answers are off by the noise of their terms and by up to γ times the records, in
every cell, however little noise there is. They may be negative, and marginals need not agree with each other.

Marginals that were measured are given as measured. Others of fewer than k attributes are answered by the same g.
"""

import itertools
import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Literal, get_args

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from consilience.errors import DeclarationError, FileFormatError
from consilience.estimators.base import (
    Estimate,
    Progress,
    SavedModel,
    Suitability,
    check_choice,
    check_rows,
    check_whole,
)
from consilience.estimators.evidence import gather, marginal_bits, refuse_nothing_to_fit
from consilience.estimators.marginals import restored_scopes
from consilience.kernels.rng import Generator
from consilience.marginals.local_marginals import LocalMarginals, encode_scopes
from consilience.marginals.table_stacks import Scope, TableStack, summed
from consilience.measurements import MeasurementSet
from consilience.solvers.fit import Status

# ----------------------------------------------------------------------------------------------------------------------
# Polynomials that tell whether a conjunction holds from how many of its literals fail.
#
# A record satisfies a conjunction of k literals if z, the number of literals that it misses, is 0. A polynomial g of
# degree D < k with g(0) = 1 and |g(z)| ≤ γ for z = 1, …, k tells nearly the same and needs to look at D literals at a
# time only. With y = k − z the number of literals matched, Newton's formula writes it by binomials, in either number:
#
#     g = Σ_{j≤D} b_j C(z, j),   b_j = (Δ^j g)(0);          g = Σ_{j≤D} c_j C(y, j),   c_j = (Δ^j h)(0), h(y) = g(k −
#       y),
#
# and C(y, j) counts the sets T of j literals that the record matches all of, C(z, j) those that it misses all of.
# Summed over records these are Σ_{|T|=j} n_T, with n_T the number of records that match (miss) all literals of T: cells
# of marginals of j attributes. For D = k, where g(z) = 0 for all z > 0, the weights c are (0, …, 0, 1), the cell
# itself, and the b are inclusion and exclusion, (−1)^j.
#
# *The best g of a degree.* The values g(0), …, g(k) are those of a polynomial of degree D where all differences of
# order D + 1 vanish. The linear programme over them,
#
#     minimise E   with |g(z)| ≤ E for z = 1, …, k,   g(0) = 1,   (Δ^{D+1} g)(z) = 0 for z = 0, …, k − D − 1,
#
# is the best uniform approximation on these points. (Chebyshev polynomials give E of the order exp(−D/√k) on the whole
# interval [1, k].) Without the condition at 0, |g(0) − 1| ≤ E takes its place: then the constant ½ has E = ½.


Array = NDArray[np.float64]

MOST_LITERALS = 16
"""Differences of more values lose too many digits."""

SLACK = 1e-9
"""Errors this little above γ are its rounding: linear polynomials for two literals have E = 1/3 exactly."""

NO_WEIGHT = 1e-7
"""Weights below this share of the largest are rounding, too."""


@dataclass(frozen=True, eq=False)
class ConjunctionPolynomial:
    """g by its values at 0, …, k, and the largest |g(z) − [z = 0]| there."""

    values: Array
    degree: int
    error: float

    @property
    def literals(self) -> int:
        """k."""
        return self.values.size - 1

    def matched_weights(self, literals: int | None = None) -> Array:
        """c_0, …, c_D for conjunctions of so many literals, k unless given, and at most k; the same g for all.

        >>> least_polynomial(2, 1 / 3).matched_weights().round(6) + 0.0
        array([-0.333333,  0.666667])
        """
        count = self.literals if literals is None else literals
        if not 0 <= count <= self.literals:
            raise DeclarationError(
                f"conjunctions of {count} literals were asked for; this is for up to {self.literals}"
            )
        return _differences(self.values[count::-1] if count else self.values[:1], self.degree)

    def missed_weights(self) -> Array:
        """b_0, …, b_D, the same for all numbers of literals up to k."""
        return _differences(self.values, self.degree)


def _differences(values: Array, degree: int) -> Array:
    """(Δ^j h)(0) for j = 0, …, degree, or as far as there are values; what is rounding is 0."""
    found = []
    for _ in range(min(degree + 1, values.size)):
        found.append(float(values[0]))
        values = np.diff(values)
    weights = np.array(found)
    return np.where(np.abs(weights) > NO_WEIGHT * np.abs(weights).max(), weights, 0.0)


def least_polynomial(literals: int, gamma: float, *, exact_at_zero: bool = True) -> ConjunctionPolynomial:
    """The polynomial of least degree whose error is at most γ, and of that degree the one with the least error.

    >>> [least_polynomial(4, gamma).degree for gamma in (1 / 2, 1 / 4, 1 / 8)]
    [2, 2, 3]
    """
    if not 0 < gamma < 1:
        raise DeclarationError(f"gamma is {gamma}; give the largest error of a conjunction, between 0 and 1, as 1/4")
    for degree in range(literals + 1):
        found = best_polynomial(literals, degree, exact_at_zero=exact_at_zero)
        if found.error <= gamma + SLACK:
            return found
    return best_polynomial(literals, literals)


@lru_cache(maxsize=256)
def best_polynomial(literals: int, degree: int, *, exact_at_zero: bool = True) -> ConjunctionPolynomial:
    """The polynomial of a degree with the least error on 0, …, k.

    >>> round(best_polynomial(2, 1).error, 6), round(best_polynomial(2, 1, exact_at_zero=False).error, 6)
    (0.333333, 0.25)
    """
    if not 1 <= literals <= MOST_LITERALS or not 0 <= degree <= literals:
        raise DeclarationError(
            f"a polynomial of degree {degree} for conjunctions of {literals} literals was asked for; give 1 to "
            f"{MOST_LITERALS} literals and a degree of at most that"
        )
    target = np.zeros(literals + 1)
    target[0] = 1.0
    if degree == literals:
        return ConjunctionPolynomial(target, degree, 0.0)
    points = literals + 1
    signs = [(-1.0) ** (degree + 1 - j) * math.comb(degree + 1, j) for j in range(degree + 2)]
    vanishing = np.array([np.roll([*signs, *[0.0] * (points - len(signs))], z) for z in range(literals - degree)])
    near, reach = np.eye(points), -np.ones((points, 1))
    if exact_at_zero:
        reach[0] = 0.0
    found = scipy.optimize.linprog(
        np.eye(1, points + 1, points).ravel(),
        A_ub=np.block([[near, reach], [-near, reach]]),
        b_ub=np.concatenate([target, -target]),
        A_eq=np.hstack([vanishing, np.zeros((len(vanishing), 1))]),
        b_eq=np.zeros(len(vanishing)),
        bounds=[(None, None)] * points + [(0, None)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if found.x is None:
        raise DeclarationError(f"no polynomial of degree {degree} was found for {literals} literals: {found.message}")
    values = np.array(found.x[:points], dtype=np.float64)
    values.setflags(write=False)
    return ConjunctionPolynomial(values, degree, float(np.abs(values - target).max()))


# ----------------------------------------------------------------------------------------------------------------------
# `Learning`: k-way marginals from marginals of fewer attributes, by a polynomial in the literals of a cell.


Literals = Literal["matched", "missed"]

BYTES_PER_ANSWER = 44
"""What a measured count takes at the peak of a fit and a refit (`python -m benchmarks memory`)."""


@dataclass(frozen=True)
class Learning:
    """Marginals of up to `ways` attributes, each cell within γ times the records of what it would be without noise.

    The settings must be those of the plan `Learning` that measured. `literals="missed"` counts the records that miss
    all literals of a set, as published; `exact_at_zero=False` is the best uniform approximation at all points.
    """

    ways: int = 2
    gamma: float = 0.25
    literals: Literals = "matched"
    exact_at_zero: bool = True

    name: ClassVar[str] = "learning"

    def __post_init__(self) -> None:
        check_choice(self.literals, "the kind of literals", get_args(Literals))
        check_whole(self.ways, "the number of ways")
        self.polynomial  # noqa: B018 - refuses numbers of ways and gammas that make no sense

    @property
    def polynomial(self) -> ConjunctionPolynomial:
        """g."""
        return least_polynomial(self.ways, self.gamma, exact_at_zero=self.exact_at_zero)

    @property
    def weights(self) -> Array:
        """c_0, …, c_D for cells of `ways` attributes."""
        return self.polynomial.matched_weights() if self.literals == "matched" else self.polynomial.missed_weights()

    def suitability(self, measured: MeasurementSet) -> Suitability:
        domain = measured.domain
        bits = {name: 1 << place for place, name in enumerate(domain.counted_names)}
        found = {sum(bits[name] for name in margin.attributes) for margin in domain.public.margins}
        found |= set() if domain.public.total is None else {0}
        for each in measured:
            scope = marginal_bits(each.query, bits)
            if scope is None or each.censored is not None:
                return Suitability(False, f"{each.query.describe()!r} is no whole marginal; use Table or Residual")
            if each.clipped:
                return Suitability(False, f"the answers to {each.query.describe()!r} were clipped; use Residual")
            found.add(scope)
        if domain.impossible:
            return Suitability(False, "the polynomial keeps no impossible cells empty; use Table or Residual")
        if self.literals == "missed" and set(domain.shape) - {2}:
            return Suitability(False, 'literals missed are counted for attributes of two values; use "matched"')
        refuse_nothing_to_fit(measured)
        by_size = Counter(map(int.bit_count, found))
        for size, weight in enumerate(self.weights):
            sets, present = math.comb(len(domain.shape), size), by_size[size]
            if weight and present < sets:
                return Suitability(
                    False,
                    f"{present} of the {sets} marginals by {size} attributes were measured, and the polynomial for "
                    f"{self.ways}-way marginals needs them all; measure with the plan Learning and the same settings",
                )
        text = f"marginals by up to {len(self.weights) - 1} attributes answer {self.ways}-way ones"
        return Suitability(True, text, BYTES_PER_ANSWER * sum(each.values.size for each in measured))

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> "LearningEstimate":
        self.suitability(measured).require(self.name)
        began = time.perf_counter()
        told: dict[Scope, list[tuple[Array, float]]] = {}
        for scope, table, variance in _tables(measured):
            told.setdefault(scope, []).append((table, variance))
        stack = TableStack(measured.domain.shape, told)
        counts = np.zeros(stack.size)
        for scope, answers in told.items():
            stack.table(counts, scope)[...] = _mean(answers)
        stats: dict[str, float | int | str] = {
            "objective": 0.0,
            "gap": 0.0,
            "degree": self.polynomial.degree,
            "approximation_error": self.polynomial.error,
            "marginals": len(told),
            "seconds": time.perf_counter() - began,
        }
        described = {
            "method": self.name,
            "ways": self.ways,
            "gamma": self.gamma,
            "literals": self.literals,
            "exact_at_zero": self.exact_at_zero,
        }
        return LearningEstimate(measured, described, Status.CONVERGED, stats, tuple(stack.scopes), counts)


@dataclass(frozen=True, eq=False)
class LearningEstimate(Estimate):
    """Measured marginals, and the polynomial that answers wider ones from them."""

    scopes: tuple[Scope, ...]
    """Ascending places of attributes among the domain's counted ones."""
    counts: Array

    @cached_property
    def settings(self) -> Learning:
        """The estimator that made this estimate."""
        of = self.method
        return Learning(int(of["ways"]), float(of["gamma"]), of["literals"], bool(of["exact_at_zero"]))

    @cached_property
    def _stack(self) -> TableStack:
        return TableStack(self.domain.shape, self.scopes)

    def marginal(self, *attributes: str) -> Array:
        names = self.domain.counted_names
        self.check_names(attributes)
        scope = tuple(names.index(name) for name in attributes)
        if not scope or tuple(sorted(scope)) in self._stack.places:
            return np.array(self._measured(scope))
        if len(scope) > self.settings.ways:
            raise DeclarationError(
                f"the marginal by {len(attributes)} attributes was asked for, and the polynomial is one for up to "
                f"{self.settings.ways}; measure and fit with more ways"
            )
        return self._approximated(scope)

    def _approximated(self, scope: Scope) -> Array:
        """Σ_j c_j Σ_{|T|=j} n_T for every cell."""
        shape = tuple(self.domain.shape[place] for place in scope)
        missed = self.settings.literals == "missed"
        polynomial = self.settings.polynomial
        weights = polynomial.missed_weights() if missed else polynomial.matched_weights(len(scope))
        found = np.zeros(shape)
        for size, weight in enumerate(weights[: len(scope) + 1]):
            if not weight:
                continue
            for axes in itertools.combinations(range(len(scope)), size):
                table = self._measured(tuple(scope[axis] for axis in axes))
                table = np.flip(table) if missed else table
                found += weight * table.reshape([shape[axis] if axis in axes else 1 for axis in range(len(scope))])
        return found

    def _measured(self, scope: Scope) -> Array:
        """The marginal of a scope as measured, else the mean of what the smallest measured ones that hold it say."""
        ascending = tuple(sorted(scope))
        if ascending in self._stack.places:
            return summed(self._stack.table(self.counts, ascending), ascending, scope)
        holders = [each for each in self.scopes if set(scope) <= set(each)]
        least = min(len(each) for each in holders)
        sums = [summed(self._stack.table(self.counts, each), each, scope) for each in holders if len(each) == least]
        return np.mean(sums, axis=0)

    def draw(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        """Codes of synthetic records, one row each and a column for each counted attribute.

        No joint table is known: each attribute gets its share, and so do the pairs of the tree whose mutual
        information is largest, where pairs were measured. Negative counts get no rows.
        """
        tables = LocalMarginals(self._stack, np.maximum(self.counts, 0.0), max(self.total, 0.0))
        return tables.sample(check_rows(rows), rng, attributes=len(self.domain.shape))

    def arrays(self) -> Mapping[str, Array]:
        return {"scopes": encode_scopes(self.scopes), "counts": self.counts}

    @classmethod
    def restore(cls, saved: SavedModel, measured: MeasurementSet) -> "LearningEstimate":
        saved.check_arrays("a learnt model", ["counts", "scopes"])
        if {"ways", "gamma", "literals", "exact_at_zero"} - set(saved.method):
            raise FileFormatError("a learnt model holds its settings, found a part of them; write the bundle anew")
        scopes = restored_scopes(saved, measured.domain)
        return cls(measured, saved.method, saved.status, saved.stats, scopes, saved.arrays["counts"])


def _tables(measured: MeasurementSet) -> list[tuple[Scope, Array, float]]:
    """Every measured or known marginal: its ascending scope, its counts, and the variance of one."""
    found = []
    for each in gather(measured):
        variance = 0.0 if each.exact else 2.0 / float(each.weights[0]) ** 2
        table = summed(each.as_marginal(), each.scoped.axes, each.scoped.scope)
        found.append((each.scoped.scope, table, variance))
    return found


def _mean(answers: list[tuple[Array, float]]) -> Array:
    """The mean by inverse variance; what is exact is kept."""
    for table, variance in answers:
        if variance == 0:
            return table
    precision = math.fsum(1.0 / variance for _, variance in answers)
    return np.asarray(sum(table / variance for table, variance in answers) / precision)
