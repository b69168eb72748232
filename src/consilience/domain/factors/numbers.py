"""Factors whose entries are numbers: means, moments and explicit matrices."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute
from consilience.domain.declarations import Declaration, is_number
from consilience.domain.factors.base import Factor
from consilience.errors import DeclarationError
from consilience.kernels.linear_maps import LinearMap, SparseMap


@dataclass(frozen=True)
class Mean(Factor):
    """Σ value × count, with each bin's midpoint for value: the mean times the total, `sum(age)` to people."""

    kind: ClassVar[str] = "mean"
    word: ClassVar[str] = "sum"

    def bind(self, attribute: Attribute) -> LinearMap:
        return SparseMap(sp.csr_array(attribute.midpoints()[None, :]))

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return (f"sum of {attribute.name}",)


@dataclass(frozen=True)
class Moments(Factor):
    """Row b sums value^b × count for b = 1 … order."""

    order: int
    kind: ClassVar[str] = "moments"
    largest_order: ClassVar[int] = 32

    def bind(self, attribute: Attribute) -> LinearMap:
        if not 1 <= self.order <= self.largest_order:
            raise DeclarationError(
                f"moments of order {self.order}: the order is a whole number from 1 to {self.largest_order}"
            )
        with np.errstate(over="ignore"):
            powers = attribute.midpoints()[None, :] ** np.arange(1, self.order + 1)[:, None]
        if not np.all(np.isfinite(powers)):
            raise DeclarationError(
                f"moments of {attribute.name!r} up to order {self.order} exceed the range of numbers; lower the order"
            )
        return SparseMap(sp.csr_array(powers))

    def _arguments(self) -> tuple[str, ...]:
        return (str(self.order),)

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return tuple(f"sum of {attribute.name}^{b}" for b in range(1, self.order + 1))

    def to_json(self) -> dict[str, Any]:
        return {"order": self.order}

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        return cls(declared.integer("order"))


@dataclass(frozen=True)
class Matrix(Factor):
    """An explicit sparse matrix: entries (row, code, value)."""

    rows: int
    entries: tuple[tuple[int, int, float], ...]
    names: tuple[str, ...] = ()
    kind: ClassVar[str] = "matrix"
    most_rows: ClassVar[int] = 10**8

    @staticmethod
    def of(matrix: Any, *, names: Sequence[str] = ()) -> "Matrix":
        """The factor of a NumPy or SciPy matrix with a column for each code; a vector is a matrix with one row."""
        found: Any = sp.coo_array(matrix if sp.issparse(matrix) else np.atleast_2d(matrix))
        entries = sorted(zip(found.row.tolist(), found.col.tolist(), found.data.tolist(), strict=True))
        return Matrix(int(found.shape[0]), tuple((r, c, float(v)) for r, c, v in entries if v != 0), tuple(names))

    def bind(self, attribute: Attribute) -> LinearMap:
        if not 1 <= self.rows <= self.most_rows:
            raise DeclarationError(
                f"a matrix over {attribute.name!r} has {self.rows} rows; it needs 1 to {self.most_rows}"
            )
        if self.names and len(self.names) != self.rows:
            raise DeclarationError(
                f"a matrix factor with {self.rows} rows has {len(self.names)} row names; give all or none"
            )
        rows, codes, values = self._columns
        wrong = (rows < 0) | (rows >= self.rows) | (codes < 0) | (codes >= attribute.size) | ~np.isfinite(values)
        if wrong.any():
            row, code, value = self.entries[int(np.argmax(wrong))]
            raise DeclarationError(
                f"matrix entry ({row}, {code}) = {value} does not fit {self.rows} rows "
                f"and the {attribute.size} values of {attribute.name!r}"
            )
        whole: Any = (rows.astype(np.intp), codes.astype(np.intp))
        return SparseMap(sp.csr_array((values, whole), (self.rows, attribute.size)))

    @cached_property
    def _columns(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Rows, codes and values of the entries; what is no number there becomes NaN."""
        try:
            table = np.array(self.entries, dtype=np.float64).reshape(-1, 3)
        except (TypeError, ValueError, OverflowError):
            table = np.array([[part if is_number(part) else np.nan for part in each] for each in self.entries])
        return table[:, 0], table[:, 1], table[:, 2]

    def row_labels(self, attribute: Attribute) -> tuple[str, ...]:
        return self.names or tuple(f"row {i}" for i in range(self.rows))

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"rows": self.rows, "entries": [list(entry) for entry in self.entries]}
        return fields | ({"names": list(self.names)} if self.names else {})

    @classmethod
    def from_json(cls, declared: Declaration) -> "Factor":
        found = declared.raw("entries")
        if not isinstance(found, list):
            declared.refuse("'entries' must be a list of [row, code, value]")
        entries = []
        for entry in found:
            if not (isinstance(entry, list) and len(entry) == 3 and all(is_number(part) for part in entry)):
                declared.refuse(f"'entries' must be a list of [row, code, value], found {entry!r:.60} in it")
            if any(part != int(part) for part in entry[:2]):
                declared.refuse(f"the matrix entry {entry} must have whole numbers for row and code")
            entries.append((int(entry[0]), int(entry[1]), float(entry[2])))
        names = declared.texts("names") if "names" in declared else ()
        return cls(declared.integer("rows"), tuple(entries), names)
