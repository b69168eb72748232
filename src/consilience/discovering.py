"""A domain found with privacy: values that enough units have, bins near the quantiles, bounds.

    open domain ──► a share of the budget ──► find_values │ a noisy histogram over a public grid ──► an ordinary domain

Each attribute is a request of its own, in the ledger like any other. What is recorded there is used again by every
later request of the same attribute on the same table, whatever it asks besides, and nothing is spent for it twice.
The bins and the bounds are computed from the histogram alone: another number of bins costs nothing either.

The histogram is a tree of sums over the grid (Hay et al. 2010), made consistent and non-negative like any measurement.
Against quantiles by the exponential mechanism it is as exact where records are many, finds single values that many
records have, which quantiles cannot, and needs no mechanism of its own (decision 0050).
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.curation.cells import Cut, roundest
from consilience.curation.recognise import open_labels
from consilience.domain.attributes import Attribute, Continuous, Numeric
from consilience.domain.declarations import format_number, visible
from consilience.domain.domains import Domain
from consilience.domain.factors import Tree
from consilience.domain.files import write_atomically
from consilience.domain.public_facts import PublicFacts
from consilience.domain.queries import Query
from consilience.domain.sensitivity import Neighbours
from consilience.domain.undiscovered import Open, OpenBins, OpenBounds, OpenList
from consilience.errors import DeclarationError
from consilience.estimators import estimate
from consilience.measurements import MeasurementSet
from consilience.measurements.privacy_statement import describe_budget
from consilience.measuring import DryRun, measure_as_priced, price
from consilience.privacy.budgets import Budget, Protection, budget, exact_difference, exact_sum
from consilience.privacy.discovery import ValueSelection
from consilience.privacy.gate import Gate, Progress
from consilience.privacy.ledger import Ledger
from consilience.privacy.ledger_file import LedgerEntry
from consilience.privacy.measure import charged_before
from consilience.source import Source

DEFAULT_SHARE = 0.1
"""Of the budget of a request that also measures."""
FAILURE_SHARE = Decimal("0.1")
"""Of the delta of (epsilon, delta), for the failures of open lists: it takes half a percent off the rest."""
BRANCHING = 16
"""Of the tree over the grid, which has at most 2,600 cells: three levels."""
EXPECTED_VALUES = 10
"""As many values of an open list does a dry run stand in for."""


@dataclass(frozen=True)
class FindValues:
    """The plan of a request that finds the values of one attribute; `found` holds them when it has run."""

    attribute: str
    found: list[str] = field(default_factory=list, compare=False, repr=False)

    def run(self, gate: Gate) -> None:
        self.found[:] = gate.find_values(self.attribute, gate.budget)

    def to_json(self) -> dict[str, Any]:
        return {"plan": "find-values", "attribute": self.attribute}


@dataclass(frozen=True)
class FindEdges:
    """The plan of a request that measures the histogram of one attribute from which its bins are cut."""

    attribute: str

    def run(self, gate: Gate) -> None:
        levels = Tree(BRANCHING).levels(gate.domain[self.attribute])
        first = min(1, levels - 1)
        gate.measure(
            [Query(((self.attribute, Tree(BRANCHING, level)),)) for level in range(first, levels)], gate.budget
        )

    def to_json(self) -> dict[str, Any]:
        return {"plan": "find-edges", "attribute": self.attribute, "branching": BRANCHING}


@dataclass(frozen=True)
class Finding:
    """What was found of one attribute, and for what."""

    attribute: Attribute
    cost: Budget
    asked: bool
    """Whether that is what this request would pay, or a request of another price had paid for it before."""
    what: str


class _Step(NamedTuple):
    """The request for one attribute, ready to be made or answered again."""

    declared: Open
    plan: FindValues | FindEdges
    source: Source
    priced: DryRun
    entry: LedgerEntry | None


@dataclass(frozen=True)
class Discovery:
    """What is to be found in which domain, and how a budget is divided between that and what is measured then."""

    domain: Domain
    asked: Budget
    share: float
    """Of the budget, for all that is to be found; 1 where nothing is measured then."""
    neighbours: Neighbours
    rows_per_unit: int

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise DeclarationError(
                f"the share of the budget for what is to be found is {self.share}; give a number between 0 and 1, such "
                f"as {DEFAULT_SHARE}"
            )
        self.expected.refuse_draft()
        for each in self.open:
            if isinstance(each, OpenList):
                ValueSelection.priced(self.whole, neighbours=self.neighbours, values_per_unit=self.rows_per_unit)
                self._selection(each)

    @cached_property
    def open(self) -> tuple[Open, ...]:
        return tuple(each for each in self.domain.attributes if isinstance(each, OpenList | OpenBins))

    @cached_property
    def _lists(self) -> int:
        return sum(isinstance(each, OpenList) for each in self.open)

    @cached_property
    def whole(self) -> Budget:
        """All that is asked: of (epsilon, delta), a part of delta is for failures where lists are open."""
        if self._lists and self.asked.unit == "epsilon-delta" and self.asked.delta is not None:
            return self.asked.failing(Context(prec=20, rounding=ROUND_DOWN).multiply(self.asked.delta, FAILURE_SHARE))
        if self.asked.failure and not self._lists:
            raise DeclarationError("a failure delta is for values that are to be found, and none are; leave it out")
        return self.asked

    def cost_of(self, attribute: Open) -> Budget:
        """An equal part of the share, and for a list of values an equal part of the failures."""
        part = self.whole.scaled(Fraction(str(self.share)) / len(self.open))
        if not isinstance(attribute, OpenList) or not self.whole.failure:
            return part
        failure = Context(prec=20, rounding=ROUND_DOWN).divide(self.whole.failure, Decimal(self._lists))
        return budget(rho=part.amount, failure_delta=failure)

    @cached_property
    def rest(self) -> Budget:
        """What is left for measuring."""
        if self.share == 1:
            raise DeclarationError(
                "a share of 1 leaves nothing to measure with; give less of the budget to what is found"
            )
        spent = exact_sum(self.cost_of(each).amount for each in self.open)
        left = exact_difference(self.whole.amount, spent)
        return budget(epsilon=left) if self.whole.additive_unit == "epsilon" else budget(rho=left)

    def _selection(self, each: Open) -> ValueSelection:
        cost = self.cost_of(each)
        return ValueSelection.priced(cost, neighbours=self.neighbours, values_per_unit=self.rows_per_unit)

    @cached_property
    def expected(self) -> Domain:
        """A domain of about the size that may be found, for prices before anything is."""
        stand_ins: dict[str, Attribute] = {}
        for each in self.open:
            if isinstance(each, OpenList):
                stand_ins[each.name] = each.listing([f"(value {place + 1})" for place in range(EXPECTED_VALUES)])
            else:
                places = np.linspace(0, len(each.edges) - 1, min(each.wanted + 1, len(each.edges))).round().astype(int)
                stand_ins[each.name] = each.cut_at([each.edges[place] for place in places])
        return with_attributes(self.domain, stand_ins)

    @property
    def promises(self) -> list[str]:
        """What would be found of each attribute, and for what."""
        return [
            f"{_shown(each.name)}: {self._promise(each)}, for {self.cost_of(each).describe()}" for each in self.open
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a dry run of a request that also measures says of it."""
        return (
            f"before that, of {self.asked.describe()} in all, a share of {self.share:.3g} would find (nothing is spent "
            "on what the ledger holds already):",
            *(f"  {line}" for line in self.promises),
            f"the prices below are of a domain of about that size, as if {EXPECTED_VALUES} values of a list were found",
        )

    def _promise(self, each: Open) -> str:
        if isinstance(each, OpenList):
            threshold = self._selection(each).threshold
            return f"the values that about {threshold:,} units or more have"
        within = " and ".join(map(format_number, each.within))
        if isinstance(each, OpenBounds):
            return f"bounds between {within}"
        return f"about {each.wanted} bins near its quantiles, between {within}"

    # ------------------------------------------------------------------------------------------------------------------

    def find(
        self,
        opened: Callable[[Domain], Source],
        ledger: Ledger | None,
        *,
        simulate: int | None = None,
        take_over: bool = False,
        convert: bool = False,
        progress: Progress | None = None,
    ) -> "DiscoveredDomain":
        """The domain that is found, paid by the ledger; what it holds already is used again."""
        steps = [self._step(each, opened, ledger) for each in self.open]
        due = [step.priced.budget for step in steps if step.entry is None]
        if ledger is not None and due:
            source = steps[0].source
            protection = Protection(source.unit, source.max_rows_per_unit, self.neighbours)
            ledger.check(
                _together([*due, *([self.rest] if self.share < 1 else [])]), protection=protection, convert=convert
            )
        found = []
        for step in steps:
            known = step.entry if step.entry is not None and step.entry.state == "committed" else None
            measured = measure_as_priced(
                step.source,
                step.priced,
                ledger=ledger,
                id=None if known is None else known.id,
                take_over=take_over,
                convert=convert,
                simulate=simulate,
                progress=progress,
            )
            found.append(self._finding(step, measured))
        return DiscoveredDomain(
            with_attributes(self.domain, {each.attribute.name: each.attribute for each in found}),
            tuple(found),
            "" if ledger is None else ledger.uid,
            Protection(steps[0].source.unit, self.rows_per_unit, self.neighbours).describe(),
        )

    def _step(self, each: Open, opened: Callable[[Domain], Source], ledger: Ledger | None) -> _Step:
        """The request for an attribute; of another price, where the ledger holds that and not this one."""
        plan = FindValues(each.name) if isinstance(each, OpenList) else FindEdges(each.name)
        alone = replace(
            self.domain.project([each.name]), attributes=(each.stand_in,), weight=None, public=PublicFacts()
        )
        source, cost, entry = opened(alone), self.cost_of(each), None
        known = () if ledger is None else charged_before(source, plan, ledger, self.neighbours)
        same = [held for held in known if held.budget == cost]
        ready = [held for held in known if held.state == "committed"]
        for entry in (same or ready)[:1]:
            cost = entry.budget
        options = {"neighbours": self.neighbours, "rows_per_unit": self.rows_per_unit}
        return _Step(each, plan, source, price(alone, plan, **cost.to_json(), **options), entry)  # type: ignore[arg-type]

    def _finding(self, step: _Step, measured: MeasurementSet) -> Finding:
        each, cost = step.declared, step.priced.budget
        asked = cost == self.cost_of(each)
        if isinstance(each, OpenList):
            values = step.plan.found if isinstance(step.plan, FindValues) else []
            listed = each.listing(sorted(values, key=_place))
            threshold = ValueSelection.priced(
                cost, neighbours=self.neighbours, values_per_unit=self.rows_per_unit
            ).threshold
            rest = "records with others are dropped" if each.unlisted == "drop" else f"others become {each.unlisted!r}"
            what = f"{len(values)} values, of those that about {threshold:,} units or more have; {rest}"
            return Finding(listed, cost, asked, what)
        attribute = cut_attribute(each, measured)
        within = " and ".join(map(format_number, each.within))
        what = f"the bounds of nearly all records between {within}"
        if not isinstance(attribute, Continuous):
            what = f"{len(attribute.ordinary_labels)} bins near the quantiles between {within}"
        return Finding(attribute, cost, asked, what)


