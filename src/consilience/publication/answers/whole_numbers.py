"""Whole numbers in place of fractional counts: tables and margins add up, and every number is next to its estimate.

The tables of one call are sums of one joint table c over all attributes that they name. Controlled rounding (Cox 1987)
looks for whole cells x of the joint table with

    ⌊c⌋ ≤ x ≤ ⌈c⌉  and  ⌊A c⌋ ≤ A x ≤ ⌈A c⌉

for the rows A of every table, its row, column and grand totals among them, and of these the x with least Σ |x − c|.
One cross-table is two nested families of sums, of rows and of columns; their matrix is totally unimodular, so that a
rounding always exists. Of several tables it need not: then each is rounded by itself, to one common total.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from consilience.domain.queries import BoundQuery, Query
from consilience.errors import DeclarationError, TooLarge, readable_count
from consilience.estimators import Estimate
from consilience.kernels.linear_maps import IdentityMap, LinearMap, SparseMap, SumMap
from consilience.publication.answers.cross_tables import across_axes, listing_axes
from consilience.publication.answers.tables import adds_up
from consilience.publication.questions import as_query

Array = NDArray[np.float64]

LARGEST_JOINT = 2**20
"""The most cells of a joint table that is looked at."""
LARGEST_PROGRAMME = 20_000
"""The most fractional cells that are rounded under all conditions at once."""
SECONDS = 20.0
"""How long the integer programme of several tables may take."""

TOGETHER = "all tables are sums of one table of whole numbers, and agree with each other"


@dataclass(frozen=True, eq=False)
class WholeAnswers:
    """Whole answers to several queries."""

    answers: tuple[NDArray[np.int64], ...]
    """For each query, flat, in the order of its labels."""
    together: bool
    """All answers are sums of one whole table, and so agree with each other."""
    note: str
    """How they were rounded, in words."""


def whole_answers(
    estimate: Estimate, queries: Sequence[Query | str], *, columns: Sequence[str] | None = None
) -> WholeAnswers:
    """Whole numbers for the answers to counting queries, each the estimate rounded down or up.

    Where the joint table of all attributes named is small and has a whole neighbour, all answers are sums of that, and
    so are the totals of their cross-tables with the attributes `columns` across (the last one of each, by default).
    Otherwise each table is rounded by itself, and `note` says so. Negative counts round like others.
    """
    bound = [as_query(query).bind(estimate.domain) for query in queries]
    for each in bound:
        _check_counts(each)
    if not bound:
        return WholeAnswers((), True, TOGETHER)
    try:
        found = _round_together(estimate, bound, columns)
    except TooLarge as error:
        found = str(error)
    if not isinstance(found, str):
        return WholeAnswers(tuple(found), True, TOGETHER)
    apart = tuple(_round_apart(estimate, each, columns) for each in bound)
    note = f"each table was rounded by itself, and margins that they share may differ by one: {found}"
    return WholeAnswers(apart, False, note)


def _check_counts(bound: BoundQuery) -> None:
    for (name, factor), each in zip(bound.query.factors, bound.maps, strict=True):
        if each.lattice_bits or not each.nonnegative or each.largest_entry > 1:
            raise DeclarationError(
                f"{bound.query.describe()!r} is no count: {factor.describe(name)} adds up numbers; ask for it without "
                "whole numbers"
            )


def _round_together(
    estimate: Estimate, bound: Sequence[BoundQuery], columns: Sequence[str] | None
) -> list[NDArray[np.int64]] | str:
    """Answers that are sums of one whole table, or why there are none."""
    names = estimate.domain.ordered({name for each in bound for name in each.attributes})
    cells = math.prod(estimate.domain.sizes(names))
    if cells > LARGEST_JOINT:
        return f"their joint table has {readable_count(cells)} cells, the limit is {LARGEST_JOINT:,}"
    joint = estimate.marginal(*names)
    tables = [_rows_of(each, names, joint.shape) for each in bound]
    near = 1e-6 * (1.0 + float(np.abs(joint).sum()))
    for each, rows in zip(bound, tables, strict=True):
        if np.abs(rows @ joint.ravel() - estimate.answer(each.query).ravel()).max(initial=0.0) > near:
            return "the estimate has no joint table of which they are sums"
    margins = [part for each, rows in zip(bound, tables, strict=True) for part in _margin_rows(each, rows, columns)]
    conditions = sp.csr_array(sp.vstack([*tables, *margins]))
    found = _controlled(joint.ravel(), conditions, float(np.rint(joint.sum())))
    if found is None:
        return "no table of whole numbers is next to all of them at once"
    return [np.rint(rows @ found).astype(np.int64) for rows in tables]


def _round_apart(estimate: Estimate, bound: BoundQuery, columns: Sequence[str] | None) -> NDArray[np.int64]:
    """The answers to one query by itself, under the conditions of its own cross-table where it has totals."""
    answers = estimate.answer(bound.query).ravel()
    if not adds_up(bound):
        return np.rint(answers).astype(np.int64)
    about_all = not any(factor.is_condition for _, factor in bound.query.factors)
    own = sp.csr_array(sp.eye_array(answers.size))
    conditions = sp.csr_array(sp.vstack([own, *_margin_rows(bound, own, columns)]))
    try:
        found = _controlled(answers, conditions, np.rint(answers.sum()) if about_all else None)
    except TooLarge:
        found = None
    return np.rint(_largest_remainders(answers) if found is None else found).astype(np.int64)


def _rows_of(bound: BoundQuery, names: Sequence[str], shape: Sequence[int]) -> sp.csr_array:
    """The query as a sparse matrix over the cells of the joint table; its rows in the query's order."""
    summed = [name for name in names if name not in bound.attributes]
    order = [*bound.attributes, *summed]
    product: Any = sp.csr_array(np.ones((1, 1)))
    for factor in map(_sparse, (*bound.maps, *map(SumMap, bound.domain.sizes(summed)))):
        product = sp.csr_array(sp.kron(product, factor, format="csr"))
    places = np.arange(math.prod(shape)).reshape(bound.domain.sizes(order))
    return sp.csr_array(product[:, places.transpose([order.index(name) for name in names]).ravel()])


