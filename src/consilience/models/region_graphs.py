"""The regions over which approximate marginals are kept: the scopes of a model, and what scopes share.

*Clusters* are the scopes that lie in no other. *Separators* are the intersections of clusters, of these intersections,
and so on. With a counting number c for each region, Σ_r c_r H(b_r) stands for the entropy of a whole distribution whose
marginal on r is b_r (Kikuchi 1951; Yedidia, Freeman, Weiss 2005). Here

    c_r = 1 − Σ c_p over the regions p that contain r,

so that every region is counted once: 1 for a cluster, and on a junction tree minus the number of edges that carry a
separator, where the sum is the entropy exactly.

A separator is attached to just enough clusters to make all clusters that contain it agree on it. Clusters that already
share a larger separator agree anyway, so one of them stands for all. If the graph of clusters and separators has no
loop, it is a junction tree of the scopes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.marginals.table_stacks import Scope
from consilience.models.tables import cells_of, checked_scopes, checked_sizes


@dataclass(frozen=True)
class RegionGraph:
    """Clusters, separators, and which clusters each separator ties together."""

    sizes: tuple[int, ...]
    clusters: tuple[Scope, ...]
    """The scopes that lie in no other, attributes ascending."""
    separators: tuple[Scope, ...]
    """Attributes ascending, in the order in which a walk through the graph, breadth first, meets them."""
    attached: tuple[tuple[int, ...], ...]
    """For each separator, the clusters that it ties together, first the one from which the walk came."""
    counting: tuple[int, ...]
    """The counting number of each separator; a cluster's is 1."""

    @cached_property
    def edges(self) -> int:
        """How many attachments there are."""
        return sum(map(len, self.attached))

    @cached_property
    def is_forest(self) -> bool:
        """Whether the graph has no loop, so that marginals by messages are exact."""
        groups = Groups(len(self.clusters) + len(self.separators))
        return all(
            groups.join(len(self.clusters) + place, cluster)
            for place, clusters in enumerate(self.attached)
            for cluster in clusters
        )

    def home(self, scope: Sequence[int]) -> int:
        """The smallest cluster that holds a scope for which the graph was made."""
        wanted = set(scope)
        holding = [k for k, cluster in enumerate(self.clusters) if wanted.issubset(cluster)]
        return min(holding, key=lambda k: (cells_of(self.sizes, self.clusters[k]), k))


class Groups:
    """Disjoint groups of numbered things that are joined two at a time."""

    def __init__(self, count: int) -> None:
        self._leader = list(range(count))

    def leader(self, member: int) -> int:
        """The member that stands for the group."""
        while self._leader[member] != member:
            self._leader[member] = self._leader[self._leader[member]]
            member = self._leader[member]
        return member

    def join(self, one: int, other: int) -> bool:
        """Make one group of two; False if they were one already."""
        first, second = self.leader(one), self.leader(other)
        self._leader[max(first, second)] = min(first, second)
        return first != second


def region_graph(sizes: Sequence[int], scopes: Sequence[Sequence[int]]) -> RegionGraph:
    """The clusters and separators of some scopes.

    >>> graph = region_graph([2] * 4, [(0, 1, 2), (1, 2, 3), (1, 2)])
    >>> graph.clusters, graph.separators, graph.counting, graph.is_forest
    (((0, 1, 2), (1, 2, 3)), ((1, 2),), (-1,), True)
    """
    lengths = checked_sizes(sizes)
    sets = list(dict.fromkeys(frozenset(scope) for scope in checked_scopes(lengths, scopes)))
    with_attribute = _index(sets)
    clusters = [each for each in sets if not any(each < other for other in _sharing(each, with_attribute, sets))]
    inner = _intersections(clusters)
    counting = _counting_numbers(clusters, inner)
    ties = {each: _representatives(each, clusters, inner, lengths) for each in inner}
    kept = [each for each in inner if counting[each] != 0 or len(ties[each]) > 1]
    walk = _breadth_first(kept, ties, len(clusters))
    return RegionGraph(
        lengths,
        tuple(tuple(sorted(each)) for each in clusters),
        tuple(tuple(sorted(each)) for each in walk),
        tuple(walk.values()),
        tuple(counting[each] for each in walk),
    )


Region = frozenset[int]


def _index(regions: Sequence[Region]) -> dict[int, list[Region]]:
    """For each attribute, the regions that hold it."""
    found: dict[int, list[Region]] = {}
    for region in regions:
        for attribute in region:
            found.setdefault(attribute, []).append(region)
    return found


def _sharing(region: Region, index: dict[int, list[Region]], everything: Sequence[Region]) -> Sequence[Region]:
    """Regions among which all that contain this one are: those with its rarest attribute, or all if it is empty."""
    return min((index.get(attribute, []) for attribute in region), key=len, default=everything)


def _intersections(clusters: Sequence[Region]) -> list[Region]:
    """All sets of attributes that are intersections of two or more clusters, larger ones first."""
    index, seen, fresh = _index(clusters), set(clusters), list(clusters)
    found: list[Region] = []
    while fresh:
        made = {one & other for one in fresh for attribute in one for other in index[attribute]}
        fresh = sorted(made - seen, key=lambda each: (-len(each), sorted(each)))
        seen.update(fresh)
        found.extend(fresh)
    return sorted(found, key=lambda each: (-len(each), sorted(each)))


