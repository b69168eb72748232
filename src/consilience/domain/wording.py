"""How people read an attribute: its title, its unit, and labels of its values, as code books call them.

Codes such as 1 or "A02" stay what is counted, and what files and ledgers know. A wording changes no count and no
promise, so that it is no part of what a request is known by: a title can be corrected after the release.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from consilience.domain.declarations import Declaration, label_text, suggestion
from consilience.errors import DeclarationError


class Named(Protocol):
    """What is worded: an attribute."""

    @property
    def name(self) -> str: ...
    @property
    def nameable(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Wording:
    """A title, a unit, and a label for some of the values; all of them may be absent.

    >>> Wording("Income", "dollars").heading("income")
    'Income (dollars)'
    """

    title: str = ""
    unit: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """Pairs of a value, as the domain lists it, and its label."""

    def heading(self, name: str) -> str:
        """The title, or else this name, with the unit."""
        return f"{self.title or name}{f' ({self.unit})' if self.unit else ''}"

    @cached_property
    def by_value(self) -> dict[str, str]:
        return dict(self.labels)

    @cached_property
    def _values_by_label(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for value, label in self.labels:
            found.setdefault(label, []).append(value)
        return found

    def value_of(self, name: str, text: str) -> str:
        """The one value with this label; the text itself where it is no label. A label of several is refused."""
        values = self._values_by_label.get(text, [text])
        if len(values) > 1:
            shown = ", ".join(map(repr, values[:6])) + (", ..." if len(values) > 6 else "")
            raise DeclarationError(
                f"attribute {name!r}: {text!r} is the label of {len(values)} values, {shown}; name the value instead"
            )
        return values[0]

    def check(self, name: str, values: Collection[str]) -> None:
        """Refuse labels of values that the attribute does not have."""
        known = set(values)
        for value, label in self.labels:
            if value not in known:
                raise DeclarationError(
                    f"attribute {name!r}: 'labels' names {value!r}, which is none of its values; "
                    + suggestion(value, values)
                )
            if not label.strip():
                raise DeclarationError(f"attribute {name!r}: the label of {value!r} is empty; leave the entry out")

    def to_declaration(self) -> dict[str, Any]:
        """What the attribute's table in a domain file says of it; nothing where there is no wording."""
        declared: dict[str, Any] = {"title": self.title} if self.title else {}
        declared |= {"unit": self.unit} if self.unit else {}
        return declared | ({"labels": dict(self.labels)} if self.labels else {})

    @staticmethod
    def read(declared: Declaration, attribute: Named) -> "Wording":
        """What the table of an attribute says: `title`, `unit`, and `labels`, a table of value = label."""
        title, unit = (declared.text(key) if key in declared else "" for key in ("title", "unit"))
        pairs: tuple[tuple[str, str], ...] = ()
        if "labels" in declared:
            table = declared.table("labels")
            pairs = tuple((str(label_text(value)), table.label(value)) for value in table.keys())
        wording = Wording(title, unit, pairs)
        if pairs:
            wording.check(attribute.name, attribute.nameable)
        return wording


WORDS = ("title", "unit", "labels")
"""The keys of an attribute's table that are for people alone."""
