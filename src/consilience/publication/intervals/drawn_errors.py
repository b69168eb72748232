"""What the errors of an estimate may be besides those of refits: interactions that nobody measured, least squares."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from consilience.domain.factors import Identity, Total
from consilience.domain.queries import Query
from consilience.estimators.base import Estimate
from consilience.estimators.choose import ESTIMATORS
from consilience.estimators.evidence import GAUSSIAN_LAWS
from consilience.kernels.rng import Generator, generator
from consilience.measurements import Exact, MeasurementSet
from consilience.publication.intervals.refits import LEAST_SQUARES, kept_with, without_rules

Array = NDArray[np.float64]


# ----------------------------------------------------------------------------------------------------------------------
# How far a model may be from the truth where it fills in what was not measured together.
#
# Of attributes S the measurements hold some margins, and the model's table M of S is one of many tables with these
# margins: the one without the interactions that nobody measured. How large those are cannot be known from outside, but
# how large the measured ones are can. So tables that the truth might be are drawn from the model's:
#
#     T = the table next to Poisson(M · Π g_K) that has the margins of M which were measured      (proportional fitting)
#
# with a factor g_K for each set K ⊂ S of attributes that no measurement holds, a gamma variate of mean 1 and standard
# deviation τ_K for each cell of K: an interaction. The Poisson law is the part of chance that the data have of their
# own: also where no interaction exists, records do not come in exact proportions. The errors of the model are then T −
# M.
#
# *How strong interactions are.*  τ is found on sets K that were measured, with e the measured table less what its own
# smaller margins say: its squares exceed those of the noise and of chance by τ²·V, where V is what interactions of
# strength 1 would give. A draw takes the strength of one measured set at random, within S in half the draws if there
# are any, so that a few strong interactions among many weak ones have their part. For sets of more attributes than any
# measured, strengths are those of the largest measured ones times `weakened` for each attribute more.


Names = tuple[str, ...]

LARGEST_TABLE = 100_000
"""Cells of the attributes asked for together, beyond which no draws are made; 200 of them take some seconds there."""

MOST_SETS = 40
"""Measured sets of a size on which strengths are found."""

LARGEST_SET = 20_000
"""Cells of a measured set on which its strength is found."""

LARGEST_INTERACTION = 3
"""Missing interactions of more attributes are drawn as one, of all attributes asked for."""

SWEEPS = 10
PROBES = 40
PROBE = 0.5
"""The strength that draws have of which V is found."""

UNLIKE = 0.5
"""How unlike measured interactions those may be that were not measured: the standard deviation of the logarithm of
their strengths' ratio."""

STRONGEST = 2.0


def weakened(freedom: int) -> float:
    """The strength of interactions with so many degrees of freedom, in units of that of one attribute less.

    Tuned on Titanic, Adult (32 bins) and MSNBC: flags have interactions of three that are nearly as strong as pairs,
    tables of many values have weaker ones in each cell.
    """
    return max(0.4, freedom**-0.15)