def _counting_numbers(clusters: Sequence[Region], inner: Sequence[Region]) -> dict[Region, int]:
    """c_r = 1 − Σ c_p over all p that contain r, the largest regions first."""
    regions = [*clusters, *inner]
    index, counting = _index(regions), dict.fromkeys(clusters, 1)
    for region in inner:
        above = _sharing(region, index, regions)
        counting[region] = 1 - sum(counting[other] for other in above if region < other)
    return counting


def _representatives(
    separator: Region, clusters: Sequence[Region], inner: Sequence[Region], sizes: Sequence[int]
) -> tuple[int, ...]:
    """Of the clusters that contain a separator, the smallest of each group that larger separators tie together."""
    holding = [k for k, cluster in enumerate(clusters) if separator < cluster]
    groups = Groups(len(holding))
    for other in inner:
        if separator < other:
            together = [place for place, k in enumerate(holding) if other < clusters[k]]
            for place in together[1:]:
                groups.join(together[0], place)
    chosen: dict[int, int] = {}
    for place, k in enumerate(holding):
        leader = groups.leader(place)
        best = chosen.setdefault(leader, k)
        chosen[leader] = min(best, k, key=lambda each: (cells_of(sizes, tuple(clusters[each])), each))
    return tuple(chosen.values())


def _breadth_first(
    separators: Sequence[Region], ties: dict[Region, tuple[int, ...]], clusters: int
) -> dict[Region, tuple[int, ...]]:
    """The separators with their clusters, in the order of a walk through the graph: first the cluster it came from."""
    around: list[list[Region]] = [[] for _ in range(clusters)]
    for separator in separators:
        for cluster in ties[separator]:
            around[cluster].append(separator)
    order: dict[Region, tuple[int, ...]] = {}
    visited: set[int] = set()
    for start in range(clusters):
        queue = [start]
        for cluster in queue:
            if cluster in visited:
                continue
            visited.add(cluster)
            for separator in around[cluster]:
                if separator not in order:
                    beyond = [other for other in ties[separator] if other != cluster]
                    order[separator] = (cluster, *beyond)
                    queue.extend(beyond)
    return order


# ----------------------------------------------------------------------------------------------------------------------
# The tables of clusters while messages move: as numbers where their range allows, else as logarithms.
#
# Both kinds do the same: say the margin of a table on some axes as logarithms of shares, multiply a table by a factor
# over these axes, and give the table as shares. Numbers are several times as fast; where one of their margins comes
# near the smallest number there is, they raise `Underflow`, and the caller starts again with logarithms.


Array = NDArray[np.float64]

SMALLEST = 1e-200
"""A share of a table's total below which its digits may be lost."""


class Underflow(ArithmeticError):
    """Part of a table became too small to be told from nothing."""


class ClusterTables(Protocol):
    """Non-negative tables, each known up to a factor."""

    def log_margin(self, k: int, others: tuple[int, ...]) -> Array:
        """The logarithms of table k's shares, summed over its other axes; flat."""
        ...

    def tilt(self, k: int, factor: Array) -> None:
        """Multiply table k by exp(factor), which broadcasts over it."""
        ...

    def shares(self, k: int) -> Array:
        """Table k, divided by its sum."""
        ...


class NumberTables:
    """Tables as they are."""

    def __init__(self, logarithms: Sequence[Array]) -> None:
        self._tables = [np.exp(table - table.max()) for table in logarithms]

    def log_margin(self, k: int, others: tuple[int, ...]) -> Array:
        margin = self._tables[k].sum(axis=others).ravel()
        margin /= margin.sum()
        if not margin.min() > SMALLEST:
            raise Underflow
        return np.log(margin)

    def tilt(self, k: int, factor: Array) -> None:
        self._tables[k] *= np.exp(factor - factor.max())

    def shares(self, k: int) -> Array:
        table = self._tables[k]
        return table / table.sum()


class LogTables:
    """Tables by their logarithms, −∞ for what is impossible."""

    def __init__(self, logarithms: Sequence[Array]) -> None:
        self._tables = list(logarithms)

    def log_margin(self, k: int, others: tuple[int, ...]) -> Array:
        table = self._tables[k]
        top = table.max(axis=others, keepdims=True)
        top[np.isneginf(top)] = 0.0
        with np.errstate(divide="ignore"):
            margin = np.log(np.exp(table - top).sum(axis=others)).ravel() + top.ravel()
        return normalised(margin)

    def tilt(self, k: int, factor: Array) -> None:
        self._tables[k] = self._tables[k] + factor

    def shares(self, k: int) -> Array:
        table = np.exp(self._tables[k] - self._tables[k].max())
        return table / table.sum()


def normalised(logarithms: Array) -> Array:
    """Logarithms of shares: the same up to a constant, and their exponentials sum to 1."""
    top = logarithms.max()
    if np.isneginf(top):
        raise DeclarationError(
            "the cells allowed by different scopes exclude each other; allow at least one cell of all"
        )
    return logarithms - (top + np.log(np.exp(logarithms - top).sum()))


def less(one: Array, other: Array) -> Array:
    """The difference of logarithms, where what is impossible stays so whatever it is divided by."""
    impossible = np.isneginf(one)
    if not impossible.any():
        return one - other
    return np.where(impossible, -np.inf, one - np.where(impossible, 0.0, other))