def _place(text: str) -> tuple[bool, float, str]:
    """Whole numbers in their order, other texts after them in theirs."""
    whole = text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 16
    return not whole, float(text) if whole else 0.0, text


def _shown(name: str) -> str:
    return repr(visible(name))


def _together(costs: Sequence[Budget]) -> Budget:
    """The sum of costs of one additive unit."""
    amount, failure = exact_sum(each.amount for each in costs), exact_sum(each.failure for each in costs)
    if costs[0].additive_unit == "epsilon":
        return budget(epsilon=amount)
    return budget(rho=amount, failure_delta=failure) if failure else budget(rho=amount)


def with_attributes(domain: Domain, found: Mapping[str, Attribute]) -> Domain:
    """The domain with these attributes in the place of those of their names."""
    return replace(domain, attributes=tuple(found.get(each.name, each) for each in domain.attributes))


@dataclass(frozen=True)
class DiscoveredDomain:
    """An ordinary domain of which some was found with privacy, and what that cost."""

    domain: Domain
    findings: tuple[Finding, ...]
    ledger: str
    """The ledger that paid; empty in a simulation, which protects nobody."""
    protects: str

    @property
    def cost(self) -> Budget:
        """What all of it cost together; of costs in several units, in rho."""
        costs = [each.cost for each in self.findings]
        if len({each.additive_unit for each in costs}) > 1:
            costs = [budget(rho=each.cost_in("rho")) if each.additive_unit == "epsilon" else each for each in costs]
        return _together(costs)

    @property
    def lines(self) -> list[str]:
        """What was found of each attribute, and for what."""
        return [f"{_shown(each.attribute.name)}: {each.what}, for {each.cost.describe()}" for each in self.findings]

    def describe(self) -> str:
        """What was found, in words.

        It names attributes, and no value that was found.
        """
        head = "found with differential privacy" if self.ledger else "NOT PRIVATE: found with simulated noise"
        return "\n".join([f"{head}:", *(f"  {line}" for line in self.lines)])

    def to_toml(self) -> str:
        """The domain as the text of a TOML file, with comments that say what was found and what it cost."""
        head = ["Found with differential privacy: these may be published, as any result of this budget."]
        if not self.ledger:
            head = ["NOT PRIVATE: found with simulated noise."]
        lines = [*head, *self.lines]
        if self.ledger:
            lines.append(
                f"Together {self.cost.describe()}, charged to the ledger {self.ledger}; it protects {self.protects}."
            )
            lines.append("An ordinary domain file: who asks with it spends nothing on finding these again.")
        return "".join(f"# {line}\n" for line in lines) + "\n" + self.domain.to_toml()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the domain as a TOML file."""
        write_atomically(Path(path), self.to_toml().encode())

    def to_json(self) -> dict[str, Any]:
        """The domain and what was paid for it as plain data."""
        found = [
            {"attribute": each.attribute.name, "found": each.what, "budget": each.cost.to_json()}
            for each in self.findings
        ]
        return {"private": bool(self.ledger), "found": found, "domain": self.domain.to_declaration()}

    def stated_with(self, measured: MeasurementSet, asked: Budget, rest: Budget) -> MeasurementSet:
        """The measurements, with a statement that covers what was found as well."""
        spent = asked.to_json()
        if not all(each.asked for each in self.findings):  # some was found earlier, at another price
            costs = [self.cost, rest]
            if len({each.additive_unit for each in costs}) > 1:
                costs = [budget(rho=each.cost_in("rho")) if each.additive_unit == "epsilon" else each for each in costs]
            spent = _together(costs).to_json()
        before = "" if all(each.asked for each in self.findings) else ", some of it by earlier requests"
        note = (
            f"What was spent covers how the domain was found, for {describe_budget(self.cost.to_json())}{before}"
            f" (ledger {self.ledger or 'none: simulated'}): {'; '.join(self.lines)}."
        )
        statement = measured.privacy
        stated = replace(statement, spent=spent, notes=(*statement.notes, note))
        return replace(measured, privacy=stated)


# ----------------------------------------------------------------------------------------------------------------------
# From a noisy histogram to edges that people would write.
#
# A cell that holds as many records as a bin is meant to is a value of its own, such as 0 or the usual hours of work,
# and gets its own bin. The rest is cut at its quantiles, each moved to the roundest number within a tenth of a bin's
# records. Ends lie where few records are beyond: half a percent, or what noise would hide.

REACH = 0.1
"""How far an edge may lie from its quantile, in bins: on the tuning shapes of decision 0050 wider reaches cost accuracy
at twenty bins, and narrower ones gave less round numbers for nothing."""
TAIL = 0.005
NOISE_IN_TAIL, LARGEST_TAIL = 2.0, 0.1
"""A tail holds at least so many standard deviations of the noise on a node, and at most this share."""


def cut_attribute(each: OpenBins, measured: MeasurementSet) -> Attribute:
    """The attribute with bins, or bounds, of a noisy histogram over its grid."""
    histogram = estimate(measured, allow_misfit=True).marginal(each.name)[: len(each.edges) - 1]
    noise = max(part.noise.variance**0.5 for part in measured)
    found = cut_histogram(np.array(each.edges), histogram, each.wanted, integer=each.integer, noise=noise)
    edges = list(found.edges)
    if not each.clips:  # what is beyond would be lost, and the declared range is what the file promises to hold
        edges = [
            each.edges[0],
            *(edge for edge in edges[1:-1] if each.edges[0] < edge < each.edges[-1]),
            each.edges[-1],
        ]
        found = Cut(edges, False, False)
    attribute = each.cut_at(edges)
    if isinstance(attribute, Numeric):
        labels = dict(attribute.wording.labels) | open_labels(attribute, found)
        attribute = attribute.worded(labels=labels) if labels else attribute
    return attribute


def cut_histogram(
    grid: NDArray[np.float64], histogram: NDArray[np.float64], wanted: int, *, integer: bool, noise: float = 0.0
) -> Cut:
    """About so many bins of a histogram over a grid: round edges near the quantiles, and a bin for each common value.

    >>> waits = np.array([50.0, 10, 10, 10, 10, 10, 0, 0])
    >>> cut_histogram(np.arange(9.0), waits, 3, integer=True)
    Cut(edges=[0.0, 1.0, 3.0, 6.0], open_below=False, open_above=True)
    """
    total = float(histogram.sum())
    if total <= max(noise, 1e-9):  # noise alone: nothing is known of where the records are
        places = np.linspace(0, len(grid) - 1, min(wanted + 1, len(grid))).round().astype(int)
        return Cut([float(grid[place]) for place in places], False, False)
    shares = np.maximum(histogram, 0) / total
    below = np.concatenate([[0.0], np.cumsum(shares)])
    tail = min(max(TAIL, NOISE_IN_TAIL * noise / total), LARGEST_TAIL)
    low = float(grid[max(int(np.searchsorted(below, tail, side="right")) - 1, 0)])
    high = float(grid[min(int(np.searchsorted(below, below[-1] - tail)), len(grid) - 1)])
    common = np.flatnonzero(shares >= 1 / wanted)
    edges = {float(grid[cell + end]) for cell in common for end in (0, 1)}
    edges |= _near_quantiles(grid, np.where(shares >= 1 / wanted, 0, shares), wanted - len(common), integer=integer)
    inside = [edge for edge in sorted(edges) if low < edge < high and not _within(edge, grid, common)]
    bottom, top = _round_ends(low, high, inside, grid, integer=integer)
    kept = sorted({bottom, top, *inside})
    if len(kept) < 2:
        kept = [float(grid[0]), float(grid[-1])]
    return Cut(kept, bottom > float(grid[0]), top < float(grid[-1]))


def _near_quantiles(grid: NDArray[np.float64], shares: NDArray[np.float64], bins: int, *, integer: bool) -> set[float]:
    """Round numbers near the quantiles that cut these shares into so many parts."""
    if bins < 2 or shares.sum() <= 0:
        return set()
    below = np.concatenate([[0.0], np.cumsum(shares / shares.sum())])
    found = set()
    for place in range(1, bins):
        near, at, far = (float(np.interp((place + step) / bins, below, grid)) for step in (-REACH, 0.0, REACH))
        if integer and math.ceil(near) > math.floor(far):
            found.add(float(round(at)))
        elif integer:
            found.add(roundest(math.ceil(near), math.floor(far), whole=True))
        else:
            found.add(roundest(near, far) if near < far else at)
    return found


def _within(edge: float, grid: NDArray[np.float64], cells: NDArray[np.intp]) -> bool:
    """Whether an edge cuts through one of these cells."""
    return any(grid[cell] < edge < grid[cell + 1] for cell in cells)


def _round_ends(
    low: float, high: float, inside: Sequence[float], grid: NDArray[np.float64], *, integer: bool
) -> tuple[float, float]:
    """Round numbers at or just beyond the ends, within the grid."""
    first, last = (inside[0], inside[-1]) if inside else (high, low)
    bottom, top = float(grid[0]), float(grid[-1])
    if low > bottom:
        bottom = max(bottom, roundest(low - REACH * (first - low), low))
    if high < top:
        top = min(top, roundest(high, high + REACH * (high - last)))
    return (float(math.floor(bottom)), float(math.ceil(top))) if integer else (bottom, top)
