"""Factors that keep, drop, pick or group values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from consilience.domain.attributes import Attribute, Hierarchy
from consilience.domain.declarations import Declaration
from consilience.domain.factors.base import Factor, indicators
from consilience.domain.spelling import spell, spell_attribute, spell_end
from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import IdentityMap, LinearMap, SumMap


@dataclass(frozen=True)
class Identity(Factor):
    """Every value by itself."""

    kind: ClassVar[str] = "identity"

    def bind(self, attribute: Attribute) -> LinearMap:
        return IdentityMap(attribute.size)

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return attribute.labels

    def describe(self, name: str) -> str:
        return spell_attribute(name)


@dataclass(frozen=True)
class Total(Factor):
    """All values together."""

    kind: ClassVar[str] = "total"

    def bind(self, attribute: Attribute) -> LinearMap:
        return SumMap(attribute.size)

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return ("all",)


@dataclass(frozen=True)
class Value(Factor):
    """One value; in a hierarchy, a node with all below it."""

    label: str
    kind: ClassVar[str] = "value"
    is_condition: ClassVar[bool] = True

    def bind(self, attribute: Attribute) -> LinearMap:
        return indicators(attribute, [attribute.codes(self.label)])

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return (self.label,)

    def describe(self, name: str) -> str:
        return f"{spell_attribute(name)}={spell(self.label)}"

    def to_json(self) -> dict[str, Any]:
        return {"label": self.label}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        return cls(declared.text("label"))


@dataclass(frozen=True)
class Subset(Factor):
    """Several values together."""

    labels: tuple[str, ...]
    kind: ClassVar[str] = "subset"
    is_condition: ClassVar[bool] = True

    def bind(self, attribute: Attribute) -> LinearMap:
        if not self.labels:
            raise DeclarationError(f"a subset of {attribute.name!r} names no values; it needs at least one")
        codes = [code for label in self.labels for code in attribute.codes(label)]
        return indicators(attribute, [tuple(dict.fromkeys(codes))])

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return ("|".join(self.labels),)

    def describe(self, name: str) -> str:
        labels = [spell(label) for label in self.labels]
        if len(labels) == 1:
            return f"{spell_attribute(name)} in ({labels[0]})"
        return f"{spell_attribute(name)}={'|'.join(labels)}"

    def to_json(self) -> dict[str, Any]:
        return {"labels": list(self.labels)}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        return cls(declared.texts("labels"))


@dataclass(frozen=True)
class Range(Factor):
    """All values from `low` to `high`, both included (real numbers: before `high`); None is the open end."""

    low: str | None
    high: str | None
    kind: ClassVar[str] = "range"
    is_condition: ClassVar[bool] = True

    def bind(self, attribute: Attribute) -> LinearMap:
        return indicators(attribute, [attribute.codes_between(self.low, self.high)])

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return (f"{self.low or ''}..{self.high or ''}",)

    def describe(self, name: str) -> str:
        return f"{spell_attribute(name)}={spell_end(self.low)}..{spell_end(self.high)}"

    def to_json(self) -> dict[str, Any]:
        ends = {"low": self.low, "high": self.high}
        return {key: end for key, end in ends.items() if end is not None}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        return cls(declared.optional_text("low"), declared.optional_text("high"))


@dataclass(frozen=True)
class Buckets(Factor):
    """Named groups of values, each value in at most one group."""

    groups: tuple[tuple[str, tuple[str, ...]], ...]
    kind: ClassVar[str] = "buckets"

    @staticmethod
    def of(groups: Mapping[str, Sequence[str]]) -> "Buckets":
        """Groups from a mapping of names to labels."""
        return Buckets(tuple((str(name), tuple(str(label) for label in labels)) for name, labels in groups.items()))

    @staticmethod
    def at_depth(attribute: Hierarchy, depth: int) -> "Buckets":
        """The nodes of a hierarchy at one depth (1 is the roots); values above that depth stand for themselves."""
        if depth < 1:
            raise DeclarationError(f"depth {depth} of {attribute.name!r} was asked for; the roots are at depth 1")
        groups: dict[str, list[str]] = {}
        for label in attribute.labels:
            path = attribute.path(label)[::-1]
            groups.setdefault(path[min(depth, len(path)) - 1], []).append(label)
        return Buckets.of(groups)

    def bind(self, attribute: Attribute) -> LinearMap:
        names = [name for name, _ in self.groups]
        if not names or len(set(names)) < len(names):
            raise DeclarationError(
                f"the buckets of {attribute.name!r} are named {names}; at least one is needed, each under its own name"
            )
        codes = [tuple(code for label in labels for code in attribute.codes(label)) for _, labels in self.groups]
        seen: set[int] = set()
        for (name, _), group in zip(self.groups, codes, strict=True):
            if seen & set(group) or len(set(group)) < len(group):
                raise DeclarationError(
                    f"bucket {name!r} of {attribute.name!r} holds a value that is already in a bucket"
                )
            seen |= set(group)
        return indicators(attribute, codes)

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return tuple(name for name, _ in self.groups)

    def to_json(self) -> dict[str, Any]:
        return {"groups": [{"name": name, "labels": list(labels)} for name, labels in self.groups]}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        groups = []
        for group in declared.tables("groups"):
            groups.append((group.text("name"), group.texts("labels")))
            group.close()
        return cls(tuple(groups))
