"""Views: a few mid-sized marginals from which any marginal can be put together (PriView; Qardaji, Yang, Li 2014).

Every pair of attributes, or triple, or quadruple, is part of at least one view. plans/views.py has the
mathematics of the choice, `estimators.Views` the reconstruction. The choice looks at the attributes' sizes, the budget
and a rough number of records. That number is public, or given, or measured first with a small share of the budget.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from consilience.coverings.designs import covering, covering_size
from consilience.coverings.sets import coverage
from consilience.coverings.weighted import weighted_covering
from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.errors import DeclarationError, TooLarge
from consilience.estimators.base import named_marginals
from consilience.measurements import MeasurementSet
from consilience.plans.base import DescribedPlan, check_share, in_two_parts
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate

# ----------------------------------------------------------------------------------------------------------------------
# Which views to measure: sets of attributes that together hold every pair, triple or quadruple of attributes.
#
# Qardaji, Yang, Li 2014, §4.5 and §4.7. With w views measured together a cell has the variance σ²(w): 2w²/ε² for a pure
# budget, w/(2ρ) for a concentrated one. A marginal that is summed from view V has the expected squared error σ² ·
# cells(V), and averaging over all views that hold it divides by their number. Over all sets of j attributes the mean
# number of such views, each counted by 1/cells(V), is
#
#     precision(j) = Σ_V C(|V|, j) / cells(V) / C(d, j),        error(j) = √(σ²(w) / precision(j)) / N:
#
# the paper's equation (5) for j = 2 and views of ℓ flags, where cells(V) = 2^ℓ.
#
# More attributes to a view mean fewer views, but more cells to sum. Among the view sizes that are considered the one
# with the least product of error(2) and error(3) is taken: for flags, 2^ℓ / (ℓ² (ℓ−1)² (ℓ−2)) is least at ℓ = 8, the
# paper's advice, as far as designs exist that hold every set about equally often. Holding all triples or quadruples
# asks for more views. The largest t of 2, 3, 4 is taken whose error(2) stays at 0.001: the low end of the paper's 0.001
# to 0.003, and where pairs and triples were equally good on Kosarak (`python -m benchmarks.reproduce
# qardaji2014-figure-6`).
#
# Attributes with more values: a view is bounded by its cells s. The paper's ranges, 100–1000 for 2 values to 250–5000
# for 5, are about 50b to 200b² for b values; b is the geometric mean of the sizes here, and some s from that range are
# tried.


@dataclass(frozen=True)
class ViewSettings:
    """What designs are considered; the ranges are the paper's, as said above."""

    target_error: float = 0.001
    """The noise error of a pair, in parts of the number of records, up to which covering larger sets is worth it."""
    blocks: range = range(6, 11)
    """How many flags a view may have."""
    ways: tuple[int, ...] = (2, 3, 4)
    """How many attributes the sets may have that are covered."""
    cell_bounds: int = 5
    """How many bounds on a view's cells are tried for attributes of several values."""
    most_cells: int = 2**28
    """The most cells of all views together: 2 GB."""
    total_share: float = 0.005
    """Of the budget, for the number of records where it is not known."""


VIEWS = ViewSettings()


@dataclass(frozen=True)
class Extent:
    """How large a design is: for each kind of view the attributes it has, its cells, and how many there are."""

    attributes: int
    kinds: tuple[tuple[int, int, int], ...]

    @property
    def views(self) -> int:
        """How many views there are."""
        return sum(count for _, _, count in self.kinds)

    @property
    def cells(self) -> int:
        """The cells of all views together."""
        return sum(cells * count for _, cells, count in self.kinds)

    def precision(self, ways: int) -> float:
        """How many views hold a set of so many attributes on average, each counted by 1 / its cells."""
        held = math.fsum(count * math.comb(length, ways) / cells for length, cells, count in self.kinds)
        return held / math.comb(self.attributes, ways)

    def noise_error(self, ways: int, *, variance: float, records: float) -> float:
        """The expected L2 error from noise of a marginal of so many attributes, in parts of the number of records."""
        precision = self.precision(min(ways, self.attributes))
        if records <= 0 or precision <= 0:
            return math.inf
        return math.sqrt(variance / precision) / records

    def typical_noise(self, budget: Budget) -> float:
        """The geometric mean of the noise errors of pairs and triples, for one record."""
        variance = cell_variance(budget, self.views)
        return math.sqrt(math.prod(self.noise_error(ways, variance=variance, records=1.0) for ways in (2, 3)))

    def needed_records(self, budget: Budget) -> int:
        """From how many records on the noise error of a pair is at most what covering larger sets is worth."""
        variance = cell_variance(budget, self.views)
        return math.ceil(self.noise_error(2, variance=variance, records=1.0) / VIEWS.target_error)


