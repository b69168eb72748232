"""Linear maps along one axis of a table, and their Kronecker products, never built as one big matrix.

A map F with `rows` × `columns` acts on axis a of an array X as Y[…, i, …] = Σ_j F[i, j] X[…, j, …]. A Kronecker
product F₁ ⊗ F₂ ⊗ … acts on each axis in turn, so its cost is a sum over axes instead of a product of sizes. Integer
arrays stay integer under integral maps, which is what makes exact answers possible. A `JointMap` is a factor that acts
on several axes next to each other as if they were one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.errors import DeclarationError

Array = NDArray[Any]


class LinearMap(ABC):
    """A matrix known by what it does."""

    rows: int
    columns: int

    @abstractmethod
    def apply(self, array: Array, axis: int) -> Array:
        """F along one axis."""

    @abstractmethod
    def adjoint(self, array: Array, axis: int) -> Array:
        """Fᵀ along one axis."""

    @abstractmethod
    def column_norms(self, power: int) -> NDArray[np.float64]:
        """Σ_i |F[i, j]|^power for each column j (power 1 or 2; no root is taken)."""

    @property
    def lattice_bits(self) -> int:
        """The least b such that every entry is a multiple of 2^−b; 0 for integer matrices."""
        return 0

    @property
    def largest_entry(self) -> float:
        return 1.0

    @property
    def nonnegative(self) -> bool:
        """True when no entry is below 0."""
        return True

    def squared(self) -> "LinearMap":
        """The map with every entry squared; matrices of zeros and ones are their own."""
        return self

    def in_lattice_units(self) -> "LinearMap":
        """The map times 2^b, with b its `lattice_bits`: integer entries, under which integers stay exact."""
        return self

    def dense(self) -> NDArray[np.float64]:
        """The matrix itself, for small ones."""
        if self.rows < self.columns:
            return np.ascontiguousarray(self.adjoint(np.eye(self.rows), 0).T, dtype=np.float64)
        return np.asarray(self.apply(np.eye(self.columns), 0), dtype=np.float64)


@dataclass(frozen=True)
class IdentityMap(LinearMap):
    """Keeps every cell."""

    columns: int

    @property
    def rows(self) -> int:  # type: ignore[override]
        return self.columns

    def apply(self, array: Array, axis: int) -> Array:
        return array

    def adjoint(self, array: Array, axis: int) -> Array:
        return array

    def column_norms(self, power: int) -> NDArray[np.float64]:
        return np.ones(self.columns)


@dataclass(frozen=True)
class SumMap(LinearMap):
    """Sums all cells into one."""

    columns: int
    rows: int = 1

    def apply(self, array: Array, axis: int) -> Array:
        return array.sum(axis=axis, keepdims=True)

    def adjoint(self, array: Array, axis: int) -> Array:
        return np.repeat(array, self.columns, axis=axis)

    def column_norms(self, power: int) -> NDArray[np.float64]:
        return np.ones(self.columns)


@dataclass(frozen=True)
class PrefixMap(LinearMap):
    """Row i sums cells 0 … i."""

    columns: int

    @property
    def rows(self) -> int:  # type: ignore[override]
        return self.columns

    def apply(self, array: Array, axis: int) -> Array:
        return np.cumsum(array, axis=axis)

    def adjoint(self, array: Array, axis: int) -> Array:
        return np.flip(np.cumsum(np.flip(array, axis), axis=axis), axis)

    def column_norms(self, power: int) -> NDArray[np.float64]:
        return np.arange(self.columns, 0, -1, dtype=np.float64)


@dataclass(frozen=True)
class AllRangesMap(LinearMap):
    """One row for each range i … j with i ≤ j, ordered by i and then j, through differences of prefix sums."""

    columns: int

    @property
    def rows(self) -> int:  # type: ignore[override]
        return self.columns * (self.columns + 1) // 2

    @cached_property
    def ends(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The first and last cell of each range."""
        return np.triu_indices(self.columns)

    def apply(self, array: Array, axis: int) -> Array:
        sums = np.cumsum(array, axis=axis)
        padded = np.concatenate([np.zeros_like(np.take(sums, [0], axis)), sums], axis=axis)
        first, last = self.ends
        return np.take(padded, last + 1, axis) - np.take(padded, first, axis)

    def adjoint(self, array: Array, axis: int) -> Array:
        moved = np.moveaxis(array, axis, 0)
        steps = np.zeros((self.columns + 1, *moved.shape[1:]), dtype=array.dtype)
        first, last = self.ends
        np.add.at(steps, first, moved)
        np.subtract.at(steps, last + 1, moved)
        return np.moveaxis(np.cumsum(steps, axis=0)[:-1], 0, axis)

    def column_norms(self, power: int) -> NDArray[np.float64]:
        cell = np.arange(self.columns, dtype=np.float64)
        return (cell + 1) * (self.columns - cell)


