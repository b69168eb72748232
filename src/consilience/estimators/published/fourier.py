"""`Fourier`: marginals of flags from measured Walsh–Hadamard coefficients (Barak et al. 2007).

The coefficient of a set S of flags (attributes of two values) is f_S = Σ_x (−1)^(ones of x in S) n(x), and

    n_A(a) = 2^−|A| Σ_{S ⊆ A} (−1)^(ones of a in S) f_S

is the marginal over A. Coefficients that were not measured count as 0. All marginals agree with each other, for there
is a table with these coefficients; its counts may be negative. Two ways to be rid of negative counts:

- `nonnegative=True` corrects each marginal by itself when it is asked for: negative counts are removed and the
  difference is spread evenly over its cells (Qardaji, Yang, Li 2014, §5.2). Marginals then need not agree.
- `linear_programme=True`, as published: a table without negative counts whose largest error over the coefficients is
  least (estimators/published/fourier.py). Barak et al. then round it to whole numbers, which is left out here.

A measured marginal of flags tells the coefficients of all its subsets, with 2^|A| times its variance. What is measured
several times is averaged by inverse variance. Exact facts replace what was measured. Attributes of more values may be
in the domain as long as nothing was measured by them: counts are spread evenly over their values.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import Any, ClassVar

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.errors import DeclarationError, FileFormatError, TooLarge
from consilience.estimators.base import Estimate, FullTableEstimate, Progress, SavedModel, Suitability, check_rows
from consilience.estimators.evidence import (
    LARGEST_TABLE,
    Evidence,
    gather,
    marginal_bits,
    refuse_nothing_to_fit,
)
from consilience.kernels.linear_maps import IdentityMap, LinearMap
from consilience.kernels.rng import Generator
from consilience.kernels.simplex import project_to_simplex
from consilience.marginals.local_marginals import LocalMarginals, decode_scopes, encode_scopes
from consilience.marginals.table_stacks import Scope, TableStack
from consilience.measurements import Measurement, MeasurementSet
from consilience.solvers.fit import Infeasible, Status
from consilience.solvers.marginal_sums import walsh_transform

# ----------------------------------------------------------------------------------------------------------------------
# Walsh–Hadamard coefficients of tables of flags, marginals from them, and the table that comes nearest to noisy ones.
#
# The coefficient of a set S of flags is f_S = Σ_x (−1)^(ones of x in S) n(x). Along one axis of length 2 the transform
# takes (a, b) to (a + b, a − b); on a table of k flags it is its own inverse up to the factor 2^k.
#
# *The nearest table* (Barak et al. 2007): given noisy values y_S for some sets, with scales σ_S, the linear programme
#
#     minimise τ   over x ≥ 0   with |f_S(x) − y_S| ≤ σ_S τ,   and f_S(x) = y_S for those that are known exactly.
#
# f is a dense matrix of signs with 2^d columns. Its fast form passes through d stages of 2^d numbers, each the sum or
# the difference of two numbers of the stage before. With these as variables every row of the programme has three
# entries, and HiGHS's interior point takes a third of the time of the dense programme (12 flags, 794 coefficients). The
# solution is seldom the only one: the coefficients within reach are met as well as can be, and any table that does so
# is as good.


Array = NDArray[np.float64]

FEASIBILITY = 1e-9


def walsh_coefficients(table: Array) -> Array:
    """The coefficients of a table whose axes all have length 2: index 1 on an axis puts its flag into the set.

    >>> walsh_coefficients(np.array([[5.0, 1.0], [2.0, 2.0]]))
    array([[10.,  4.],
           [ 2.,  4.]])
    """
    found = np.array(table, dtype=np.float64, order="C")
    if any(size != 2 for size in found.shape):
        raise DeclarationError(f"a table of shape {found.shape} has other axes than flags; give axes of length 2")
    walsh_transform(found.reshape(1, -1))
    return found


def table_of(scope: Scope, coefficients: Mapping[Scope, float]) -> Array:
    """The marginal over some flags, in this order, from the coefficients of its ascending subsets; others count as 0.

    >>> table_of((7,), {(): 10.0, (7,): 4.0})
    array([7., 3.])
    """
    found = np.zeros((2,) * len(scope))
    for index in np.ndindex(found.shape):
        members = tuple(sorted(flag for flag, chosen in zip(scope, index, strict=True) if chosen))
        found[index] = coefficients.get(members, 0.0)
    return walsh_coefficients(found) / found.size


@dataclass(frozen=True, eq=False)
class NearestTable:
    """A table without negative counts whose coefficients come nearest to noisy ones."""

    table: Array
    largest_error: float
    """τ: the largest distance of a coefficient, in its own scale."""
    gap: float
    """How far τ can be from the least possible, by the programme's own duals."""
    steps: int


