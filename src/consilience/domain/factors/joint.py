"""Factors over several attributes together, which are no product of one factor for each: `a==b`, and any matrix.

A query files such a factor under the name `joint_name(attributes)`; its matrix has a column for each combination of
their values, the last attribute varying fastest.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, ClassVar, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute
from consilience.domain.declarations import Declaration, is_number, spell_attribute
from consilience.domain.factors.selections import Factor
from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import JointMap, LinearMap

MOST_CELLS = 2**26
"""A joint factor is bound over up to so many combinations of values."""


def joint_name(attributes: Sequence[str]) -> str:
    """What a factor over these attributes together is called.

    >>> joint_name(["home", "work"])
    'home × work'
    """
    return " × ".join(attributes)


class JointFactor(Factor):
    """The part of a query that several attributes have together."""

    attributes: tuple[str, ...]

    def attributes_of(self, name: str) -> tuple[str, ...]:
        return self.attributes

    @abstractmethod
    def joint_map(self, attributes: Sequence[Attribute]) -> JointMap:
        """The factor as a matrix over the combinations of the attributes' codes."""

    @abstractmethod
    def in_order(self) -> "JointFactor":
        """The same rows, with the attributes in alphabetical order."""

    @abstractmethod
    def joint_labels(self) -> tuple[str, ...]:
        """What each row answers."""

    def bind_over(self, attributes: Sequence[Attribute]) -> LinearMap:
        cells = math.prod(each.size for each in attributes)
        if cells > MOST_CELLS:
            raise DeclarationError(
                f"{joint_name(self.attributes)} has {cells:,} combinations of values, and a joint factor is taken over "
                f"up to {MOST_CELLS:,}; use coarser attributes"
            )
        return self.joint_map(attributes)

    def labels_over(self, attributes: Sequence[Attribute]) -> tuple[str, ...]:
        return self.joint_labels()

    def bind(self, attribute: Attribute) -> LinearMap:
        self._refuse_single(attribute)

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        self._refuse_single(attribute)

    def _refuse_single(self, attribute: Attribute) -> NoReturn:
        raise DeclarationError(
            f"{self.describe('')} is about {len(self.attributes)} attributes together and cannot be asked of "
            f"{attribute.name!r} alone; bind the query that it is part of"
        )

    def _check_names(self) -> None:
        if len(self.attributes) < 2 or len(set(self.attributes)) < len(self.attributes):
            raise DeclarationError(
                f"a joint factor names the attributes {list(self.attributes)}; it needs at least two, each once"
            )

    def to_json(self) -> dict[str, Any]:
        return {"attributes": list(self.attributes)}


@dataclass(frozen=True)
class Equal(JointFactor):
    """The records that have the same label in all of some attributes: `home==work`.

    Labels are compared as texts, also those that a rule of the domain added: two values that are both "Unknown" are
    the same label.
    """

    attributes: tuple[str, ...]
    kind: ClassVar[str] = "equal"
    is_condition: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._check_names()

    def joint_map(self, attributes: Sequence[Attribute]) -> JointMap:
        sizes = tuple(each.size for each in attributes)
        codes = [{label: code for code, label in enumerate(each.labels)} for each in attributes]
        shared = [label for label in codes[0] if all(label in each for each in codes)]
        if not shared:
            said = "; ".join(f"{each.name!r} has {', '.join(each.labels[:3])}, ..." for each in attributes)
            raise DeclarationError(
                f"{self.describe('')}: these attributes have no label in common ({said}), so no record can be counted; "
                "declare them with the same labels, or give the pairs that count as equal with Query.matrix"
            )
        cells = np.ravel_multi_index(tuple(np.array([each[label] for label in shared]) for each in codes), sizes)
        row: Any = (np.zeros(cells.size, dtype=np.intp), cells)
        return JointMap(sp.csr_array((np.ones(cells.size), row), (1, math.prod(sizes))), sizes)

    def in_order(self) -> "JointFactor":
        return Equal(tuple(sorted(self.attributes)))

    def joint_labels(self) -> tuple[str, ...]:
        return ("equal",)

    def describe(self, name: str) -> str:
        return "==".join(map(spell_attribute, self.attributes))

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        return cls(declared.texts("attributes"))


