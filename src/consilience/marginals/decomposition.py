"""The residual (ANOVA) decomposition of marginals.

The *residual* of a scope τ is the part of its marginal that no smaller marginal determines: with m_τ the marginal and
n_i the sizes of the attributes,

    z_τ = (⊗_{i∈τ} (I − J/n_i)) m_τ,        the table whose sums along every axis are 0;  z_∅ is the total.

Residuals are orthogonal to each other, and every marginal is made of those of its parts:

    m_C = M_C z = Σ_{τ⊆C} z_τ ⊗ (1/n_i for i ∈ C∖τ).

So marginals that are made of one set of residuals are consistent, and any consistent set of marginals is made so
(Darroch and Speed 1983, Ann. Statist. 11; Xiao et al. 2023, arXiv:2305.08175). The adjoint of M, on residuals, sums a
table down to τ, divides by the sizes summed over, and takes the mean away along every axis that is left. Because
‖M_C z‖² = Σ_τ ‖z_τ‖² / Π_{i∈C∖τ} n_i, weighted squares of marginals are weighted squares of residuals: with r_C ≥ 0,

    Σ_C r_C ‖M_C z‖² = Σ_τ q_τ ‖z_τ‖²,      q_τ = Σ_{C⊇τ} r_C / Π_{i∈C∖τ} n_i,

and the nearest consistent marginals to given tables v_C are (Mᵀ r v)_τ / q_τ, without any equation to solve.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.marginals.scopes import Scope, stored_order
from consilience.marginals.table_stacks import ShapeGroup, TableStack, subsets

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Link:
    """Where the residuals over some axes of a group of tables lie among all residuals."""

    axes: tuple[int, ...]
    group: ShapeGroup
    rows: NDArray[np.intp]
    incidence: Any
    """The sparse 0/1 matrix from tables to residuals; None where they correspond one to one, in order."""

    def gather(self, residuals: Array) -> Array:
        found = self.group.tables(residuals)
        return found if self.incidence is None else found[self.rows]

    def add(self, residuals: Array, tables: Array) -> None:
        into = self.group.tables(residuals)
        if self.incidence is None:
            into += tables
        else:
            into += (self.incidence @ tables.reshape(len(tables), -1)).reshape(into.shape)


class Decomposition:
    """The marginals of some scopes as functions of the residuals of all their parts.

    `tables` are the marginals, `residuals` the residuals, of these scopes and of those in `also`.
    """

    def __init__(self, sizes: Sequence[int], scopes: Iterable[Scope], *, also: Iterable[Scope] = ()) -> None:
        kept = list(dict.fromkeys(stored_order(sizes, scope) for scope in scopes))
        more = [stored_order(sizes, scope) for scope in also]
        parts = {()} | {part for scope in (*kept, *more) for part in subsets(scope)}
        self.tables = TableStack(sizes, kept)
        self.residuals = TableStack(sizes, sorted(parts, key=lambda part: (len(part), part)))
        self._links = [self._linked(group) for group in self.tables.groups]

    def _linked(self, group: ShapeGroup) -> dict[tuple[int, ...], _Link]:
        links: dict[tuple[int, ...], _Link] = {}
        for axes in subsets(tuple(range(len(group.shape)))):
            places = [self.residuals.places[tuple(scope[axis] for axis in axes)] for scope in group.scopes]
            into = self.residuals.groups[places[0][0]]
            rows = np.array([row for _, row in places], dtype=np.intp)
            count = len(rows)
            same = count == len(into.scopes) and np.array_equal(rows, np.arange(count))
            shape = (len(into.scopes), count)
            incidence = None if same else sp.csr_array((np.ones(count), (rows, np.arange(count))), shape=shape)
            links[axes] = _Link(axes, into, rows, incidence)
        return links

    def marginals(self, residuals: Array, *, out: Array | None = None) -> Array:
        """M z: the tables that these residuals make. Parts join one axis at a time, the small ones first."""
        found: Array = np.empty(self.tables.size) if out is None else out
        for group, links in zip(self.tables.groups, self._links, strict=True):
            joined: dict[tuple[int, ...], list[Array]] = {axes: [] for axes in links}
            every = tuple(range(len(group.shape)))
            for axes, link in links.items():
                if axes == every:
                    table = group.tables(found)
                    table[...] = link.gather(residuals)
                else:
                    table = np.array(link.gather(residuals))
                for part in joined.pop(axes):
                    table += part
                if axes != every:
                    axis, larger = _next_larger(axes)
                    table /= group.shape[axis]
                    joined[larger].append(np.expand_dims(table, 1 + larger.index(axis)))
        return found

    def adjoint(self, tables: Array, *, out: Array | None = None) -> Array:
        """Mᵀ v: what each residual has to do with the tables; sums along its axes are 0."""
        found: Array = np.empty(self.residuals.size) if out is None else out
        found.fill(0.0)
        for group, links in zip(self.tables.groups, self._links, strict=True):
            every = tuple(range(len(group.shape)))
            summed = {every: group.tables(tables)}
            for axes in reversed(list(links)):
                if axes != every:
                    axis, larger = _next_larger(axes)
                    summed[axes] = summed[larger].sum(axis=1 + larger.index(axis)) / group.shape[axis]
                links[axes].add(found, summed[axes])
        return self.centred(found)

    def centred(self, residuals: Array) -> Array:
        """The given tables without their means along every axis, in place."""
        for group in self.residuals.groups:
            tables = group.tables(residuals)
            for axis in range(1, tables.ndim):
                tables -= tables.mean(axis=axis, keepdims=True)
        return residuals

    def precisions(self, weights: dict[Scope, float]) -> dict[Scope, float]:
        """q_τ for all residuals, from a weight r_C for each table."""
        found = dict.fromkeys(self.residuals.scopes, 0.0)
        for group, links in zip(self.tables.groups, self._links, strict=True):
            for axes in links:
                away = group.cells / math.prod(group.shape[axis] for axis in axes)
                for scope in group.scopes:
                    found[tuple(scope[axis] for axis in axes)] += weights[scope] / away
        return found


def _next_larger(axes: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """The first axis that is not among these, and the axes with it."""
    axis = next(each for each in itertools.count() if each not in axes)
    return axis, tuple(sorted((*axes, axis)))


def residual_of(table: Array) -> Array:
    """The part of a table that its sums do not determine."""
    found = np.array(table, dtype=np.float64)
    for axis in range(found.ndim):
        found -= found.mean(axis=axis, keepdims=True)
    return found
