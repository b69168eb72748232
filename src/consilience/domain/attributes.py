"""Attributes: what a column may hold, declared in public and never read off the data.

An attribute has *labels*, which people see, and *codes* 0 … size − 1, which stay inside. It also carries the
public rule for records: what a missing value becomes, and what becomes of a value outside the declaration.
A rule that says "drop" drops the whole record, from every count alike; "drop" and "clip" are therefore never labels
that a rule can name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from consilience.domain.columns import DROP as DROP
from consilience.domain.columns import Column
from consilience.domain.declarations import format_number, is_number, label_text, suggestion
from consilience.errors import DeclarationError

MOST_LEVELS = 100
"""Levels of the deepest hierarchy; the work on it grows with them."""


@dataclass(frozen=True)
class Attribute(Column):
    """One declared column. Build it with `categorical`, `numeric`, `hierarchy`, `continuous` or `Date.between`.

    >>> sex = Attribute.categorical("sex", ["Female", "Male"], missing="Unknown")
    >>> sex.labels
    ('Female', 'Male', 'Unknown')
    >>> Attribute.numeric("age", [17, 25, 35]).labels
    ('17..24', '25..34')
    """

    @staticmethod
    def categorical(
        name: str, values: Sequence[str], *, missing: str | None = None, unlisted: str = "drop"
    ) -> "Categorical":
        """An attribute with a list of values."""
        return Categorical(name, missing, unlisted, values=_as_labels(name, values))

    @staticmethod
    def numeric(
        name: str,
        edges: Sequence[float],
        *,
        integer: bool | None = None,
        missing: str | None = None,
        unlisted: str = "clip",
        amount: Sequence[float] | bool = False,
    ) -> "Numeric":
        """A numeric attribute in bins [edge, next edge); `integer` says that values are whole numbers.

        With `amount` the numbers may be added up, each clipped to these bounds, or to the outermost edges if True.
        """
        numbers = _as_numbers(name, edges, "bin edge")
        if integer is None:
            integer = all(isinstance(edge, int | np.integer) for edge in edges)
        bounds = None if amount is False else (numbers[0], numbers[-1])
        if not isinstance(amount, bool):
            bounds = _as_numbers(name, amount, "amount")
        return Numeric(name, missing, unlisted, edges=numbers, integer=integer, amount=bounds)  # type: ignore[arg-type]

    @staticmethod
    def hierarchy(
        name: str,
        parents: Mapping[str, str],
        *,
        levels: Sequence[str] = (),
        geography: bool = False,
        missing: str | None = None,
        unlisted: str = "drop",
    ) -> "Hierarchy":
        """An attribute whose values have parents, such as a geography; values are those that are no parent.

        `levels` names the levels from the roots down, so that queries can ask `by State`. `geography` says that the
        values are places, each with a table of its own.
        """
        children, above = _as_labels(name, tuple(parents)), _as_labels(name, tuple(parents.values()))
        pairs = tuple(zip(children, above, strict=True))
        return Hierarchy(
            name, missing, unlisted, parents=pairs, level_names=_as_labels(name, levels), geography=geography
        )

    @staticmethod
    def continuous(name: str, bounds: tuple[float, float], *, unlisted: str = "clip") -> "Continuous":
        """A number within bounds that has no cells, for algorithms that work on points."""
        numbers = _as_numbers(name, bounds, "bound")
        if len(numbers) != 2:
            raise DeclarationError(f"attribute {name!r}: 'bounds' must be two numbers, found {len(numbers)}")
        return Continuous(name, None, unlisted, bounds=(numbers[0], numbers[1]))


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
        self._refuse_clip()
        self._refuse_duplicates(self.values, "value")

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
    amount: tuple[float, float] | None = None
    """Where the numbers themselves may be added up: the bounds to which each is clipped first."""
    kind: ClassVar[str] = "numeric"
    is_ordered: ClassVar[bool] = True

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
        if self.amount is not None and not (
            all(map(is_number, self.amount)) and len(self.amount) == 2 and self.amount[0] < self.amount[1]
        ):
            raise DeclarationError(
                f"attribute {self.name!r}: amount = {list(self.amount)} must be two increasing numbers, the least and "
                "the largest that one record adds to a sum, or true for the outermost edges"
            )

    @cached_property
    def bins(self) -> tuple[str, ...]:
        return tuple(self._bin_label(i) for i in range(len(self.edges) - 1))

    def _bin_label(self, i: int) -> str:
        low, high = self.edges[i], self.edges[i + 1]
        if not self.integer:
            end = "]" if i == len(self.edges) - 2 else ")"
            return f"[{format_number(low)}, {format_number(high)}{end}"
        return format_number(low) if high - low == 1 else f"{format_number(low)}..{format_number(high - 1)}"

    @property
    def ordinary_labels(self) -> tuple[str, ...]:
        return self.bins

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
        return self.codes_between(low or None, high or None) if separator else (self._bin_holding(label),)

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
        value = self._number(text)
        below, above = [edge for edge in possible if edge < value], [edge for edge in possible if edge > value]
        what = "cuts through a bin" if self.edges[0] <= value <= self.edges[-1] else "lies outside the bins"
        choices = " or ".join(format_number(edge) for edge in [*below[-1:], *above[:1]])
        raise DeclarationError(f"attribute {self.name!r}: {text} {what}; the nearest possible is {choices}")

    def midpoints(self) -> NDArray[np.float64]:
        """The middle of each bin (of its whole numbers, where integer); 0 for labels that are no number."""
        halves = np.array(self.edges) / 2
        middles = halves[:-1] + halves[1:] - (0.5 if self.integer else 0.0)
        return np.concatenate([middles, np.zeros(self.size - len(self.bins))])

    def half_widths(self) -> NDArray[np.float64]:
        """How far a record lies at most from the middle of its bin; 0 for labels that are no number."""
        halves = np.diff(self.edges) / 2 - (0.5 if self.integer else 0.0)
        return np.concatenate([halves, np.zeros(self.size - len(self.bins))])

    def _own_declaration(self) -> dict[str, Any]:
        steps = np.diff(self.edges)
        amount = {} if self.amount is None else {"amount": list(self.amount)}
        if self.integer and len(self.edges) > 12 and np.all(steps == steps[0]):
            return {"from": int(self.edges[0]), "to": int(self.edges[-1]), "step": int(steps[0])} | amount
        edges = [int(edge) if self.integer else edge for edge in self.edges]
        return ({"edges": edges} if self.integer else {"edges": edges, "integer": False}) | amount

    def ends(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Between which numbers a record in each cell lies once it is clipped as an amount; 0 for other labels."""
        edges = np.clip(np.array(self.edges), *self.amount) if self.amount is not None else np.array(self.edges)
        if self.clips and self.amount is not None:
            edges[[0, -1]] = self.amount
        others = np.zeros(self.size - len(self.bins))
        low, high = np.concatenate([edges[:-1], others]), np.concatenate([edges[1:], others])
        for place in (self.bins.index(rule) for rule in (self.missing, self.unlisted) if rule in self.bins):
            low[place], high[place] = min(low[place], 0.0), max(high[place], 0.0)  # what is no number adds nothing
        return low, high


