"""PrivBayes: a Bayesian network chosen privately, and the tables of its families (Zhang et al. 2017).

The network grows by one attribute a round. The first is public chance. Each next is the child of a family, a child with
parents among the attributes so far, that a private selection chooses by how much the child depends on its parents
(privacy/network_scores.py proves the scores' sensitivities). Then the tables of all families are measured together.

*Which tables are useful.* A table of c cells holds N/c records a cell on average, and the noise on a cell has an
expected size of b. It is θ-useful if N/c ≥ θ b (the paper's section 5). Where all attributes have two values, all
families get the same number of parents k, the largest for which tables of 2^(k+1) cells are useful; the first k + 1
attributes have one table. Otherwise every family gets as many parents as its table stays useful with: candidates are
the maximal such sets. An attribute too large for a useful table with any other has no parents, and takes no part in the
selection.

*What the paper leaves open, or has otherwise.* N is public, or what the first attribute's noisy counts sum to. These
are measured first, which tells b, too; the paper has no table of its own for the first of attributes of two values.
With hundreds of attributes there are millions of maximal sets: each round considers at most `max_candidates` families,
and fewer where counting them would take long, the same number for each child, drawn by `seed` where there are more.
Attributes enter as they are declared: the paper's taxonomies, which would let parents be coarser, are not used (its
"vanilla" encoding).
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators.base import check_choice, check_whole
from consilience.estimators.published.bayesian_network import LARGEST_TREE, BayesianNetwork
from consilience.kernels.rng import Generator, generator
from consilience.measurements import Measurement, MeasurementSet
from consilience.plans.answering import AnswersWorkload, ModelSizes
from consilience.plans.base import check_share
from consilience.privacy.budgets import AdditiveUnit, Budget
from consilience.privacy.gate import Gate
from consilience.privacy.network_scores import LONGEST_LADDER, MOST_CELLS, Dependence, Family, FamilyDependence
from consilience.privacy.scores import Selector

# ----------------------------------------------------------------------------------------------------------------------
# Whom an attribute may depend on: sets of parents that are as large as a table may be (Zhang et al. 2017, section 5).
#
# A set of parents is *maximal* when its combinations of values are no more than a limit, and no attribute can be added
# to it. All maximal sets are listed where they are few. Where they are many, some are drawn: attributes in random
# order, each taken that still fits, which always ends in a maximal set.


ParentSet = tuple[int, ...]

TRIES_FOR_EACH = 4
"""How often a set is drawn for each that is wanted, at most: the same set may come again."""

ORDERS_AT_ONCE = 256
"""Orders that are drawn at a time."""


def all_maximal_sets(
    sizes: Sequence[int], limit: float, *, most: int, degree: int | None = None
) -> list[ParentSet] | None:
    """Every maximal set of attributes with at most `limit` combinations; None where there are more than `most`.

    `sizes` are those of the attributes to choose from, and the sets hold their places. With a `degree`, sets have at
    most so many attributes. Where nothing fits, the empty set is the one maximal set.

    >>> all_maximal_sets([2, 3, 4], 8, most=10)
    [(0, 1), (0, 2)]
    """
    found: list[ParentSet] = []
    # Smallest first: the first attribute that a set leaves out and could take tells that the set is not maximal.
    order = sorted(range(len(sizes)), key=lambda place: (sizes[place], place))
    deepest = len(sizes) if degree is None else min(degree, len(sizes))
    visits = 0
    waiting: list[tuple[ParentSet, int, int, int | None]] = [((), 0, 1, None)]
    while waiting:
        chosen, place, cells, smallest_left = waiting.pop()
        visits += 1
        if len(found) > most or visits > 50 * (most + len(sizes) + 1):
            return None
        full = len(chosen) == deepest
        if full or place == len(order) or cells * sizes[order[place]] > limit:
            if full or smallest_left is None or cells * smallest_left > limit:
                found.append(tuple(sorted(chosen)))
            continue
        size = sizes[order[place]]
        if smallest_left is None or cells * smallest_left <= limit:
            left = size if smallest_left is None else smallest_left
            waiting.append((chosen, place + 1, cells, left))
        waiting.append(((*chosen, order[place]), place + 1, cells * size, smallest_left))
    return found if len(found) <= most else None


def some_maximal_sets(
    sizes: Sequence[int], limit: float, *, count: int, rng: Generator, degree: int | None = None
) -> list[ParentSet]:
    """Up to `count` different maximal sets, drawn at random."""
    deepest = len(sizes) if degree is None else min(degree, len(sizes))
    smallest = min(sizes, default=1)
    found: dict[ParentSet, None] = {}
    for order in _random_orders(len(sizes), TRIES_FOR_EACH * count, rng):
        chosen: list[int] = []
        cells = 1
        for place in order:
            if len(chosen) == deepest or cells * smallest > limit:
                break
            if cells * sizes[place] <= limit:
                chosen.append(place)
                cells *= sizes[place]
        found[tuple(sorted(chosen))] = None
        if len(found) == count:
            break
    return list(found)


def sets_of_degree(attributes: int, degree: int, *, most: int, rng: Generator) -> list[ParentSet]:
    """Every set of `degree` of so many attributes, or `most` different ones drawn at random where there are more."""
    if math.comb(attributes, degree) <= most:
        return list(itertools.combinations(range(attributes), degree))
    found: dict[ParentSet, None] = {}
    for order in _random_orders(attributes, TRIES_FOR_EACH * most, rng):
        found[tuple(sorted(order[:degree]))] = None
        if len(found) == most:
            break
    return list(found)


def _random_orders(attributes: int, count: int, rng: Generator) -> Iterator[list[int]]:
    """So many random orders of attributes, drawn some hundreds at a time."""
    for begin in range(0, count, ORDERS_AT_ONCE):
        keys = rng.random((min(ORDERS_AT_ONCE, count - begin), attributes))
        yield from np.argsort(keys, axis=1).tolist()


# ----------------------------------------------------------------------------------------------------------------------
# The families, a child with parents among the attributes placed so far, that a network may grow by.


Families = list[tuple[int, ParentSet]]


@dataclass(frozen=True)
class CandidateLimits:
    """What is declared about the families of a round: how large a table may be, how many there are, and together.

    With a `degree` sets of parents have at most so many attributes; `exactly` takes sets of just that many.
    """

    cells: float
    families: int
    cells_together: int
    degree: int | None = None
    exactly: bool = False


def candidate_families(
    sizes: Sequence[int], placed: Sequence[int], waiting: Sequence[int], limits: CandidateLimits, rng: Generator
) -> Families:
    """Families for every waiting child, as many for each: all that are maximal, or as many drawn as are allowed.

    Where the tables together have too many cells, a random part of them is kept.

    >>> from consilience.kernels.rng import generator
    >>> limits = CandidateLimits(cells=12, families=10, cells_together=1000)
    >>> candidate_families([2, 3, 2, 9], [0, 1], [2, 3], limits, generator(0))
    [(2, (0, 1)), (3, ())]
    """
    each = max(1, limits.families // max(1, len(waiting)))
    known: dict[int, list[ParentSet] | None] = {}
    found: Families = []
    for child in waiting:
        for parents in _parent_sets(sizes, placed, sizes[child], limits, each, rng, known):
            found.append((child, tuple(placed[place] for place in parents)))
    return _within(found, sizes, limits.cells_together, rng)


def _parent_sets(
    sizes: Sequence[int],
    placed: Sequence[int],
    child_size: int,
    limits: CandidateLimits,
    most: int,
    rng: Generator,
    known: dict[int, list[ParentSet] | None],
) -> list[ParentSet]:
    if limits.exactly and limits.degree is not None:
        return sets_of_degree(len(placed), min(limits.degree, len(placed)), most=most, rng=rng)
    own, room = [sizes[place] for place in placed], limits.cells / child_size
    if child_size not in known:
        known[child_size] = all_maximal_sets(own, room, most=most, degree=limits.degree)
    listed = known[child_size]
    return some_maximal_sets(own, room, count=most, rng=rng, degree=limits.degree) if listed is None else listed


def _within(found: Families, sizes: Sequence[int], most_cells: int, rng: Generator) -> Families:
    """The families, or some of them whose tables have at most so many cells together; one at least."""
    cells = [sizes[child] * math.prod(sizes[place] for place in parents) for child, parents in found]
    if sum(cells) <= most_cells:
        return found
    kept, used = [], 0
    for place in rng.permutation(len(found)).tolist():
        if used + cells[place] <= most_cells or not kept:
            kept.append(place)
            used += cells[place]
    return [found[place] for place in sorted(kept)]


# ----------------------------------------------------------------------------------------------------------------------
# PrivBayes: a Bayesian network chosen privately, and the tables of its families (Zhang et al. 2017).


@dataclass(frozen=True)
class NetworkSettings:
    """What a network is made with where the options leave it open."""

    structure_share: float = 0.3
    """β, of the budget, as the paper recommends it."""
    usefulness: float = 4.0
    """θ, as the paper recommends it."""
    most_candidates: int = 5_000
    """Families that a round considers at most."""
    most_table_cells: int = 1_000_000
    """Cells of the largest table of a family."""
    most_steps: int = 2_000_000_000
    """A round takes so many steps at most, some seconds: counting a family takes one for each record and attribute, and
    the score F one for each half record and combination of the parents' values."""


