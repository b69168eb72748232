"""Cliques with helpers: tables that a clique holds are multiplied in smaller groups first, where that is less work.

A clique visits each of its cells once for every table it holds. Tables that together have few attributes can be
multiplied into one beforehand: a *node* over those attributes hangs from the clique, shares all its attributes with it,
and sends up a product instead of a sum. For belief propagation this is a clique like any other, so the marginals of
the tables in it come from its own marginal, a much smaller table than the clique. With many tables in a clique, such as
all pairs of its attributes, this saves most of the work.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from consilience.errors import DeclarationError
from consilience.marginals.table_stacks import Scope, stored_order
from consilience.models.clique_trees import JunctionTree
from consilience.models.elimination_orders import bit_set, members
from consilience.models.layout import cells_of

SMALLER_BY = 4
"""A node has at most this fraction of the cells of what it hangs from."""

ALWAYS_SMALL = 1 << 16
"""A node with more cells has no more than the largest table in it: memory stays in proportion to the tables."""

STEP_COST = 200
"""What one more node costs besides its cells, in visits of a cell."""

MOST_GROUPS = 256
"""Beyond so many different scopes in a clique, pairs of them are not compared."""


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

    if len(groups) <= MOST_GROUPS:
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
        self.most_cells = min(self.own_cells // SMALLER_BY, max(ALWAYS_SMALL, largest))

    def count(self, bits: int) -> int:
        if bits not in self.cells:
            self.cells[bits] = cells_of(self.sizes, tuple(members(bits)))
        return self.cells[bits]

    def in_node(self, bits: int) -> int:
        """Visits for one table: each cell where it moves along the last axis, else each row."""
        return self.own_cells if bits & self.last else self.rows

    def below(self, group: _Group) -> int:
        """Visits in the node of a group, which no single member needs."""
        return (len(group.members) + 1) * self.count(group.bits) + STEP_COST if len(group.members) > 1 else 0

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
