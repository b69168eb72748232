"""Junction trees for given scopes: found by elimination, told apart by their cells, and blamed on scopes."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from consilience.errors import DeclarationError
from consilience.kernels.rng import generator
from consilience.marginals.table_stacks import Scope, stored_order
from consilience.models.elimination_orders import (
    Elimination,
    InteractionGraph,
    bit_set,
    maximal,
    members,
    smallest_elimination,
)
from consilience.models.tables import cells_of, checked_scopes, checked_sizes

# ----------------------------------------------------------------------------------------------------------------------
# Trees of cliques: attributes in groups, joined so that each attribute lives in one connected part.
#
# A tree over cliques is a junction tree when the cliques that hold an attribute are connected, for every attribute (the
# running intersection). Then two passes of messages between neighbours give the marginals of all cliques (Lauritzen and
# Spiegelhalter 1988), in time proportional to the cells of the cliques. Those numbers are known before anything is
# allocated: here they are exact integers, however large.


@dataclass(frozen=True)
class JunctionTree:
    """Cliques that cover the scopes it was made for, and for each the clique it hangs from."""

    sizes: tuple[int, ...]
    cliques: tuple[Scope, ...]
    """The attributes of each clique, ascending. No clique lies in another."""
    parents: tuple[int, ...]
    """The clique that each one hangs from, or −1; parents come before their children."""

    @cached_property
    def clique_cells(self) -> tuple[int, ...]:
        """How many cells each clique has."""
        return tuple(cells_of(self.sizes, clique) for clique in self.cliques)

    @property
    def cells(self) -> int:
        """The cells of all cliques together: the work of one pass."""
        return sum(self.clique_cells)

    @property
    def largest(self) -> int:
        """The cells of the largest clique."""
        return max(self.clique_cells)

    @cached_property
    def separators(self) -> tuple[Scope, ...]:
        """What each clique shares with the one it hangs from, ascending; nothing for a root."""
        return tuple(
            () if parent < 0 else tuple(sorted(set(clique) & set(self.cliques[parent])))
            for clique, parent in zip(self.cliques, self.parents, strict=True)
        )

    @cached_property
    def cliques_with(self) -> tuple[tuple[int, ...], ...]:
        """For each attribute, the cliques that hold it."""
        found: list[list[int]] = [[] for _ in self.sizes]
        for place, clique in enumerate(self.cliques):
            for attribute in clique:
                found[attribute].append(place)
        return tuple(map(tuple, found))

    def home(self, scope: Sequence[int]) -> int | None:
        """The smallest clique that holds all attributes of a scope, or None where no clique does."""
        if not scope:
            return 0
        rarest = min(scope, key=lambda attribute: len(self.cliques_with[attribute]))
        wanted = set(scope)
        holding = [place for place in self.cliques_with[rarest] if wanted.issubset(self.cliques[place])]
        return min(holding, key=lambda place: (self.clique_cells[place], place), default=None)


# ----------------------------------------------------------------------------------------------------------------------
# Cliques with helpers: tables that a clique holds are multiplied in smaller groups first, where that is less work.
#
# A clique visits each of its cells once for every table it holds. Tables that together have few attributes can be
# multiplied into one beforehand: a *node* over those attributes hangs from the clique, shares all its attributes with
# it, and sends up a product instead of a sum. For belief propagation this is a clique like any other, so the marginals
# of the tables in it come from its own marginal, a much smaller table than the clique. With many tables in a clique,
# such as all pairs of its attributes, this saves most of the work.


@dataclass(frozen=True)
class RefinementSettings:
    """When tables are multiplied beforehand; by trial, and no figures were kept."""

    smaller_by: int = 4
    """A node has at most this fraction of the cells of what it hangs from."""
    always_small: int = 1 << 16
    """A node with more cells has no more than the largest table in it: memory stays in proportion to the tables."""
    step_cost: int = 200
    """What one more node costs besides its cells, in visits of a cell."""
    most_groups: int = 256
    """Beyond so many different scopes in a clique, pairs of them are not compared."""


REFINEMENT = RefinementSettings()


@dataclass(frozen=True)
class Member:
    """What a node multiplies: a table of the layout, a constant, or the message of a clique that hangs from it."""

    kind: str
    place: int
    attributes: int
    """As a bit set."""


@dataclass(frozen=True)
class Node:
    """A clique, or a part of one: its attributes, where it hangs, and what it multiplies besides the nodes below it."""

    axes: Scope
    separator: Scope
    """What it shares with the node it hangs from, in stored order; nothing for a root."""
    parent: int
    tables: tuple[int, ...]
    constants: tuple[int, ...]


def refined(
    tree: JunctionTree, scopes: Sequence[Sequence[int]], constants: Sequence[Sequence[int]] = ()
) -> tuple[Node, ...]:
    """The cliques of a tree and the nodes that help them, parents before children; every table is in one of them.

    What was found is kept for a while: it is asked for when a fit is predicted, and again when it begins.
    """
    return _refined(tree, tuple(map(tuple, scopes)), tuple(map(tuple, constants)))


@lru_cache(maxsize=8)
def _refined(tree: JunctionTree, scopes: tuple[Scope, ...], constants: tuple[Scope, ...]) -> tuple[Node, ...]:
    held: list[list[Member]] = [[] for _ in tree.cliques]
    for kind, group in (("table", scopes), ("constant", constants)):
        for place, scope in enumerate(group):
            held[_home(tree, scope)].append(Member(kind, place, bit_set(scope)))
    for clique, parent in enumerate(tree.parents):
        if parent >= 0:
            held[parent].append(Member("clique", clique, bit_set(tree.separators[clique])))
    hangs_from = [-1] * len(tree.cliques)
    nodes: list[Node] = []
    for clique, attributes in enumerate(tree.cliques):
        waiting = [(bit_set(attributes), bit_set(tree.separators[clique]), hangs_from[clique], held[clique])]
        while waiting:
            own, separator, parent, all_members = waiting.pop()
            kept, groups = grouped(tree.sizes, own, all_members)
            for member in kept:
                if member.kind == "clique":
                    hangs_from[member.place] = len(nodes)
            waiting.extend((bits, bits, len(nodes), inner) for bits, inner in groups)
            nodes.append(
                Node(
                    stored_order(tree.sizes, tuple(members(own))),
                    stored_order(tree.sizes, tuple(members(separator))),
                    parent,
                    tuple(member.place for member in kept if member.kind == "table"),
                    tuple(member.place for member in kept if member.kind == "constant"),
                )
            )
    return tuple(nodes)


def _home(tree: JunctionTree, scope: Sequence[int]) -> int:
    place = tree.home(scope)
    if place is None:
        raise DeclarationError(
            f"no clique of the junction tree holds the scope {tuple(scope)}: "
            "make the tree with this scope among its scopes"
        )
    return place


@dataclass(frozen=True)
class _Group:
    bits: int
    members: tuple[Member, ...]


def grouped(
    sizes: Sequence[int], own: int, held: Sequence[Member]
) -> tuple[list[Member], list[tuple[int, list[Member]]]]:
    """The members that a node keeps for itself, and those that go to nodes below it, each with their attributes.

    Greedy: the two groups whose union saves most visits are joined, until no two save any.
    """
    work = _Work(sizes, own, held)
    groups = dict(enumerate(work.same_scopes(held)))
    heap: list[tuple[int, int, int]] = []
    # A union has no fewer cells than its parts: what is too large by itself need not be compared.
    small = [place for place, group in groups.items() if work.count(group.bits) <= work.most_cells]
    joinable: dict[int, _Group] = {}

    def compare(place: int) -> None:
        """Weigh a group against those that came before, of which it is one from now on."""
        for other, group in joinable.items():
            saved = work.saved(groups[place], group)
            if saved > 0:
                heapq.heappush(heap, (-saved, other, place))
        joinable[place] = groups[place]

    if len(groups) <= REFINEMENT.most_groups:
        for place in small:
            compare(place)
    following = len(groups)
    while heap:
        _, first, second = heapq.heappop(heap)
        if first not in groups or second not in groups:
            continue
        a, b = groups.pop(first), groups.pop(second)
        del joinable[first], joinable[second]
        groups[following] = _Group(a.bits | b.bits, a.members + b.members)
        compare(following)
        following += 1
    kept = [group.members[0] for group in groups.values() if len(group.members) == 1]
    return kept, [(group.bits, list(group.members)) for group in groups.values() if len(group.members) > 1]


class _Work:
    """How many visits of cells a node and the nodes below it take, for one pass."""

    def __init__(self, sizes: Sequence[int], own: int, held: Sequence[Member]) -> None:
        self.sizes = sizes
        self.cells: dict[int, int] = {}
        axes = stored_order(sizes, tuple(members(own)))
        self.last = 1 << axes[-1] if axes else 0
        self.own_cells = self.count(own)
        self.rows = self.own_cells // sizes[axes[-1]] if axes else 1
        largest = max((self.count(member.attributes) for member in held), default=1)
        self.most_cells = min(self.own_cells // REFINEMENT.smaller_by, max(REFINEMENT.always_small, largest))

    def count(self, bits: int) -> int:
        if bits not in self.cells:
            self.cells[bits] = cells_of(self.sizes, tuple(members(bits)))
        return self.cells[bits]

    def in_node(self, bits: int) -> int:
        """Visits for one table: each cell where it moves along the last axis, else each row."""
        return self.own_cells if bits & self.last else self.rows

    def below(self, group: _Group) -> int:
        """Visits in the node of a group, which no single member needs."""
        return (len(group.members) + 1) * self.count(group.bits) + REFINEMENT.step_cost if len(group.members) > 1 else 0

    def saved(self, a: _Group, b: _Group) -> int:
        union = _Group(a.bits | b.bits, a.members + b.members)
        if self.count(union.bits) > self.most_cells:
            return 0
        before = self.in_node(a.bits) + self.in_node(b.bits) + self.below(a) + self.below(b)
        return before - self.in_node(union.bits) - self.below(union)

    def same_scopes(self, held: Sequence[Member]) -> list[_Group]:
        """The members by their attributes; those with the same ones together where that saves visits."""
        by_scope: dict[int, list[Member]] = {}
        for member in held:
            by_scope.setdefault(member.attributes, []).append(member)
        groups = []
        for bits, same in by_scope.items():
            together = _Group(bits, tuple(same))
            alone = len(same) * self.in_node(bits)
            if self.count(bits) <= self.most_cells and alone > self.in_node(bits) + self.below(together):
                groups.append(together)
            else:
                groups.extend(_Group(bits, (member,)) for member in same)
        return groups


# ----------------------------------------------------------------------------------------------------------------------
# Junction trees for given scopes: found by elimination, told apart by their cells, and blamed on scopes.


EARLY_VECTORS, OPTIMAL_VECTORS, ROWS_OF_AXIS = (13, 14), (26, 32), 2
"""How many vectors as long as all tables, and as long as all rows, a fit holds at its peak that stops where its risk is
least, and one that goes to the optimum; and how many as long as the longest axis."""

ORDER_RESTARTS = 20
"""How often each rule is tried again with chance among ties."""


def junction_tree(
    sizes: Sequence[int], scopes: Sequence[Sequence[int]], *, restarts: int = ORDER_RESTARTS, seed: int = 0
) -> JunctionTree:
    """A junction tree whose cliques cover every scope, with as few cells as a seeded greedy search finds.

    Attributes in no scope are in no clique. A tree is made whatever its size; nothing is allocated for its cells.

    >>> tree = junction_tree([2, 3, 4, 5], [(0, 1), (1, 2), (2, 3)])
    >>> tree.cliques, tree.parents, tree.cells
    (((2, 3), (1, 2), (0, 1)), (-1, 0, 1), 38)
    """
    found = junction_tree_within(sizes, scopes, math.inf, restarts=restarts, seed=seed)
    if isinstance(found, WorstClique):
        raise AssertionError("no clique is beyond an infinite number of cells")
    return found


def junction_tree_within(
    sizes: Sequence[int],
    scopes: Sequence[Sequence[int]],
    most: float,
    *,
    restarts: int = ORDER_RESTARTS,
    seed: int = 0,
) -> "JunctionTree | WorstClique":
    """A junction tree with no clique of more than `most` cells; or the clique at which a greedy search gave up.

    The search looks at no more than a hundredth of what a fit would look at, and at little where a bound tells that
    every tree is too large. The cells of all cliques together may be more.
    """
    sizes = checked_sizes(sizes)
    scopes = checked_scopes(sizes, scopes)
    graph = InteractionGraph.of(sizes, scopes)
    elimination = smallest_elimination(graph, restarts=restarts, rng=generator(seed), most=most)
    if not elimination.order:
        return JunctionTree(sizes, ((),), (-1,))
    if elimination.stopped:
        clique = tuple(members(elimination.cliques[-1]))
        return blamed(clique, cells_of(sizes, clique), scopes)
    return _hung_from_largest(sizes, *_joined_cliques(elimination))


def _joined_cliques(elimination: Elimination) -> tuple[list[Scope], list[tuple[int, int]]]:
    """The maximal elimination cliques, and the pairs of them that a tree joins.

    Steps are taken last to first. The clique of a step hangs from the clique of the next of its attributes to go; where
    that one is contained in it, it takes that one's place in the tree instead.
    """
    place = {attribute: step for step, attribute in enumerate(elimination.order)}
    kept = maximal(elimination)
    stands_for = [-1] * len(kept)
    edges: list[tuple[int, int]] = []
    for step in reversed(range(len(kept))):
        attribute, clique = elimination.order[step], elimination.cliques[step]
        rest = clique & ~(1 << attribute)
        parent = min((place[other] for other in members(rest)), default=-1)
        stands_for[step] = step
        if parent < 0:
            continue
        if elimination.cliques[parent].bit_count() == rest.bit_count() and stands_for[parent] == parent:
            stands_for[parent] = step
        else:
            edges.append((step, parent))
    return _renumbered(elimination, kept, stands_for, edges)


def _renumbered(
    elimination: Elimination, kept: list[bool], stands_for: list[int], edges: list[tuple[int, int]]
) -> tuple[list[Scope], list[tuple[int, int]]]:
    def last(step: int) -> int:
        while stands_for[step] != step:
            step = stands_for[step]
        return step

    steps = [step for step in range(len(kept)) if kept[step]]
    number = {step: place for place, step in enumerate(steps)}
    cliques = [tuple(members(elimination.cliques[step])) for step in steps]
    return cliques, [(number[last(a)], number[last(b)]) for a, b in edges]


def _hung_from_largest(sizes: tuple[int, ...], cliques: list[Scope], edges: list[tuple[int, int]]) -> JunctionTree:
    """The tree with the largest clique of each component as its root.

    A root is visited once, every other clique twice: it sends no message.
    """
    joined: list[list[int]] = [[] for _ in cliques]
    for a, b in edges:
        joined[a].append(b)
        joined[b].append(a)
    by_cells = sorted(range(len(cliques)), key=lambda place: (-cells_of(sizes, cliques[place]), cliques[place]))
    number: dict[int, int] = {}
    parents: list[int] = []
    for root in by_cells:
        if root in number:
            continue
        waiting = [(root, -1)]
        while waiting:
            clique, parent = waiting.pop()
            number[clique] = len(parents)
            parents.append(parent)
            waiting.extend((other, number[clique]) for other in reversed(joined[clique]) if other not in number)
    return JunctionTree(sizes, tuple(cliques[clique] for clique in number), tuple(parents))


@dataclass(frozen=True)
class WorstClique:
    """A clique that makes a tree large, and the scopes that make the clique."""

    clique: Scope
    cells: int
    scopes: tuple[int, ...]
    """The places of the scopes that join two attributes of the clique, those with most such pairs first."""


def worst_cliques(tree: JunctionTree, scopes: Sequence[Sequence[int]], count: int) -> list[WorstClique]:
    """The largest cliques of a tree, each with the scopes that have two or more attributes in it.

    >>> scopes = [(0, 1), (1, 2), (0, 2), (2, 3)]
    >>> worst_cliques(junction_tree([9, 9, 9, 2], scopes), scopes, 1)
    [WorstClique(clique=(0, 1, 2), cells=729, scopes=(0, 1, 2))]
    """
    largest = sorted(range(len(tree.cliques)), key=lambda place: (-tree.clique_cells[place], place))[:count]
    return [blamed(tree.cliques[place], tree.clique_cells[place], scopes) for place in largest]


def blamed(clique: Scope, cells: int, scopes: Sequence[Sequence[int]]) -> WorstClique:
    """A clique with the scopes that have two or more attributes in it."""
    within = frozenset(clique)
    shared = {k: len(within.intersection(scope)) for k, scope in enumerate(scopes)}
    causes = sorted((k for k in shared if shared[k] > 1), key=lambda k: (-shared[k], k))
    return WorstClique(clique, cells, tuple(causes))


def oracle_work(tree: JunctionTree, scopes: Sequence[Sequence[int]]) -> int:
    """How many cells one call of a MarginalOracle goes through: those of each scope's clique, and of every clique.

    >>> scopes = [(0, 1), (1, 2)]
    >>> oracle_work(junction_tree([100, 10, 100], scopes), scopes)
    4000
    """
    cells = tree.clique_cells
    homes = (tree.home(scope) for scope in scopes)
    return sum(cells) + sum(cells[home] for home in homes if home is not None)


def predicted_bytes(tree: JunctionTree, scopes: Sequence[Sequence[int]], rows: int, *, optimal: bool) -> int:
    """The memory of a fit of so many rows on this tree and of its refits, before any of it is allocated.

    A search keeps vectors as long as the tables of the scopes, potentials and marginals, and others as long as the
    rows, answers and their weights; more of both where it goes on to the optimum. The oracle adds four
    messages for each separator and its least entries, and rows as long as the longest axis. Cliques take no memory.
    `python -m benchmarks memory` tables what was predicted and what was measured.

    >>> scopes = [(0, 1), (1, 2)]
    >>> predicted_bytes(junction_tree([100, 10, 100], scopes), scopes, 2000, optimal=False)
    434040
    """
    tables = sum(cells_of(tree.sizes, scope) for scope in scopes)
    messages = sum(cells_of(tree.sizes, node.separator) for node in refined(tree, scopes))
    longest = max((tree.sizes[attribute] for scope in scopes for attribute in scope), default=0)
    held = OPTIMAL_VECTORS if optimal else EARLY_VECTORS
    return 8 * (held[0] * tables + held[1] * rows + 5 * messages + ROWS_OF_AXIS * longest)


# ----------------------------------------------------------------------------------------------------------------------
# The trees of the last scopes asked for.


class _KnownTrees:
    """What is known of the junction tree of some scopes: a tree, or a clique too large for the cells allowed."""

    def __init__(self, sizes: tuple[int, ...], scopes: tuple[Scope, ...]) -> None:
        self.sizes, self.scopes = sizes, scopes
        self.too_large: dict[int, WorstClique] = {}
        self.found: JunctionTree | None = None

    @property
    def tree(self) -> JunctionTree:
        self.found = self.found or junction_tree(self.sizes, self.scopes)
        return self.found

    def within(self, most: int) -> JunctionTree | WorstClique:
        if self.found is None and most not in self.too_large:
            found = junction_tree_within(self.sizes, self.scopes, most)
            if isinstance(found, JunctionTree):
                self.found = found
            else:
                self.too_large[most] = found
        return self.found or self.too_large[most]


_known_trees = lru_cache(maxsize=16)(_KnownTrees)


def known_tree(sizes: tuple[int, ...], scopes: tuple[Scope, ...]) -> JunctionTree:
    """The junction tree of these scopes, found once for predicting, fitting and asking."""
    return _known_trees(sizes, scopes).tree


def known_tree_within(sizes: tuple[int, ...], scopes: tuple[Scope, ...], most: int) -> JunctionTree | WorstClique:
    """The same tree; or, where every tree found has a clique of more than so many cells, such a clique."""
    return _known_trees(sizes, scopes).within(most)
