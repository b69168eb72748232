"""`Tree`: the most likely counts where all measured answers are sums over sets that are nested or disjoint.

Such sets form a forest: k-ary trees over one attribute, hierarchies and geographies, a table and its margins (a), (a,
b), (a, b, c), buckets, the same query measured twice. With y_v the noisy answer of set v and b_v the scale of its noise
the estimate is

    min Σ_v loss((x_v − y_v) / b_v)   such that every set has the sum of the sets and cells in it, and x ≥ 0

(Lee, Wang and Kifer 2015, §5.2), found exactly and in near-linear time, with a certificate. Cells that the measurements
do not tell apart get equal counts: among the tables with these answers, the estimate is the one of greatest entropy.
Impossible cells stay empty, and exact facts are met.

*Large sums.* That optimum pushes the sums of sparse counts up, since every empty cell keeps the positive half of its
noise. So by default the total and all sums over many leaves are those of least squares without a sign, which have no
such bias, divided from the top down; the loss is left with what is below (`solvers.trees.top_down`).
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from consilience.domain import factors
from consilience.domain.attributes import Attribute
from consilience.domain.factors import Factor, Identity, Intervals, Total
from consilience.errors import DeclarationError, TooLarge, readable_count
from consilience.estimators.base import FullTableEstimate, Progress, Suitability
from consilience.estimators.evidence import (
    LARGEST_TABLE,
    Array,
    Evidence,
    MeasuredCells,
    NoiseLoss,
    check_loss,
    gather,
    loss_by_noise,
)
from consilience.measurements import MeasurementSet
from consilience.solvers.fit import Fit, Infeasible
from consilience.solvers.trees.fit import fit_forest, fit_tree
from consilience.solvers.trees.laminar import (
    AxisPattern,
    Crossing,
    SetFamily,
    SetForest,
    axis_pattern,
    crossing_sets,
    forest_of_family,
)
from consilience.solvers.trees.layout import SETTINGS as FORESTS
from consilience.solvers.trees.layout import ContradictoryCounts, complete_branching
from consilience.solvers.trees.states import TieRule

NESTED = "the measured sets are nested or disjoint, so the fit is exact and fast"

BYTES_PER_SET, BYTES_PER_CELL = 190, 45
"""What a measured set and a cell of the full table take at the peak (`python -m benchmarks memory`)."""

BLOCK = 128
"""Leaves of the largest subtrees that "auto" fits jointly, whatever the branching. Of 16 to 256, on the half of the
histograms of `python -m benchmarks totals` that it was chosen on, it has the least median error over all lengths of
ranges in binary trees, and it leaves single bins of scattered sparse counts within 2 % of the joint fit."""


@dataclass(frozen=True)
class Tree:
    """The exact fit of nested sums; for up to 33 million cells.

    `loss` is "l1", "l2", "elastic" with the share `alpha` of the absolute value, or "by-noise": "l2" for Gaussian noise
    and "elastic" with α = 0.7 for Laplace noise, by the evidence of our benchmarks. `nonnegative=False` lets counts be
    negative, and with "l2" is the estimate of Hay et al. (2010). `ties` chooses among the optima of "l1" (see
    `solvers.trees.states`). `integers=True` gives whole counts.

    `block` is the number of leaves up to which subtrees are fitted jointly; larger sums are held at what least squares
    without a sign say, divided from the top down. 1 divides so down to the leaves, None fits everything jointly, the
    optimum of the loss itself. "auto" is 128 where the loss is "by-noise", counts are not negative and no value was
    clipped, and else None: a loss asked for by name is its optimum, as published.

    Values clipped at zero count as "at most 0", and answers below a threshold, which were not released, are left out.
    """

    loss: NoiseLoss = "by-noise"
    alpha: float = 0.9
    nonnegative: bool = True
    ties: TieRule = "min-l2"
    integers: bool = False
    block: int | Literal["auto"] | None = "auto"

    name: ClassVar[str] = "tree"

    def __post_init__(self) -> None:
        check_loss(self.loss, get_args(NoiseLoss), was_auto="by-noise")

    def suitability(self, measured: MeasurementSet) -> Suitability:
        layers = _nested_layers(measured)
        if layers is not None:
            evidence = gather(measured)
            return Suitability(
                True, NESTED, _predicted_bytes(evidence, MeasuredCells.of(measured.domain, evidence), layers)
            )
        problem = _Problem.of(measured)
        if isinstance(problem, str):
            return Suitability(False, problem, 16 * min(measured.domain.cells, 2**58))
        crossing = crossing_sets(problem.family, measured=problem.known, allowed=problem.cells.allowed)
        if crossing is not None:
            return Suitability(False, problem.describe_crossing(crossing))
        return Suitability(True, NESTED, problem.predicted_bytes)

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> FullTableEstimate:
        problem = _Problem.of(measured)
        if isinstance(problem, str):
            raise TooLarge(f"Tree cannot fit these measurements: {problem}")
        forest = forest_of_family(problem.family, measured=problem.known, allowed=problem.cells.allowed)
        if isinstance(forest, Crossing):
            raise DeclarationError(f"Tree cannot fit these measurements: {problem.describe_crossing(forest)}")
        problem.refuse_facts_about_impossible_cells()
        loss, alpha = loss_by_noise(self.loss, self.alpha, measured)
        block = self._chosen_block(problem)
        fit = self._fit(problem, forest, loss, alpha, block)
        if self.integers:
            counts = _whole(forest, fit.counts, problem.cells)
        else:
            counts = problem.cells.spread(_shares(forest, fit.counts, problem.cells))
        if progress is not None:
            progress("fitting", 1, 1)
        stats = {"objective": fit.objective, "gap": fit.gap, "measured_answers": problem.measured_answers, **fit.stats}
        return FullTableEstimate(measured, self._describe(loss, alpha, block), fit.status, stats, counts)

    def _chosen_block(self, problem: "_Problem") -> int | None:
        """The block itself; for "auto" None where a loss was asked for or nothing unbiased is there to be held."""
        if self.block != "auto":
            return self.block
        return BLOCK if self.loss == "by-noise" and self.nonnegative and not problem.clipped.any() else None

    def _fit(self, problem: "_Problem", forest: SetForest, loss: str, alpha: float, block: int | None) -> Fit:
        exact = forest.of_sets(problem.exact)
        options: dict[str, Any] = {
            "loss": loss,
            "alpha": alpha,
            "weights": forest.of_sets(problem.weights),
            "nonnegative": self.nonnegative,
            "ties": self.ties,
            "integers": self.integers,
            "clipped": forest.of_sets(problem.clipped) if problem.clipped.any() else None,
            "exact": exact if exact.any() else None,
            "block": block,
        }
        branching = complete_branching(forest.parent)
        noisy = forest.of_sets(problem.values)
        try:
            if branching is not None:
                return fit_tree(noisy, branching, **options)
            return fit_forest(noisy, forest.parent, **options)
        except ContradictoryCounts as error:
            raise problem.contradiction(error, forest) from error

    def _describe(self, loss: str, alpha: float, block: int | None) -> dict[str, Any]:
        settings = {"method": self.name, "loss": loss, "nonnegative": self.nonnegative, "integers": self.integers}
        settings |= {} if block is None else {"block": block}
        return settings | ({"alpha": alpha} if loss == "elastic" else {"ties": self.ties} if loss == "l1" else {})


@dataclass(frozen=True, eq=False)
class _Problem:
    """The measured answers, all queries one after the other, and the sets of cells that they add up."""

    evidence: tuple[Evidence, ...]
    cells: MeasuredCells
    family: SetFamily
    values: Array
    weights: Array
    """0 for exact answers too: they are met, not weighed."""
    exact: NDArray[np.bool_]
    clipped: NDArray[np.bool_]

    @staticmethod
    def of(measured: MeasurementSet) -> "_Problem | str":
        """The problem, or the reason why the answers are no sums over sets of cells, or too many."""
        if measured.domain.cells > LARGEST_TABLE:
            return (
                f"the full table has {readable_count(measured.domain.cells)} cells; Tree keeps up to {LARGEST_TABLE:,}"
            )
        answers = sum(each.values.size for each in measured)
        if answers > FORESTS.largest_forest // 2:
            return f"there are {answers:,} answers; Tree fits up to {FORESTS.largest_forest // 2:,}"
        evidence = gather(measured)
        cells = MeasuredCells.of(measured.domain, evidence)
        queries: list[dict[int, AxisPattern]] = []
        layers = 0
        for each in evidence:
            patterns = _patterns(each, cells)
            if isinstance(patterns, str):
                return f"the query {each.name!r} is no sum over nested sets: {patterns}"
            queries.append(patterns)
            layers += int(np.prod([pattern.rows_of.shape[1] for pattern in patterns.values()], dtype=np.int64))
            if layers * sum(cells.shape) > FORESTS.largest_pattern:
                return f"a cell is in more than {layers:,} of the measured sets, which Tree cannot keep in memory"
        return _Problem(
            evidence,
            cells,
            SetFamily.of(cells.shape, queries),
            np.concatenate([each.values for each in evidence]),
            np.concatenate([np.zeros(each.values.size) if each.exact else each.weights for each in evidence]),
            np.concatenate([np.full(each.values.size, each.exact) for each in evidence]),
            np.concatenate([_no(each) if each.clipped is None else each.clipped for each in evidence]),
        )

    @property
    def predicted_bytes(self) -> int:
        return _predicted_bytes(self.evidence, self.cells, self.family.bases.size)

    @property
    def measured_answers(self) -> int:
        return int(np.count_nonzero(self.weights))

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which answers say something."""
        return self.exact | (self.weights > 0.0)

    def _whose(self, answer: int) -> tuple[Evidence, int]:
        """The evidence that an answer belongs to, and its place there."""
        for each in self.evidence:
            if answer < each.values.size:
                return each, answer
            answer -= each.values.size
        raise IndexError(answer)

    def _name(self, answer: int) -> str:
        each, place = self._whose(answer)
        return each.answer_name(place)

    def describe_crossing(self, crossing: Crossing) -> str:
        one, other = (self._whose(answer)[0].name for answer in (crossing.one, crossing.other))
        examples = f"{self._name(crossing.one)!r} and {self._name(crossing.other)!r}"
        which = f"the queries {one!r} and {other!r} cross" if one != other else f"the query {one!r} crosses itself"
        return f"{which}: {examples} overlap, and neither is inside the other"

    def refuse_facts_about_impossible_cells(self) -> None:
        """Raise `Infeasible` where an exact count is not 0 and all its cells are impossible."""
        allowed = self.cells.domain.allowed_cells() if self.cells.domain.impossible else None
        if allowed is None:
            return
        for each in (evidence for evidence in self.evidence if evidence.exact):
            bound = each.bound
            possible = bound.marginal_of(allowed.astype(np.float64))
            empty = (bound.answer(possible).ravel() == 0) & (each.values != 0)
            if empty.any():
                place = int(np.flatnonzero(empty)[0])
                words = each.answer_name(place)
                raise Infeasible(
                    f"the count of {words} is declared to be exactly {each.values[place]:.10g}, and all its cells are "
                    "declared impossible; correct one of the two",
                    violation=abs(float(each.values[place])),
                    constraints=(words,),
                )

    def contradiction(self, error: ContradictoryCounts, forest: SetForest) -> Infeasible:
        """The error in the words of the domain."""
        answers = [int(forest.sets[node]) for node in error.nodes]
        words = [f"{self._name(answer)} is {self.values[answer]:.10g}" for answer in answers]
        inside = f", within it {'; '.join(words[1:7])}{' …' if len(words) > 7 else ''}" if len(words) > 1 else ""
        return Infeasible(
            f"the exact counts contradict each other{'' if inside else ' or are negative'}: {words[0]}{inside}; the "
            f"closest counts miss one of them by {error.violation:.6g}. Correct them, or give them as measurements "
            "with noise",
            violation=error.violation,
            constraints=[self._name(answer) for answer in answers],
        )