def nearest_table(flags: int, sets: Sequence[Scope], values: Array, scales: Array) -> NearestTable:
    """The non-negative table of so many flags that minimises the largest error over the coefficients of some sets.

    A scale of 0 says that a value is exact.
    """
    cells, exact = 2**flags, scales == 0
    places = np.array([sum(1 << (flags - 1 - flag) for flag in members) for members in sets], dtype=np.int64)
    unit = max(1.0, float(np.abs(values).max(initial=0.0)))
    typical = float(scales.max(initial=0.0)) or 1.0
    width = cells * (flags + 1) + 1
    lower, upper = np.full(width, -np.inf), np.full(width, np.inf)
    lower[:cells], lower[-1] = 0.0, 0.0
    known = cells * flags + places[exact]
    lower[known] = upper[known] = values[exact] / unit
    if flags == 0:
        lower[0] = max(0.0, float(lower[0]))
    wanted = values[~exact] / unit
    count, shape = np.arange(wanted.size), (wanted.size, width)
    near = sp.csr_array((np.ones(wanted.size), (count, cells * flags + places[~exact])), shape)
    reach = sp.csr_array((scales[~exact] / typical, (count, np.full(wanted.size, width - 1))), shape)
    found = scipy.optimize.linprog(
        np.eye(1, width, width - 1).ravel(),
        A_ub=sp.vstack([near - reach, -near - reach]).tocsr(),
        b_ub=np.concatenate([wanted, -wanted]),
        A_eq=_stages(flags),
        b_eq=np.zeros(cells * flags),
        bounds=np.stack([lower, upper], axis=1),
        method="highs-ipm" if flags else "highs",
        options={"primal_feasibility_tolerance": FEASIBILITY, "dual_feasibility_tolerance": FEASIBILITY},
    )
    if found.x is None:
        raise Infeasible(
            f"no table without negative counts has the coefficients that are known exactly ({found.message.strip()}); "
            "correct them",
            violation=float("inf"),
            constraints=["exact coefficients"],
        )
    table = unit * np.maximum(np.asarray(found.x[:cells], dtype=np.float64), 0.0)
    return NearestTable(
        table.reshape((2,) * flags),
        float(found.fun) * unit / typical,
        _gap(found, wanted, lower, upper) * unit / typical,
        int(found.nit),
    )


def _stages(flags: int) -> Any:
    """The equations of the fast transform: stage s + 1 less the butterflies of stage s along axis s is 0."""
    cells = 2**flags
    if flags == 0:
        return None
    pair = sp.csr_array(np.array([[1.0, 1.0], [1.0, -1.0]]))
    rows = []
    for stage in range(flags):
        step = sp.kron(sp.kron(sp.eye_array(2**stage), pair), sp.eye_array(2 ** (flags - 1 - stage)))
        before = sp.csr_array((cells, cells * stage))
        after = sp.csr_array((cells, cells * (flags - 1 - stage) + 1))
        rows.append(sp.hstack([before, step, -sp.eye_array(cells), after]))
    return sp.vstack(rows).tocsr()


def _gap(found: Any, wanted: Array, lower: Array, upper: Array) -> float:
    """τ less the programme's dual objective, which no table can go below."""
    duals = np.asarray(found.ineqlin.marginals, dtype=np.float64)
    dual = float(duals @ np.concatenate([wanted, -wanted]))
    for bounds, each in ((lower, found.lower.marginals), (upper, found.upper.marginals)):
        finite = np.isfinite(bounds)
        dual += float(np.asarray(each)[finite] @ bounds[finite])
    return max(0.0, float(found.fun) - dual)