NETWORK = NetworkSettings()


@dataclass(frozen=True)
class PrivBayes(AnswersWorkload):
    """The families of a Bayesian network, chosen with `structure_share` of the budget and measured with the rest.

    `score` is "R", the distance from independence, "F", for attributes of two values, or "I", mutual information;
    "auto" is F where all attributes have two values and it is not too slow, else R. `usefulness` is θ. `degree` is the
    number of parents: of every family where all attributes have two values, else the most that one has. `root` is the
    first attribute, by default drawn by the seed. `estimator` fits what was measured as published;
    `estimators.Graphical` fits it better. A `workload` is what will be asked: families have only so many parents that
    the network answers it within memory and minutes. It is not used otherwise.

    >>> PrivBayes(score="R").to_json()["structure_share"]
    0.3
    """

    name = "privbayes"
    structure_share: float = NETWORK.structure_share
    usefulness: float = NETWORK.usefulness
    score: Dependence | Literal["auto"] = "auto"
    degree: int | None = None
    root: str | None = None
    max_candidates: int = NETWORK.most_candidates
    seed: int = 0
    selector: Selector = "exponential"
    workload: Workload | None = None

    def __post_init__(self) -> None:
        check_share(self.structure_share, "the network")
        if not 0 < self.usefulness < math.inf:
            raise DeclarationError(f"the usefulness is {self.usefulness}; it is a number above 0, such as 4")
        check_choice(self.score, "the score", ("auto", "R", "F", "I"))
        check_whole(self.degree, "the number of parents", 0, optional=True)
        if not isinstance(self.max_candidates, int) or not 1 <= self.max_candidates <= 1_000_000:
            raise DeclarationError(f"{self.max_candidates!r} candidates a round were allowed; allow 1 to 1,000,000")
        generator(self.seed)

    def estimator(self) -> BayesianNetwork:
        """The estimator of the paper: negative counts are 0, tables become conditional ones."""
        return BayesianNetwork()

    def run(self, gate: Gate) -> None:
        names = gate.domain.counted_names
        dependence = self._dependence(gate.domain)
        rng = generator(self.seed)
        root = self._root(gate.domain, rng)
        if len(names) == 1:
            gate.measure(Query.marginal(root), gate.budget)
            return
        share = (1 - Fraction(self.structure_share)) / len(names)
        (first,) = gate.measure(Query.marginal(root), gate.budget.scaled(share))
        useful = Usefulness.of(first, gate.domain, gate.budget.additive_unit, self.usefulness)
        growth = _Growth(self, gate, useful, dependence, rng)
        families = growth.families(names.index(root))
        rest = 1 - share - (Fraction(self.structure_share) if growth.rounds else 0)
        gate.measure([Query.marginal(*family.attributes) for family in families], gate.budget.scaled(rest))

    def _dependence(self, domain: Domain) -> Dependence:
        """The score for a domain; refused where it has none or not this one."""
        if not domain.counted_names:
            raise DeclarationError(f"domain {domain.name!r} has continuous attributes alone; declare bins for some")
        if self.score == "auto":
            return "F" if set(domain.shape) == {2} else "R"
        if self.score == "F" and set(domain.shape) != {2}:
            large = next(each for each in domain.counted if each.size != 2)
            raise DeclarationError(
                f"the score F is for attributes of two values, and {large.name!r} has {large.size}; use R"
            )
        return self.score

    def _root(self, domain: Domain, rng: Generator) -> str:
        drawn = domain.counted_names[int(rng.integers(len(domain.counted_names)))]
        if self.root is None:
            return drawn
        if self.root not in domain.counted_names:
            raise DeclarationError(
                f"the first attribute is {self.root!r}, which domain {domain.name!r} has no cells for; name one of "
                f"{', '.join(domain.counted_names)}"
            )
        return self.root

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What a dry run tells: how large useful tables are, or what that depends on."""
        domain = example.domain
        first = example.measurements[0]
        start = f"The network begins at {first.query.attributes[0]} and grows by private selection with the score "
        start += f"{self._dependence(domain)}, at most {self.max_candidates:,} families a round."
        if len(domain.counted_names) == 1:
            return ()
        if domain.public.total is None:
            return start, "How large tables may be depends on the number of records, which is measured first."
        useful = Usefulness.of(first, domain, budget.additive_unit, self.usefulness)
        return start, f"Tables of up to about {useful.cells:,.0f} cells are useful (theta {self.usefulness:g})."

    def to_json(self) -> dict[str, Any]:
        described = super().to_json()
        if self.workload is None:
            del described["workload"]
        return described


@dataclass(frozen=True)
class Usefulness:
    """How large tables may be, from a number of records and the noise on a cell."""

    records: int
    noise: float
    """The expected size of the noise on a cell of a table that has the first one's share of the budget."""
    theta: float
    unit: AdditiveUnit

    @staticmethod
    def of(first: Measurement, domain: Domain, unit: AdditiveUnit, theta: float) -> "Usefulness":
        """What the measurement of the first attribute tells: the noise, and the number of records unless public.

        Noise of variance v has an expected size of √(v/2) if Laplace, and of √(2v/π) if Gaussian.
        """
        total = domain.public.total
        records = max(1, round(float(first.values.sum()) if total is None else total))
        noise = math.sqrt(first.noise.variance * (0.5 if unit == "epsilon" else 2.0 / math.pi))
        return Usefulness(records, max(noise, 1e-9), theta, unit)

    @property
    def cells(self) -> float:
        """The most cells of a useful table."""
        return min(self.records / (self.theta * self.noise), float(NETWORK.most_table_cells))

    def degree(self, attributes: int) -> int:
        """The most parents k, in tables of 2^(k+1) cells, when attributes − k tables share what all but one would."""
        degree = 0
        for k in range(1, attributes):
            share = (attributes - k) / (attributes - 1)
            noise = self.noise * (share if self.unit == "epsilon" else math.sqrt(share))
            if 2 ** (k + 1) <= min(self.records / (self.theta * noise), NETWORK.most_table_cells):
                degree = k
        return degree