def _nested_layers(measured: MeasurementSet) -> int | None:
    """How many sets hold a cell at most, where the kinds of the queries say that all are nested; None if unsure.

    Marginals are nested where each is a marginal of the next larger one. Between two of them there may be queries that
    cut the values of one more attribute into nested sets: these lie within the cells of the marginal before, and the
    cells of the one after, which tells that attribute apart too, lie within them.
    """
    domain, answers = measured.domain, sum(each.values.size for each in measured)
    if domain.cells > LARGEST_TABLE or answers > FORESTS.largest_forest // 2:
        return None
    told = [_told(margin.attributes) for margin in domain.public.margins]
    layers, cuts = len(told) + (domain.public.total is not None), []
    for each in measured:
        if not each.query.is_product:
            return None
        scope = _told(name for name, factor in each.query.factors if isinstance(factor, Identity))
        others = [(name, factor) for name, factor in each.query.factors if not isinstance(factor, Identity | Total)]
        depth = math.prod(_depth_of_cuts(factor, domain[name]) for name, factor in others)
        if not depth or len(others) > 1:
            return None
        for name, factor in others:
            # The levels of one tree are nested in each other.
            whole = dataclasses.replace(factor, level=None) if isinstance(factor, factors.Tree) else factor
            cuts.append((scope, name, whole))
            scope = scope | {(name, "cut")}
        told.append(scope)
        layers += depth
    if any(cut != cuts[0] for cut in cuts) or layers * sum(domain.shape) > FORESTS.largest_pattern:
        return None
    told.sort(key=len)
    return layers if all(one <= other for one, other in itertools.pairwise(told)) else None


