"""Junction trees for given scopes: found by elimination, told apart by their cells, and blamed on scopes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from consilience.kernels.rng import generator
from consilience.marginals.table_stacks import Scope
from consilience.models.clique_trees import JunctionTree
from consilience.models.elimination_orders import Elimination, InteractionGraph, maximal, members, smallest_elimination
from consilience.models.layout import cells_of, checked_scopes, checked_sizes
from consilience.models.refinement import refined

__all__ = ["JunctionTree", "WorstClique", "junction_tree", "junction_tree_within", "predicted_bytes", "worst_cliques"]

EARLY_VECTORS, OPTIMAL_VECTORS, ROWS_OF_AXIS = (13, 14), (26, 32), 2
"""How many vectors as long as all tables, and as long as all rows, a fit holds at its peak that stops where its risk is
least, and one that goes to the optimum; and how many as long as the longest axis."""

RESTARTS = 20
"""How often each rule is tried again with chance among ties."""


def junction_tree(
    sizes: Sequence[int], scopes: Sequence[Sequence[int]], *, restarts: int = RESTARTS, seed: int = 0
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
    restarts: int = RESTARTS,
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
