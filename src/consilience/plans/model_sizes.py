"""How large a graphical model would become with one more marginal, known before anything of it is allocated.

The size of a model is the number of cells of the cliques of its junction tree: the work of one pass of messages. A
marginal that lies in a clique leaves the tree as it is. For any other a tree is sought by one greedy elimination, so
that the number is an upper bound of what the careful search of a fit finds.

What a model will be asked decides, too: a marginal over several cliques is found from the tables of those between its
attributes, in parts where they are large, and takes as long as they have cells. Marginals that would make some question
of the workload take hours are not chosen.
"""

import math
from collections.abc import Iterable, Sequence

from consilience.domain.domains import Domain
from consilience.marginals.table_stacks import Scope
from consilience.models import elimination_plans
from consilience.models.elimination_plans import plan_elimination
from consilience.models.junction_trees import JunctionTree, junction_tree

Names = tuple[str, ...]


class ModelSizes:
    """The predicted sizes of models over the marginals added so far and what the domain declares.

    >>> sizes = ModelSizes(Domain.from_sizes({"a": 10, "b": 10, "c": 10}))
    >>> sizes.add([("a", "b"), ("b", "c")])
    >>> sizes.cells, sizes.cells_with(("b",)), sizes.cells_with(("a", "c"))
    (200, 200, 1000)
    """

    def __init__(self, domain: Domain, asked: Iterable[Sequence[str]] = ()) -> None:
        self._places = {name: place for place, name in enumerate(domain.counted_names)}
        self._shape = domain.shape
        self._scopes: list[frozenset[int]] = []
        self._asked = {self._scope(names): math.prod(domain.sizes(names)) for names in asked}
        self._tree = junction_tree(self._shape, (), restarts=0)
        declared = [rule.attributes for rule in domain.impossible]
        self.add([*declared, *(margin.attributes for margin in domain.public.margins)])

    def add(self, marginals: Iterable[Sequence[str]]) -> None:
        """Take in marginals that the model has."""
        for names in marginals:
            self._scopes = _with_scope(self._scopes, self._scope(names))
        self._tree = junction_tree(self._shape, [_in_order(scope) for scope in self._scopes])

    @property
    def cells(self) -> int:
        """The cells of the model so far."""
        return self._tree.cells

    def cells_with(self, names: Sequence[str]) -> int:
        """The cells of the model with one more marginal, at most."""
        return self._tree_with(names).cells

    def allows(self, names: Sequence[str], most_cells: float = math.inf) -> bool:
        """Whether the model with one more marginal has at most so many cells and answers everything asked for."""
        tree = self._tree_with(names)
        if tree.cells > most_cells:
            return False
        # No marginal takes more than its own cells times those of the model: few need a closer look, as a rule none.
        most = elimination_plans.MOST_WORK
        large = [asked for asked, cells in self._asked.items() if cells * tree.cells > most]
        return all(answering_work(tree, asked) <= most for asked in large)

    def _tree_with(self, names: Sequence[str]) -> JunctionTree:
        scope = self._scope(names)
        if any(scope <= set(clique) for clique in self._tree.cliques):
            return self._tree
        scopes = [_in_order(each) for each in _with_scope(self._scopes, scope)]
        return junction_tree(self._shape, scopes, restarts=0)

    def _scope(self, names: Sequence[str]) -> frozenset[int]:
        return frozenset(self._places[name] for name in names)


def answering_work(tree: JunctionTree, asked: frozenset[int]) -> int:
    """The cells of the tables from which the marginal by some attributes is found.

    >>> chain = junction_tree([10, 10, 10], [(0, 1), (1, 2)])
    >>> answering_work(chain, frozenset({0, 1})), answering_work(chain, frozenset({0, 2}))
    (100, 1200)
    """
    if any(asked <= set(clique) for clique in tree.cliques):
        return math.prod(tree.sizes[attribute] for attribute in asked)
    between = [False] * len(tree.cliques)
    for place in reversed(range(len(tree.cliques))):
        parent = tree.parents[place]
        above = tree.cliques[parent] if parent >= 0 else ()
        between[place] |= bool(asked.intersection(tree.cliques[place]).difference(above))
        if between[place] and parent >= 0:
            between[parent] = True
    scopes = [clique for clique, needed in zip(tree.cliques, between, strict=True) if needed]
    return plan_elimination(scopes, dict(enumerate(tree.sizes)), asked, {}).work


def _with_scope(scopes: list[frozenset[int]], new: frozenset[int]) -> list[frozenset[int]]:
    """The scopes with a new one, without those that lie in another."""
    if any(new <= each for each in scopes):
        return scopes
    return [*(each for each in scopes if not each <= new), new]


def _in_order(scope: frozenset[int]) -> Scope:
    return tuple(sorted(scope))
