"""What measured marginals share: coarse corrections for Newton's equations, and balanced potentials.

Two marginals that share the attributes S both have a margin on S. This shows in two ways.

*Newton's equations.* Between rows that are cells of marginals, (diag(h) + ρ·WCW)d = t is to be solved, where C is the
covariance of the cells under the model, W holds the weights and h the rows' own stiffness. Raising a margin on S in all
marginals at once meets much more resistance than the diagonal of C says, raising it in one and lowering it in another
meets none from C at all. So the space of functions of x_S alone, one for each marginal, gets a correction of its own,
added to that of the diagonal (two-level additive Schwarz; Dryja & Widlund 1987). A function y of x_S moves row i of a
marginal by y·f/w, where f = ρμ/(h/w² + ρμ) is how freely the row moves at all: that costs least. For each value v of S,
and given S as if marginals were independent of each other, the equations in that space are

    diag(ρ·m_k(1 − m_k/M)) + (ρ/M)(1 − M/N)·m mᵀ    with one unknown for each marginal k,

where m_k = Σ fμ over the rows of marginal k with x_S = v, and M is the margin at v.

*Potentials.* A function of x_S may be added to one table and subtracted from another: the model is the same. Optimisers
let such parts grow until exponentials overflow; `balance` makes the largest values over all else equal, S by S.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.kernel_cache import njit
from consilience.models.tables import cells_of

# ----------------------------------------------------------------------------------------------------------------------
# Loops over the cells of tables by the value of what the tables share; see `shared_margins` for the layout.


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def sum_cells(cells, scale, index, ends, runs, begins, places, sums):  # pragma: no cover - compiled
    for e in range(begins.size):
        value, run = index[ends[e] : ends[e + 1]], runs[e]
        cell = cells[begins[e] : begins[e] + value.size * run]
        times = scale[begins[e] : begins[e] + value.size * run]
        into = sums[places[e] : places[e + 1]]
        if run == 1:
            for i in range(value.size):
                into[value[i]] += cell[i] * times[i]
        else:
            for i in range(value.size):
                some, part = cell[i * run : (i + 1) * run], times[i * run : (i + 1) * run]
                total = 0.0
                for j in range(run):
                    total += some[j] * part[j]
                into[value[i]] += total


@njit(nogil=True, cache=True)
def spread_margins(sums, index, ends, runs, begins, places, cells):  # pragma: no cover - compiled
    for e in range(begins.size):
        value, run = index[ends[e] : ends[e + 1]], runs[e]
        cell = cells[begins[e] : begins[e] + value.size * run]
        source = sums[places[e] : places[e + 1]]
        if run == 1:
            for i in range(value.size):
                cell[i] += source[value[i]]
        else:
            for i in range(value.size):
                some, amount = cell[i * run : (i + 1) * run], source[value[i]]
                for j in range(run):
                    some[j] += amount


@njit(nogil=True, cache=True)
def solve_margins(sums, resistance, masses, strength, groups, values, places):  # pragma: no cover - compiled
    # (diag(r) + s·m mᵀ)⁻¹ t = t/r − (m/r)·s·(m·t/r)/(1 + s·m·m/r), value by value; members without resistance stay out.
    for g in range(values.size):
        first, last = groups[g], groups[g + 1]
        for v in range(values[g]):
            along, length = 0.0, 0.0
            for e in range(first, last):
                at = places[e] + v
                if resistance[at] > 0.0:
                    along += masses[at] * sums[at] / resistance[at]
                    length += masses[at] * masses[at] / resistance[at]
            s = strength[places[first] + v]
            back = s * along / (1.0 + s * length)
            for e in range(first, last):
                at = places[e] + v
                if resistance[at] > 0.0:
                    sums[at] = (sums[at] - masses[at] * back) / resistance[at]
                else:
                    sums[at] = 0.0


@njit(nogil=True, cache=True)
def balance(potentials, index, ends, runs, begins, groups, values):  # pragma: no cover - compiled
    for g in range(values.size):
        first, last = groups[g], groups[g + 1]
        peaks = np.full((last - first, values[g]), -np.inf)
        middle = np.zeros(values[g])
        for e in range(first, last):
            value, run = index[ends[e] : ends[e + 1]], runs[e]
            cell = potentials[begins[e] : begins[e] + value.size * run]
            peak = peaks[e - first]
            for i in range(value.size):
                highest = peak[value[i]]
                for j in range(i * run, (i + 1) * run):
                    highest = max(highest, cell[j])
                peak[value[i]] = highest
            for v in range(values[g]):
                middle[v] += peak[v] / (last - first)
        for e in range(first, last):
            value, run = index[ends[e] : ends[e + 1]], runs[e]
            cell = potentials[begins[e] : begins[e] + value.size * run]
            peak = peaks[e - first]
            for v in range(values[g]):
                peak[v] = middle[v] - peak[v]
            for i in range(value.size):
                change = peak[value[i]]
                for j in range(i * run, (i + 1) * run):
                    cell[j] += change


# ----------------------------------------------------------------------------------------------------------------------
# The vector work of conjugate gradients in as few passes as possible; see `newton_equations`.


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def add_stiffness(product, rho, stiffness, direction):  # pragma: no cover - compiled
    """product ← ρ·product + stiffness·direction; its inner product with the direction."""
    curvature = 0.0
    for i in range(product.size):
        value = rho * product[i] + stiffness[i] * direction[i]
        product[i] = value
        curvature += value * direction[i]
    return curvature


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def settle(lifted, lift, residual, inverse):  # pragma: no cover - compiled
    """lifted ← lift·lifted + inverse·residual; its inner product with the residual."""
    slope = 0.0
    for i in range(lifted.size):
        value = lift[i] * lifted[i] + inverse[i] * residual[i]
        lifted[i] = value
        slope += value * residual[i]
    return slope


# h is the stiffness of a row, w its weight, μ its cell, v its variance under the model. With own = h/w² and models = ρμ
# the row moves as freely as f = models/(own + models) says; stuck is 1 − f.
@njit(nogil=True, cache=True)
def prepare(
    stiffness, weights, cells, variances, rho, ridge, lift, inverse, freedom, stuck
):  # pragma: no cover - compiled
    """Fill in f/w, 1/(h + ρv), f and 1 − f for every row."""
    for i in range(stiffness.size):
        firm = rho * variances[i]
        diagonal = stiffness[i] + firm
        inverse[i] = 1.0 / diagonal if diagonal > 0.0 else 0.0
        own = max(stiffness[i], ridge * firm) / (weights[i] * weights[i])
        models = rho * cells[i]
        if models > 0.0:
            freedom[i] = models / (own + models)
            stuck[i] = own / (own + models)
        else:
            freedom[i] = 0.0
            stuck[i] = 1.0
        lift[i] = freedom[i] / weights[i]


# ----------------------------------------------------------------------------------------------------------------------
# What measured marginals share: coarse corrections for Newton's equations, and balanced potentials.


Array = NDArray[np.float64]
Attributes = tuple[int, ...]

NOTHING = 1e-200
"""The share of the total below which a margin counts as 0."""


@dataclass(frozen=True, eq=False)
class SharedMargins:
    """Which cells of which tables belong to which value of what they share.

    Group g is about one set S with `values[g]` values; its members are the entries `groups[g]` to `groups[g + 1]`.
    Entry e is a table whose cells begin at `begins[e]`; `index[ends[e]:ends[e + 1]]` has the value of S for each of
    them, or for each run of `runs[e]` cells along the last axes, where S does not tell them apart.
    """

    index: NDArray[np.int32]
    ends: NDArray[np.int64]
    runs: NDArray[np.int64]
    begins: NDArray[np.int64]
    groups: NDArray[np.int64]
    values: NDArray[np.int64]
    places: NDArray[np.int64]
    """Where the margins of each entry begin in a vector of all margins; after the last, its length."""

    @staticmethod
    def of(sizes: Sequence[int], tables: Sequence[Attributes], begins: Sequence[int]) -> "SharedMargins":
        """For tables over these attributes, axes in this order, that begin at these places of a vector."""
        containing = _Containing(tables)
        found = [(shared, containing(shared)) for shared in _shared_sets(tables, containing)]
        entries = [(shared, member) for shared, members in found for member in members]
        found_values = [_values_of(sizes, tables[member], shared) for shared, member in entries]
        index = [value for value, _ in found_values]
        values = [cells_of(sizes, shared) for shared, _ in found]
        lengths = [cells_of(sizes, shared) for shared, _ in entries]
        return SharedMargins(
            np.concatenate([np.empty(0, dtype=np.int32), *index]),
            np.cumsum([0, *(each.size for each in index)]).astype(np.int64),
            np.array([run for _, run in found_values], dtype=np.int64),
            np.array([begins[member] for _, member in entries], dtype=np.int64),
            np.cumsum([0, *(len(members) for _, members in found)]).astype(np.int64),
            np.array(values, dtype=np.int64),
            np.cumsum([0, *lengths]).astype(np.int64),
        )

    def balance(self, potentials: Array) -> None:
        """Make the tables' largest values over all but S equal, S by S: the same model, with smaller potentials."""
        balance(potentials, self.index, self.ends, self.runs, self.begins, self.groups, self.values)

    def margins(self, cells: Array, scale: Array, out: Array) -> None:
        """Write the sums of cells times scale of each entry, value by value."""
        out.fill(0.0)
        sum_cells(cells, scale, self.index, self.ends, self.runs, self.begins, self.places, out)