@dataclass(frozen=True, eq=False)
class ModelErrors:
    """The errors of one estimate where it fills in."""

    estimate: Estimate
    seed: int

    @cached_property
    def scopes(self) -> tuple[frozenset[str], ...]:
        """The largest sets of attributes that a measurement or a public fact is about."""
        found = {
            frozenset(
                one
                for name, factor in each.query.factors
                if not isinstance(factor, Total)
                for one in factor.attributes_of(name)
            )
            for each in self.estimate.measurements
            if each.kind == "linear"
        }
        found |= {frozenset(margin.attributes) for margin in self.estimate.domain.public.margins}
        return _largest(found)

    @cached_property
    def _strengths(self) -> dict[int, dict[frozenset[str], float]]:
        return {}

    def draws(self, attributes: Sequence[str], queries: Sequence[Query], number: int) -> list[Array] | None:
        """For each query the errors of its answers in so many draws, a row each.

        All queries are about the given attributes or some of them, and get their errors from the same tables. None
        where the table is too large, where no measurement of two attributes tells how strong interactions are, and
        for counts of either sign: least squares fill in what is shortest, which is no model of the data.
        """
        names = tuple(attributes)
        sizes = self.estimate.domain.sizes(names)
        missing = self._missing(names)
        signed = self.estimate.method.get("nonnegative") is False
        if signed or math.prod(sizes) > LARGEST_TABLE or max(map(len, self.scopes), default=0) < 2:
            return None
        model = np.maximum(self.estimate.marginal(*names), 0.0)
        held = [_axes(names, each) for each in _largest({each & set(names) for each in self.scopes})]
        rng = generator(self.seed, 2**31)
        strengths = [self._drawn_strengths(each, names, number, rng) for each in missing]
        errors = [np.empty((number, query.bind(self.estimate.domain).size)) for query in queries]
        step = max(1, 2_000_000 // model.size)
        for first in range(0, number, step):
            part = slice(first, min(first + step, number))
            factors = [(_axes(names, each), found[part]) for each, found in zip(missing, strengths, strict=True)]
            moved = self._drawn(model, held, factors, part.stop - first, rng) - model
            for query, found in zip(queries, errors, strict=True):
                bound = query.bind(self.estimate.domain)
                away = tuple(1 + axis for axis, name in enumerate(names) if name not in bound.attributes)
                kept = [name for name in names if name in bound.attributes]
                tables = moved.sum(axis=away).transpose(0, *(1 + kept.index(name) for name in bound.attributes))
                found[part] = [np.ravel(bound.answer(table)) for table in tables]
        return errors

    def _drawn(
        self,
        model: Array,
        held: Sequence[tuple[int, ...]],
        factors: Sequence[tuple[tuple[int, ...], Array]],
        number: int,
        rng: Generator,
    ) -> Array:
        """Drawn tables in which records have the largest weight there is, the most that chance can do."""
        most = self.estimate.domain.most_counted
        return drawn_tables(model / most, held, factors, number, rng) * most

    def _missing(self, names: Names) -> list[Names]:
        """The sets of attributes whose interaction no measurement holds: pairs, triples, and all of them."""
        sizes = {*range(2, min(len(names), LARGEST_INTERACTION) + 1), len(names)} - {0, 1}
        subsets = (each for size in sorted(sizes) for each in itertools.combinations(names, size))
        return [each for each in subsets if not any(set(each) <= scope for scope in self.scopes)]

    def _drawn_strengths(self, missing: Names, names: Names, number: int, rng: Generator) -> Array:
        """For each draw the strength of the interaction of a missing set."""
        order = min(len(missing), LARGEST_INTERACTION, max(map(len, self.scopes)))
        known = self.strengths_of(order)
        own = [strength for each, strength in known.items() if each <= set(names)]
        found = rng.choice(list(known.values()), number)
        if own:
            found = np.where(rng.random(number) < 0.5, rng.choice(own, number), found)
        freedom = math.prod(size - 1 for size in self.estimate.domain.sizes(missing))
        unlike = np.exp(UNLIKE * (rng.standard_normal(number) + 0.5))
        return np.minimum(found * unlike * weakened(max(1, freedom)) ** (len(missing) - order), STRONGEST)

    def strengths_of(self, order: int) -> dict[frozenset[str], float]:
        """The strength of the interaction of each measured set of so many attributes, or of some if they are many."""
        if order not in self._strengths:
            names = self.estimate.domain.counted_names
            found = {
                frozenset(each)
                for scope in self.scopes
                for each in itertools.combinations([name for name in names if name in scope], order)
                if math.prod(self.estimate.domain.sizes(each)) <= LARGEST_SET
            }
            sets = sorted(found, key=sorted)
            sets = sets[:: max(1, math.ceil(len(sets) / MOST_SETS))]
            rng = generator(self.seed, 2**31 + order)
            self._strengths[order] = {each: self._strength(self.estimate.domain.ordered(each), rng) for each in sets}
        return self._strengths[order]

    def _strength(self, names: Names, rng: Generator) -> float:
        """The strength of the interaction of a measured set: τ, such that squares are what noise, chance and τ give."""
        model = np.maximum(self.estimate.marginal(*names), 0.0)
        measured, variance = self._measured_table(names)
        margins = [tuple(axis for axis in range(len(names)) if axis != each) for each in range(len(names))]
        without = fitted_tables(np.ones((1, *model.shape)), model, margins)[0]
        every = tuple(range(len(names)))
        by_chance = self._drawn(without, margins, [], PROBES, rng) - without
        by_strength = self._drawn(without, margins, [(every, np.full(PROBES, PROBE))], PROBES, rng) - without
        residual, noise = measured - without, np.full(model.shape, variance)
        for axis in every:
            shares = _shares(without, axis)
            residual = residual - shares * residual.sum(axis=axis, keepdims=True)
            noise = noise * (1.0 - 2.0 * shares) + shares**2 * noise.sum(axis=axis, keepdims=True)
        weights = 1.0 / np.maximum(without, 1.0)
        chance = float((weights * (by_chance**2).mean(axis=0)).sum())
        of_probe = float((weights * (by_strength**2).mean(axis=0)).sum()) - chance
        beyond = float((weights * (residual**2 - noise)).sum()) - chance
        if beyond <= 0.0 or of_probe <= 0.0:
            return 0.0
        return min(PROBE * math.sqrt(beyond / of_probe), STRONGEST)

    def _measured_table(self, names: Names) -> tuple[Array, float]:
        """The measured counts of these attributes and their variance; the model's where no table was measured."""
        domain, found = self.estimate.domain, (self.estimate.marginal(*names), 0.0)
        best = math.inf
        for each in self.estimate.measurements:
            scope = each.query.attributes
            whole = each.kind == "linear" and all(isinstance(factor, Identity) for _, factor in each.query.factors)
            if not whole or each.clipped or each.threshold is not None or not set(names) <= set(scope):
                continue
            summed = math.prod(domain.sizes(name for name in scope if name not in names))
            variance = 0.0 if isinstance(each.noise, Exact) else summed * each.noise.variance
            if variance < best:
                table = np.reshape(each.values, domain.sizes(scope))
                table = table.sum(axis=tuple(axis for axis, name in enumerate(scope) if name not in names))
                kept = [name for name in scope if name in names]
                best, found = variance, (table.transpose([kept.index(name) for name in names]), variance)
        return found


def drawn_tables(
    model: Array,
    held: Sequence[tuple[int, ...]],
    factors: Sequence[tuple[tuple[int, ...], Array]],
    number: int,
    rng: Generator,
) -> Array:
    """Tables that the truth might be, one for each draw: with the model's margins over the `held` axes, and otherwise
    with interactions of the given strengths, one for each draw, over the axes of each factor."""
    rates = np.broadcast_to(model, (number, *model.shape))
    for axes, strengths in factors:
        shape = (number, *(size if axis in axes else 1 for axis, size in enumerate(model.shape)))
        squares = np.maximum(strengths, 1e-3).reshape(number, *[1] * model.ndim) ** 2
        rates = rates * rng.gamma(1.0 / squares, size=shape) * squares
    counts = rng.poisson(np.minimum(rates, 1e15)) + 1e-3 * model
    return fitted_tables(counts, model, held)


def fitted_tables(tables: Array, model: Array, held: Sequence[tuple[int, ...]]) -> Array:
    """The tables, scaled in turn until their margins over the held axes are the model's (proportional fitting)."""
    away = [tuple(axis for axis in range(model.ndim) if axis not in kept) for kept in held]
    wanted = [model.sum(axis=axes, keepdims=True) for axes in away]
    for _ in range(SWEEPS if len(held) > 1 else 1):
        for axes, margin in zip(away, wanted, strict=True):
            found = tables.sum(axis=tuple(1 + axis for axis in axes), keepdims=True)
            tables = tables * np.divide(margin, found, out=np.zeros_like(found), where=found > 0)
    return tables


def _shares(table: Array, axis: int) -> Array:
    """The share of each value along one axis, shaped to be multiplied with the table."""
    sums = table.sum(axis=tuple(other for other in range(table.ndim) if other != axis), keepdims=True)
    total = float(sums.sum())
    return sums / total if total > 0 else np.full(sums.shape, 1.0 / sums.size)


def _axes(names: Names, chosen: Sequence[str] | frozenset[str]) -> tuple[int, ...]:
    return tuple(axis for axis, name in enumerate(names) if name in chosen)


def _largest(sets: set[frozenset[str]]) -> tuple[frozenset[str], ...]:
    """The sets that lie in no other, in an order of their own."""
    return tuple(sorted((each for each in sets if not any(each < other for other in sets)), key=sorted))


# ----------------------------------------------------------------------------------------------------------------------
# The errors of an estimate that is linear in its measurements: weighted least squares with counts of either sign.
#
# With rows A of all measured queries, noise n of variances Σ and G = AᵀΣ⁻¹A, the least-squares answers to queries Q
# that the measurements determine are off by
#
#     θ̂ − θ = L n,    L = Q G⁺ AᵀΣ⁻¹,    of covariance L Σ Lᵀ,
#
# whatever the data. For Gaussian noise the half-width of an interval is z·√diag(L Σ Lᵀ); for other laws noise is drawn
# and L n looked at. Written out for tables up to `LARGEST_TABLE` cells; larger ones are refitted.


LARGEST_LINEAR_TABLE = 1024
LARGEST_ROWS = 8192
DRAWS = 4000
LINEAR_METHODS = ("tree", "table", "matrix", "residual")


def linear_errors(estimate: Estimate) -> "LinearErrors | None":
    """The errors of a linear estimate; None where the method is not linear, or the table too large to write out.

    Exact facts, clipped and withheld answers, impossible cells and whole numbers each make a method non-linear.
    """
    method, domain, measured = estimate.method, estimate.domain, estimate.measurements
    squares = method.get("loss", "l2") == "l2" and not method.get("integers", False)
    if method.get("method") not in LINEAR_METHODS or method.get("nonnegative") is not False or not squares:
        return None
    if domain.impossible or domain.public.total is not None or domain.public.margins:
        return None
    if any(each.kind != "linear" or each.clipped or each.threshold is not None for each in measured):
        return None
    if any(isinstance(each.noise, Exact) for each in measured):
        return None
    rows = sum(each.values.size for each in measured)
    return LinearErrors(estimate) if domain.cells <= LARGEST_LINEAR_TABLE and rows <= LARGEST_ROWS else None


@dataclass(frozen=True, eq=False)
class LinearErrors:
    """The map from noise to errors."""

    estimate: Estimate

    @cached_property
    def _to_cells(self) -> Array:
        """G⁺AᵀΣ⁻¹: the least-squares cells of least norm for given answers."""
        scale = 1.0 / np.sqrt(self._variances)
        return np.linalg.pinv(self._rows * scale[:, None], rcond=1e-12) * scale

    @cached_property
    def _rows(self) -> Array:
        return np.concatenate([self._rows_of(each.query) for each in self.estimate.measurements])

    @cached_property
    def _variances(self) -> Array:
        measured = self.estimate.measurements
        return np.concatenate([np.full(each.values.size, max(each.noise.variance, 1e-300)) for each in measured])

    def _rows_of(self, query: Query) -> Array:
        return query.bind(self.estimate.domain).written_out()

    def _errors_of(self, query: Query) -> Array:
        return self._rows_of(query) @ self._to_cells

    def half_width(self, query: Query, level: float, seed: int) -> Array:
        """How far each answer is from the truth at most, in a share `level` of all noise."""
        if all(each.noise.law in GAUSSIAN_LAWS for each in self.estimate.measurements):
            variances = self._errors_of(query) ** 2 @ self._variances
            return np.sqrt(variances) * float(ndtri(0.5 + level / 2.0))
        return np.quantile(np.abs(self.draws(query, seed)), level, axis=0)

    def draws(self, query: Query, seed: int) -> Array:
        """Errors of the answers under noise drawn anew, with a row for each draw."""
        rng = generator(seed)
        measured = self.estimate.measurements
        noise = [each.noise.simulate((DRAWS, each.values.size), rng) for each in measured]
        return np.concatenate(noise, axis=1) @ self._errors_of(query).T


# ----------------------------------------------------------------------------------------------------------------------
# Ratios of what was drawn.


HALVINGS = 40


def as_many(one: Array, other: Array) -> tuple[Array, Array]:
    """Draws of the same number, a row each: the fewer are taken again from the first on.

    >>> [each.tolist() for each in as_many(np.array([[1.0], [2.0], [3.0]]), np.array([[5.0], [6.0]]))]
    [[[1.0], [2.0], [3.0]], [[5.0], [6.0], [5.0]]]
    """
    rows = np.arange(max(len(one), len(other)))
    return one[rows % len(one)], other[rows % len(other)]


def ratio_ends(
    above: Array, below: Array, level: float, limits: tuple[float, float] | None = None
) -> tuple[Array, Array]:
    """The ends of all m for which above − m·below may be 0, given draws of what both may be (Fieller 1954).

    A draw is a row. The ends are infinite, or the limits, where the draws allow any number.

    >>> rng = np.random.default_rng(0)
    >>> above, below = 30.0 + rng.normal(size=(4000, 1)), 10.0 + rng.normal(size=(4000, 1))
    >>> np.round(ratio_ends(above, below, 0.95), 1).ravel().tolist()
    [2.5, 3.8]
    """
    rows = len(above)
    place = max(math.floor((1.0 - level) / 2.0 * (rows + 1)) - 1, 0)

    def side(m: Array) -> Array:
        """−1 where m is too small, 1 where it is too large, 0 where it may be the ratio."""
        found = np.partition(above - m * below, (place, rows - 1 - place), axis=0)
        return (found[rows - 1 - place] < 0.0).astype(float) - (found[place] > 0.0)

    middle = np.divide(np.median(above, axis=0), np.median(below, axis=0), out=np.zeros(above.shape[1]))
    middle = np.where(np.isfinite(middle), middle, 0.0)
    if limits is not None:
        middle = np.clip(middle, *limits)
    unknown = side(middle) != 0.0  # where the draws contradict the limits, nothing narrower is known
    ends = []
    for toward in (-1.0, 1.0):
        inside = middle.copy()
        if limits is None:
            outside, step = middle.copy(), toward * (np.abs(middle) + 1.0)
            for _ in range(HALVINGS):
                outside = np.where(side(outside) == 0.0, middle + step, outside)
                step = 2.0 * step
        else:
            outside = np.full_like(middle, limits[int(toward > 0)])
        open_ended = (side(outside) == 0.0) | unknown
        for _ in range(HALVINGS):
            half = (inside + outside) / 2.0
            allowed = side(half) == 0.0
            inside, outside = np.where(allowed, half, inside), np.where(allowed, outside, half)
        far = toward * np.inf if limits is None else limits[int(toward > 0)]
        ends.append(np.where(open_ended, far, outside))
    return ends[0], ends[1]


# ----------------------------------------------------------------------------------------------------------------------
# Least squares in place of an estimate that smooths.


def unbiased(estimate: Estimate) -> Estimate | None:
    """The least-squares estimate with counts of either sign, from the same measurements: right on average for all that
    they determine. None where it is not to be had: where values were clipped or held back, or where queries were
    measured that do not determine their tables. It is kept with the estimate, as its own refits are with it."""
    kept_with(estimate)  # a bundle may hold it, with refits of its own
    kept = vars(estimate)
    if LEAST_SQUARES not in kept:
        kept[LEAST_SQUARES] = _unbiased(estimate.measurements)
    return kept[LEAST_SQUARES]


def _unbiased(measured: MeasurementSet) -> Estimate | None:
    if any(each.clipped or each.threshold is not None for each in measured):
        return None
    everywhere = without_rules(measured)
    method = ESTIMATORS["residual"](nonnegative=False)  # type: ignore[call-arg]
    return method.fit(everywhere) if method.suitability(everywhere).possible else None