class _Growth:
    """The rounds in which a network grows."""

    def __init__(self, plan: PrivBayes, gate: Gate, useful: Usefulness, dependence: Dependence, rng: Generator) -> None:
        self.plan, self.gate, self.useful, self.rng = plan, gate, useful, rng
        self.dependence: Dependence = dependence
        self.sizes = gate.domain.shape
        self.names = gate.domain.counted_names
        self.flags = set(self.sizes) == {2}
        self.rounds = 0
        """How many selections there were."""
        asked = None if plan.workload is None else [query.attributes for query in plan.workload.queries]
        self.answering = None if asked is None else ModelSizes(gate.domain, asked)

    def families(self, root: int) -> list[Family]:
        """The families to measure, in an order in which parents come first; the root is measured already."""
        if self.flags:
            return self._of_flags(root)
        joinable = self._joinable()
        alone = [place for place in range(len(self.sizes)) if place not in joinable and place != root]
        start = root
        if joinable and root not in joinable:
            start = joinable[int(self.rng.integers(len(joinable)))]
        before = [Family(self.names[start])] if start != root else []
        waiting = [place for place in joinable if place != start]
        limits = self._limits(self.useful.cells, degree=self.plan.degree, exactly=False)
        grown = self._grow(start, waiting, limits) if waiting else []
        return [*before, *grown, *(Family(self.names[place]) for place in alone)]

    def _joinable(self) -> list[int]:
        """The attributes that have a useful table with some other."""
        if self.plan.degree == 0:
            return []
        by_size = sorted(self.sizes)
        least_other = [by_size[1] if size == by_size[0] else by_size[0] for size in self.sizes]
        return [place for place, size in enumerate(self.sizes) if size * least_other[place] <= self.useful.cells]

    def _of_flags(self, root: int) -> list[Family]:
        """Families of k parents; the first k + 1 attributes are one table."""
        degree = self._degree_of_flags()
        waiting = [place for place in range(len(self.sizes)) if place != root]
        if degree == 0:
            return [Family(self.names[place]) for place in waiting]
        limits = self._limits(float(NETWORK.most_table_cells), degree=degree, exactly=True)
        return self._grow(root, waiting, limits)[degree - 1 :]

    def _limits(self, cells: float, *, degree: int | None, exactly: bool) -> CandidateLimits:
        """What a round may consider: tables of so many cells, as many families as it has time for."""
        attributes = 1 + (degree if exactly and degree else math.log2(max(cells, 2.0)))
        steps = self.useful.records * attributes
        if self.dependence == "F":
            steps = max(steps, self._steps_of_f(degree or 1))
        most = max(1, min(self.plan.max_candidates, int(NETWORK.most_steps / steps)))
        return CandidateLimits(cells, most, MOST_CELLS, degree, exactly)

    def _steps_of_f(self, degree: int) -> int:
        """The steps that the score F of one family takes."""
        return 2**degree * (self.useful.records // 2 + 1)

    def _degree_of_flags(self) -> int:
        """The number of parents of every family of flags; F in place of R by choice keeps to what it has time for."""
        attributes = len(self.sizes)
        wanted = self.useful.degree(attributes) if self.plan.degree is None else self.plan.degree
        degree = min(wanted, attributes - 1)
        if self.dependence == "F" and attributes * self._steps_of_f(degree) > NETWORK.most_steps:
            if self.plan.score == "auto":
                self.dependence = "R"
            while self.dependence == "F" and degree > 1 and attributes * self._steps_of_f(degree) > NETWORK.most_steps:
                degree -= 1
        return degree

    def _answerable(self, found: Families) -> Families:
        """The families without those parents, the last ones, with which the workload would not be answered."""
        if self.answering is None:
            return found
        kept = []
        for child, parents in found:
            most = len(parents)
            while most and not self._allows((*parents[:most], child)):
                most -= 1
            kept.append((child, parents[:most]))
        return list(dict.fromkeys(kept))

    def _allows(self, places: Sequence[int]) -> bool:
        names = [self.names[place] for place in places]
        return self.answering is None or self.answering.allows(names, LARGEST_TREE)

    def _grow(self, start: int, waiting: Sequence[int], limits: CandidateLimits) -> list[Family]:
        placed, left = [start], list(waiting)
        step = self.gate.budget.scaled(Fraction(self.plan.structure_share) / len(left))
        grown = []
        while left:
            found = candidate_families(self.sizes, placed, left, limits, self.rng)
            # The first families of flags are parts of one table.
            if not (limits.exactly and len(placed) < (limits.degree or 0)):
                found = self._answerable(found)
            families = tuple(
                Family(self.names[child], tuple(self.names[place] for place in parents)) for child, parents in found
            )
            # Mutual information follows the logarithm up to so many records, and goes on in a straight line.
            records = min(self.useful.records, LONGEST_LADDER) if self.dependence == "I" else self.useful.records
            score = FamilyDependence(families, self.dependence, records)
            chosen = self.gate.select(score, step, selector=self.plan.selector)
            self.rounds += 1
            grown.append(chosen)
            if self.answering is not None:
                self.answering.add([chosen.attributes])
            placed.append(self.names.index(chosen.child))
            left.remove(placed[-1])
        return grown