@dataclass(frozen=True)
class ViewDesign:
    """Views, as places of attributes, over attributes of these sizes."""

    sizes: tuple[int, ...]
    views: tuple[tuple[int, ...], ...]
    ways: int | None
    """Every set of this many attributes is part of a view; None where the views were named by the user."""

    @property
    def cells(self) -> tuple[int, ...]:
        """The cells of each view."""
        return tuple(math.prod(self.sizes[place] for place in view) for view in self.views)

    @property
    def extent(self) -> Extent:
        kinds = Counter((len(view), cells) for view, cells in zip(self.views, self.cells, strict=True))
        return Extent(len(self.sizes), tuple((*kind, count) for kind, count in sorted(kinds.items())))

    @property
    def missing(self) -> tuple[int, ...]:
        """The attributes in no view."""
        return tuple(sorted(set(range(len(self.sizes))) - {place for view in self.views for place in view}))

    def covered(self, ways: int) -> float:
        """The share of sets of so many attributes that are part of a view."""
        return coverage(self.views, len(self.sizes), ways)


def cell_variance(budget: Budget, views: int) -> float:
    """The variance of the noise on each cell when so many views share a budget.

    >>> from consilience.privacy.budgets import budget
    >>> cell_variance(budget(epsilon=1), 20)
    800.0
    """
    amount = float(budget.amount)
    return 2.0 * views**2 / amount**2 if budget.additive_unit == "epsilon" else views / (2.0 * amount)


@dataclass(frozen=True)
class Bounds:
    """What the user asks of a design; None for what is left to the choice."""

    ways: int | None = None
    attributes_per_view: int | None = None
    most_cells: int | None = None

    def __post_init__(self) -> None:
        if self.ways is not None and not 1 <= self.ways <= VIEWS.ways[-1]:
            raise DeclarationError(
                f"views that cover all sets of {self.ways} attributes were asked for; ask for 1 to {VIEWS.ways[-1]}"
            )
        if self.attributes_per_view is not None and self.most_cells is not None:
            raise DeclarationError(
                "both attributes_per_view and most_cells were given; give the one that should bound the views"
            )
        if self.most_cells is not None and self.most_cells < 2:
            raise DeclarationError(
                f"views of at most {self.most_cells} cells were asked for; give a bound from 2 up, such as 1000"
            )

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse what no design of attributes of these sizes can do."""
        least = min(self.ways or 2, len(shape))
        if not shape:
            raise DeclarationError("the domain has no counted attribute, so there is nothing to view; add attributes")
        if self.attributes_per_view is not None and self.attributes_per_view < least:
            raise DeclarationError(
                f"views of {self.attributes_per_view} attributes cannot cover all sets of {least}; give at least as "
                "many attributes to a view"
            )


ANYTHING = Bounds()


def choose_design(sizes: Sequence[int], budget: Budget, records: float, asked: Bounds = ANYTHING) -> ViewDesign:
    """The views for attributes of these sizes, a budget, and a rough number of records; what is asked for is kept to.

    >>> from consilience.privacy.budgets import budget
    >>> design = choose_design((2,) * 32, budget(epsilon=0.1), 900_000, Bounds(attributes_per_view=8))
    >>> design.ways, len(design.views)
    (2, 20)
    """
    considered = considered_designs(tuple(int(size) for size in sizes), budget, asked)
    affordable = [each for each in considered if each.extent.needed_records(budget) <= records]
    return (affordable[-1] if affordable else considered[0]).built()


@dataclass(frozen=True)
class Considered:
    """A design whose size is known and which is built only when it is chosen."""

    shape: tuple[int, ...]
    ways: int
    attributes_per_view: int | None
    """None where the views were found by a search over cells."""
    found: tuple[tuple[int, ...], ...]
    extent: Extent

    def built(self) -> ViewDesign:
        """The design itself."""
        if self.extent.cells > VIEWS.most_cells:
            raise TooLarge(
                f"the views have {self.extent.cells:,} cells together, and {VIEWS.most_cells:,} are allowed; cover "
                "fewer ways, ask for fewer attributes to a view, or measure coarser attributes"
            )
        views = self.found
        if self.attributes_per_view is not None:
            views = covering(len(self.shape), self.attributes_per_view, self.ways)
        return ViewDesign(self.shape, views, self.ways)


def considered_designs(shape: tuple[int, ...], budget: Budget, asked: Bounds) -> list[Considered]:
    """The least noisy design for each size of sets that may be covered, pairs first.

    Larger sets than pairs are weighed where attributes are flags, or views are bounded by attributes; §4.7 advises
    pairs otherwise. One view of everything covers all sets at once.
    """
    asked.check(shape)
    whole = _equal_design(shape, min(2, len(shape)), len(shape))
    several = asked.attributes_per_view is not None or (set(shape) == {2} and asked.most_cells is None)
    if len(shape) <= (asked.attributes_per_view or (VIEWS.blocks[-1] if several else 1)):
        return [whole]
    if math.prod(shape) <= (asked.most_cells or 0):
        return [whole]
    wanted = (asked.ways,) if asked.ways is not None else VIEWS.ways if several else VIEWS.ways[:1]
    least_noisy: list[Considered] = []
    for ways in wanted:
        candidates = _candidates(shape, min(ways, len(shape)), asked.attributes_per_view, asked.most_cells)
        least_noisy.append(min(candidates, key=lambda each: each.extent.typical_noise(budget)))
    return least_noisy


@lru_cache(maxsize=64)
def _candidates(shape: tuple[int, ...], ways: int, block: int | None, most_cells: int | None) -> tuple[Considered, ...]:
    """One design for each view size that is considered; kept, because a plan runs twice."""
    if block is not None:
        return (_equal_design(shape, ways, block),)
    if set(shape) == {2} and most_cells is None:
        return tuple(_equal_design(shape, ways, each) for each in VIEWS.blocks if ways <= each <= len(shape))
    bounds = [most_cells] if most_cells is not None else _cell_bounds(shape)
    found = [ViewDesign(shape, weighted_covering(shape, bound, ways), ways) for bound in bounds]
    return tuple(Considered(shape, ways, None, each.views, each.extent) for each in found)


def _equal_design(shape: tuple[int, ...], ways: int, block: int) -> Considered:
    """The best known design with so many attributes to a view; built only to count its cells, where sizes differ."""
    length = min(block, len(shape))
    if len(set(shape)) > 1:
        built = ViewDesign(shape, covering(len(shape), length, ways), ways)
        return Considered(shape, ways, None, built.views, built.extent)
    count = covering_size(len(shape), length, ways)
    return Considered(shape, ways, length, (), Extent(len(shape), ((length, shape[0] ** length, count),)))


def _cell_bounds(shape: tuple[int, ...]) -> list[int]:
    """Bounds on the cells of a view from the paper's range, evenly spaced on a logarithmic scale."""
    typical = math.exp(math.fsum(math.log(max(size, 2)) for size in shape) / len(shape))
    bounds = np.geomspace(50 * typical, 200 * typical**2, VIEWS.cell_bounds)
    return sorted({round(bound) for bound in bounds.tolist()})


