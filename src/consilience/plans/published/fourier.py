"""Fourier: the Walsh–Hadamard coefficients of a table of flags, from which marginals follow (Barak et al. 2007).

For a set S of flags (attributes of two values) the coefficient of a table n is

    f_S = Σ_x (−1)^(number of flags in S whose code is 1 in x) · n(x),

the number of records with an even number of these flags less the number with an odd one; f_∅ is the total. The marginal
over A, |A| = k, follows from the 2^k coefficients of the subsets of A:

    n_A(a) = 2^−k Σ_{S ⊆ A} (−1)^(ones of a in S) · f_S.

So all marginals of up to k flags follow from the m = Σ_{j≤k} C(d, j) coefficients of sets of up to k flags, and as they
come from one set of numbers they agree with each other. A record adds +1 or −1 to every coefficient: measured together
their L1 sensitivity is m, and each gets noise of scale m/ε. (The paper writes the same with coefficients divided by
2^(d/2).) The expected squared error of a marginal is m² · 2/ε²: plans/published/expected_errors.py.
"""

import itertools
from dataclasses import dataclass
from typing import Any

from consilience.domain.domains import Domain
from consilience.domain.factors import Matrix
from consilience.domain.queries import Query
from consilience.errors import DeclarationError, TooLarge
from consilience.plans.published.expected_errors import fourier_coefficients
from consilience.privacy.gate import Gate

MOST_COEFFICIENTS = 10_000
"""Each coefficient is a query of its own; more than this many take minutes to price, count and record."""


@dataclass(frozen=True)
class Fourier:
    """The coefficients of all sets of up to `ways` flags, with equal noise; for tables whose attributes are all flags.

    Fit with `estimators.Fourier`, which gives marginals of up to `ways` attributes.
    """

    ways: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.ways, int) or isinstance(self.ways, bool) or self.ways < 1:
            raise DeclarationError(f"{self.ways!r}-way marginals were asked for; a number of ways is from 1 up")

    def run(self, gate: Gate) -> None:
        gate.measure(self.queries(gate.domain), gate.budget)

    def queries(self, domain: Domain) -> list[Query]:
        """A query for each coefficient, smaller sets first; refused for other attributes than flags and for too many.

        >>> flags = Domain.from_sizes({"a": 2, "b": 2, "c": 2})
        >>> [query.attributes for query in Fourier(2).queries(flags)]
        [(), ('a',), ('b',), ('c',), ('a', 'b'), ('a', 'c'), ('b', 'c')]
        """
        others = [attribute for attribute in domain.counted if attribute.size != 2]
        if others:
            raise DeclarationError(
                f"attribute {others[0].name!r} has {others[0].size} values, and Fourier coefficients are for "
                "attributes of two; project the domain to those, or use the plan Direct or Views"
            )
        ways = min(self.ways, len(domain.counted))
        count = fourier_coefficients(len(domain.counted), ways)
        if count > MOST_COEFFICIENTS:
            raise TooLarge(
                f"{count:,} coefficients of up to {ways} of {len(domain.counted)} attributes would be measured, and "
                f"{MOST_COEFFICIENTS:,} are allowed; ask for fewer ways, or use the plan Views"
            )
        signs = {
            attribute.name: Matrix.of([[1.0, -1.0]], names=(" minus ".join(attribute.labels),))
            for attribute in domain.counted
        }
        sets = (names for size in range(ways + 1) for names in itertools.combinations(signs, size))
        return [Query.of({name: signs[name] for name in names}) for names in sets]

    def to_json(self) -> dict[str, Any]:
        return {"plan": "fourier", "ways": self.ways}
