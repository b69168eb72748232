"""Attributes whose values, bins or bounds are to be found in the data with privacy, before anything is counted by them.

What is public of numbers is an outer range. It is cut into the cells of a fine grid that no data decides: multiples of
a round step, about a thousand of them, and numbers of two to three digits down to a millionth of the range, so that a
long tail and what is near zero are told apart alike. A histogram over this grid can be measured like any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, NoReturn

from consilience.domain.attributes import Attribute, Categorical, Continuous, Numeric
from consilience.domain.declarations import Declaration, is_number
from consilience.errors import DeclarationError

DISCOVER = "discover"
"""What a domain file says in place of values, edges or bounds that are to be found."""

FEWEST_BINS, MOST_BINS = 2, 100
LINEAR_CELLS, DECADES = 1000, 6
MANTISSAS = (*range(100, 200, 2), *range(200, 500, 5), *range(500, 1000, 10))
"""The leading digits of numbers on the grid: neighbours differ by 1 to 2.5 %."""
STEPS = (Decimal(1), Decimal(2), Decimal(5), Decimal(10))
PLACEHOLDER = "?"


@dataclass(frozen=True)
class OpenList(Categorical):
    """A list of values that are to be found; what is not found follows `unlisted`."""

    to_find: ClassVar[str] = "values"

    def __post_init__(self) -> None:
        Attribute.__post_init__(self)
        self._refuse_clip()

    def codes(self, label: str) -> tuple[int, ...]:
        self._refuse_name(label)

    def code(self, label: str) -> int:
        self._refuse_name(label)

    def _refuse_name(self, label: str) -> NoReturn:
        raise DeclarationError(
            f"attribute {self.name!r}: {label!r} is asked for, and its values are yet to be found; find them first, "
            "and name them in the file that they are written to"
        )

    def _own_declaration(self) -> dict[str, Any]:
        return {"values": DISCOVER}

    @property
    def stand_in(self) -> Categorical:
        """An attribute of which nothing but the name is known: what a request to find its values declares."""
        return Categorical(self.name, "drop", "drop", values=(PLACEHOLDER,))

    def listing(self, values: Sequence[str]) -> Categorical:
        """The attribute with these values; where there are none, with what the others become alone."""
        ruled = [rule for rule in (self.unlisted, self.missing) if rule not in (None, "drop")]
        listed = tuple(values) or tuple(str(rule) for rule in ruled[:1])
        if not listed:
            raise DeclarationError(
                f"attribute {self.name!r}: no value was found that enough units have, and unlisted = 'drop' leaves "
                "nothing to count; ask with a larger budget, or declare what others become: unlisted = 'Other'"
            )
        return Categorical(self.name, self.missing, self.unlisted, self.release, self.wording, values=listed)


@dataclass(frozen=True)
class OpenBins(Numeric):
    """Numbers within an outer range whose bins are to be found; their edges are the grid until then."""

    to_find: ClassVar[str] = "edges"
    within: tuple[float, float] = (0.0, 1.0)
    wanted: int = 8
    """How many bins."""
    whole_range: bool = False
    """Whether the amount, too, is clipped to the outermost edges that are found."""

    def __post_init__(self) -> None:
        low, high = self.within
        if not (is_number(low) and is_number(high) and low < high):
            raise DeclarationError(f"attribute {self.name!r}: within = [{low}, {high}] must be two increasing numbers")
        if self.integer and (low != int(low) or high != int(high)):
            raise DeclarationError(f"attribute {self.name!r} is declared integer, and within = [{low}, {high}] is not")
        if not FEWEST_BINS <= self.wanted <= MOST_BINS:
            raise DeclarationError(
                f"attribute {self.name!r}: bins = {self.wanted} were asked for; from {FEWEST_BINS} to {MOST_BINS} can "
                "be found"
            )
        object.__setattr__(self, "edges", grid(low, high, integer=self.integer))
        super().__post_init__()

    @property
    def stand_in(self) -> Numeric:
        """The grid, as an attribute of its own: what a request to find the bins declares."""
        rule = "clip" if self.clips else "drop"
        return Numeric(self.name, "drop", rule, edges=self.edges, integer=self.integer)

    def cut_at(self, edges: Sequence[float]) -> Attribute:
        """The attribute with bins between these edges."""
        rules = (self.name, self.missing, self.unlisted, self.release, self.wording)
        amount = (edges[0], edges[-1]) if self.whole_range else self.amount
        return Numeric(*rules, edges=tuple(edges), integer=self.integer, amount=amount)

    def _own_declaration(self) -> dict[str, Any]:
        low, high = (int(end) if self.integer else end for end in self.within)
        declared: dict[str, Any] = {"edges": DISCOVER, "bins": self.wanted, "within": [low, high]}
        declared |= {} if self.integer else {"integer": False}
        amount = True if self.whole_range else None if self.amount is None else list(self.amount)
        return declared if amount is None else declared | {"amount": amount}


@dataclass(frozen=True)
class OpenBounds(OpenBins):
    """A number for algorithms on points whose bounds are to be found, within an outer range."""

    to_find: ClassVar[str] = "bounds"
    kind: ClassVar[str] = "continuous"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.cut_at(self.within)  # what speaks against such an attribute does so before anything is spent

    def cut_at(self, edges: Sequence[float]) -> Attribute:
        return Continuous(self.name, None, self.unlisted, self.release, self.wording, bounds=(edges[0], edges[-1]))

    def _own_declaration(self) -> dict[str, Any]:
        return {"bounds": DISCOVER, "within": list(self.within)}


Open = OpenList | OpenBins


def grid(low: float, high: float, *, integer: bool) -> tuple[float, ...]:
    """The numbers between which a range is looked at; of whole numbers the last one ends their range, beyond `high`.

    >>> grid(0, 3, integer=True)
    (0.0, 1.0, 2.0, 3.0, 4.0)
    >>> len(grid(0, 1e7, integer=False)), grid(0, 1e7, integer=False)[:3]
    (1702, (0.0, 10.0, 10.2))
    """
    first, last = Decimal(repr(float(low))), Decimal(repr(float(high)))
    step = _round_step((last - first) / LINEAR_CELLS)
    step = max(step, Decimal(1)) if integer else step
    start = (first / step).to_integral_value(rounding="ROUND_CEILING")
    found = {(start + place) * step for place in range(int((last - start * step) / step) + 1)}
    largest = max(abs(first), abs(last)).adjusted()
    for power in range((last - first).adjusted() - DECADES, largest + 1):
        for sign in (-1, 1):
            found |= {Decimal(sign * each).scaleb(power - 2) for each in MANTISSAS}
    found |= {Decimal(0), first, last}
    kept = sorted(float(each) for each in found if first <= each <= last and (not integer or each == int(each)))
    return (*dict.fromkeys(kept), *([float(high) + 1.0] if integer else []))


def _round_step(least: Decimal) -> Decimal:
    """The least of 1, 2 and 5 times a power of ten that is no smaller."""
    power = Decimal(1).scaleb(least.adjusted())
    return next(step * power for step in STEPS if step * power >= least)


# ----------------------------------------------------------------------------------------------------------------------
# Reading them from a domain file.


def is_open(declared: Declaration, key: str) -> bool:
    """Whether the file says that this is to be found."""
    return key in declared and declared.raw(key) == DISCOVER


def read_open_list(name: str, rules: dict[str, Any]) -> Attribute:
    """An open list: the rest is "Other" unless the file says what it becomes."""
    return OpenList(name, rules["missing"], rules["unlisted"])


def read_open_bins(name: str, declared: Declaration, rules: dict[str, Any]) -> Attribute:
    """Bins to be found, of the range that the file declares."""
    within = _read_within(declared)
    integer = all(isinstance(end, int) for end in within)
    integer = declared.flag("integer") if "integer" in declared else integer
    wanted = declared.integer("bins") if "bins" in declared else 8
    whole, amount = False, None
    if "amount" in declared:
        whole = isinstance(declared.raw("amount"), bool) and declared.flag("amount")
        ends = () if isinstance(declared.raw("amount"), bool) else declared.numbers("amount")
        amount = (float(ends[0]), float(ends[1])) if len(ends) == 2 else within if whole else None
        if ends and len(ends) != 2:
            declared.refuse(f"'amount' must be two numbers or true, found {len(ends)}")
    return OpenBins(
        name,
        rules["missing"],
        rules["unlisted"],
        amount=amount,
        whole_range=whole,
        within=(float(within[0]), float(within[1])),
        integer=integer,
        wanted=wanted,
    )


def read_open_bounds(name: str, declared: Declaration, unlisted: str) -> Attribute:
    """Bounds to be found, within the range that the file declares."""
    low, high = _read_within(declared)
    return OpenBounds(name, None, unlisted, within=(float(low), float(high)))


def _read_within(declared: Declaration) -> tuple[float, float]:
    if "within" not in declared:
        declared.refuse(
            "numbers are looked for within a range that is known without the data; add within = [lowest, highest]"
        )
    within = declared.numbers("within")
    if len(within) != 2:
        declared.refuse(f"'within' must be two numbers, the lowest and the highest possible, found {len(within)}")
    return within[0], within[1]