def spread_negatives(table: ArrayLike) -> NDArray[np.float64]:
    """The table without negative counts that has the same total; all zeros where that total is not above 0.

    The correction of Qardaji, Yang and Li (2014, §5.2) sets negative cells to 0 and takes what that adds evenly from
    all cells, over and over. A cell once set to 0 stays there and all others fall alike, so that the passes tend to
    max(x − θ, 0), the nearest table without negative counts that has this total, which is found in one go.

    >>> spread_negatives([[5.0, -1.0], [3.0, 0.2]])
    array([[4.6, 0. ],
           [2.6, 0. ]])
    """
    counts = np.asarray(table, dtype=np.float64)
    if counts.min(initial=0.0) >= 0:
        return np.array(counts)
    return project_to_simplex(counts, max(float(counts.sum()), 0.0))


# ----------------------------------------------------------------------------------------------------------------------
# `Fourier`: marginals of flags from measured Walsh–Hadamard coefficients (Barak et al. 2007).


MOST_FLAGS = 12
"""The linear programme has a variable for each cell of the table of all measured flags, at each stage."""

LARGEST_ANSWER = 2**20
"""The most cells of a marginal that is put together on request, one coefficient for each."""

BYTES_PER_COEFFICIENT = 2_200
"""What a coefficient takes at the peak of a fit and a refit (`python -m benchmarks memory`)."""


@dataclass(frozen=True)
class Fourier:
    """Marginals by the inverse transform of measured coefficients; see the module's head for the two options."""

    linear_programme: bool = False
    nonnegative: bool = False

    name: ClassVar[str] = "fourier"

    def suitability(self, measured: MeasurementSet) -> Suitability:
        domain = measured.domain
        if domain.impossible:
            return Suitability(False, "Fourier coefficients keep no impossible cells empty; use Table")
        sizes = zip(domain.counted_names, domain.shape, strict=True)
        bits = {name: {1: 0, 2: 1 << place}.get(size, -1) for place, (name, size) in enumerate(sizes)}
        told: set[tuple[int, int]] = set()
        for each in measured:
            flags = _told_flags(each.query, domain, bits)
            if each.clipped or each.censored is not None or flags is None:
                return Suitability(False, _reason_against(each))
            told.add(flags)
        refuse_nothing_to_fit(measured)
        for margin in domain.public.margins:
            flags = _told_flags(Query.marginal(*margin.attributes), domain, bits)
            if flags is None:
                return Suitability(False, "exact counts are known by an attribute of more than two values; use Table")
            told.add(flags)
        sets = _told_sets(told)
        if 0 not in sets and domain.public.total is None:
            return Suitability(False, "no measurement tells the total, the coefficient of no flags; measure it too")
        sets.add(0)
        flags = reduce(or_, sets).bit_count()
        text = f"{len(sets):,} coefficients of {flags} flags"
        if self.linear_programme and (flags > MOST_FLAGS or domain.cells > LARGEST_TABLE):
            return Suitability(
                False,
                f"{text} make a linear programme over more than 2^{MOST_FLAGS} cells, or a table too large to keep; "
                "use linear_programme=False",
            )
        return Suitability(True, f"{text} give all their marginals", BYTES_PER_COEFFICIENT * len(sets))

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> Estimate:
        suitable = self.suitability(measured)
        known = _KnownCoefficients.of(measured) if suitable.possible else None
        if known is None:
            raise TooLarge(f"fourier cannot fit these measurements: {suitable.reason}")
        began = time.perf_counter()
        stats: dict[str, float | int | str] = {"coefficients": len(known.values), "flags": len(known.flags)}
        if self.linear_programme:
            return self._nearest(measured, known, stats, began)
        stats |= {"objective": known.misfit, "gap": 0.0, "seconds": time.perf_counter() - began}
        sets = tuple(sorted(known.values, key=lambda each: (len(each), each)))
        coefficients = np.array([known.values[each] for each in sets])
        return FourierEstimate(measured, self._describe(), Status.CONVERGED, stats, sets, coefficients)

    def _nearest(
        self,
        measured: MeasurementSet,
        known: "_KnownCoefficients",
        stats: dict[str, float | int | str],
        began: float,
    ) -> FullTableEstimate:
        """The full table whose coefficients come nearest; attributes without coefficients are even."""
        domain = measured.domain
        sets = [tuple(known.flags.index(flag) for flag in members) for members in known.values]
        values = np.array(list(known.values.values()))
        scales = np.sqrt([known.variances[each] for each in known.values])
        found = nearest_table(len(known.flags), sets, values, scales)
        shape = [size if place in known.flags else 1 for place, size in enumerate(domain.shape)]
        counts = np.broadcast_to(found.table.reshape(shape) * (math.prod(shape) / domain.cells), domain.shape)
        stats |= {
            "objective": found.largest_error,
            "gap": found.gap,
            "steps": found.steps,
            "seconds": time.perf_counter() - began,
        }
        return FullTableEstimate(measured, self._describe(), Status.CONVERGED, stats, np.array(counts))

    def _describe(self) -> dict[str, Any]:
        return {"method": self.name, "linear_programme": self.linear_programme, "nonnegative": self.nonnegative}


