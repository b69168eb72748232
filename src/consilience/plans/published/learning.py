"""Learning: cells of wide marginals from narrow ones, by a polynomial (Thaler, Ullman, Vadhan 2012; Gupta et al. 2011).

A cell of a marginal over k attributes is a conjunction of k literals, "this attribute has this value". A polynomial g
of degree D in the number of literals that a record misses is 1 where none is missed and within γ of 0 elsewhere, so
that

    Σ_records g(literals missed) = Σ_{j≤D} c_j Σ_{|T|=j} n_T,                 off by at most γ times the records,

with T the sets of j of the literals, n_T the number of records that match all of T (a cell of a marginal of j
attributes), and weights c (see `estimators.Learning`). So all k-way marginals follow, nearly, from those of up to D
attributes. With a share of the budget in proportion to |c_j| for every marginal of j attributes the
noise on every term c_|T| n_T is the same, of scale S/ε with

    S = Σ_j |c_j| C(d, j),

for a record is in one cell of each marginal: S is the L1 sensitivity of all the weighted cells together. A cell of the
answer has Σ_{j: c_j ≠ 0} C(k, j) such terms.

*How this relates to the published algorithm.* Thaler, Ullman and Vadhan expand, for every record, the polynomial of
g(z) in the d variables that say which literals the query has, sum its coefficients over the records, and release all of
them with equal Laplace noise scaled to the L1 sensitivity of the whole vector. The coefficient of the monomial T is
b_|T| times the number of records that *miss* all of T. That is the stack above with `literals="missed"`: the same
numbers, the same noise, and the same answers. What is different, as far as the paper is remembered rightly:

- their polynomial comes from Chebyshev's and has degree O(√k log(1/γ)); here it has the least degree there is, and of
  that degree the least error, on the points 0, …, k. Both have g(0) = 1. `exact_at_zero=False` gives up that condition
  for the best uniform approximation at all points; for γ = ½ it is the constant ½, of no use;
- they speak of conjunctions without negations, and of those with negations by 2d attributes. The conjunctions of an
  attribute with its own negation, which no record satisfies, are not measured;
- `literals="matched"`, which is the default, writes the same g in the number of literals matched. Its weights are
  smaller, so there is less noise for the same approximation. It suits attributes of any numbers of values, and with
  D = k it is the plan Direct.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.errors import DeclarationError, TooLarge
from consilience.estimators.published.learning import Learning as LearningEstimator
from consilience.estimators.published.learning import Literals
from consilience.plans.published.expected_errors import unit_variance
from consilience.privacy.gate import Gate

MOST_MARGINALS = 10_000
"""More marginals than this take minutes to price, count and record."""


@dataclass(frozen=True)
class Learning:
    """All marginals of up to D attributes, in shares that suit the polynomial of error γ for `ways` literals.

    >>> flags = Domain.from_sizes({"a": 2, "b": 2, "c": 2})
    >>> [(query.attributes, round(share, 3)) for query, share in Learning(2, gamma=1 / 2).weighted(flags)]
    [((), 0.333), (('a',), 0.667), (('b',), 0.667), (('c',), 0.667)]
    """

    ways: int = 2
    gamma: float = 0.25
    literals: Literals = "matched"
    exact_at_zero: bool = True

    def __post_init__(self) -> None:
        self.estimator()

    def estimator(self) -> LearningEstimator:
        """The estimator that answers from what this plan measures."""
        return LearningEstimator(self.ways, self.gamma, self.literals, self.exact_at_zero)

    def run(self, gate: Gate) -> None:
        queries, shares = zip(*self.weighted(gate.domain), strict=True)
        gate.measure(list(queries), gate.budget, shares=list(shares))

    def weighted(self, domain: Domain) -> list[tuple[Query, float]]:
        """The marginals to measure, smaller ones first, each with its weight."""
        names = domain.counted_names
        if self.ways > len(names):
            raise DeclarationError(f"{self.ways}-way marginals were asked for, but there are {len(names)} attributes")
        others = [attribute for attribute in domain.counted if attribute.size != 2]
        if self.literals == "missed" and others:
            raise DeclarationError(
                f"attribute {others[0].name!r} has {others[0].size} values, and literals missed are counted for "
                'attributes of two; use literals="matched"'
            )
        weights = self.estimator().weights
        count = sum(math.comb(len(names), size) for size, weight in enumerate(weights) if weight)
        if count > MOST_MARGINALS:
            raise TooLarge(
                f"{count:,} marginals of up to {len(weights) - 1} of {len(names)} attributes would be measured, and "
                f"{MOST_MARGINALS:,} are allowed; raise gamma, ask for fewer ways, or use the plan Views"
            )
        return [
            (Query.marginal(*members), abs(float(weight)))
            for size, weight in enumerate(weights)
            if weight
            for members in itertools.combinations(names, size)
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "plan": "learning",
            "ways": self.ways,
            "gamma": self.gamma,
            "literals": self.literals,
            "exact_at_zero": self.exact_at_zero,
        }


def learning_noise_error(points: int, plan: Learning, *, epsilon: float = 1.0) -> float:
    """The expected squared error that noise brings to a marginal of `ways` of so many flags, apart from g's own error.

    2^k cells, each with Σ_{j: c_j ≠ 0} C(k, j) terms of variance S² · 2/ε².

    >>> learning_noise_error(9, Learning(2, gamma=1 / 8)) / unit_variance()
    5184.0
    """
    weights = plan.estimator().weights
    stack = math.fsum(abs(weight) * math.comb(points, size) for size, weight in enumerate(weights))
    terms = sum(math.comb(plan.ways, size) for size, weight in enumerate(weights) if weight)
    return 2.0**plan.ways * terms * stack**2 * unit_variance(epsilon)