def _told(names: Iterable[str]) -> frozenset[tuple[str, str]]:
    """What a marginal tells of attributes: into which part a value is cut, and which value it is."""
    return frozenset((name, what) for name in names for what in ("cut", "value"))


def _depth_of_cuts(factor: Factor, attribute: Attribute) -> int:
    """How many sets of a factor hold a value at most, if any two of them are nested or disjoint; 0 where unsure."""
    if isinstance(factor, factors.Tree):
        return factor.levels(attribute) if factor.level is None else 1
    return int(isinstance(factor, Intervals))


def _predicted_bytes(evidence: Sequence[Evidence], cells: MeasuredCells, layers: int) -> int:
    sets = sum(each.values.size for each in evidence)
    return BYTES_PER_SET * sets + BYTES_PER_CELL * cells.domain.cells + 4 * layers * sum(cells.shape)


def _no(each: Evidence) -> NDArray[np.bool_]:
    return np.zeros(each.values.size, dtype=np.bool_)


def _patterns(each: Evidence, cells: MeasuredCells) -> dict[int, AxisPattern] | str:
    """The sets of codes on each axis that the query tells apart, in the query's order."""
    if not each.query.is_product:
        return "it is about several attributes together, and sets are nested attribute by attribute"
    maps = each.bound.maps
    patterns: dict[int, AxisPattern] = {}
    for place, axis in cells.axes(each.query):
        found = axis_pattern(maps[place])
        if isinstance(found, str):
            return found
        patterns[axis] = found
    return patterns


