"""The residual basis of the cells of a table in which marginals, over groups of values too, tell apart what they tell.

*Values.* For an attribute of n values let Q be orthogonal with a constant first row. Its total is about the first
coefficient of Q x alone, and its values are about all. Groups of values (voting age) lie in between: the k largest sets
of values that no measured group tells apart span k coefficients, the first of them the constant. All groups are about
these, and the other n − k, which compare values within such a set, are told by the values alone. Without groups k = 1.

*Cells.* Over a table, Q = ⊗ Q_i. A residual τ says for which attributes a coefficient is one of the last n_i − k_i. Its
m_τ × b_τ coefficients, b_τ = Π_{i∉τ} k_i, are m_τ vectors of the length b_τ. A marginal ⊗ F_i with noise of variance σ²
in each cell tells, of the vectors of every τ within its attributes that have all values told apart,

    D z + noise,    D = ⊗_{i∉τ} F_i Q_iᵀ (its first k_i columns),    with the precision DᵀD / σ²:

one small matrix for all m_τ vectors. Where no attribute has groups all b_τ are 1, and so are the matrices numbers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.errors import DeclarationError
from consilience.solvers.fit import Array

NUMBERS_AT_ONCE = 1 << 20
"""Numbers that are transformed at a time."""
SMALL = 1e-12
"""Singular values below this share of the largest are 0."""

Scope = Sequence[int] | Mapping[int, Array | None]
"""Attributes that are told apart, by their place: with all values, or with the groups that a matrix has in its rows."""


def helmert(size: int) -> Array:
    """The orthogonal matrix whose first row is constant, and whose row i tells value i from those before it.

    >>> bool(np.allclose(helmert(3) @ helmert(3).T, np.eye(3)))
    True
    """
    found = np.zeros((size, size))
    found[0] = 1.0 / math.sqrt(size)
    for row in range(1, size):
        found[row, :row] = 1.0
        found[row, row] = -row
        found[row] /= math.sqrt(row * (row + 1.0))
    return found


def told_apart(maps: Sequence[ArrayLike]) -> NDArray[np.int64]:
    """The set of each value: values of one set are counted alike by every row of these matrices.

    >>> told_apart([[[1, 1, 1, 0]], [[0, 0, 1, 1]]])
    array([0, 0, 1, 2])
    """
    columns = np.concatenate([np.atleast_2d(np.asarray(each, dtype=np.float64)) for each in maps]).T
    _, first, label = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[np.ravel(label)]


def _rotation(size: int, sets: NDArray[np.int64] | None) -> Array:
    """Q of one attribute: a row for each set of values, the first of them constant, then those within the sets."""
    if sets is None:
        return helmert(size)
    counts = np.bincount(sets)
    shares = np.sqrt(counts / size)
    mirror = shares - np.eye(len(counts))[0]
    turned = np.eye(len(counts))
    if mirror @ mirror > 0.0:
        turned -= 2.0 * np.outer(mirror, mirror) / (mirror @ mirror)
    rows = [turned @ ((sets == np.arange(len(counts))[:, None]) / np.sqrt(counts)[:, None])]
    for each, count in enumerate(counts):
        inside = np.zeros((count - 1, size))
        inside[:, sets == each] = helmert(int(count))[1:]
        rows.append(inside)
    return np.concatenate(rows)


@dataclass(frozen=True, eq=False)
class CellBasis:
    """The residual basis of the cells of a table with these sizes.

    `sets` says of some attributes, by their place, which set each value is in; groups are made of whole sets.

    >>> CellBasis((4,), {0: np.array([0, 0, 1, 1])}).block_sizes
    (2, 1)
    """

    sizes: tuple[int, ...]
    sets: Mapping[int, NDArray[np.int64]] | None = None

    @property
    def cells(self) -> int:
        return math.prod(self.sizes)

    @cached_property
    def shared(self) -> tuple[int, ...]:
        """k: how many coefficients of each attribute its groups are about."""
        return tuple(
            1 if (sets := (self.sets or {}).get(axis)) is None else int(sets.max()) + 1
            for axis in range(len(self.sizes))
        )

    @cached_property
    def rotations(self) -> tuple[Array, ...]:
        return tuple(_rotation(size, (self.sets or {}).get(axis)) for axis, size in enumerate(self.sizes))

    @cached_property
    def residuals(self) -> tuple[int, ...]:
        """The residuals that have coefficients, by their attributes as bits: 5 is that of attributes 0 and 2."""
        axes = range(len(self.sizes))
        return tuple(
            bits
            for bits in range(1 << len(self.sizes))
            if all(self.shared[axis] < self.sizes[axis] for axis in axes if bits >> axis & 1)
        )

    @cached_property
    def columns(self) -> tuple[NDArray[np.int64], ...]:
        """For each residual its coefficients: m rows of b."""
        numbered, found = np.arange(self.cells).reshape(self.sizes), []
        for bits in self.residuals:
            inside = [axis for axis in range(len(self.sizes)) if bits >> axis & 1]
            outside = [axis for axis in range(len(self.sizes)) if not bits >> axis & 1]
            chosen = [
                np.arange(self.shared[axis], size) if bits >> axis & 1 else np.arange(self.shared[axis])
                for axis, size in enumerate(self.sizes)
            ]
            part = numbered[np.ix_(*chosen)] if chosen else numbered
            rows = math.prod(self.sizes[axis] - self.shared[axis] for axis in inside)
            found.append(np.ascontiguousarray(part.transpose([*inside, *outside]).reshape(rows, -1)))
        return tuple(found)

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """b of each residual."""
        return tuple(each.shape[1] for each in self.columns)

    def coefficients(self, tables: Array) -> Array:
        """Q of whole tables, a row each."""
        return turned(tables, self.rotations)

    def tables(self, coefficients: Array) -> Array:
        """The tables with these coefficients."""
        return turned(coefficients, [each.T for each in self.rotations])

    def marginal(self, scope: Scope) -> "MarginalInBasis":
        """The marginal over these attributes, with all of their values or the groups of a matrix."""
        maps = scope if isinstance(scope, Mapping) else dict.fromkeys(scope)
        told = {axis: None if each is None else np.atleast_2d(each) for axis, each in sorted(maps.items())}
        return MarginalInBasis(self, told)

    def spread(self, rows: Array) -> tuple[Array, ...]:
        """Σ a aᵀ of each residual, a the vectors of these rows over all cells, on average over the rows."""
        found = self.coefficients(np.asarray(rows, dtype=np.float64))
        return tuple(np.einsum("rmb,rmc->bc", part, part) / len(rows) for part in (found[:, c] for c in self.columns))


def turned(rows: Array, matrices: Sequence[Array]) -> Array:
    """⊗ of matrices times each row."""
    sizes = [each.shape[1] for each in matrices]
    found = np.empty((len(rows), math.prod(len(each) for each in matrices)))
    step = max(1, NUMBERS_AT_ONCE // max(1, rows.shape[1]))
    for first in range(0, len(rows), step):
        part = np.asarray(rows[first : first + step], dtype=np.float64).reshape(-1, *sizes)
        for axis, matrix in enumerate(matrices, 1):
            part = np.moveaxis(np.tensordot(part, matrix, axes=([axis], [1])), -1, axis)
        found[first : first + step] = part.reshape(len(part), -1)
    return found


@dataclass(frozen=True, eq=False)
class MarginalInBasis:
    """A marginal as what it tells of the coefficients of each residual."""

    basis: CellBasis
    told: Mapping[int, Array | None]

    @property
    def cells(self) -> int:
        """How many answers it has."""
        return math.prod(self.basis.sizes[axis] if each is None else len(each) for axis, each in self.told.items())

    @cached_property
    def _factors(self) -> list[tuple[Array, Array]]:
        """For each attribute U and R with orthonormal rows of U and F Qᵀ = Uᵀ R in the coefficients that F is about."""
        found = []
        for axis, size in enumerate(self.basis.sizes):
            rotation, shared = self.basis.rotations[axis], self.basis.shared[axis]
            if axis in self.told and self.told[axis] is None:
                found.append((rotation, np.eye(shared)))
                continue
            rows = self._rows(axis)
            every = np.eye(size) if rows is None else rows
            left, singular, right = np.linalg.svd(every @ rotation[:shared].T, full_matrices=False)
            kept = singular > SMALL * singular.max(initial=0.0)
            found.append((left[:, kept].T, singular[kept, None] * right[kept]))
        return found

    def _rows(self, axis: int) -> Array | None:
        return self.told[axis] if axis in self.told else np.ones((1, self.basis.sizes[axis]))

    def refuse_cuts(self) -> None:
        """Refuse groups that are not made of whole sets: what they tell is not of one residual alone."""
        for axis, each in self.told.items():
            if each is None:
                continue
            within = self.basis.rotations[axis][self.basis.shared[axis] :]
            if np.abs(within @ each.T).max(initial=0.0) > 1e-9 * np.abs(each).max(initial=1.0):
                raise DeclarationError(f"groups of attribute {axis} cut through the sets of values of this basis")

    def tells(self, bits: int) -> bool:
        """Whether it tells coefficients of a residual."""
        every = sum(1 << axis for axis, each in self.told.items() if each is None)
        return bits & ~every == 0

    def design(self, bits: int) -> Array:
        """D: what it says of the vectors of a residual, after orthonormal combinations of its answers."""
        found = np.ones((1, 1))
        for axis, (_, rows) in enumerate(self._factors):
            if not bits >> axis & 1:
                found = np.asarray(np.kron(found, rows), dtype=np.float64)
        return found

    def seen(self, values: Array) -> dict[int, Array]:
        """For each residual that it tells, by its place, the combinations of answers: rows × m × those of `design`."""
        axes = range(len(self.basis.sizes))
        found = turned(values, [each for each, _ in self._factors]).reshape(
            -1, *(len(each) for each, _ in self._factors)
        )
        parts = {}
        for place, bits in enumerate(self.basis.residuals):
            if not self.tells(bits):
                continue
            chosen = [np.arange(len(values))]
            for axis in axes:
                shared, size = self.basis.shared[axis], self.basis.sizes[axis]
                every = axis in self.told and self.told[axis] is None
                end = shared if every else len(self._factors[axis][0])
                chosen.append(np.arange(shared, size) if bits >> axis & 1 else np.arange(end))
            inside = [1 + axis for axis in axes if bits >> axis & 1]
            outside = [1 + axis for axis in axes if not bits >> axis & 1]
            part = found[np.ix_(*chosen)].transpose([0, *inside, *outside])
            parts[place] = part.reshape(len(values), len(self.basis.columns[place]), -1)
        return parts

    def variances(self, blocks: Sequence[Array]) -> Array:
        """The variance of each answer, from matrices of the residuals' vectors: a row for each of these.

        The rows may weigh values in any way.
        """
        shape = [self.basis.sizes[axis] if each is None else len(each) for axis, each in self.told.items()]
        found = np.zeros((len(blocks[0]), *shape))
        for bits, matrices in zip(self.basis.residuals, blocks, strict=True):
            if bits & ~sum(1 << axis for axis in self.told):
                continue
            groups, spread = np.ones((1, 1)), np.ones(1)
            order: list[int] = []
            for axis, (rotation, shared) in enumerate(zip(self.basis.rotations, self.basis.shared, strict=True)):
                rows = self._rows(axis)
                turned_rows = rotation.T if rows is None else rows @ rotation.T
                if bits >> axis & 1:
                    spread = np.multiply.outer(spread, (turned_rows[:, shared:] ** 2).sum(axis=1))
                else:
                    groups = np.kron(groups, turned_rows[:, :shared])
                    order += [axis] if axis in self.told else []
            quadratic = np.einsum("rb,ubc,rc->ur", groups, matrices, groups)
            inside = [axis for axis in self.told if bits >> axis & 1]
            sizes = dict(zip(self.told, shape, strict=True))
            part = quadratic.reshape(-1, *(sizes[axis] for axis in order), *[1] * len(inside))
            part = part * spread.reshape([1] * (1 + len(order)) + [sizes[axis] for axis in inside])
            placed = [*order, *inside]
            found += part.transpose([0, *(1 + placed.index(axis) for axis in self.told)])
        return found.reshape(len(blocks[0]), -1)

    @cached_property
    def mean_weights(self) -> tuple[Array, ...]:
        """For each residual the matrix W with ⟨W, V⟩ summed over residuals the mean variance of an answer."""
        found = []
        for bits in self.basis.residuals:
            spread, groups = 1.0, np.ones((1, 1))
            for axis, (rotation, shared) in enumerate(zip(self.basis.rotations, self.basis.shared, strict=True)):
                rows = self._rows(axis)
                turned_rows = rotation.T if rows is None else rows @ rotation.T
                if bits >> axis & 1:
                    spread *= float((turned_rows[:, shared:] ** 2).sum() / len(turned_rows))
                else:
                    part = turned_rows[:, :shared]
                    groups = np.kron(groups, part.T @ part / len(part))
            found.append(groups * spread)
        return tuple(found)