class CoarseCorrection:
    """An approximate inverse of diag(h) + ρ·WCW: its diagonal's, and one for each set of shared attributes.

    Rows that are not cells of marginals have the diagonal's alone. It keeps its memory between models.
    """

    def __init__(self, shared: SharedMargins, weights: Array) -> None:
        self.shared, self.weights = shared, weights
        self._lift, self._inverse, self._freedom, self._stuck = (np.empty(weights.size) for _ in range(4))
        self._ones = np.ones(weights.size)
        # For each margin: M, m_k, the equations' diagonal ρ·m_k(1 − m_k/M), and (ρ/M)(1 − M/N).
        length = int(shared.places[-1])
        self._margins, self._masses, self._resistance, self._strength, self._sums = (np.empty(length) for _ in range(5))

    def move_to(
        self, stiffness: Array, cells: Array, variances: Array, *, rho: float, total: float, ridge: float
    ) -> None:
        """From now on the equations have these stiffnesses h; μ are the rows over their weights, v their variances."""
        prepare(
            stiffness, self.weights, cells, variances, rho, ridge, self._lift, self._inverse, self._freedom, self._stuck
        )
        shared, margins, masses = self.shared, self._margins, self._masses
        shared.margins(cells, self._ones, margins)
        shared.margins(cells, self._freedom, masses)
        shared.margins(cells, self._stuck, self._resistance)
        present = margins > NOTHING * total
        share = np.divide(masses, margins, out=np.zeros(margins.shape), where=present)
        self._resistance *= rho * share
        room = rho * np.maximum(1.0 - margins / total, 0.0)
        self._strength.fill(0.0)
        np.divide(room, margins, out=self._strength, where=present)

    def __call__(self, target: Array, out: Array) -> float:
        """Write the approximate inverse times the target; its inner product with the target."""
        s, sums = self.shared, self._sums
        s.margins(target, self._lift, sums)
        solve_margins(sums, self._resistance, self._masses, self._strength, s.groups, s.values, s.places)
        out.fill(0.0)
        spread_margins(sums, s.index, s.ends, s.runs, s.begins, s.places, out)
        return settle(out, self._lift, target, self._inverse)


