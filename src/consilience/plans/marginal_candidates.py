"""The marginals that a plan may select from: those of a workload and all that are part of them, with weights.

For a workload of queries over the sets of attributes s with weights w_s, a measured marginal r is worth

    w_r = Σ_s w_s |r ∩ s| = Σ_{i ∈ r} v_i,      v_i = Σ_{s ∋ i} w_s        (McKenna, Mullins, Sheldon, Miklau 2022, §3),

so that a marginal counts for every query that it overlaps with. What there is to select from is decided by declared
sizes alone: a marginal of more cells than `most_cells` is left out, and where there are more than `most_candidates`,
those of fewer attributes come first, then those of fewer cells.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from consilience.domain.domains import Domain
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError

Names = tuple[str, ...]

MOST_SUBSETS = 2_000_000
"""The most sets of attributes that are gone through."""


@dataclass(frozen=True)
class MarginalCandidate:
    """A set of attributes in the domain's order, the cells of its marginal, and how much it matters; at most 1."""

    names: Names
    cells: int
    weight: float


@dataclass(frozen=True, kw_only=True)
class CandidateLimits:
    """What is left out by declared sizes."""

    most_attributes: int
    most_cells: int
    most_candidates: int


def candidates_of_ways(domain: Domain, ways: int, limits: CandidateLimits) -> tuple[MarginalCandidate, ...]:
    """The candidates for all marginals over `ways` attributes, or over all attributes where there are fewer.

    Every attribute is in as many of them as any other, so that v_i is the same for all and need not be counted.
    """
    named = tuple(name for name in domain.counted_names if domain[name].size > 1)
    if not named:
        raise DeclarationError(f"no attribute of domain {domain.name!r} has two values; declare one that has")
    return _limited(domain, dict.fromkeys(named, 1.0), [named], min(ways, limits.most_attributes), limits)


def candidates_of_workload(
    workload: Workload, domain: Domain, limits: CandidateLimits
) -> tuple[MarginalCandidate, ...]:
    """The candidates for a workload: what its queries tell apart, and all parts of it.

    >>> domain = Domain.from_sizes({"a": 2, "b": 3, "c": 9})
    >>> limits = CandidateLimits(most_attributes=2, most_cells=20, most_candidates=100)
    >>> found = candidates_of_workload(Workload.marginals(domain, ways=3), domain, limits)
    >>> [(",".join(each.names), each.cells, each.weight) for each in found]
    [('a', 2, 0.5), ('b', 3, 0.5), ('c', 9, 0.5), ('a,b', 6, 1.0), ('a,c', 18, 1.0)]
    """
    places = {name: place for place, name in enumerate(domain.counted_names)}
    several = {name for name in places if domain[name].size > 1}
    found: dict[str, float] = {}
    sets: dict[Names, None] = {}
    for query, weight in workload:
        names = tuple(sorted(several.intersection(query.attributes), key=places.__getitem__))
        sets[names] = None
        for name in names:
            found[name] = found.get(name, 0.0) + weight
    if not found:
        raise DeclarationError("the workload asks for nothing but the total; name queries about attributes")
    weights = {name: found[name] for name in places if name in found}
    return _limited(domain, weights, list(sets), limits.most_attributes, limits)


def _limited(
    domain: Domain, weights: dict[str, float], sets: Sequence[Names], most_attributes: int, limits: CandidateLimits
) -> tuple[MarginalCandidate, ...]:
    """The parts of these sets within the limits, smaller ones first, in an order that declarations decide."""
    places = {name: place for place, name in enumerate(weights)}
    sizes = {name: domain[name].size for name in weights}
    parts = dict.fromkeys(_parts(sets, most_attributes))
    cells = {names: math.prod(sizes[name] for name in names) for names in parts}
    kept = [names for names in parts if cells[names] <= limits.most_cells]
    if not kept:
        raise DeclarationError(
            f"every marginal of the workload has more than {limits.most_cells:,} cells; raise that limit, or declare "
            "coarser attributes"
        )
    kept.sort(key=lambda names: (len(names), cells[names], [places[name] for name in names]))
    kept = kept[: limits.most_candidates]
    worth = {names: math.fsum(weights[name] for name in names) for names in kept}
    largest = max(worth.values())
    return tuple(MarginalCandidate(names, cells[names], worth[names] / largest) for names in kept)


def _parts(sets: Sequence[Names], most_attributes: int) -> Iterator[Names]:
    """All sets of 1 to `most_attributes` attributes that are part of one of these."""
    largest = min(most_attributes, max(len(names) for names in sets))
    work = sum(math.comb(len(names), size) for names in sets for size in range(1, min(largest, len(names)) + 1))
    if work > MOST_SUBSETS:
        raise DeclarationError(
            f"the queries of the workload have {work:,} parts of up to {largest} attributes, and {MOST_SUBSETS:,} are "
            "gone through; lower most_attributes, or name fewer or smaller queries"
        )
    for size in range(1, largest + 1):
        for names in sets:
            yield from itertools.combinations(names, size)
