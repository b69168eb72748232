"""What every declared column has: a name, rules for records, labels and their codes, and words for people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from consilience.domain.declarations import Wording, suggestion
from consilience.errors import DeclarationError

DROP = -1
"""The code of a value whose record is dropped."""


@dataclass(frozen=True)
class Column:
    """What is the same of attributes of every kind."""

    name: str
    missing: str | None = None
    unlisted: str = "drop"
    release: bool = True
    """False of an attribute that is only there for its rules: nothing is measured or published of it."""
    wording: Wording = field(default=Wording(), compare=False)
    """How people read it: title, unit, labels of its values. It changes no count, so that attributes that differ in
    nothing else are equal."""

    kind: ClassVar[str] = ""
    is_ordered: ClassVar[bool] = False
    """True where the order of the values means something: of numbers and dates."""
    to_find: ClassVar[str] = ""
    """What of it is yet to be found in the data, with privacy: "values", "edges" or "bounds"."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise DeclarationError(f"an attribute needs a name that is not empty, found {self.name!r}")
        for rule in (self.missing, self.unlisted):
            if rule is not None and not isinstance(rule, str):
                raise DeclarationError(f"attribute {self.name!r}: {rule!r} is no label; a rule names a label as text")
        if not isinstance(self.release, bool):
            raise DeclarationError(f"attribute {self.name!r}: 'release' is true or false, found {self.release!r}")
        if self.missing == "clip":
            raise DeclarationError(f"attribute {self.name!r}: a missing value cannot be clipped; use a label or 'drop'")

    def worded(
        self, *, title: str | None = None, unit: str | None = None, labels: Mapping[str, str] | None = None
    ) -> Self:
        """The attribute with a title, a unit and labels of its values, for people; what is None stays as it is.

        >>> from consilience import Attribute
        >>> race = Attribute.categorical("race", ["1", "2"]).worded(title="Race", labels={"1": "White alone"})
        >>> race.heading, race.say("1"), race.say("2")
        ('Race', 'White alone', '2')
        """
        now = self.wording
        pairs = now.labels if labels is None else tuple((str(value), str(label)) for value, label in labels.items())
        wording = Wording(now.title if title is None else title, now.unit if unit is None else unit, pairs)
        if pairs:
            wording.check(self.name, self.nameable)
        return replace(self, wording=wording)

    @property
    def heading(self) -> str:
        """What stands above its values: the title, or else the name, with the unit."""
        return self.wording.heading(self.name)

    def say(self, value: str) -> str:
        """The label that people read for a value; the value itself where it has none."""
        return self.wording.by_value.get(value, value)

    def value_of(self, text: str) -> str:
        """The value that a text names: by itself, or by its label where no value is called so."""
        return text if text in self.codes_by_label else self.wording.value_of(self.name, text)

    @property
    def nameable(self) -> tuple[str, ...]:
        """What can be asked for by name, and so can have a label."""
        return self.labels

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The label of each code, in order: the values, then what only the missing and unlisted rules name."""
        values = self.ordinary_labels
        named = [rule for rule in (self.missing, self.unlisted) if rule not in (None, "drop", "clip")]
        return values + tuple(label for label in dict.fromkeys(named) if label not in values)

    @property
    def size(self) -> int:
        return len(self.labels)

    @cached_property
    def codes_by_label(self) -> dict[str, int]:
        return {label: code for code, label in enumerate(self.labels)}

    def code(self, label: str) -> int:
        """The code of one label."""
        found = self.codes_by_label.get(str(label))
        if found is None:
            raise DeclarationError(
                f"attribute {self.name!r} has no value {str(label)!r}; "
                + suggestion(str(label), (*self.nameable, *self.wording.by_value.values()))
            )
        return found

    def codes(self, label: str) -> tuple[int, ...]:
        """The codes a label stands for: one, or all below it where the label is a parent in a hierarchy."""
        return (self.code(label),)

    @property
    def clips(self) -> bool:
        """Whether what lies outside the declared range is counted at its ends."""
        return self.unlisted == "clip"

    @property
    def levels(self) -> tuple[str, ...]:
        """The names by which queries group the values, the coarsest first."""
        return ()

    def groups(self, level: str) -> dict[str, tuple[int, ...]]:
        """The groups of a level: the codes that each of them holds. Every code is in one of them."""
        raise DeclarationError(f"attribute {self.name!r} has no level {level!r}; {suggestion(level, self.levels)}")

    def codes_between(self, low: str | None, high: str | None) -> tuple[int, ...]:
        """The codes from one label to another, both included, in the declared order; None means the end."""
        first = 0 if low is None else self.code(low)
        last = len(self.ordinary_labels) - 1 if high is None else self.code(high)
        if last < first:
            raise DeclarationError(f"attribute {self.name!r}: the range {low!r}..{high!r} runs backwards")
        return tuple(range(first, last + 1))

    @property
    def ordinary_labels(self) -> tuple[str, ...]:
        """The labels that were declared as values, without those that only the record rules add."""
        raise DeclarationError(f"attribute {self.name!r} is {self.kind} and has no cells; declare bins to count it")

    @property
    def missing_code(self) -> int:
        """The code that a missing value becomes, or DROP."""
        if self.missing is None:
            return self.unlisted_code
        return DROP if self.missing == "drop" else self.codes_by_label[self.missing]

    @property
    def unlisted_code(self) -> int:
        """The code that a value outside the declaration becomes, or DROP; a rule that clips has none of its own."""
        return DROP if self.unlisted in ("drop", "clip") else self.codes_by_label[self.unlisted]

    def midpoints(self) -> NDArray[np.float64]:
        """A number for each code, for means and moments."""
        raise DeclarationError(f"attribute {self.name!r} is {self.kind}: its values have no mean; use a numeric one")

    def to_declaration(self) -> dict[str, Any]:
        """The attribute as the table that a domain file holds; `attribute_from_declaration` reads it back."""
        shared: dict[str, Any] = {"kind": self.kind} | self._own_declaration()
        if self.missing is not None:
            shared["missing"] = self.missing
        shared |= {"unlisted": self.unlisted} | ({} if self.release else {"release": False})
        return shared | self.wording.to_declaration()

    def _own_declaration(self) -> dict[str, Any]:
        return {}

    def _refuse_clip(self) -> None:
        if self.unlisted == "clip":
            raise DeclarationError(f"attribute {self.name!r}: 'clip' is for numbers; use 'drop' or the value to become")

    def _refuse_duplicates(self, values: Sequence[object], what: str) -> None:
        seen: set[object] = set()
        for value in values:
            if value in seen:
                raise DeclarationError(f"attribute {self.name!r} lists the {what} {value!r} twice; keep one")
            seen.add(value)
