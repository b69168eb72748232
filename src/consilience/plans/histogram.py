"""A histogram of one attribute through a tree of counts (Hay et al. 2010), and the best such tree for what is asked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from consilience.domain.attributes import Hierarchy
from consilience.domain.domains import Domain
from consilience.domain.factors import AllRanges, Identity, Prefix, Tree
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators.base import check_choice
from consilience.kernels.linear_maps import SparseMap
from consilience.plans.base import DescribedPlan
from consilience.privacy.gate import Gate
from consilience.strategies.count_trees import (
    LevelBudgets,
    WeightedRanges,
    branching_for,
    level_shares,
    levels_of,
    whole_tree,
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Histogram(DescribedPlan):
    """The counts of every node of a tree over the attribute's values, level by level.

    `branching` is the number of children of a node. By default it is the one whose consistent tree answers ranges with
    the least variance on average (Qardaji, Yang, Li 2013), which `branching_for` finds from the number of values and
    the unit of the budget. A hierarchy is measured along its own nodes unless a branching is given. `level_budgets` is
    "uniform", or "geometric": each level gets 2^(1/3) times the share of the level above it (Cormode et al. 2012),
    which favours short ranges. With a `workload` branching and shares are those of the least expected error of what it
    asks of the attribute alone (`best_tree`); levels that do not pay are left out.
    """

    name = "histogram"
    attribute: str
    branching: int | None = None
    level_budgets: LevelBudgets = "uniform"
    workload: Workload | None = None

    def __post_init__(self) -> None:
        check_choice(self.level_budgets, "the budget of levels", get_args(LevelBudgets))
        if self.branching is not None and self.branching < 2:
            raise DeclarationError(f"a branching of {self.branching} makes no tree; use 2 or more")

    def run(self, gate: Gate) -> None:
        attribute = gate.domain[self.attribute]
        branching = self.branching
        if self.workload is not None:
            asked = AskedRanges.of(self.workload, gate.domain, self.attribute)
            leaves, unit = range(attribute.size), gate.budget.additive_unit
            branching, shares = best_tree(asked, leaves, attribute.size, unit, branching)
            measured = [(Tree(branching, level), share) for level, share in enumerate(shares) if share > 0]
            asking = [Query.of({self.attribute: factor}) for factor, _ in measured]
            gate.measure(asking, gate.budget, shares=[share for _, share in measured])
            return
        if branching is None and not isinstance(attribute, Hierarchy):
            branching = branching_for(attribute.size, level_budgets=self.level_budgets, unit=gate.budget.additive_unit)
        levels = Tree(branching).levels(attribute)
        queries = [Query.of({self.attribute: Tree(branching, level)}) for level in range(levels)]
        gate.measure(queries, gate.budget, shares=level_shares(levels, self.level_budgets))

    def to_json(self) -> dict[str, Any]:
        return without_workload(super().to_json())


def without_workload(described: dict[str, Any]) -> dict[str, Any]:
    """The description without a workload that is not there: plans that did not take one were described so."""
    return {key: value for key, value in described.items() if key != "workload" or value is not None}


# ----------------------------------------------------------------------------------------------------------------------
# The tree of counts with the least expected error under a workload: its branching, and the share of each level.
#
# All ranges, prefixes and values of n leaves have closed forms (`strategies.count_trees`); ranges that are named
# one by one are followed up the tree. Under shares t_l of the budget levels have the precisions t_l² under a pure ε and
# t_l under ρ. The weighted sum of variances is lowered by descent in log t_l, from even shares and from even shares
# without a root; a level that falls to next to nothing is left out, so that a tree of branching 4 may well become one
# of 16. Under ρ the sum is convex in the shares; under ε it is not, and the better of the optima is taken.


BRANCHINGS = (2, 4, 8, 16, 32)
"""What is tried. Levels can be left out, so that these stand for all their powers."""

LEAST_SHARE = 0.004
"""A level with less than this share of the budget is left out, and the others get it."""

MOST_STEPS = 40


@dataclass(frozen=True)
class AskedRanges:
    """What is asked of the values in their order: all ranges, all prefixes, all values, and single ranges of codes.

    The numbers are how much the squared error of each answer counts.
    """

    ranges: float = 0.0
    prefixes: float = 0.0
    values: float = 0.0
    single: tuple[tuple[int, int, float], ...] = field(default=(), repr=False)
    """The first and the last code, and the weight."""

    @staticmethod
    def of(workload: Workload, domain: Domain, name: str) -> "AskedRanges":
        """What the queries about one attribute alone ask of it; rows that are no ranges count as the ranges they span.

        >>> domain = Domain.from_sizes({"a": 4})
        >>> AskedRanges.of(Workload.of(["prefix(a)", "a=2"]), domain, "a").single
        ((2, 2, 1.0),)
        """
        attribute = domain[name]
        known, single = {AllRanges: 0.0, Prefix: 0.0, Identity: 0.0}, list[tuple[int, int, float]]()
        for query, weight in workload:
            if query.attributes != (name,):
                continue
            ((_, factor),) = query.factors
            if type(factor) in known:
                known[type(factor)] += weight
            else:
                bound: Any = query.bind(domain).maps[0]
                rows = bound.matrix if isinstance(bound, SparseMap) else bound.dense()
                single += [(first, last, weight) for first, last in _spans(rows)]
        found = AskedRanges(known[AllRanges], known[Prefix], known[Identity], tuple(single))
        if found == AskedRanges():
            raise DeclarationError(
                f"the workload asks nothing of {attribute.name!r} alone; name its ranges, its prefixes or its values"
            )
        return found

    def variance(self, starts: Sequence[int], size: int, branching: int, precisions: Sequence[float]) -> float:
        """The weighted sum of variances where leaves begin at these codes, each spread evenly.

        What is asked of all values is taken to be asked of all leaves.
        """
        found = 0.0
        if self.ranges or self.prefixes or self.values:
            tree = whole_tree(len(starts), branching, precisions)
            found = self.ranges * tree.ranges + self.prefixes * tree.prefixes + self.values * tree.values
        if self.single:
            found += self._over(tuple(starts), size).variance(len(starts), branching, precisions)
        return found

    def _over(self, starts: tuple[int, ...], size: int) -> WeightedRanges:
        return _weighted_ranges(self.single, starts, size)


@lru_cache(maxsize=4)
def _weighted_ranges(single: tuple[tuple[int, int, float], ...], starts: tuple[int, ...], size: int) -> WeightedRanges:
    pairs = [(first, last) for first, last, _ in single]
    return WeightedRanges.of_codes(pairs, starts, size, [weight for _, _, weight in single])


def _spans(rows: Any) -> list[tuple[int, int]]:
    """The first and the last code of each row of a sparse or dense matrix; rows of nothing are left out."""
    entries = rows.tocoo() if hasattr(rows, "tocoo") else None
    row, column = np.nonzero(rows) if entries is None else (entries.row, entries.col)
    number, size = rows.shape
    first, last = np.full(number, size), np.full(number, -1)
    np.minimum.at(first, row, column)
    np.maximum.at(last, row, column)
    return [(int(low), int(high)) for low, high in zip(first, last, strict=True) if high >= 0]


@lru_cache(maxsize=64)
def best_tree(
    asked: AskedRanges,
    starts: Sequence[int],
    size: int,
    unit: Literal["epsilon", "rho"] = "epsilon",
    branching: int | None = None,
) -> tuple[int, tuple[float, ...]]:
    """The branching and the shares of the levels, root first, of the tree over these leaves with the least error.

    >>> _, shares = best_tree(AskedRanges(ranges=1.0), range(4096), 4096, branching=16)
    >>> [round(share, 1) for share in shares]
    [0.0, 0.3, 0.3, 0.4]
    """
    tried = BRANCHINGS if branching is None else (branching,)
    found = [
        (*_best_shares(asked, starts, size, each, unit), each) for each in tried if each <= max(2, len(starts))
    ] or [(*_best_shares(asked, starts, size, tried[0], unit), tried[0])]
    _, shares, chosen = min(found, key=lambda each: each[0])
    return chosen, shares


def _best_shares(
    asked: AskedRanges, starts: Sequence[int], size: int, branching: int, unit: Literal["epsilon", "rho"]
) -> tuple[float, tuple[float, ...]]:
    """The least error of a tree of this branching, and the shares of its levels."""
    levels, power = levels_of(len(starts), branching), 2 if unit == "epsilon" else 1
    if levels == 1:
        return asked.variance(starts, size, branching, [1.0]), (1.0,)

    def error(shares: Array) -> float:
        return asked.variance(starts, size, branching, (shares**power).tolist())

    best = (math.inf, (1.0,))
    for root in (0.0, -6.0):
        start = np.array([root, *[0.0] * (levels - 1)])
        bounds, options = [(-8.0, 4.0)] * levels, {"maxiter": MOST_STEPS}
        found = minimize(
            lambda z: math.log(error(_softmax(z))), start, method="L-BFGS-B", bounds=bounds, options=options
        )
        shares = _softmax(found.x)
        shares[:-1][shares[:-1] < LEAST_SHARE] = 0.0
        shares /= shares.sum()
        best = min(best, (error(shares), tuple(shares.tolist())))
    return best


def _softmax(logs: Array) -> Array:
    parts = np.exp(logs - logs.max())
    return parts / parts.sum()
