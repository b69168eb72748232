"""Synthetic rows whose marginals follow the model's as closely as whole rows can.

Plain draws from the model would add noise of about √count to every count, for nothing. Here the junction tree is walked
from its roots, and each clique gives its new attributes, one after another, to rows that have the attributes it shares
with its parent: rows that agree on everything known in the clique get the next attribute's values in counts that are
their shares rounded down or up, with what rounding gained or lost carried over to later groups. Which row of a group
gets which value is random: it is independent of all attributes that the model makes independent.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.rng import Generator
from consilience.models.elimination import CalibratedModel
from consilience.models.elimination_plans import carry_out, plan_elimination
from consilience.models.model import Array
from consilience.models.sampling_kernels import Groups, group_rows, place_rows, sum_in_views
from consilience.models.scaled_tables import Axes
from consilience.solvers.fit import shares_of_rows

CELLS_AT_ONCE = 1 << 26
"""Larger tables are built in parts, one for each value of some known attributes: half a gigabyte at a time."""

WORKING_COLUMNS = 5
"""Numbers for each row beside its codes: its cell, its place among the rows sorted by cell, and chance."""


def sample(
    model: CalibratedModel, rows: int, rng: Generator, *, cells_at_once: int = CELLS_AT_ONCE
) -> NDArray[np.int64]:
    """Codes of synthetic records, one row each and one column for each attribute, in random order.

    In the root clique of each tree every cell has its exact share of rows rounded down or up.
    """
    sizes = model.model.sizes
    _check_memory(rows, len(sizes), model.memory_limit)
    codes = np.zeros((rows, len(sizes)), dtype=np.int64, order="F")
    if rows == 0:
        return codes
    for clique in range(len(model.forest.cliques)):
        known = tuple(sorted(model.forest.separators[clique]))
        fresh = model.forest.cliques[clique] - model.forest.separators[clique]
        for attribute in sorted(fresh, key=lambda axis: (sizes[axis], axis)):
            _Step(model, clique, known, attribute, cells_at_once).place(codes, rng)
            known = (*known, attribute)
    for attribute, size in enumerate(sizes):
        if size > 1 and not model.modelled(attribute):
            even = np.repeat(np.arange(size), shares_of_rows(np.ones(size), rows, rng))
            codes[:, attribute] = rng.permutation(even)
    return codes


def _check_memory(rows: int, attributes: int, memory_limit: int) -> None:
    """Refuse what cannot be: a negative number of rows, or more than fit into memory."""
    if rows < 0:
        raise DeclarationError(f"{rows} synthetic rows were asked for; ask for a whole number from 0 up")
    need = 8 * rows * (attributes + WORKING_COLUMNS)
    if need > memory_limit:
        raise TooLarge(
            f"{rows:,} rows of {attributes} attributes need {need / 1e9:,.1f} GB; the limit is "
            f"{memory_limit / 1e9:,.1f} GB. Ask for fewer rows at once, or raise memory_limit"
        )


class _Step:
    """One attribute of one clique, given the attributes of the clique that rows have already."""

    def __init__(self, model: CalibratedModel, clique: int, known: Axes, attribute: int, cells_at_once: int) -> None:
        self.model, self.clique, self.attribute = model, clique, attribute
        self.known = known
        self.in_root = not model.forest.separators[clique]
        self.values = model.sizes[attribute]
        self.cells = model.cells(known)
        self.views = _views(model.model.all_scopes, known, attribute)
        self.parts = self._leading(cells_at_once)
        self._kept: list[tuple[int, Array]] | None = None
        need = self.cells * 8 * (2 + len(self.views))
        if need > model.memory_limit:
            raise TooLarge(
                f"placing rows in a clique of {self.cells * self.values:,} cells needs {need / 1e9:,.1f} GB; the limit "
                f"is {model.memory_limit / 1e9:,.1f} GB. Fit a model of smaller cliques, or raise memory_limit"
            )

    def place(self, codes: NDArray[np.int64], rng: Generator) -> None:
        """Fill in the attribute's code for each row."""
        rows = len(codes)
        keys = np.zeros(rows, dtype=np.int64)
        for axis in self.known:
            keys *= self.model.sizes[axis]
            keys += codes[:, axis]
        groups = group_rows(keys, self.cells)
        places = self._places()
        missing = self._missing(groups, places)
        uniforms = rng.random((2, rows))
        for first, table in self._tables():
            end = first + len(table)
            place_rows(
                table, groups.of(first, end), places[:, first:end], missing, uniforms, codes[:, self.attribute],
                in_root=self.in_root,
            )  # fmt: skip

    def _missing(self, groups: Groups, places: NDArray[np.int64]) -> Array:
        """By how much the rows' expected counts fall short in each marginal in view, given what is known there.

        For cell c of a view's known part the model wants n_c p(v | c) rows of value v, and Σ_k n_k p(v | k) are to be
        expected, over the known cells k within c. Both sum to n_c.
        """
        model, expected = np.zeros((2, sum(self.model.cells(view) for view in self.views)))
        for first, table in self._tables():
            end = first + len(table)
            sum_in_views(table, groups.of(first, end), places[:, first:end], model, expected)
        model, expected = model.reshape(-1, self.values), expected.reshape(-1, self.values)
        mass = model.sum(axis=1, keepdims=True)
        wanted = np.divide(model, mass, out=np.zeros_like(model), where=mass > 0) * expected.sum(axis=1, keepdims=True)
        return (wanted - expected).ravel()

    def _leading(self, cells_at_once: int) -> int:
        """How many of the known attributes are fixed for each part, so that a part has no more than these cells."""
        parts, cells = 0, self.cells * self.values
        while cells > cells_at_once and parts < len(self.known):
            cells //= self.model.sizes[self.known[parts]]
            parts += 1
        return parts

    def _tables(self) -> Iterator[tuple[int, Array]]:
        """p over the known cells (rows) and the values (columns), in parts; with each its first known cell."""
        if self._kept is not None:
            yield from self._kept
            return
        leading = self.known[: self.parts]
        inner = self.cells // self.model.cells(leading)
        if not leading:
            self._kept = [(0, self._table({}, inner))]
            yield from self._kept
            return
        for part, places in enumerate(itertools.product(*(range(self.model.sizes[axis]) for axis in leading))):
            chosen = {axis: slice(at, at + 1) for axis, at in zip(leading, places, strict=True)}
            yield part * inner, self._table(chosen, inner)

    def _table(self, chosen: dict[int, slice], inner: int) -> Array:
        """The marginal on known attributes and this one, where some are fixed."""
        tables = [table.at(chosen) for table in self.model.clique_tables(self.clique)]
        sizes = {**self.model.sizes, **dict.fromkeys(chosen, 1)}
        axes = (*self.known, self.attribute)
        plan = plan_elimination([table.axes for table in tables], sizes, axes, {})
        plan.check(self.model.memory_limit, f"placing rows in a clique of {len(axes)} attributes")
        found = carry_out(plan, tables, axes, {})
        scale = self.model.log_partition_of(self.clique)
        return np.ascontiguousarray(found.linear(scale)).reshape(inner, self.values)

    def _places(self) -> NDArray[np.int64]:
        """For each marginal in view and each known cell, where the marginal's cells for the values begin."""
        shape = [self.model.sizes[axis] for axis in self.known]
        found = np.zeros((len(self.views), *shape), dtype=np.int64)
        first = 0
        for row, view in zip(found, self.views, strict=True):
            row += first
            stride = self.values
            for axis in reversed(view[:-1]):
                at = self.known.index(axis)
                steps = np.arange(self.model.sizes[axis], dtype=np.int64) * stride
                row += steps.reshape([-1 if place == at else 1 for place in range(len(shape))])
                stride *= self.model.sizes[axis]
            first += stride
        return found.reshape(len(self.views), -1)


def _views(scopes: Sequence[Axes], known: Axes, attribute: int) -> list[Axes]:
    """The marginals in which rounding errors are to cancel, each naming the attribute last.

    Of each scope that has the attribute, what is known by now; and the attribute alone.

    >>> _views([(0, 1, 2), (0, 2), (2, 3)], (0, 1), 2)
    [(0, 1, 2), (2,)]
    """
    sets = {frozenset(scope) & frozenset(known) for scope in scopes if attribute in scope}
    widest = [each for each in sets if each and not any(each < other for other in sets)]
    ordered = sorted(tuple(axis for axis in known if axis in each) for each in widest)
    return [*((*each, attribute) for each in ordered), (attribute,)]
