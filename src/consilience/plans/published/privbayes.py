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

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators.published.bayesian_network import LARGEST_TREE, BayesianNetwork
from consilience.kernels.rng import Generator, generator
from consilience.measurements import Measurement, MeasurementSet
from consilience.plans.answering import AnswersWorkload
from consilience.plans.budget_parts import check_share
from consilience.plans.model_sizes import ModelSizes
from consilience.plans.published.network_candidates import CandidateLimits, Families, candidate_families
from consilience.privacy.budgets import AdditiveUnit, Budget
from consilience.privacy.gate import Gate
from consilience.privacy.network_scores import LONGEST_LADDER, MOST_CELLS, Dependence, Family, FamilyDependence
from consilience.privacy.selection import Selector

STRUCTURE_SHARE = 0.3
USEFULNESS = 4.0
"""β and θ as the paper recommends them."""

MOST_CANDIDATES = 5_000
MOST_TABLE_CELLS = 1_000_000
MOST_STEPS = 2_000_000_000
"""A round takes so many steps at most, some seconds: counting a family takes one for each record and attribute, and the
score F one for each half record and combination of the parents' values."""


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

    structure_share: float = STRUCTURE_SHARE
    usefulness: float = USEFULNESS
    score: Dependence | Literal["auto"] = "auto"
    degree: int | None = None
    root: str | None = None
    max_candidates: int = MOST_CANDIDATES
    seed: int = 0
    selector: Selector = "exponential"
    workload: Workload | None = None

    def __post_init__(self) -> None:
        check_share(self.structure_share, "the network")
        if not 0 < self.usefulness < math.inf:
            raise DeclarationError(f"the usefulness is {self.usefulness}; it is a number above 0, such as 4")
        if self.score not in ("auto", "R", "F", "I"):
            raise DeclarationError(f"the score is {self.score!r}; choose auto, R, F or I")
        if self.degree is not None and (not isinstance(self.degree, int) or self.degree < 0):
            raise DeclarationError(f"{self.degree!r} parents were asked for; ask for a whole number from 0 up")
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
        return {
            "plan": "privbayes",
            "structure_share": self.structure_share,
            "usefulness": self.usefulness,
            "score": self.score,
            "degree": self.degree,
            "root": self.root,
            "max_candidates": self.max_candidates,
            "seed": self.seed,
            "selector": self.selector,
            **({} if self.workload is None else {"workload": self.workload.to_json()}),
        }


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
        return min(self.records / (self.theta * self.noise), float(MOST_TABLE_CELLS))

    def degree(self, attributes: int) -> int:
        """The most parents k, in tables of 2^(k+1) cells, when attributes − k tables share what all but one would."""
        degree = 0
        for k in range(1, attributes):
            share = (attributes - k) / (attributes - 1)
            noise = self.noise * (share if self.unit == "epsilon" else math.sqrt(share))
            if 2 ** (k + 1) <= min(self.records / (self.theta * noise), MOST_TABLE_CELLS):
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
        limits = self._limits(float(MOST_TABLE_CELLS), degree=degree, exactly=True)
        return self._grow(root, waiting, limits)[degree - 1 :]

    def _limits(self, cells: float, *, degree: int | None, exactly: bool) -> CandidateLimits:
        """What a round may consider: tables of so many cells, as many families as it has time for."""
        attributes = 1 + (degree if exactly and degree else math.log2(max(cells, 2.0)))
        steps = self.useful.records * attributes
        if self.dependence == "F":
            steps = max(steps, self._steps_of_f(degree or 1))
        most = max(1, min(self.plan.max_candidates, int(MOST_STEPS / steps)))
        return CandidateLimits(cells, most, MOST_CELLS, degree, exactly)

    def _steps_of_f(self, degree: int) -> int:
        """The steps that the score F of one family takes."""
        return 2**degree * (self.useful.records // 2 + 1)

    def _degree_of_flags(self) -> int:
        """The number of parents of every family of flags; F in place of R by choice keeps to what it has time for."""
        attributes = len(self.sizes)
        wanted = self.useful.degree(attributes) if self.plan.degree is None else self.plan.degree
        degree = min(wanted, attributes - 1)
        if self.dependence == "F" and attributes * self._steps_of_f(degree) > MOST_STEPS:
            if self.plan.score == "auto":
                self.dependence = "R"
            while self.dependence == "F" and degree > 1 and attributes * self._steps_of_f(degree) > MOST_STEPS:
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