def _shares(forest: SetForest, counts: Array, cells: MeasuredCells) -> Array:
    """For each measured cell, the count of every possible cell of the full table behind it: its node's, shared."""
    nodes = forest.node_of_cell
    room = np.full(nodes.size, cells.behind) if cells.room is None else cells.room
    held = nodes >= 0
    total = np.bincount(nodes[held], room[held], minlength=forest.nodes)
    return np.append(counts / np.maximum(total, 1.0), 0.0)[nodes]


def _whole(forest: SetForest, counts: Array, cells: MeasuredCells) -> Array:
    """The full table in which the cells of a node share its whole count: equally, and the first ones take the rest."""
    numbers = cells.spread(forest.node_of_cell.astype(np.float64) + 1.0).ravel().astype(np.int64) - 1
    placed = np.flatnonzero(numbers >= 0)
    placed = placed[np.argsort(numbers[placed], kind="stable")]
    members = np.bincount(numbers[placed], minlength=forest.nodes)
    place = np.arange(placed.size) - np.repeat(np.cumsum(members) - members, members)
    equal, rest = np.divmod(counts, np.maximum(members, 1))
    table = np.zeros(numbers.size)
    table[placed] = equal[numbers[placed]] + (place < rest[numbers[placed]])
    return table.reshape(cells.domain.shape)
