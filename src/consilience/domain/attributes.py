"""Attributes: what a column may hold, declared in public and never read off the data.

An attribute has *labels*, which people see, and *codes* 0 … size − 1, which stay inside. It also carries the
public rule for records: what a missing value becomes, and what becomes of a value outside the declaration.
A rule that ends in `DROP` drops the whole record, from every count alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from consilience.domain.declarations import Declaration, format_number, is_number, suggestion
from consilience.errors import DeclarationError

DROP = -1
"""The code of a value whose record is dropped."""


@dataclass(frozen=True)
class Attribute:
    """One declared column. Build it with `categorical`, `numeric`, `hierarchy` or `continuous`.

    >>> sex = Attribute.categorical("sex", ["Female", "Male"], missing="Unknown")
    >>> sex.labels
    ('Female', 'Male', 'Unknown')
    >>> Attribute.numeric("age", [17, 25, 35]).labels
    ('17..24', '25..34')
    """

    name: str
    missing: str | None = None
    unlisted: str = "drop"

    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise DeclarationError("an attribute needs a name that is not empty")

    @staticmethod
    def categorical(
        name: str, values: Sequence[str], *, missing: str | None = None, unlisted: str = "drop"
    ) -> "Categorical":
        """An attribute with a list of values."""
        return Categorical(name, missing, unlisted, values=tuple(str(value) for value in values))

    @staticmethod
    def numeric(
        name: str,
        edges: Sequence[float],
        *,
        integer: bool | None = None,
        missing: str | None = None,
        unlisted: str = "clip",
    ) -> "Numeric":
        """A numeric attribute in bins [edge, next edge); `integer` says that values are whole numbers."""
        if integer is None:
            integer = all(isinstance(edge, int | np.integer) for edge in edges)
        return Numeric(name, missing, unlisted, edges=tuple(float(edge) for edge in edges), integer=integer)

    @staticmethod
    def hierarchy(
        name: str, parents: Mapping[str, str], *, missing: str | None = None, unlisted: str = "drop"
    ) -> "Hierarchy":
        """An attribute whose values have parents, such as a geography; values are those that are no parent."""
        return Hierarchy(name, missing, unlisted, parents=tuple((str(k), str(v)) for k, v in parents.items()))

    @staticmethod
    def continuous(name: str, bounds: tuple[float, float], *, unlisted: str = "clip") -> "Continuous":
        """A number within bounds that has no cells, for algorithms that work on points."""
        return Continuous(name, None, unlisted, bounds=(float(bounds[0]), float(bounds[1])))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The label of each code, in order."""
        raise DeclarationError(f"attribute {self.name!r} is {self.kind} and has no cells; declare bins to count it")

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
                f"attribute {self.name!r} has no value {str(label)!r}; {suggestion(str(label), self.labels)}"
            )
        return found

    def codes(self, label: str) -> tuple[int, ...]:
        """The codes a label stands for: one, or all below it where the label is a parent in a hierarchy."""
        return (self.code(label),)

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
        return self.labels

    @property
    def missing_code(self) -> int:
        """The code that a missing value becomes, or DROP."""
        return self.unlisted_code if self.missing is None else self.codes_by_label[self.missing]

    @property
    def unlisted_code(self) -> int:
        """The code that a value outside the declaration becomes, or DROP."""
        return self.codes_by_label.get(self.unlisted, DROP)

    def midpoints(self) -> NDArray[np.float64]:
        """A number for each code, for means and moments."""
        raise DeclarationError(f"attribute {self.name!r} is {self.kind}: its values have no mean; use a numeric one")

    def to_declaration(self) -> dict[str, Any]:
        """The attribute as the table that a domain file holds; `attribute_from_declaration` reads it back."""
        shared: dict[str, Any] = {"kind": self.kind} | self._own_declaration()
        if self.missing is not None:
            shared["missing"] = self.missing
        return shared | {"unlisted": self.unlisted}

    def _own_declaration(self) -> dict[str, Any]:
        return {}

    def _with_rule_labels(self, values: tuple[str, ...], reserved: tuple[str, ...]) -> tuple[str, ...]:
        """The values, then the labels that only the missing and unlisted rules name."""
        extra = [self.missing] if self.missing is not None else []
        extra += [self.unlisted] if self.unlisted not in reserved else []
        return values + tuple(dict.fromkeys(label for label in extra if label not in values))

    def _refuse_duplicates(self, values: Sequence[object], what: str) -> None:
        seen: set[object] = set()
        for value in values:
            if value in seen:
                raise DeclarationError(f"attribute {self.name!r} lists the {what} {value!r} twice; keep one")
            seen.add(value)


