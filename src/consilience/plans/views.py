"""Views: a few mid-sized marginals from which any marginal can be put together (PriView; Qardaji, Yang, Li 2014).

Every pair of attributes, or triple, or quadruple, is part of at least one view. plans/view_designs.py has the
mathematics of the choice, `estimators.Views` the reconstruction. The choice looks at the attributes' sizes, the budget
and a rough number of records. That number is public, or given, or measured first with a small share of the budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.errors import DeclarationError
from consilience.measurements import MeasurementSet
from consilience.plans.budget_parts import check_share, in_two_parts
from consilience.plans.view_designs import WAYS, Bounds, Considered, ViewDesign, choose_design, considered_designs
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate

TOTAL_SHARE = 0.005


@dataclass(frozen=True)
class Views:
    """Marginals that together hold every set of `ways` attributes, with equal shares of the budget.

    `ways` is 2, 3 or 4; by default it is what the noise allows. `attributes_per_view` or `most_cells` bound a view;
    by default the bound with the least noise is found, 8 attributes for flags or nearly so. `views` are views of your
    own, in place of all that. `records` is a rough public number of records; where neither it nor the domain's public
    total is known and `ways` is not given, `total_share` of the budget measures it.

    >>> Views(ways=2).to_json()["ways"]
    2
    """

    ways: int | None = None
    attributes_per_view: int | None = None
    most_cells: int | None = None
    views: Sequence[Sequence[str]] | None = None
    records: float | None = None
    total_share: float = TOTAL_SHARE

    def __post_init__(self) -> None:
        check_share(self.total_share, "the number of records")
        if self.records is not None and not 0 < self.records < float("inf"):
            raise DeclarationError(f"the number of records is {self.records}; give a rough number above 0")
        if self.ways is not None and self.ways not in (1, *WAYS):
            raise DeclarationError(
                f"views that cover all sets of {self.ways} attributes were asked for; ask for 1 to 4"
            )
        if self.views is None:
            return
        object.__setattr__(
            self, "views", tuple((each,) if isinstance(each, str) else tuple(each) for each in self.views)
        )
        if not self.views:
            raise DeclarationError("no views were named; name at least one, such as [('age', 'sex', 'income')]")
        if not (self.ways is self.attributes_per_view is self.most_cells is None):
            raise DeclarationError("views of your own were named; leave out ways, attributes_per_view and most_cells")

    def run(self, gate: Gate) -> None:
        records, rest = self._records(gate)
        design = self.design(gate.domain, gate.budget, records)
        names = gate.domain.counted_names
        gate.measure([Query.marginal(*(names[place] for place in view)) for view in design.views], rest)

    def design(self, domain: Domain, budget: Budget, records: float) -> ViewDesign:
        """The views for a domain, a budget and a number of records."""
        if self.views is not None:
            places = {name: place for place, name in enumerate(domain.counted_names)}
            named = [Query.marginal(*view).bind(domain).attributes for view in self.views]
            return ViewDesign(domain.shape, tuple(tuple(places[name] for name in view) for view in named), None)
        return choose_design(
            domain.shape,
            budget,
            records,
            ways=self.ways,
            attributes_per_view=self.attributes_per_view,
            most_cells=self.most_cells,
        )

    def _known_records(self, domain: Domain) -> float | None:
        return self.records if self.records is not None else domain.public.total

    def _measures_records(self, domain: Domain, budget: Budget) -> bool:
        """Whether the choice depends on a number of records that nobody knows yet."""
        if self.views is not None or self._known_records(domain) is not None:
            return False
        return len(self._considered(domain, budget)) > 1

    def _considered(self, domain: Domain, budget: Budget) -> list[Considered]:
        asked = Bounds(self.ways, self.attributes_per_view, self.most_cells)
        asked.check(domain.shape)
        return considered_designs(domain.shape, budget, asked)

    def _records(self, gate: Gate) -> tuple[float, Budget]:
        """The rough number of records, and the budget that is left for the views."""
        if not self._measures_records(gate.domain, gate.budget):
            return self._known_records(gate.domain) or 0.0, gate.budget
        first, rest = in_two_parts(gate.budget, self.total_share)
        (measurement,) = gate.measure(Query(()), first)
        return float(measurement.values[0]), rest

    def explain(self, example: MeasurementSet, budget: Budget) -> tuple[str, ...]:
        """What was chosen, for the eyes of who pays: the design, what it covers, and the noise to expect."""
        domain = example.domain
        known = self._known_records(domain)
        design = self.design(domain, budget, known or 0.0)
        views = [each for each in example if each.query.factors]
        variance = max(each.noise.variance for each in views)
        lines = [_sentence(design), _coverage(design)]
        if known is not None:
            error = design.extent.noise_error(2, variance=variance, records=known)
            lines.append(f"noise error of a pair: {error:.2g} of the {known:,.0f} records (up to 0.001 works well)")
        else:
            at_one = design.extent.noise_error(2, variance=variance, records=1.0)
            lines.append(f"noise error of a pair: {at_one:,.0f} divided by the number of records")
        if self._measures_records(domain, budget):
            lines.append(self._thresholds(domain, budget))
        if design.missing:
            names = ", ".join(domain.counted_names[place] for place in design.missing)
            lines.append(f"in no view, and so taken to be spread evenly: {names}")
        return tuple(lines)

    def _thresholds(self, domain: Domain, budget: Budget) -> str:
        """Which design a measured number of records would lead to."""
        found = [
            f"sets of {each.ways} in {each.extent.views} views from {each.extent.needed_records(budget):,} records on"
            for each in self._considered(domain, budget)[1:]
        ]
        share = float(Fraction(self.total_share) * 100)
        return f"the number of records is measured first, with {share:g} % of the budget; " + ", ".join(found)

    def to_json(self) -> dict[str, Any]:
        return {
            "plan": "views",
            "ways": self.ways,
            "attributes_per_view": self.attributes_per_view,
            "most_cells": self.most_cells,
            "views": None if self.views is None else [list(view) for view in self.views],
            "records": self.records,
            "total_share": self.total_share,
        }


def _sentence(design: ViewDesign) -> str:
    lengths, cells = [len(view) for view in design.views], design.cells
    attributes = f"{min(lengths)}" if len(set(lengths)) == 1 else f"{min(lengths)} to {max(lengths)}"
    size = f"{max(cells):,}" if len(set(cells)) == 1 else f"{min(cells):,} to {max(cells):,}"
    chosen = "named by you" if design.ways is None else f"that hold every set of {design.ways} attributes"
    if len(design.views) == 1:
        return f"one view of {attributes} attributes and {size} cells"
    return f"{len(design.views)} views {chosen}: {attributes} attributes and {size} cells each"


def _coverage(design: ViewDesign) -> str:
    shares = [f"{design.covered(ways):.3g} of the sets of {ways}" for ways in (2, 3, 4) if ways <= len(design.sizes)]
    return "part of some view: " + ", ".join(shares) if shares else "one attribute, in one view"
