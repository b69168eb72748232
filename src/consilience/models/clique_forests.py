"""The junction tree in the shape that makes queries short: shallow, and with few children for each clique.

A query touches the cliques on the paths between its attributes and the messages from all their neighbours. So a clique
is hung as high as its separator allows, and children that share one separator are gathered below copies of it, a few
for each, which makes paths among n of them about log n long.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

FAN_OUT = 6
"""Children with one separator that hang below the same clique."""

ROOT = -1


@dataclass(frozen=True)
class CliqueForest:
    """Cliques, their parents (which come first; −1 for roots), and the attributes that each shares with its parent."""

    cliques: tuple[frozenset[int], ...]
    parents: tuple[int, ...]
    separators: tuple[frozenset[int], ...]
    children: tuple[tuple[int, ...], ...]
    roots: tuple[int, ...]
    """The root above each clique."""
    tops: dict[int, int]
    """For each attribute the highest clique that has it."""
    holders: dict[int, tuple[int, ...]]
    """For each attribute all cliques that have it."""

    def region(self, attributes: Collection[int]) -> list[int]:
        """The cliques of a smallest part of one tree that has all these attributes, which are of that tree.

        The paths from the attributes' highest cliques to where they meet; then leaves go as long as their attributes
        are found in the clique that is left. Parents come first.
        """
        wanted = frozenset(attributes)
        frontier = {self.tops[attribute] for attribute in wanted}
        found = set(frontier)
        while len(frontier) > 1:
            lowest = max(frontier)
            frontier.remove(lowest)
            frontier.add(self.parents[lowest])
            found.add(self.parents[lowest])
        return sorted(self._without_leaves(found, wanted))

    def _without_leaves(self, found: set[int], wanted: frozenset[int]) -> set[int]:
        around = {clique: {child for child in self.children[clique] if child in found} for clique in found}
        for clique in found:
            if self.parents[clique] in found:
                around[clique].add(self.parents[clique])
        leaves = [clique for clique, others in around.items() if len(others) == 1]
        while leaves:
            leaf = leaves.pop()
            if len(around[leaf]) != 1:
                continue
            [other] = around[leaf]
            if wanted & self.cliques[leaf] <= self.cliques[other]:
                del around[leaf]
                around[other].discard(leaf)
                leaves.append(other)
        return set(around)


def clique_forest(cliques: Sequence[Collection[int]], parents: Sequence[int]) -> CliqueForest:
    """The forest of these cliques, rearranged; parents come before their children in what is given.

    >>> clique_forest([(0, 1), (0, 2), (0, 3), (3, 4)], [-1, 0, 1, 2]).parents
    (-1, 0, 0, 2)
    """
    sets = [frozenset(clique) for clique in cliques]
    hung = _hung_high(sets, parents)
    below: list[list[int]] = [[] for _ in sets]
    for clique, parent in enumerate(hung):
        if parent != ROOT:
            below[parent].append(clique)
    made, above = _fanned_out(sets, hung, below)
    return _indexed(made, above)


def _hung_high(cliques: Sequence[frozenset[int]], parents: Sequence[int]) -> list[int]:
    """For each clique the highest one that has its separator; none where the separator is empty."""
    hung: list[int] = []
    for clique, parent in zip(cliques, parents, strict=True):
        separator = clique & cliques[parent] if parent != ROOT else frozenset[int]()
        while parent != ROOT and hung[parent] != ROOT and separator <= cliques[hung[parent]]:
            parent = hung[parent]
        hung.append(parent if separator else ROOT)
    return hung


def _fanned_out(
    cliques: Sequence[frozenset[int]], hung: Sequence[int], below: Sequence[Sequence[int]]
) -> tuple[list[frozenset[int]], list[int]]:
    """Cliques and parents, with copies of a separator between a clique and many children that share it."""
    made: list[frozenset[int]] = []
    above: list[int] = []
    # Each entry: a clique, where it hangs, and the old cliques to hang below it.
    waiting = [(cliques[root], ROOT, list(below[root])) for root in reversed(range(len(cliques))) if hung[root] == ROOT]
    while waiting:
        clique, parent, children = waiting.pop()
        here = len(made)
        made.append(clique)
        above.append(parent)
        groups: dict[frozenset[int], list[int]] = {}
        for child in children:
            groups.setdefault(clique & cliques[child], []).append(child)
        for separator, group in groups.items():
            if len(group) <= FAN_OUT:
                waiting.extend((cliques[child], here, list(below[child])) for child in reversed(group))
            else:
                parts = (group[part::FAN_OUT] for part in range(FAN_OUT))
                waiting.extend((separator, here, part) for part in parts)
    return made, above


def _indexed(cliques: list[frozenset[int]], parents: list[int]) -> CliqueForest:
    separators = tuple(
        clique & cliques[parent] if parent != ROOT else frozenset[int]()
        for clique, parent in zip(cliques, parents, strict=True)
    )
    children: list[list[int]] = [[] for _ in cliques]
    roots: list[int] = []
    tops: dict[int, int] = {}
    holders: dict[int, list[int]] = {}
    for place, (clique, parent) in enumerate(zip(cliques, parents, strict=True)):
        roots.append(place if parent == ROOT else roots[parent])
        if parent != ROOT:
            children[parent].append(place)
        for attribute in clique:
            tops.setdefault(attribute, place)
            holders.setdefault(attribute, []).append(place)
    return CliqueForest(
        tuple(cliques), tuple(parents), separators, tuple(map(tuple, children)), tuple(roots), tops,
        {attribute: tuple(places) for attribute, places in holders.items()},
    )  # fmt: skip