def _sparse(factor: LinearMap) -> sp.csr_array:
    if isinstance(factor, IdentityMap):
        return sp.csr_array(sp.eye_array(factor.columns))
    if isinstance(factor, SparseMap):
        return sp.csr_array(factor.matrix)
    if factor.rows * factor.columns > 2**24:
        raise TooLarge(f"a query of {factor.rows:,} answers about {factor.columns:,} values is too large to round")
    return sp.csr_array(factor.dense())


def _margin_rows(bound: BoundQuery, rows: sp.csr_array, columns: Sequence[str] | None) -> list[sp.csr_array]:
    """The sums that the cross-table of a query shows: of its rows, of its columns, and of all."""
    if not adds_up(bound):
        return []
    free = listing_axes(bound.query, bound.shape)
    across = across_axes(bound.axis_names, free, columns)
    margins = []
    for summed in (set(across), set(free) - set(across), set(free)):
        kept = [axis for axis in range(len(bound.maps)) if axis not in summed]
        if not summed:
            continue
        codes = np.indices(bound.shape).reshape(len(bound.shape), -1)
        group = np.zeros(bound.size, dtype=np.int64)
        for axis in kept:
            group = group * bound.shape[axis] + codes[axis]
        shape = (int(group.max(initial=0)) + 1, bound.size)
        sums = sp.csr_array((np.ones(bound.size), (group, np.arange(bound.size))), shape)
        margins.append(sp.csr_array(sums @ rows))
    return margins


def _controlled(cells: Array, conditions: sp.csr_array, total: float | None) -> Array | None:
    """Whole cells, each next to its value, whose sums by `conditions` are next to theirs; None if there are none.

    `total` is what all of them are to sum to.
    """
    from consilience.solvers.marginal_tables.controlled_rounding import SETTINGS, cheapest_whole, whole_below

    below = whole_below(cells)
    fraction = cells - below
    chosen = np.flatnonzero(fraction > SETTINGS.whole)
    if chosen.size > LARGEST_PROGRAMME:
        raise TooLarge(f"{chosen.size:,} cells are fractional; the limit is {LARGEST_PROGRAMME:,}")
    if not chosen.size:
        return below
    sums = conditions @ cells
    floors = whole_below(sums)
    ceilings = np.where(sums - floors > SETTINGS.whole, floors + 1.0, floors)
    if total is not None:
        conditions = sp.csr_array(sp.vstack([conditions, np.ones((1, cells.size))]))
        floors, ceilings = np.append(floors, total), np.append(ceilings, total)
    base = conditions @ below
    free = sp.csc_array(conditions[:, chosen])
    cost = 1.0 - 2.0 * fraction[chosen]  # |⌈c⌉ − c| − |⌊c⌋ − c|
    rises = cheapest_whole(cost, free, floors - base, ceilings - base, seconds=SECONDS, relative_gap=1e-3)
    if rises is None:
        return None
    below[chosen] += rises
    return below


def _largest_remainders(values: Array) -> Array:
    """Each value rounded down or up, so that they sum to their rounded total: the largest fractions go up."""
    from consilience.solvers.marginal_tables.controlled_rounding import whole_below

    below = whole_below(values)
    missing = int(np.clip(round(float(values.sum())) - below.sum(), 0, np.count_nonzero(values > below)))
    below[np.argsort(below - values, kind="stable")[:missing]] += 1.0
    return below