@dataclass(frozen=True, eq=False)
class FourierEstimate(Estimate):
    """Marginals from the coefficients of some sets of flags."""

    sets: tuple[Scope, ...]
    """Ascending places of flags among the domain's counted attributes."""
    coefficients: Array

    @cached_property
    def _by_set(self) -> dict[Scope, float]:
        return dict(zip(self.sets, self.coefficients.tolist(), strict=True))

    @property
    def nonnegative(self) -> bool:
        """Whether negative counts of a marginal are removed and the difference is spread."""
        return bool(self.method.get("nonnegative", False))

    def marginal(self, *attributes: str) -> Array:
        names = self.domain.counted_names
        self.check_names(attributes, LARGEST_ANSWER)
        shape = self.domain.sizes(attributes)
        scope = tuple(names.index(name) for name in attributes)
        flags = tuple(place for place in scope if self.domain.shape[place] == 2)
        found = table_of(flags, self._by_set)
        found = spread_negatives(found) if self.nonnegative else found
        kept = [2 if place in flags else 1 for place in scope]
        return np.array(np.broadcast_to(found.reshape(kept) * (math.prod(kept) / math.prod(shape)), shape))

    def draw(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        """Codes of synthetic records, one row each and a column for each counted attribute.

        No joint table is known: each attribute gets its share, and so do the pairs of the tree whose mutual
        information is largest, as far as their coefficients were measured. Negative counts get no rows.
        """
        pairs = [each for each in self.sets if len(each) == 2]
        single = [(place,) for place in range(len(self.domain.shape)) if not any(place in pair for pair in pairs)]
        stack = TableStack(self.domain.shape, [*single, *pairs])
        flat = np.zeros(stack.size)
        names = self.domain.counted_names
        for scope in stack.scopes:
            stack.table(flat, scope)[...] = np.maximum(self.marginal(*(names[place] for place in scope)), 0.0)
        return LocalMarginals(stack, flat, max(self.total, 0.0)).sample(
            check_rows(rows), rng, attributes=len(self.domain.shape)
        )

    def arrays(self) -> Mapping[str, Array]:
        return {"scopes": encode_scopes(self.sets), "coefficients": self.coefficients}

    @classmethod
    def restore(cls, saved: SavedModel, measured: MeasurementSet) -> Estimate:
        if set(saved.arrays) == {"counts"}:
            return FullTableEstimate.restore(saved, measured)
        saved.check_arrays("a model of coefficients", ["coefficients", "scopes"])
        sets, coefficients = tuple(decode_scopes(saved.arrays["scopes"])), saved.arrays["coefficients"]
        shape = measured.domain.shape
        if len(sets) != len(coefficients) or any(
            place >= len(shape) or shape[place] != 2 for members in sets for place in members
        ):
            raise FileFormatError(
                f"a model of {len(sets)} coefficients does not fit the domain {measured.domain.name!r}; "
                "write the bundle anew"
            )
        return cls(measured, saved.method, saved.status, saved.stats, sets, coefficients)


@dataclass(frozen=True, eq=False)
class _KnownCoefficients:
    """What measurements and facts tell of coefficients: means by inverse variance, 0 for those known exactly."""

    values: dict[Scope, float]
    variances: dict[Scope, float]
    misfit: float
    """½ Σ (y − f)²/variance over everything that was measured more than once."""

    @property
    def flags(self) -> tuple[int, ...]:
        """The flags of which anything is known, ascending."""
        return tuple(sorted({flag for members in self.values for flag in members}))

    @staticmethod
    def of(measured: MeasurementSet) -> "_KnownCoefficients | None":
        """None where a fact of the domain is about other attributes than flags."""
        told: dict[Scope, list[tuple[float, float]]] = {}
        for each in gather(measured):
            reading = _Reading.of(each)
            if reading is None:
                return None
            for members, value in reading.coefficients():
                told.setdefault(members, []).append((value, reading.variance))
        values, variances, misfit = {}, {}, 0.0
        for members, answers in told.items():
            exact = [value for value, variance in answers if variance == 0]
            precision = math.fsum(1.0 / variance for _, variance in answers if variance > 0)
            mean = exact[0] if exact else math.fsum(value / variance for value, variance in answers) / precision
            values[members], variances[members] = mean, 0.0 if exact else 1.0 / precision
            misfit += 0.5 * math.fsum((value - mean) ** 2 / variance for value, variance in answers if variance > 0)
        return _KnownCoefficients(values, variances, misfit)


@dataclass(frozen=True, eq=False)
class _Reading:
    """Answers to one query as coefficients: for each flag its sign alone, or both its sum and its sign."""

    axes: Scope
    both: tuple[bool, ...]
    answers: Array
    """One axis of length 2 for each flag of which both are told."""
    variance: float

    @staticmethod
    def of(evidence: Evidence) -> "_Reading | None":
        """None where some factor is neither a sign, nor a sum, nor the counts of a flag."""
        query = evidence.scoped
        if query.is_joint:
            return None
        axes, both, scale = [], [], 1.0
        for place, each in zip(query.axes, query.maps, strict=True):
            kind = _kind_of(each)
            if kind is None:
                return None
            told, size = kind
            scale *= size
            if told != "sum":
                axes.append(place)
                both.append(told == "counts")
        halves = sum(both)
        variance = 0.0 if evidence.exact else 2.0 / float(evidence.weights[0]) ** 2
        answers = evidence.values.reshape((2,) * halves) / scale
        return _Reading(tuple(axes), tuple(both), walsh_coefficients(answers), variance * 2.0**halves / scale**2)

    def coefficients(self) -> list[tuple[Scope, float]]:
        """The sets of flags that the answers tell of, each with its value."""
        found = []
        for index in np.ndindex(self.answers.shape):
            chosen = iter(index)
            members = [place for place, both in zip(self.axes, self.both, strict=True) if not both or next(chosen)]
            found.append((tuple(sorted(members)), float(self.answers[index])))
        return found


def _kind_of(each: LinearMap) -> tuple[str, float] | None:
    """What a factor tells of its attribute, times which number: a flag's counts, their difference, or the sum."""
    if isinstance(each, IdentityMap):
        return ("counts", 1.0) if each.columns == 2 else ("sum", 1.0) if each.columns == 1 else None
    if each.rows != 1:
        return None
    row: Sequence[float] = each.dense()[0].tolist()
    if row[0] != 0 and all(entry == row[0] for entry in row):
        return "sum", row[0]
    return ("sign", row[0]) if len(row) == 2 and row[0] == -row[1] != 0 else None


def _told_flags(query: Query, domain: Domain, bits: dict[str, int]) -> tuple[int, int] | None:
    """The flags, as bits, whose sign alone a query tells, and those whose counts; None where it tells neither."""
    signs, counts = 0, marginal_bits(query, bits)
    if counts is None and not query.is_product:
        return None
    if counts is None:
        counts, bound = 0, query.bind(domain)
        for name, each in zip(bound.attributes, bound.maps, strict=True):
            told, _ = _kind_of(each) or ("", 0.0)
            signs |= bits[name] if told == "sign" else 0
            counts |= {"": -1, "counts": bits[name]}.get(told, 0)
    return None if counts < 0 else (signs, counts)


def _told_sets(told: set[tuple[int, int]]) -> set[int]:
    """The sets of flags whose coefficients these tell: with the counts of some flags, those of all their subsets.

    One flag is left out at a time, so that what many tables share is gone through once.
    """
    waiting, seen = list(told), set(told)
    while waiting:
        signs, counts = waiting.pop()
        rest = counts
        while rest:
            smaller = (signs, counts & ~(rest & -rest))
            rest &= rest - 1
            if smaller not in seen:
                seen.add(smaller)
                waiting.append(smaller)
    return {signs | counts for signs, counts in seen}


def _reason_against(each: Measurement) -> str:
    """Why the coefficients cannot be read off a measurement."""
    name = each.query.describe()
    if each.clipped or each.censored is not None:
        return f"the answers to {name!r} were clipped or withheld in part, which would bias coefficients; use Residual"
    return (
        f"the query {name!r} is no coefficient: Fourier takes what the plan Fourier measures, and marginals of "
        "attributes of two values"
    )
