"""Scores for private selection: how much a candidate matters, with the sensitivity each score declares.

A score is computed exactly, in integers. What it compares the data with (an estimate) is public and is rounded to a
lattice 2^−b first, so that a score in lattice units is a sum of integers and its sensitivity is exact.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError
from consilience.privacy.noise import NoiseSource, SelectionLaw

LATTICE_BITS = 10
GREATEST_ESTIMATE = 2.0**40
"""No estimate adds up to more than this, so that distances from it fit in 62 bits."""
GREATEST_SCORE = 2**62
Integers = NDArray[np.int64]
Candidate = TypeVar("Candidate", covariant=True)


class Score(Protocol[Candidate]):
    """What private selection needs to know of a score."""

    @property
    def candidates(self) -> Sequence[Candidate]:
        """What there is to choose from: marginals, queries, numbers."""
        ...

    @property
    def marginals(self) -> Sequence[tuple[str, ...]]:
        """The marginals whose exact counts the scores are computed from."""
        ...

    def sensitivity(self, neighbours: Neighbours) -> float:
        """The most that one record changes any score, or half of the difference of two, in lattice units."""
        ...

    def values(self, exact_counts: Sequence[NDArray[Any]]) -> Integers:
        """The score of each candidate, in lattice units, from the exact counts of `marginals`."""
        ...

    def check(self, domain: Domain) -> None:
        """Refuse candidates that do not fit the domain."""
        ...

    def fingerprint(self) -> Sequence[object]:
        """Plain data that identifies the score, for the ledger."""
        ...


class RecordScore(Score[Candidate]):
    """A score of records: in place of counts, `values` takes the points of some continuous attributes.

    It is a sum over them: the values of some points and those of the others add up to those of all.
    """

    attributes: tuple[str, ...]

    @property
    def marginals(self) -> Sequence[tuple[str, ...]]:
        return (self.attributes,)


@dataclass(frozen=True, eq=False)
class MarginalError:
    """w · ‖exact marginal − estimate‖₁, less a public penalty: which marginal does the estimate get most wrong?

    One record added or removed changes one cell by one, so the score by at most w; one record replaced, by 2w. Scores
    beyond GREATEST_SCORE are taken for it, which brings no two of them further apart.
    """

    estimates: Mapping[tuple[str, ...], NDArray[np.float64]]
    weights: Mapping[tuple[str, ...], float] | None = None
    penalties: Mapping[tuple[str, ...], float] | None = None

    @property
    def candidates(self) -> tuple[tuple[str, ...], ...]:
        return tuple(self.estimates)

    @property
    def marginals(self) -> tuple[tuple[str, ...], ...]:
        return self.candidates

    def _unit_weight(self, candidate: tuple[str, ...]) -> int:
        """The weight in lattice units, at least one."""
        weight = 1.0 if self.weights is None else self.weights[candidate]
        return max(1, round(weight * 2**LATTICE_BITS))

    def sensitivity(self, neighbours: Neighbours) -> float:
        largest = max(self._unit_weight(candidate) for candidate in self.candidates)
        return float(largest * 2**LATTICE_BITS * (1 if neighbours == "add-remove" else 2))

    def values(self, exact_counts: Sequence[Integers]) -> Integers:
        scores = []
        for candidate, exact in zip(self.candidates, exact_counts, strict=True):
            estimate = np.round(self.estimates[candidate] * 2**LATTICE_BITS).astype(np.int64)
            distance = np.abs(exact * 2**LATTICE_BITS - estimate.reshape(exact.shape)).sum()
            penalty = 0.0 if self.penalties is None else self.penalties[candidate]
            score = self._unit_weight(candidate) * int(distance) - round(penalty * 4**LATTICE_BITS)
            scores.append(max(-GREATEST_SCORE, min(score, GREATEST_SCORE)))
        return np.array(scores, dtype=np.int64)

    def check(self, domain: Domain) -> None:
        if not self.estimates:
            raise DeclarationError("there is no candidate to select from; name at least one marginal")
        for candidate, estimate in self.estimates.items():
            cells = int(np.prod(domain.sizes(candidate), dtype=np.int64))
            if estimate.size != cells or not np.isfinite(estimate).all():
                raise DeclarationError(
                    f"the estimate of {', '.join(candidate)} has {estimate.size} values for {cells} cells, "
                    "or one that is not finite; give one finite value for each"
                )
            numbers = [0.0 if found is None else found[candidate] for found in (self.weights, self.penalties)]
            if not np.isfinite(numbers).all() or float(np.abs(estimate).sum()) > GREATEST_ESTIMATE:
                raise DeclarationError(
                    f"the score of {', '.join(candidate)} has weight and penalty {numbers}, and an estimate of "
                    f"{float(np.abs(estimate).sum()):.3g} records: these are finite, and the estimate up to "
                    f"{GREATEST_ESTIMATE:.0e}; use coarser units"
                )

    def fingerprint(self) -> Sequence[object]:
        described: list[object] = ["marginal-error"]
        for candidate, estimate in self.estimates.items():
            rounded = np.round(estimate * 2**LATTICE_BITS).astype("<i8")
            digest = hashlib.sha256(rounded.tobytes()).hexdigest()
            penalty = 0.0 if self.penalties is None else self.penalties[candidate]
            described.append([list(candidate), self._unit_weight(candidate), penalty, digest])
        return described


# ----------------------------------------------------------------------------------------------------------------------
# Scores of tables with joined values: how much would measuring one teach, beyond its noise?
#
# A candidate is a marginal in which the values of each attribute are joined into groups, each value in one group. Its
# score sums over the joined cells c
#
#     w · Σ_c max(|x_c − e_c| − τ, 0) − p,
#
# with x the exact counts, e the public estimate, w the public weight, τ ≥ 0 the distance that noise would hide, and p a
# public penalty. With τ = p = 0 it is the L1 distance. Beside the tables there may be one more candidate, "nothing",
# whose score is a public constant: to select it is to find that no table is worth its price.
#
# Sensitivity. t ↦ max(|t − e| − τ, 0) changes by no more than t does. A record is in one joined cell, because each
# value is in one group: added or removed it moves one count by one, and the score by at most w; replaced, it moves at
# most two counts by one each, and the score by at most 2w. A record replaced by one that the domain drops is removed.
# The constant does not move. Both bounds are attained.
#
# Scores are exact. Counts are integers; e, τ and p are public, and are rounded to a lattice first, which changes what
# is compared with and not the argument above.


Names = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class JoinedValues:
    """For each attribute of a table the group of each of its values, numbered from 0 without a gap."""

    groups: tuple[NDArray[np.intp], ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """How many groups each attribute has."""
        return tuple(int(group.max(initial=-1)) + 1 for group in self.groups)

    @property
    def cells(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @cached_property
    def _indicators(self) -> tuple[NDArray[np.float64] | None, ...]:
        """For each attribute the 0/1 matrix that adds up its groups; None where each value is by itself, in order."""
        found: list[NDArray[np.float64] | None] = []
        for group, count in zip(self.groups, self.shape, strict=True):
            places = np.arange(len(group))
            rows = None if np.array_equal(group, places) else np.zeros((count, len(group)))
            if rows is not None:
                rows[group, places] = 1.0
            found.append(rows)
        return tuple(found)

    def joined(self, table: NDArray[Any]) -> NDArray[np.float64]:
        """The table with the values of each group added up.

        Whole numbers add up exactly, in whatever order: records are fewer than 2^53, up to which doubles hold them all.

        >>> JoinedValues((np.array([0, 1, 0]),)).joined(np.array([1, 2, 4])).tolist()
        [5.0, 2.0]
        """
        found = table.astype(np.float64)
        for axis, rows in enumerate(self._indicators):
            if rows is not None:
                found = np.moveaxis(np.tensordot(rows, found, axes=(1, axis)), 0, axis)
        return found

    @staticmethod
    def separate(sizes: Sequence[int]) -> "JoinedValues":
        """Every value by itself."""
        return JoinedValues(tuple(np.arange(size, dtype=np.intp) for size in sizes))


@dataclass(frozen=True, eq=False)
class JoinedTable:
    """What the score of one table needs: how its values are joined, the estimate of its cells, and public numbers."""

    values: JoinedValues
    estimate: NDArray[np.float64]
    """The estimated counts of the joined cells."""
    hidden: float = 0.0
    """τ: differences of a cell up to this size count for nothing."""
    weight: float = 1.0
    penalty: float = 0.0
    """p, in records."""

    @property
    def unit_weight(self) -> int:
        """The weight in lattice units, at least one."""
        return max(1, round(self.weight * 2**LATTICE_BITS))

    @cached_property
    def units(self) -> tuple[Integers, int, int]:
        """The estimate, τ and the penalty as whole numbers of lattice units; the penalty in those of the score."""
        estimate = np.round(self.estimate * 2**LATTICE_BITS).astype(np.int64)
        return estimate, round(self.hidden * 2**LATTICE_BITS), round(self.penalty * 4**LATTICE_BITS)

    @cached_property
    def fault(self) -> str | None:
        """What is wrong with these numbers, and what would be right; None where nothing is."""
        values, numbers = self.values, np.array([self.hidden, self.weight, self.penalty])
        if any(group.min(initial=0) < 0 or not np.bincount(group, minlength=1).all() for group in values.groups):
            return "has groups that are not numbered 0, 1, 2, …; number them without a gap"
        if self.estimate.shape != values.shape or not np.isfinite(self.estimate).all():
            return (
                f"has an estimate of shape {self.estimate.shape} for {values.shape} groups, or one that is not finite; "
                "give a finite number for each joined cell"
            )
        if not np.isfinite(numbers).all() or self.hidden < 0 or not 0 < self.weight <= 1:
            return (
                f"has weight {self.weight}, hidden {self.hidden} and penalty {self.penalty}; a weight lies in (0, 1], "
                "the others are finite, and hidden is from 0 up"
            )
        if max(float(np.abs(self.estimate).sum()), float(np.abs(numbers).max())) > GREATEST_ESTIMATE:
            return f"has numbers beyond {GREATEST_ESTIMATE:.0e}, too large for exact scores; use coarser units"
        return None

    def score(self, exact: Integers) -> int:
        estimate, hidden, penalty = self.units
        counts = np.rint(self.values.joined(exact)).astype(np.int64)
        distance = np.abs(counts * 2**LATTICE_BITS - estimate)
        return self.unit_weight * int(np.maximum(distance - hidden, 0).sum()) - penalty

    @cached_property
    def digest(self) -> str:
        """A text that tells the score from others."""
        estimate, hidden, penalty = self.units
        found = hashlib.sha256(json.dumps([self.values.shape, hidden, penalty, self.unit_weight]).encode())
        for array in (*self.values.groups, estimate):
            found.update(array.astype("<i8").tobytes())
        return found.hexdigest()


@dataclass(frozen=True, eq=False)
class MarginalGain:
    """Which table, named by its attributes, has most to teach; or None, where `nothing` is a score and wins."""

    tables: Mapping[Names, JoinedTable]
    nothing: float | None = None
    _fit: list[Domain] = field(default_factory=list, repr=False)
    """The domains that the tables were found to fit: one score may be drawn by a thousand times."""

    @property
    def candidates(self) -> tuple[Names | None, ...]:
        return self._candidates

    @cached_property
    def _candidates(self) -> tuple[Names | None, ...]:
        return tuple(self.tables) if self.nothing is None else (*self.tables, None)

    @property
    def marginals(self) -> tuple[Names, ...]:
        return tuple(self.tables)

    @cached_property
    def _largest_weight(self) -> int:
        return max(table.unit_weight for table in self.tables.values())

    def sensitivity(self, neighbours: Neighbours) -> float:
        return float(self._largest_weight * 2**LATTICE_BITS * (1 if neighbours == "add-remove" else 2))

    def values(self, exact_counts: Sequence[Integers]) -> Integers:
        scores = [table.score(exact) for table, exact in zip(self.tables.values(), exact_counts, strict=True)]
        if self.nothing is not None:
            scores.append(round(self.nothing * 4**LATTICE_BITS))
        return np.array(scores, dtype=np.int64)

    def check(self, domain: Domain) -> None:
        if any(each is domain for each in self._fit):
            return
        if not self.tables:
            raise DeclarationError("there is no table to select; name at least one")
        for names, table in self.tables.items():
            sizes = tuple(len(group) for group in table.values.groups)
            if domain.sizes(names) != sizes:
                raise DeclarationError(
                    f"the table by {', '.join(names)} joins {sizes} values, the domain has {domain.sizes(names)}; put "
                    "every value in a group"
                )
            if table.fault is not None:
                raise DeclarationError(f"the table by {', '.join(names)} {table.fault}")
        self._fit.append(domain)

    def fingerprint(self) -> Sequence[object]:
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> Sequence[object]:
        tables = [[list(names), table.digest] for names, table in self.tables.items()]
        return ["marginal-gain", self.nothing, hashlib.sha256(json.dumps(tables).encode()).hexdigest()]


# ----------------------------------------------------------------------------------------------------------------------
# Private selection: the index of a good candidate, by exact samplers on integer scores.
#
# Scores are whole numbers on a public lattice, one per candidate, and Δ is their sensitivity: no score moves by
# more than Δ between neighbouring tables, or, which is all that is needed, no difference of two by more than 2Δ. Each
# selector adds independent noise of one scale b to every score and returns the index of the greatest, ties broken
# uniformly at random:
#
#     exponential        Gumbel noise: P(i) ∝ exp(scoreᵢ/b)              (McSherry, Talwar 2007)
#     permute-and-flip   exponential noise; its expected score is never
#                        below the exponential mechanism's               (McKenna, Sheldon 2020; Ding et al. 2021)
#     report-noisy-max   discrete Laplace noise                          (Dwork, Roth 2014, section 3.3)
#
# With b = 2Δ/ε each of the three is ε-differentially private.
#
# Why this holds for discrete noise with ties. Fix candidate i and the noise of the others. Let M be the greatest
# noisy score of the others, m the number of others that attain it, and t = M − scoreᵢ. Then i is chosen with
# probability f(t, m) = P(Z > t) + P(Z = t)/(m + 1), which falls in t and in m, and f(t − 1, ·) ≥ P(Z ≥ t) ≥ f(t, ·)
# whatever the ties. Over to a neighbouring table no other score grows by more than k = 2Δ over scoreᵢ, so t grows by at
# most k, and when it grows by all of k, the others that attain M now attained it before: m does not grow. Hence the new
# probability is at least f(t + k, m) ≥ exp(−k/b) f(t, m), for the discrete Laplace law loses at most a
# factor exp(−1/b) per step. A uniform choice among ties is part of this argument; it also makes the result independent
# of the candidates' order.


Selector = Literal["exponential", "permute-and-flip", "report-noisy-max"]

NOISE_OF_SELECTOR: dict[Selector, SelectionLaw] = {
    "exponential": "gumbel",
    "permute-and-flip": "exponential",
    "report-noisy-max": "laplace",
}


def select(
    scores: NDArray[np.int64],
    *,
    sensitivity: float,
    epsilon: float,
    selector: Selector = "permute-and-flip",
    noise: NoiseSource,
) -> int:
    """The index of a candidate, chosen with epsilon-differential privacy in favour of high scores.

    `sensitivity` bounds, in lattice units, how far any one score moves between neighbouring tables.

    >>> from consilience.privacy.noise import SimulatedNoise
    >>> select(np.array([0, 90, 3]), sensitivity=1, epsilon=1.0, noise=SimulatedNoise(0))
    1
    """
    known_selector(selector)
    scale = selection_scale(sensitivity=sensitivity, epsilon=epsilon)
    return noise.noisy_argmax(scores, scale, law=NOISE_OF_SELECTOR[selector])


def selection_scale(*, sensitivity: float, epsilon: float) -> float:
    """The least float that is no smaller than 2Δ/ε: the scale of every selector.

    >>> selection_scale(sensitivity=1, epsilon=0.5)
    4.0
    """
    scale = _rounded_up(2 * _positive("sensitivity", sensitivity) / _positive("epsilon", epsilon))
    if scale == math.inf:
        raise DeclarationError(
            f"no finite noise gives epsilon {epsilon!r} at sensitivity {sensitivity!r}; "
            "ask for a larger epsilon or use a coarser lattice"
        )
    return scale


def epsilon_for_rho(rho: float, selector: Selector) -> float:
    """The greatest epsilon whose selection is still rho-zCDP, rounded down.

    The exponential mechanism's privacy loss has a *range* of ε, so it is ε²/8-zCDP (Cesar, Rogers 2021; Rogers,
    Steinke 2021). For the others there is the rule for all ε-private mechanisms: ε²/2 (Bun, Steinke 2016, Prop. 1.4).

    >>> epsilon_for_rho(0.125, "exponential"), epsilon_for_rho(0.125, "report-noisy-max")
    (1.0, 0.5)
    """
    square = _positive("rho", rho) * _rho_divisor(selector)
    epsilon = math.sqrt(rho) * math.sqrt(_rho_divisor(selector))
    while Fraction(epsilon) ** 2 <= square:
        epsilon = math.nextafter(epsilon, math.inf)
    while Fraction(epsilon) ** 2 > square:
        epsilon = math.nextafter(epsilon, 0.0)
    return epsilon


def _rho_divisor(selector: Selector) -> int:
    return 8 if known_selector(selector) == "exponential" else 2


def known_selector(selector: Selector) -> Selector:
    if selector not in NOISE_OF_SELECTOR:
        raise DeclarationError(f"the selector is {selector!r}; choose one of {', '.join(NOISE_OF_SELECTOR)}")
    return selector


def _positive(name: str, value: float) -> Fraction:
    if not (math.isfinite(value) and value > 0):
        raise DeclarationError(f"the {name} is {value!r}; it must be positive and finite: give such a number")
    return Fraction(int(value)) if isinstance(value, int | np.integer) else Fraction(float(value))


def _rounded_up(exact: Fraction) -> float:
    """The least float that is no smaller than the exact number; infinity beyond the greatest finite one."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)
