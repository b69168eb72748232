"""What a ledger protects, and what a request costs a ledger that protects something else.

Privacy losses add up only for the same pairs of tables. A ledger is therefore bound to one unit of protection (a row,
or a value of one column of which at most m rows are counted) and to one neighbour relation. A request of another kind
is refused, or charged what it costs *between the ledger's neighbours*. That is group privacy: if every two neighbours
of the ledger are joined by at most k steps, each of which leads from one neighbour of the request to another, then

    pure ε:  the request costs k·ε       (k factors of exp(ε))
    ρ:       the request costs k²·ρ      (Bun, Steinke 2016, Proposition 1.9; (ε, δ) is carried by its ρ)

How many steps there are at most depends on the units and relations alone:

    the ledger protects          the request protects        k   the steps
    unit c, add-remove           c, add-remove, other m      1   a unit is added or removed, however many rows count
    unit c, replace-one          c, replace-one, other m     1   likewise
    row, replace-one             row, add-remove             2   remove the old row, add the new one
    unit c, replace-one          unit c, add-remove          2   remove the unit, add it with its new rows
    row, add-remove              unit c, add-remove          2   a unit gains a row: remove it, add it with that row
    row, replace-one             unit c, add-remove          4   one unit loses a row and another one gains one

For the rest no finite k exists, and there is no conversion:

  - From replace-one to add-remove: replacing never changes the number of rows or units, so that no number of such steps
    leads from a table to one with a row more. That covers units under replace-one and rows as well: a row may be the
    only one of its unit.
  - From a row to a unit: a unit may have any number of rows, and each is a step.
  - From one column's units to another's: a unit of the one may have rows in any number of units of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consilience.domain.sensitivity import Neighbours

STEPS = {
    ("same", "add-remove", "add-remove"): 1,
    ("same", "replace-one", "replace-one"): 1,
    ("same", "replace-one", "add-remove"): 2,
    ("row", "add-remove", "add-remove"): 2,
    ("row", "replace-one", "add-remove"): 4,
}
"""At most so many steps, by: the ledger has the request's unit or the row; its relation; the request's relation."""


@dataclass(frozen=True)
class Protection:
    """What is protected: one row, or one value of the column `unit`, of which at most `max_rows` rows are counted."""

    unit: str | None = None
    max_rows: int = 1
    neighbours: Neighbours = "add-remove"

    @property
    def unit_text(self) -> str:
        """The unit as privacy statements name it."""
        return "row" if self.unit is None else f"{self.unit}, at most {self.max_rows} rows"

    def describe(self) -> str:
        """
        >>> Protection("person", 3).describe()
        "one value of 'person' (at most 3 rows), add-remove"
        """
        rows = f"at most {self.max_rows} row{'' if self.max_rows == 1 else 's'}"
        what = "one row" if self.unit is None else f"one value of {self.unit!r} ({rows})"
        return f"{what}, {self.neighbours}"

    def to_json(self) -> dict[str, Any]:
        return {"unit": self.unit, "max_rows_per_unit": self.max_rows, "neighbours": self.neighbours}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Protection:
        """The protection that `to_json` wrote; anything else is a ValueError."""
        found = cls(data["unit"], data["max_rows_per_unit"], data["neighbours"])
        if not isinstance(found.unit, str | None) or not isinstance(found.max_rows, int) or found.max_rows < 1:
            raise ValueError(f"no unit of protection: {data!r}")
        if found.neighbours not in ("add-remove", "replace-one"):
            raise ValueError(f"no neighbour relation: {data!r}")
        return found


def steps_between(bound: Protection, asked: Protection) -> int | None:
    """How many steps of what was asked for join neighbours of what is bound at most; None where no number does."""
    if bound.unit == asked.unit:
        place = "same"
    elif bound.unit is None:
        place = "row"
    else:
        return None
    return STEPS.get((place, bound.neighbours, asked.neighbours))


def why_not_convertible(bound: Protection, asked: Protection) -> str:
    """Why no finite cost under what is bound follows from a guarantee for what was asked for."""
    if bound.unit is not None and asked.unit is None:
        return (
            f"one value of {bound.unit!r} may have any number of rows, and a guarantee for one row says nothing of many"
        )
    if bound.unit is not None and bound.unit != asked.unit:
        return f"one value of {bound.unit!r} may have rows in any number of values of {asked.unit!r}"
    return "replacing never changes how many there are, so it says nothing about adding or removing one"
