"""Plans that measure marginal tables: `Flat`, `Direct` and `Marginals`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.domain.workloads import attribute_sets
from consilience.errors import DeclarationError
from consilience.privacy.gate import Gate


@dataclass(frozen=True)
class Flat:
    """Every cell of the full table, with the whole budget."""

    def run(self, gate: Gate) -> None:
        gate.measure(Query.marginal(*gate.domain.counted_names), gate.budget)

    def to_json(self) -> dict[str, Any]:
        return {"plan": "flat"}


@dataclass(frozen=True)
class Direct:
    """All marginals over `ways` attributes, with equal shares of the budget."""

    ways: int = 2

    def run(self, gate: Gate) -> None:
        sets = attribute_sets(gate.domain, _possible_ways(self.ways, gate.domain))
        gate.measure([Query.marginal(*names) for names in sets], gate.budget)

    def to_json(self) -> dict[str, Any]:
        return {"plan": "direct", "ways": self.ways}


@dataclass(frozen=True)
class Marginals:
    """The marginals that the user names, with equal or given shares of the budget.

    >>> Marginals([("age", "sex"), "income"]).to_json()["marginals"]
    [['age', 'sex'], ['income']]
    """

    marginals: Sequence[tuple[str, ...] | str]
    shares: Sequence[float] | None = None

    def __post_init__(self) -> None:
        named = tuple((each,) if isinstance(each, str) else tuple(each) for each in self.marginals)
        object.__setattr__(self, "marginals", named)
        if self.shares is not None:
            object.__setattr__(self, "shares", tuple(float(share) for share in self.shares))
        if not named:
            raise DeclarationError("no marginals were named; name at least one, such as [('age', 'sex')]")

    def run(self, gate: Gate) -> None:
        gate.measure([Query.marginal(*names) for names in self.marginals], gate.budget, shares=self.shares)

    def to_json(self) -> dict[str, Any]:
        described: dict[str, Any] = {"plan": "marginals", "marginals": [list(names) for names in self.marginals]}
        return described if self.shares is None else described | {"shares": list(self.shares)}


def _possible_ways(ways: int, domain: Domain) -> int:
    if ways < 0:
        raise DeclarationError(f"{ways}-way marginals were asked for; a number of ways is from 0 up")
    return min(ways, len(domain.counted))