class _Containing:
    """Finds which of some sets contain a given one."""

    def __init__(self, sets: Sequence[Attributes]) -> None:
        self._all = frozenset(range(len(sets)))
        self._places: dict[int, set[int]] = {}
        for place, each in enumerate(sets):
            for attribute in each:
                self._places.setdefault(attribute, set()).add(place)

    def __call__(self, subset: Attributes) -> list[int]:
        return sorted(self._all.intersection(*(self._places[attribute] for attribute in subset)))

    def pairs(self) -> set[tuple[int, int]]:
        """All pairs that have an attribute in common."""
        return {pair for places in self._places.values() for pair in combinations(sorted(places), 2)}


# A function of T ⊂ S is one of S. So T is left out where every table that contains it contains a larger shared set too.
def _shared_sets(tables: Sequence[Attributes], containing: _Containing) -> list[Attributes]:
    """What two tables have in common, without what larger sets make superfluous, and the empty set first."""
    sets = [frozenset(each) for each in tables]
    shared = sorted({tuple(sorted(sets[a] & sets[b])) for a, b in containing.pairs()}, key=lambda s: (len(s), s))
    larger = _Containing(shared)
    kept: list[Attributes] = [()]
    for each in shared:
        others = [set(shared[place]) for place in larger(each) if len(shared[place]) > len(each)]
        if not all(any(other <= sets[k] for other in others) for k in containing(each)):
            kept.append(each)
    return kept


def _values_of(sizes: Sequence[int], table: Attributes, shared: Attributes) -> tuple[NDArray[np.int32], int]:
    """For each run of cells of a table that the shared attributes do not tell apart, their value; the run's length."""
    kept = len(table)
    while kept and table[kept - 1] not in shared:
        kept -= 1
    axes = table[:kept]
    values = np.arange(cells_of(sizes, shared), dtype=np.int32).reshape([sizes[attribute] for attribute in shared])
    values = values.transpose([shared.index(attribute) for attribute in axes if attribute in shared])
    values = values.reshape([sizes[attribute] if attribute in shared else 1 for attribute in axes])
    return np.broadcast_to(values, [sizes[attribute] for attribute in axes]).ravel(), cells_of(sizes, table[kept:])