@dataclass(frozen=True)
class JointMatrix(JointFactor):
    """An explicit sparse matrix over several attributes: entries (row, code of each attribute, …, value)."""

    attributes: tuple[str, ...]
    rows: int
    entries: tuple[tuple[float, ...], ...]
    names: tuple[str, ...] = ()
    kind: ClassVar[str] = "joint-matrix"
    most_rows: ClassVar[int] = 10**8

    def __post_init__(self) -> None:
        self._check_names()
        if not 1 <= self.rows <= self.most_rows:
            self._refuse(f"has {self.rows} rows; it needs 1 to {self.most_rows}")
        if self.names and len(self.names) != self.rows:
            self._refuse(f"has {self.rows} rows and {len(self.names)} row names; give all or none")
        for entry in self.entries:
            if len(entry) != len(self.attributes) + 2:
                self._refuse(f"has the entry {list(entry)}; it needs a row, a code for each attribute, and a value")

    @staticmethod
    def of(attributes: Sequence[str], sizes: Sequence[int], matrix: Any, *, names: Sequence[str] = ()) -> "JointMatrix":
        """The factor of a matrix with a column for each combination of codes, the last attribute varying fastest."""
        found: Any = sp.coo_array(matrix if sp.issparse(matrix) else np.atleast_2d(matrix))
        cells = math.prod(sizes)
        if found.shape[1] != cells:
            raise DeclarationError(
                f"a matrix over {joint_name(attributes)} has {found.shape[1]:,} columns; these attributes have "
                f"{' × '.join(map(str, sizes))} = {cells:,} combinations of values, so give it {cells:,}"
            )
        found.sum_duplicates()
        codes = np.unravel_index(found.col, tuple(sizes))
        columns = [found.row.tolist(), *(each.tolist() for each in codes), found.data.astype(np.float64).tolist()]
        entries = sorted(entry for entry in zip(*columns, strict=True) if entry[-1] != 0)
        return JointMatrix(tuple(attributes), int(found.shape[0]), tuple(entries), tuple(names))

    def joint_map(self, attributes: Sequence[Attribute]) -> JointMap:
        sizes = tuple(each.size for each in attributes)
        table = self._table
        limits = np.array([self.rows, *sizes])
        places = table[:, :-1]
        wrong = (~((places >= 0) & (places < limits))).any(axis=1) | ~np.isfinite(table[:, -1])
        wrong |= (places != np.floor(places)).any(axis=1)
        if wrong.any():
            said = " × ".join(f"{each.size} values of {each.name!r}" for each in attributes)
            self._refuse(
                f"has the entry {list(self.entries[int(np.argmax(wrong))])}, outside {self.rows} rows × {said}"
            )
        rows, *codes = (column.astype(np.intp) for column in places.T)
        cells = reduce(lambda flat, one: flat * one[1] + one[0], zip(codes, sizes, strict=True), np.zeros_like(rows))
        where: Any = (rows, cells)
        return JointMap(sp.csr_array((table[:, -1], where), (self.rows, math.prod(sizes))), sizes)

    @cached_property
    def _table(self) -> NDArray[np.float64]:
        """The entries, one to a row; what is no number there becomes NaN."""
        entries = [[part if is_number(part) else np.nan for part in each] for each in self.entries]
        return np.array(entries, dtype=np.float64).reshape(-1, len(self.attributes) + 2)

    def in_order(self) -> "JointFactor":
        order = sorted(range(len(self.attributes)), key=lambda place: self.attributes[place])
        entries = sorted((row, *(codes[place] for place in order), codes[-1]) for row, *codes in self.entries)
        return JointMatrix(tuple(sorted(self.attributes)), self.rows, tuple(entries), self.names)

    def joint_labels(self) -> tuple[str, ...]:
        return self.names or tuple(f"row {i}" for i in range(self.rows))

    def describe(self, name: str) -> str:
        return f"matrix({', '.join(map(spell_attribute, self.attributes))})"

    def to_json(self) -> dict[str, Any]:
        fields = {**super().to_json(), "rows": self.rows, "entries": [list(entry) for entry in self.entries]}
        return fields | ({"names": list(self.names)} if self.names else {})

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        attributes, found = declared.texts("attributes"), declared.raw("entries")
        wanted = f"'entries' must be a list of [row, a code for each of {len(attributes)} attributes, value]"
        if not isinstance(found, list):
            declared.refuse(wanted)
        for entry in found:
            fits = isinstance(entry, list) and len(entry) == len(attributes) + 2 and all(map(is_number, entry))
            if not fits or any(part != int(part) for part in entry[:-1]):
                declared.refuse(f"{wanted}, found {entry!r:.60} in it")
        entries = tuple((*map(int, entry[:-1]), float(entry[-1])) for entry in found)
        names = declared.texts("names") if "names" in declared else ()
        return cls(attributes, declared.integer("rows"), entries, names)

    def _refuse(self, what: str) -> NoReturn:
        raise DeclarationError(f"a matrix over {joint_name(self.attributes)} {what}")