@dataclass(frozen=True)
class Hierarchy(Attribute):
    """Values with parents. Cells are the values that are nobody's parent; parents name groups of them."""

    parents: tuple[tuple[str, str], ...] = ()
    level_names: tuple[str, ...] = ()
    """What the levels are called, from the roots down to the deepest values; empty where they have no names."""
    geography: bool = False
    """Whether the values are places, each with a table of its own: `Geography` measures and `Geographic` fits them."""
    kind: ClassVar[str] = "hierarchy"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.parents:
            raise DeclarationError(f"attribute {self.name!r} declares no parents; a hierarchy needs at least one value")
        self._refuse_clip()
        self._refuse_duplicates([child for child, _ in self.parents], "value")
        inner = {parent for _, parent in self.parents}
        self._check_levels()
        self._refuse_duplicates(self.level_names, "level")
        if self.geography and not self.level_names:
            raise DeclarationError(
                f"attribute {self.name!r} is a geography without named levels; add levels, such as "
                'levels = ["State", "County"]'
            )
        depth = 1 + max(self.depths.values())
        if self.level_names and len(self.level_names) != depth:
            raise DeclarationError(
                f"attribute {self.name!r} names {len(self.level_names)} levels, {', '.join(self.level_names)}, and its "
                f"values stand on {depth}; name each level once, the roots first"
            )
        for rule in (self.missing, self.unlisted):
            if rule in inner:
                raise DeclarationError(
                    f"attribute {self.name!r}: {rule!r} is a parent and holds no records itself; name a value below "
                    "it, or a label of its own"
                )

    @cached_property
    def _parent_of(self) -> dict[str, str]:
        return dict(self.parents)

    def _check_levels(self) -> None:
        """Refuse a parent above itself, and more levels than anybody can mean."""
        known: dict[str, int] = {}
        for child, _ in self.parents:
            walked = [child]
            while walked[-1] not in known and walked[-1] in self._parent_of:
                walked.append(self._parent_of[walked[-1]])
                if len(walked) > len(self.parents) + 1:
                    raise DeclarationError(
                        f"attribute {self.name!r}: {walked[-1]!r} is its own ancestor; parents must form a tree"
                    )
            level = known.get(walked[-1], 0)
            known |= {node: level + steps for steps, node in enumerate(reversed(walked))}
            if known[child] >= MOST_LEVELS:
                raise DeclarationError(
                    f"attribute {self.name!r}: {child!r} has {known[child]} values above it, and a hierarchy has at "
                    f"most {MOST_LEVELS} levels"
                )

    def path(self, node: str) -> tuple[str, ...]:
        """The node and its ancestors, up to its root."""
        nodes = [node]
        while nodes[-1] in self._parent_of:
            nodes.append(self._parent_of[nodes[-1]])
        return tuple(nodes)

    @cached_property
    def values(self) -> tuple[str, ...]:
        inner = set(self._parent_of.values())
        return tuple(child for child, _ in self.parents if child not in inner)

    @property
    def ordinary_labels(self) -> tuple[str, ...]:
        return self.values

    @cached_property
    def _codes_below(self) -> dict[str, list[int]]:
        """The codes at or below each node; a label that only a rule names is a root by itself."""
        below: dict[str, list[int]] = {}
        for code, label in enumerate(self.labels):
            for node in self.path(label):
                below.setdefault(node, []).append(code)
        return below

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """All nodes, parents before children: roots first, then level by level in declared order."""
        return tuple(sorted(self.depths, key=lambda node: self.depths[node]))

    @cached_property
    def depths(self) -> dict[str, int]:
        """How many steps below its root each node is."""
        return {node: len(self.path(node)) - 1 for node in self._codes_below}

    def codes(self, label: str) -> tuple[int, ...]:
        return tuple(self._codes_below.get(str(label), ())) or super().codes(label)

    @property
    def levels(self) -> tuple[str, ...]:
        return self.level_names

    def groups(self, level: str) -> dict[str, tuple[int, ...]]:
        """The values of a level with all below them; what stands above it has no such group and is by itself."""
        if level not in self.level_names:
            return super().groups(level)
        return dict(self._groups_of_levels[self.level_names.index(level)])

    @cached_property
    def _groups_of_levels(self) -> tuple[dict[str, tuple[int, ...]], ...]:
        """The groups of every level: kept, for each question about places asks for them again."""
        paths = [self.path(label)[::-1] for label in self.labels]
        every = []
        for depth in range(len(self.level_names)):
            found: dict[str, list[int]] = {}
            for code, path in enumerate(paths):
                found.setdefault(path[min(depth, len(path) - 1)], []).append(code)
            every.append({node: tuple(codes) for node, codes in found.items()})
        return tuple(every)

    @property
    def nameable(self) -> tuple[str, ...]:
        return self.nodes

    def value_of(self, text: str) -> str:
        return text if text in self._codes_below else self.wording.value_of(self.name, text)

    def _own_declaration(self) -> dict[str, Any]:
        levels = {"levels": list(self.level_names)} if self.level_names else {}
        return {"parents": dict(self.parents)} | levels | ({"geography": True} if self.geography else {})


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


def _as_labels(name: str, values: Sequence[object]) -> tuple[str, ...]:
    """The declared values as texts, by the same rule as in a domain file."""
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise DeclarationError(f"attribute {name!r} needs a list of values, found {values!r}")
    labels = []
    for value in values:
        text = label_text(value)
        if text is None:
            raise DeclarationError(
                f"attribute {name!r} lists {value!r} as a value; values are texts, numbers or truth values"
            )
        labels.append(text)
    return tuple(labels)


def _as_numbers(name: str, values: Sequence[float], what: str) -> tuple[float, ...]:
    """The declared numbers as floats."""
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise DeclarationError(f"attribute {name!r} needs a list of numbers, found {values!r}")
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    for value in plain:
        if not is_number(value):
            raise DeclarationError(f"attribute {name!r} has the {what} {value!r}, which is not a finite number")
    return tuple(float(value) for value in plain)
