"""What a set of measurements promises: to whom, against what, at which price, and given which public facts."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from consilience.domain.declarations import Declaration
from consilience.domain.sensitivity import Neighbours, check_neighbours
from consilience.errors import DeclarationError, MeasurementError

BUDGET_UNITS = {
    frozenset({"epsilon"}): "epsilon",
    frozenset({"rho"}): "rho",
    frozenset({"rho", "failure_delta"}): "rho",
    frozenset({"epsilon", "delta"}): "epsilon-delta",
}
"""The units in which a budget is spent, by the numbers that each of them has."""

LARGEST_AMOUNT = Decimal("1e9")
LONGEST_AMOUNT = 200

EXACT_TOTAL = "the exact total"
"""How statements name a public total; the same words as `PublicFacts.describe`."""


@dataclass(frozen=True)
class PrivacyStatement:
    """The promise that a set of measurements carries with it, in plain data.

    `neighbours` says which tables are to be hard to tell apart, `unit` what one record of protection is ("row", or
    "person_id, at most 3 rows"). `spent` is the budget as decimal texts, {"epsilon": "0.5"}, {"rho": "0.1"} or
    {"epsilon": "1", "delta": "1e-9"}, or None where it is not known. `public_facts` names what was relied on from
    outside.
    """

    neighbours: Neighbours = "add-remove"
    unit: str = "row"
    spent: Mapping[str, str] | None = None
    public_facts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            check_neighbours(self.neighbours)
        except DeclarationError as error:
            raise MeasurementError(str(error)) from None
        if not isinstance(self.unit, str) or not self.unit.strip():
            raise MeasurementError(f"the unit of protection is a text such as 'row', found {self.unit!r}")
        object.__setattr__(self, "spent", None if self.spent is None else _checked_budget(self.spent))
        for name in ("public_facts", "notes"):
            lines = getattr(self, name)
            if isinstance(lines, str) or not all(isinstance(line, str) for line in lines):
                raise MeasurementError(f"{name} is a list of texts, found {lines!r}")
            object.__setattr__(self, name, tuple(dict.fromkeys(lines)))

    @property
    def spent_unit(self) -> str | None:
        """ "epsilon", "rho" or "epsilon-delta"; None where the budget is not known."""
        return None if self.spent is None else BUDGET_UNITS[frozenset(self.spent)]

    def relying_on(self, facts: Iterable[str]) -> "PrivacyStatement":
        """The statement that also names these public facts."""
        return PrivacyStatement(self.neighbours, self.unit, self.spent, (*self.public_facts, *facts), notes=self.notes)

    def describe(self) -> str:
        """The promise in words, a paragraph for each part.

        >>> print(PrivacyStatement(spent={"epsilon": "0.5"}).describe())
        Unit of protection: row. Two tables are neighbours when one row is added or removed.
        Spent: epsilon 0.5. No result is more than e^0.5 = 1.65 times as likely from one neighbour as from the other.
        """
        change = "added or removed" if self.neighbours == "add-remove" else "replaced by another"
        record = "row" if self.unit == "row" else "unit"
        lines = [f"Unit of protection: {self.unit}. Two tables are neighbours when one {record} is {change}."]
        lines.append(_describe_spent(self.spent))
        if self.public_facts:
            lines.append(self._describe_facts())
        return "\n".join([*lines, *self.notes])

    def _describe_facts(self) -> str:
        facts = "; ".join(self.public_facts)
        line = f"Relied on from outside: {facts}. The promise is about neighbours that share these facts."
        if self.neighbours == "add-remove" and self.public_facts == (EXACT_TOTAL,):
            failing = "failure_delta" in (self.spent or {})
            line += (
                " Tables of one total differ by replacing a record, which is removing one and adding one: between"
                f" those the promise holds at {'a price that is not known' if failing else _doubled(self.spent_unit)}."
            )
        return line

    def to_json(self) -> dict[str, Any]:
        """The statement as plain data."""
        return {
            "neighbours": self.neighbours,
            "unit": self.unit,
            "spent": None if self.spent is None else dict(self.spent),
            "public_facts": list(self.public_facts),
            "notes": list(self.notes),
        }

    @staticmethod
    def from_json(mapping: object, *, where: str = "privacy") -> "PrivacyStatement":
        """The statement that plain data describes; the inverse of `to_json`."""
        try:
            declared = Declaration(mapping, where)
            statement = PrivacyStatement(
                check_neighbours(declared.text("neighbours")),
                declared.text("unit"),
                declared.raw("spent"),
                declared.texts("public_facts"),
                declared.texts("notes"),
            )
            declared.close()
        except DeclarationError as error:
            raise MeasurementError(str(error)) from None
        return statement


def describe_budget(spent: Mapping[str, str]) -> str:
    """The budget as people write it: "epsilon 1, delta 1e-9"."""
    return ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in spent.items())


def _checked_budget(spent: object) -> dict[str, str]:
    """The numbers of a budget as decimal texts, in the order epsilon, delta, rho; a `unit` that agrees is dropped."""
    if not isinstance(spent, Mapping):
        raise MeasurementError(f"the budget spent must be a mapping such as {{'epsilon': '0.5'}}, found {spent!r}")
    named = {name: value for name, value in spent.items() if name != "unit"}
    unit = BUDGET_UNITS.get(frozenset(named))
    if unit is None or spent.get("unit", unit) != unit:
        raise MeasurementError(
            f"the budget spent, {dict(spent)!r}, has no known unit; give epsilon, or rho, or epsilon with delta"
        )
    return {name: _amount(name, named[name]) for name in ("epsilon", "delta", "rho", "failure_delta") if name in named}


def _amount(name: str, value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    plain = isinstance(value, str | int | float | Decimal) and not isinstance(value, bool)
    try:
        amount = Decimal(text) if plain and len(text) <= LONGEST_AMOUNT else Decimal("nan")
    except InvalidOperation:
        amount = Decimal("nan")
    largest = Decimal(1) if name in ("delta", "failure_delta") else LARGEST_AMOUNT
    # A range of exponents that sums stay exact in: no budget is smaller than 1e-150 and above 0.
    if not (amount.is_finite() and 0 <= amount <= largest and (amount == 0 or amount.adjusted() > -150)):
        raise MeasurementError(f"the {name} spent is {value!r}; it must be a decimal number from 0 up, such as '0.5'")
    return text.strip()


def _describe_spent(spent: Mapping[str, str] | None) -> str:
    if spent is None:
        return "Spent: not known; who published the measurements did not say."
    line = f"Spent: {describe_budget(spent)}."
    if "rho" in spent:
        failure = spent.get("failure_delta")
        but = "" if failure is None else f", but for a failure of probability {failure} at most"
        return (
            f"{line} This is zero-concentrated differential privacy: at every order a > 1 the Rényi divergence between"
            f" the results from two neighbours is at most a × {spent['rho']}{but}."
        )
    epsilon = float(spent["epsilon"])
    factor = f" = {math.exp(epsilon):.3g}" if epsilon < 20 else ""
    slack = f", up to a probability of {spent['delta']}" if "delta" in spent else ""
    return (
        f"{line} No result is more than e^{spent['epsilon']}{factor} times as likely from one neighbour"
        f" as from the other{slack}."
    )


def _doubled(unit: str | None) -> str:
    """What two steps from neighbour to neighbour cost (group privacy)."""
    return {
        "epsilon": "up to twice the epsilon",
        "rho": "up to four times the rho",
        "epsilon-delta": "up to twice the epsilon and 1 + e^epsilon times the delta",
        None: "twice the price",
    }[unit]
