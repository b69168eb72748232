"""How much one record can change the answers of queries measured together.

Write a_x for the stacked column of cell x: what one record in that cell adds to all answers. Under *add-remove* the
sensitivity is max_x ‖a_x‖. Under *replace-one* a record becomes another, which lies in another cell,
max_{x,x'} ‖a_x − a_x'‖, or which a rule of the domain drops, so that it leaves the table: max_x ‖a_x‖ again. The larger
of the two counts, and so the total is protected, too. A column of a Kronecker query is the product of its factors'
columns, so its norm is a product of norms; the distance between two columns is not (the prefix sums of 4 values by 2
groups: 8, where the product of the factors' distances gives 6). Attributes that a joint factor is about are taken as
one whose values are their combinations.

With a weight w_q = 1/scale for each query the same numbers are prices: the L1 sensitivity of the weighted stack is
the ε of Laplace noise at those scales, and half the squared L2 sensitivity is the ρ of Gaussian noise. Queries about
disjoint cells share one price that way: parallel composition needs no rule of its own.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from consilience.domain.queries import BoundQuery
from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import IdentityMap, SumMap

Neighbours = Literal["add-remove", "replace-one"]
Names = tuple[str, ...]

LARGEST_ENUMERATION = 2_000_000
"""Up to this many numbers are enumerated to find an exact sensitivity; beyond it a bound is given."""


@dataclass(frozen=True)
class Sensitivity:
    """A sensitivity, and whether it is exact or an upper bound."""

    value: float
    exact: bool


def check_neighbours(neighbours: str) -> Neighbours:
    """The neighbour relation, refused when it is not one that is known."""
    for known in get_args(Neighbours):
        if neighbours == known:
            return known
    raise DeclarationError(f"the neighbour relation {neighbours!r} is not known; use 'add-remove' or 'replace-one'")


def sensitivity(
    queries: Sequence[BoundQuery],
    *,
    norm: Literal[1, 2],
    neighbours: Neighbours = "add-remove",
    weights: Sequence[float] | None = None,
) -> Sensitivity:
    """The L1 or L2 sensitivity of queries measured together, each scaled by its weight."""
    check_neighbours(neighbours)
    weights = [1.0] * len(queries) if weights is None else list(weights)
    if len(weights) != len(queries):
        raise DeclarationError(f"{len(queries)} queries were given {len(weights)} weights; give one for each")
    for query, weight in zip(queries, weights, strict=True):
        if not 0 <= weight < math.inf:
            raise DeclarationError(
                f"the query {query.query.describe()!r} has weight {weight}; a weight is finite and not below 0"
            )
        if query.domain is not queries[0].domain and query.domain != queries[0].domain:
            raise DeclarationError(
                f"queries over the domains {queries[0].domain.name!r} and {query.domain.name!r} were given together; "
                "queries measured together share one domain"
            )
    dropped = _largest_column(queries, norm, weights)
    if neighbours == "add-remove":
        return dropped
    moved = _largest_distance(queries, norm, weights)
    return moved if moved.value >= dropped.value else dropped


def _root(value: float, norm: int) -> float:
    return value if norm == 1 else math.sqrt(value)


def _largest_column(queries: Sequence[BoundQuery], norm: int, weights: Sequence[float]) -> Sensitivity:
    """max_x Σ_q w_q^p Π_i c_qi[x_i], with c_qi the p-th power norms of the factors' columns.

    Only cells whose norms no other cell exceeds in every query matter, attribute by attribute.
    """
    powers, varying = _told_apart(queries, norm, weights)
    groups = _groups([list(norms) for norms in varying])
    sizes = {name: queries[0].domain[name].size for group in groups for name in group}
    too_many = any(math.prod(sizes[name] for name in group) > LARGEST_ENUMERATION for group in groups if len(group) > 1)
    profiles = [] if too_many else [_undominated(_norm_profile(varying, group, sizes)) for group in groups]
    combinations = math.prod(profile.shape[1] for profile in profiles)
    if too_many or combinations * len(queries) > LARGEST_ENUMERATION:
        bound = sum(
            power * math.prod(float(each.max()) for each in norms.values())
            for norms, power in zip(varying, powers, strict=True)
        )
        return Sensitivity(_root(bound, norm), False)
    sums = np.array(powers)[:, None]
    for profile in profiles:
        sums = (sums[:, :, None] * profile[:, None, :]).reshape(len(queries), -1)
    return Sensitivity(_root(float(sums.sum(axis=0).max()), norm), True)


def _told_apart(
    queries: Sequence[BoundQuery], norm: int, weights: Sequence[float]
) -> tuple[list[float], list[dict[Names, NDArray[np.float64]]]]:
    """What each query counts for in every cell alike, and the norms of those factors whose columns differ.

    The columns of identities and totals all have the same norm, so that any number of marginals takes time in
    proportion to their attributes.
    """
    powers, varying = [], []
    for query, weight in zip(queries, weights, strict=True):
        power, differing = weight**norm, {}
        for names, each in zip(query.groups, query.maps, strict=True):
            norms = each.column_norms(norm)
            if norms.min() == norms.max():
                power *= float(norms[0])
            else:
                differing[names] = norms
        powers.append(power)
        varying.append(differing)
    return powers, varying


def _groups(joint: Iterable[Sequence[Names]]) -> list[Names]:
    """The attributes of all factors, those in one group that joint factors tie to each other."""
    group_of: dict[str, Names] = {}
    for names in (names for each in joint for names in each):
        tied = tuple(dict.fromkeys(each for name in names for each in group_of.get(name, (name,))))
        group_of |= dict.fromkeys(tied, tied)
    return list(dict.fromkeys(group_of.values()))


def _norm_profile(
    varying: Sequence[Mapping[Names, NDArray[np.float64]]], group: Names, sizes: Mapping[str, int]
) -> NDArray[np.float64]:
    """For each query (rows) and combination of the group's codes (columns) the norm of what the query has of it.

    1 where the query sums over the group.
    """
    rows = np.ones((len(varying), *(sizes[name] for name in group)))
    for row, norms in zip(rows, varying, strict=True):
        for names, each in norms.items():
            if names[0] in group:
                own = each.reshape([sizes[name] for name in names])
                kept = [name for name in group if name in names]
                spread = [sizes[name] if name in names else 1 for name in group]
                row *= own.transpose([names.index(name) for name in kept]).reshape(spread)
    return rows.reshape(len(varying), -1)


def _undominated(profile: NDArray[np.float64]) -> NDArray[np.float64]:
    """The distinct columns that no other column exceeds in every row."""
    distinct = np.unique(profile, axis=1)
    if distinct.shape[1] > 2000:
        return distinct
    covered = np.ones((distinct.shape[1], distinct.shape[1]), dtype=np.bool_)
    for row in distinct:
        covered &= row[:, None] <= row[None, :]
    np.fill_diagonal(covered, False)
    return distinct[:, ~np.any(covered, axis=1)]


def _largest_distance(queries: Sequence[BoundQuery], norm: int, weights: Sequence[float]) -> Sensitivity:
    """max over pairs of cells of the distance between their columns: enumerated where that is feasible, else bounded.

    By the triangle inequality the distance is at most twice the largest norm. Columns without negative entries have
    a_x · a_y ≥ 0, so that ‖a_x − a_y‖₂² ≤ ‖a_x‖₂² + ‖a_y‖₂² and √2 takes the place of 2 in the L2 norm.
    """
    moved = [i for i, query in enumerate(queries) if _tells_cells_apart(query)]
    queries, weights = [queries[i] for i in moved], [weights[i] for i in moved]
    if not queries:
        return Sensitivity(0.0, True)
    attributes = list(dict.fromkeys(name for query in queries for name in query.attributes))
    cells = math.prod(queries[0].domain[name].size for name in attributes)
    rows = sum(query.size for query in queries)
    if cells * rows <= LARGEST_ENUMERATION and cells * cells * rows <= 100 * LARGEST_ENUMERATION:
        columns = np.unique(_stacked_columns(queries, attributes, weights), axis=0)
        return Sensitivity(_diameter(columns, "cityblock" if norm == 1 else "euclidean"), True)
    largest = _largest_column(queries, norm, weights)
    nonnegative = all(each.nonnegative for query in queries for each in query.maps)
    factor = math.sqrt(2) if norm == 2 and nonnegative else 2
    return Sensitivity(factor * largest.value, largest.exact and _attains_bound(queries))


def _diameter(points: NDArray[np.float64], metric: Literal["cityblock", "euclidean"]) -> float:
    """The largest distance between two rows, found block by block to keep memory small."""
    from scipy.spatial.distance import cdist  # a quarter of a second that few sensitivities need

    block = max(1, 1_000_000 // len(points))
    starts = range(0, len(points), block)
    return max(float(cdist(points[start : start + block], points[start:], metric).max()) for start in starts)


def _tells_cells_apart(query: BoundQuery) -> bool:
    """False of queries to which every record adds the same, such as the total: replacing one changes nothing."""
    return any(each.columns > 1 and not isinstance(each, SumMap) for each in query.maps)


def _stacked_columns(
    queries: Sequence[BoundQuery], attributes: Sequence[str], weights: Sequence[float]
) -> NDArray[np.float64]:
    """Row x holds the stacked, weighted column of cell x over the given attributes."""
    shape = tuple(queries[0].domain[name].size for name in attributes)
    blocks = []
    for query, weight in zip(queries, weights, strict=True):
        matrix = np.ones((1, 1))
        for each in query.maps:
            matrix = np.kron(matrix, each.dense())
        own = matrix.reshape(query.size, *query.table_shape)
        order = [name for name in attributes if name in query.attributes]
        own = own.transpose([0] + [1 + query.attributes.index(name) for name in order])
        spread = [query.domain[name].size if name in query.attributes else 1 for name in attributes]
        full = np.broadcast_to(own.reshape(query.size, *spread), (query.size, *shape))
        blocks.append(weight * full.reshape(query.size, -1))
    return np.concatenate(blocks).T


def _attains_bound(queries: Sequence[BoundQuery]) -> bool:
    """True of marginals, where two cells that differ in every attribute share no answer and all columns are as long."""
    return all(isinstance(each, IdentityMap | SumMap) for query in queries for each in query.maps)
