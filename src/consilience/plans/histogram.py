"""A histogram of one attribute through a tree of counts (Hay et al. 2010)."""

from dataclasses import dataclass
from typing import Any

from consilience.domain.attributes import Hierarchy
from consilience.domain.factors import Tree
from consilience.domain.queries import Query
from consilience.errors import DeclarationError
from consilience.plans.branching import LevelBudgets, branching_for, level_shares
from consilience.privacy.gate import Gate

__all__ = ["Histogram", "LevelBudgets", "branching_for"]


@dataclass(frozen=True)
class Histogram:
    """The counts of every node of a tree over the attribute's values, level by level.

    `branching` is the number of children of a node. By default it is the one whose consistent tree answers ranges with
    the least variance on average (Qardaji, Yang, Li 2013), which `branching_for` finds from the number of values and
    the unit of the budget. A hierarchy is measured along its own nodes unless a branching is given. `level_budgets` is
    "uniform", or "geometric": each level gets 2^(1/3) times the share of the level above it (Cormode et al. 2012),
    which favours short ranges.
    """

    attribute: str
    branching: int | None = None
    level_budgets: LevelBudgets = "uniform"

    def __post_init__(self) -> None:
        if self.level_budgets not in ("uniform", "geometric"):
            raise DeclarationError(f"level budgets {self.level_budgets!r} are not known; use 'uniform' or 'geometric'")
        if self.branching is not None and self.branching < 2:
            raise DeclarationError(f"a branching of {self.branching} makes no tree; use 2 or more")

    def run(self, gate: Gate) -> None:
        attribute = gate.domain[self.attribute]
        branching = self.branching
        if branching is None and not isinstance(attribute, Hierarchy):
            branching = branching_for(attribute.size, level_budgets=self.level_budgets, unit=gate.budget.additive_unit)
        levels = Tree(branching).levels(attribute)
        queries = [Query.of({self.attribute: Tree(branching, level)}) for level in range(levels)]
        gate.measure(queries, gate.budget, shares=level_shares(levels, self.level_budgets))

    def to_json(self) -> dict[str, Any]:
        return {
            "plan": "histogram",
            "attribute": self.attribute,
            "branching": self.branching,
            "level_budgets": self.level_budgets,
        }