@dataclass(frozen=True)
class Categorical(Attribute):
    """A list of values; what is not listed follows `unlisted`: "drop", or the value it becomes."""

    values: tuple[str, ...] = ()
    kind: ClassVar[str] = "categorical"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.values:
            raise DeclarationError(
                f"attribute {self.name!r} lists no values; a categorical attribute needs at least one"
            )
        if self.unlisted == "clip" and "clip" not in self.values:
            raise DeclarationError(f"attribute {self.name!r}: 'clip' is for numbers; use 'drop' or the value to become")
        self._refuse_duplicates(self.values, "value")

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return self._with_rule_labels(self.values, ("drop",))

    @property
    def ordinary_labels(self) -> tuple[str, ...]:
        return self.values

    def _own_declaration(self) -> dict[str, Any]:
        return {"values": list(self.values)}


@dataclass(frozen=True)
class Numeric(Attribute):
    """Bins [edge, next edge). Outside them: "clip" to the end bins, "drop", or the value it becomes.

    The last bin of a real-valued attribute includes its upper edge. Bins of whole numbers are labelled by the
    numbers in them ("25..34"); real ones by their edges ("[0.5, 1)").
    """

    edges: tuple[float, ...] = ()
    integer: bool = False
    unlisted: str = "clip"
    kind: ClassVar[str] = "numeric"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.edges) < 2:
            raise DeclarationError(f"attribute {self.name!r} needs at least two bin edges, found {len(self.edges)}")
        if not all(is_number(edge) for edge in self.edges):
            raise DeclarationError(f"attribute {self.name!r} has a bin edge that is not a finite number")
        self._refuse_duplicates(self.edges, "bin edge")
        for left, right in zip(self.edges, self.edges[1:], strict=False):
            if right < left:
                raise DeclarationError(
                    f"attribute {self.name!r}: bin edge {format_number(right)} follows {format_number(left)}; "
                    "edges must increase"
                )
        if self.integer and any(edge != int(edge) for edge in self.edges):
            raise DeclarationError(f"attribute {self.name!r} is declared integer but has a fractional bin edge")

    @cached_property
    def bins(self) -> tuple[str, ...]:
        return tuple(self._bin_label(i) for i in range(len(self.edges) - 1))

    def _bin_label(self, i: int) -> str:
        low, high = self.edges[i], self.edges[i + 1]
        if not self.integer:
            end = "]" if i == len(self.edges) - 2 else ")"
            return f"[{format_number(low)}, {format_number(high)}{end}"
        return format_number(low) if high - low == 1 else f"{format_number(low)}..{format_number(high - 1)}"

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return self._with_rule_labels(self.bins, ("drop", "clip"))

    @property
    def ordinary_labels(self) -> tuple[str, ...]:
        return self.bins

    @property
    def clips(self) -> bool:
        return self.unlisted == "clip"

    def codes_between(self, low: str | None, high: str | None) -> tuple[int, ...]:
        """The bins from `low` to `high`: bin labels, or numbers that meet bin edges.

        Whole numbers are inclusive (`25..34` ends with 34); real ones end before `high`.
        """
        first = 0 if low is None else self._bin_starting_at(low)
        last = len(self.bins) - 1 if high is None else self._bin_ending_at(high)
        if last < first:
            raise DeclarationError(f"attribute {self.name!r}: the range {low}..{high} runs backwards")
        return tuple(range(first, last + 1))

    def codes(self, label: str) -> tuple[int, ...]:
        if label in self.codes_by_label:
            return (self.codes_by_label[label],)
        low, separator, high = str(label).partition("..")
        return self.codes_between(low, high) if separator else (self._bin_holding(label),)

    def _bin_starting_at(self, text: str) -> int:
        if text in self.bins:
            return self.bins.index(text)
        value = self._number(text)
        if value in self.edges[:-1]:
            return self.edges.index(value)
        self._refuse_cut(text, self.edges[:-1])

    def _bin_ending_at(self, text: str) -> int:
        if text in self.bins:
            return self.bins.index(text)
        step = 1.0 if self.integer else 0.0
        value = self._number(text) + step
        if value in self.edges[1:]:
            return self.edges.index(value) - 1
        self._refuse_cut(text, [edge - step for edge in self.edges[1:]])

    def _bin_holding(self, text: str) -> int:
        """The bin that is this one number, for bins of width 1."""
        value = self._number(text)
        if self.integer and value in self.edges[:-1] and value + 1 in self.edges:
            return self.edges.index(value)
        raise DeclarationError(f"attribute {self.name!r} has no bin {text!r}; {suggestion(str(text), self.labels)}")

    def _number(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not is_number(value):
            raise DeclarationError(f"attribute {self.name!r} is numeric; {text!r} is no number and no bin of it")
        return value

    def _refuse_cut(self, text: str, possible: Sequence[float]) -> NoReturn:
        nearest = sorted(possible, key=lambda edge: abs(edge - self._number(text)))[:2]
        choices = " or ".join(format_number(edge) for edge in sorted(nearest))
        raise DeclarationError(f"attribute {self.name!r}: {text} cuts through a bin; the nearest possible is {choices}")

    @property
    def missing_code(self) -> int:
        return DROP if self.missing is None and self.clips else super().missing_code

    def midpoints(self) -> NDArray[np.float64]:
        """The middle of each bin (of its whole numbers, where integer); 0 for labels that are no number."""
        edges = np.array(self.edges)
        middles = (edges[:-1] + edges[1:] - (1.0 if self.integer else 0.0)) / 2
        return np.concatenate([middles, np.zeros(self.size - len(self.bins))])

    def _own_declaration(self) -> dict[str, Any]:
        steps = np.diff(self.edges)
        if self.integer and len(self.edges) > 12 and np.all(steps == steps[0]):
            return {"from": int(self.edges[0]), "to": int(self.edges[-1]), "step": int(steps[0])}
        edges = [int(edge) if self.integer else edge for edge in self.edges]
        return {"edges": edges} if self.integer else {"edges": edges, "integer": False}


@dataclass(frozen=True)
class Hierarchy(Attribute):
    """Values with parents. Cells are the values that are nobody's parent; parents name groups of them."""

    parents: tuple[tuple[str, str], ...] = ()
    kind: ClassVar[str] = "hierarchy"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.parents:
            raise DeclarationError(f"attribute {self.name!r} declares no parents; a hierarchy needs at least one value")
        self._refuse_duplicates([child for child, _ in self.parents], "value")
        for child, _ in self.parents:
            self.path(child)

    @cached_property
    def _parent_of(self) -> dict[str, str]:
        return dict(self.parents)

    def path(self, node: str) -> tuple[str, ...]:
        """The node and its ancestors, up to its root."""
        nodes = [node]
        while nodes[-1] in self._parent_of:
            above = self._parent_of[nodes[-1]]
            if above in nodes:
                raise DeclarationError(
                    f"attribute {self.name!r}: {above!r} is its own ancestor; parents must form a tree"
                )
            nodes.append(above)
        return tuple(nodes)

    @cached_property
    def values(self) -> tuple[str, ...]:
        inner = set(self._parent_of.values())
        return tuple(child for child, _ in self.parents if child not in inner)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return self._with_rule_labels(self.values, ("drop",))

    @property
    def ordinary_labels(self) -> tuple[str, ...]:
        return self.values

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """All nodes, parents before children: roots first, then level by level in declared order."""
        order: dict[str, int] = {}
        for value in self.values:
            for node in self.path(value):
                order.setdefault(node, len(self.path(node)))
        return tuple(sorted(order, key=lambda node: order[node]))

    def codes(self, label: str) -> tuple[int, ...]:
        found = tuple(code for code, value in enumerate(self.values) if label in self.path(value))
        return found or super().codes(label)

    def _own_declaration(self) -> dict[str, Any]:
        return {"parents": dict(self.parents)}


@dataclass(frozen=True)
class Continuous(Attribute):
    """A number within bounds, without cells. Outside the bounds: "clip" or "drop"; missing drops the record."""

    bounds: tuple[float, float] = (0.0, 1.0)
    unlisted: str = "clip"
    kind: ClassVar[str] = "continuous"

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.bounds
        if not (is_number(low) and is_number(high) and low < high):
            raise DeclarationError(f"attribute {self.name!r}: bounds [{low}, {high}] must be two increasing numbers")
        if self.unlisted not in ("clip", "drop"):
            raise DeclarationError(
                f"attribute {self.name!r}: 'unlisted' must be 'clip' or 'drop', found {self.unlisted!r}"
            )

    def _own_declaration(self) -> dict[str, Any]:
        return {"bounds": list(self.bounds)}


def attribute_from_declaration(name: str, declared: Declaration) -> Attribute:
    """The attribute that one `[attributes.NAME]` table of a domain file declares."""
    kind = declared.text("kind")
    readers = {
        "categorical": _read_categorical,
        "numeric": _read_numeric,
        "hierarchy": _read_hierarchy,
        "continuous": _read_continuous,
    }
    if kind not in readers:
        declared.refuse(f"kind {kind!r} is not known; {suggestion(kind, readers)}")
    attribute = readers[kind](name, declared)
    declared.close()
    return attribute


def _read_categorical(name: str, declared: Declaration) -> Attribute:
    return Attribute.categorical(name, declared.labels("values"), **_read_rules(declared, "drop"))


def _read_numeric(name: str, declared: Declaration) -> Attribute:
    if "edges" in declared:
        edges = declared.numbers("edges")
    else:
        edges = _even_edges(declared)
    integer = declared.flag("integer") if "integer" in declared else None
    return Attribute.numeric(name, edges, integer=integer, **_read_rules(declared, "clip"))


def _even_edges(declared: Declaration) -> tuple[float, ...]:
    """The edges from, from + step, …, to; the last must be met exactly."""
    if "from" not in declared:
        declared.refuse("a numeric attribute needs 'edges', or 'from', 'to' and 'step'")
    low, high, step = declared.number("from"), declared.number("to"), declared.number("step")
    if step <= 0 or high <= low:
        declared.refuse(f"from {low} to {high} by {step} makes no bins; 'to' must exceed 'from' and 'step' 0")
    bins = round((high - low) / step)
    if bins > 10**7 or bins < 1 or abs(low + bins * step - high) > 1e-9 * max(abs(high), step):
        declared.refuse(f"steps of {step} from {low} do not end at {high}; choose a step that divides {high - low}")
    return (*(low + i * step for i in range(bins)), high)


def _read_hierarchy(name: str, declared: Declaration) -> Attribute:
    parents = declared.table("parents")
    return Attribute.hierarchy(
        name, {child: parents.label(child) for child in parents.keys()}, **_read_rules(declared, "drop")
    )


def _read_continuous(name: str, declared: Declaration) -> Attribute:
    bounds = declared.numbers("bounds")
    if len(bounds) != 2:
        declared.refuse(f"'bounds' must be two numbers, found {len(bounds)}")
    unlisted = declared.text("unlisted") if "unlisted" in declared else "clip"
    return Attribute.continuous(name, (bounds[0], bounds[1]), unlisted=unlisted)


def _read_rules(declared: Declaration, default: str) -> dict[str, Any]:
    unlisted = declared.label("unlisted") if "unlisted" in declared else default
    return {"missing": declared.optional_label("missing"), "unlisted": unlisted}
