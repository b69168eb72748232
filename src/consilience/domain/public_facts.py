"""Public facts: what is known of the data from outside, exactly. Relying on it weakens the privacy statement."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute, Hierarchy
from consilience.domain.declarations import Declaration, is_number
from consilience.domain.place_facts import PlaceFacts
from consilience.errors import DeclarationError


@dataclass(frozen=True)
class PublicMargin:
    """Exact counts known from outside, on the cells of some attributes."""

    attributes: tuple[str, ...]
    counts: tuple[float, ...]

    def check(self, where: str, sizes: Sequence[int], total: float | None) -> None:
        """Refuse counts that do not fit the cells, are no counts, or do not sum to the total."""
        where = f"{where}: the public margin by {', '.join(self.attributes) or 'no attribute'}"
        cells = math.prod(sizes)
        if not self.attributes:
            raise DeclarationError(f"{where} says nothing about cells; declare 'total' instead")
        if len(self.counts) != cells:
            raise DeclarationError(
                f"{where} lists {len(self.counts)} counts for {cells} cells; "
                "list one for each, the last attribute varying fastest"
            )
        if not all(is_number(count) and count >= 0 for count in self.counts):
            raise DeclarationError(f"{where} has a count below 0 or not finite; counts are numbers from 0 up")
        if total is not None and not math.isclose(sum(self.counts), total, rel_tol=1e-9, abs_tol=1e-9):
            raise DeclarationError(
                f"{where} sums to {sum(self.counts):.12g}, the public total is {total:.12g}; they must agree"
            )

    def refuse_impossible(self, where: str, allowed: NDArray[np.bool_] | None) -> None:
        """Refuse records in cells that cannot occur."""
        if allowed is not None and np.any(np.array(self.counts)[~allowed.ravel()]):
            raise DeclarationError(
                f"{where}: the public margin by {', '.join(self.attributes)} counts records in impossible cells; "
                "correct the margin or the rule"
            )

    def summed(self, sizes: Mapping[str, int], kept: Sequence[str]) -> NDArray[np.float64]:
        """The margin summed down to some of its attributes, in the order of `kept`."""
        table = np.array(self.counts, dtype=np.float64).reshape([sizes[name] for name in self.attributes])
        away = tuple(axis for axis, name in enumerate(self.attributes) if name not in kept)
        left = [name for name in self.attributes if name in kept]
        return np.asarray(table.sum(axis=away)).transpose([left.index(name) for name in kept])


@dataclass(frozen=True)
class PublicFacts:
    """What is known exactly from outside the data. Relying on it weakens the privacy statement, which names it."""

    total: float | None = None
    margins: tuple[PublicMargin, ...] = ()
    places: tuple[PlaceFacts, ...] = ()
    """What is known of single places of the geography; `Geographic` keeps it, and no other estimator."""

    def __bool__(self) -> bool:
        return self.total is not None or bool(self.margins) or bool(self.places)

    def describe(self) -> tuple[str, ...]:
        """One line for each fact, for privacy statements."""
        lines = [] if self.total is None else ["the exact total"]
        lines += [f"the exact counts by {', '.join(margin.attributes)}" for margin in self.margins]
        return (*lines, *(facts.describe() for facts in self.places))

    def about(self, attributes: Iterable[Attribute]) -> "PublicFacts":
        """The facts that only these attributes are needed for."""
        known = {each.name: each for each in attributes}
        marked = any(isinstance(each, Hierarchy) and each.geography for each in known.values())
        margins = tuple(margin for margin in self.margins if set(margin.attributes) <= set(known))
        places = tuple(each for each in self.places if marked and set(each.by) <= set(known))
        return PublicFacts(self.total, margins, places)

    def refuse_disagreement(self, where: str, sizes: Mapping[str, int]) -> None:
        """Refuse margins that differ where they overlap."""
        for first, second in itertools.combinations(self.margins, 2):
            shared = [name for name in first.attributes if name in second.attributes]
            if not np.allclose(first.summed(sizes, shared), second.summed(sizes, shared), rtol=1e-9, atol=1e-9):
                raise DeclarationError(
                    f"{where}: the public margins by {', '.join(first.attributes)} and by "
                    f"{', '.join(second.attributes)} differ on {', '.join(shared) or 'the total'}; they must agree"
                )

    @staticmethod
    def read(declared: Declaration, attributes: Sequence[Attribute], folder: Path | None) -> "PublicFacts":
        """The facts of a domain file; files named there lie in `folder`."""
        total = declared.number("total") if "total" in declared else None
        margins = []
        for table in declared.tables("margins") if "margins" in declared else ():
            margins.append(PublicMargin(table.texts("attributes"), table.numbers("counts")))
            table.close()
        geography = next((each for each in attributes if isinstance(each, Hierarchy) and each.geography), None)
        tables = declared.tables("places") if "places" in declared else ()
        places = tuple(PlaceFacts.read(table, geography, folder) for table in tables)
        declared.close()
        return PublicFacts(total, tuple(margins), places)

    def to_declaration(self) -> dict[str, Any]:
        """The facts as the table that a domain file holds; `read` reads it back."""
        declared: dict[str, Any] = {} if self.total is None else {"total": _plain(self.total)}
        if self.margins:
            declared["margins"] = [
                {"attributes": list(margin.attributes), "counts": [_plain(count) for count in margin.counts]}
                for margin in self.margins
            ]
        if self.places:
            declared["places"] = [facts.to_declaration() for facts in self.places]
        return declared


def _plain(count: float) -> int | float:
    """The count as people write it: 12 and not 12.0, so that equal domains have equal declarations."""
    return int(count) if count == int(count) else float(count)