@dataclass(frozen=True, eq=False)
class SparseMap(LinearMap):
    """An explicit sparse matrix."""

    matrix: Any
    """A SciPy CSR array (SciPy's own types are too loose to name)."""

    @property
    def rows(self) -> int:  # type: ignore[override]
        return int(self.matrix.shape[0])

    @property
    def columns(self) -> int:  # type: ignore[override]
        return int(self.matrix.shape[1])

    @cached_property
    def _transposed(self) -> Any:
        return sp.csr_array(self.matrix.T)

    def apply(self, array: Array, axis: int) -> Array:
        return self._multiply(self.matrix, array, axis)

    def adjoint(self, array: Array, axis: int) -> Array:
        return self._multiply(self._transposed, array, axis)

    def _multiply(self, matrix: Any, array: Array, axis: int) -> Array:
        if np.issubdtype(array.dtype, np.integer) and matrix.dtype.kind == "f" and self.lattice_bits == 0:
            matrix = matrix.astype(np.int64)
        moved = np.moveaxis(array, axis, 0)
        product = matrix @ moved.reshape(moved.shape[0], -1)
        return np.moveaxis(np.asarray(product).reshape(matrix.shape[0], *moved.shape[1:]), 0, axis)

    def squared(self) -> LinearMap:
        return self._with(self.matrix.multiply(self.matrix).tocsr())

    def _with(self, matrix: Any) -> "SparseMap":
        """A map of the same kind with another matrix of the same shape."""
        return replace(self, matrix=matrix)

    def column_norms(self, power: int) -> NDArray[np.float64]:
        entries = sp.csr_array(
            (np.abs(self.matrix.data) ** power, self.matrix.indices, self.matrix.indptr), self.matrix.shape
        )
        return np.asarray(entries.sum(axis=0), dtype=np.float64).ravel()

    @cached_property
    def lattice_bits(self) -> int:  # type: ignore[override]
        return fractional_bits(self.matrix.data)

    def in_lattice_units(self) -> LinearMap:
        return self._with(self.matrix * 2.0**self.lattice_bits) if self.lattice_bits else self

    @property
    def largest_entry(self) -> float:
        return float(np.abs(self.matrix.data).max(initial=0.0))

    @cached_property
    def nonnegative(self) -> bool:  # type: ignore[override]
        return bool(self.matrix.data.min(initial=0.0) >= 0)

    def rounded(self, bits: int) -> "SparseMap":
        """The map with every entry rounded to the nearest multiple of 2^−bits."""
        entries = np.ldexp(np.round(np.ldexp(self.matrix.data, bits)), -bits)
        return self._with(sp.csr_array((entries, self.matrix.indices, self.matrix.indptr), self.matrix.shape))


@dataclass(frozen=True, eq=False)
class JointMap(SparseMap):
    """An explicit sparse matrix over the combinations of values of several attributes, the last varying fastest."""

    sizes: tuple[int, ...]
    """How many values each of the attributes has; the matrix has a column for each combination."""


def fractional_bits(values: NDArray[np.generic]) -> int:
    """The least b ≥ 0 such that every value is a multiple of 2^−b.

    >>> fractional_bits(np.array([1.0, 0.75]))
    2
    """
    remaining = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(remaining)):
        raise DeclarationError("a matrix entry that is not a finite number lies on no lattice; correct the entry")
    bits = 0
    while True:
        remaining = remaining[remaining != np.floor(remaining)]
        if not remaining.size:
            return bits
        remaining = remaining * 2.0
        bits += 1


@dataclass(frozen=True)
class Kronecker:
    """F₁ ⊗ F₂ ⊗ … acting on arrays with one axis for each attribute: one for each factor, or several for a joint one.

    Answers have one axis for each factor.
    """

    maps: tuple[LinearMap, ...]

    @property
    def shape_in(self) -> tuple[int, ...]:
        return tuple(size for each in self.maps for size in _sizes(each))

    @property
    def shape_out(self) -> tuple[int, ...]:
        return tuple(each.rows for each in self.maps)

    def apply(self, array: Array) -> Array:
        """The product on a table; axes that shrink go first, so that later ones have less to do."""
        if self.is_joint:
            array = array.reshape([each.columns for each in self.maps])
        for axis in self._order(lambda each: each.rows / each.columns):
            array = self.maps[axis].apply(array, axis)
        return array

    def adjoint(self, array: Array) -> Array:
        """The transposed product; axes that grow go last."""
        for axis in self._order(lambda each: each.columns / max(each.rows, 1)):
            array = self.maps[axis].adjoint(array, axis)
        return array.reshape(self.shape_in) if self.is_joint else array

    @property
    def is_joint(self) -> bool:
        """Whether some factor is about several attributes together."""
        return any(isinstance(each, JointMap) for each in self.maps)

    def _order(self, growth: Callable[[LinearMap], float]) -> Sequence[int]:
        return sorted(range(len(self.maps)), key=lambda axis: growth(self.maps[axis]))

    def column_norms(self, power: int) -> tuple[NDArray[np.float64], ...]:
        """One vector for each factor; the norm of a column is the product of its entries."""
        return tuple(each.column_norms(power) for each in self.maps)


def _sizes(each: LinearMap) -> tuple[int, ...]:
    """The lengths of the axes that a map acts on."""
    return each.sizes if isinstance(each, JointMap) else (each.columns,)