# ----------------------------------------------------------------------------------------------------------------------
# Views: a few mid-sized marginals from which any marginal can be put together (PriView; Qardaji, Yang, Li 2014).


@dataclass(frozen=True)
class Views(DescribedPlan):
    """Marginals that together hold every set of `ways` attributes, with equal shares of the budget.

    `ways` is 2, 3 or 4; by default it is what the noise allows. `attributes_per_view` or `most_cells` bound a view;
    by default the bound with the least noise is found, 8 attributes for flags or nearly so. `views` are views of your
    own, in place of all that. `records` is a rough public number of records; where neither it nor the domain's public
    total is known and `ways` is not given, `total_share` of the budget measures it.

    >>> Views(ways=2).to_json()["ways"]
    2
    """

    name = "views"
    ways: int | None = None
    attributes_per_view: int | None = None
    most_cells: int | None = None
    views: Sequence[Sequence[str]] | None = None
    records: float | None = None
    total_share: float = VIEWS.total_share

    def __post_init__(self) -> None:
        check_share(self.total_share, "the number of records")
        if self.records is not None and not 0 < self.records < float("inf"):
            raise DeclarationError(f"the number of records is {self.records}; give a rough number above 0")
        asked = self._asked
        if self.views is None:
            return
        object.__setattr__(self, "views", named_marginals(self.views))
        if not self.views:
            raise DeclarationError("no views were named; name at least one, such as [('age', 'sex', 'income')]")
        if asked != ANYTHING:
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
        return choose_design(domain.shape, budget, records, self._asked)

    @property
    def _asked(self) -> Bounds:
        return Bounds(self.ways, self.attributes_per_view, self.most_cells)

    def _known_records(self, domain: Domain) -> float | None:
        return self.records if self.records is not None else domain.public.total

    def _measures_records(self, domain: Domain, budget: Budget) -> bool:
        """Whether the choice depends on a number of records that nobody knows yet."""
        if self.views is not None or self._known_records(domain) is not None:
            return False
        return len(considered_designs(domain.shape, budget, self._asked)) > 1

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
            for each in considered_designs(domain.shape, budget, self._asked)[1:]
        ]
        share = float(Fraction(self.total_share) * 100)
        return f"the number of records is measured first, with {share:g} % of the budget; " + ", ".join(found)


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
