"""How large a graphical model would become with one more marginal, known before anything of it is allocated.

The size of a model is the number of cells of the cliques of its junction tree: the work of one pass of messages. A
marginal that lies in a clique leaves the tree as it is. For any other a tree is sought by one greedy elimination, so
that the number is an upper bound of what the careful search of a fit finds.
"""

from collections.abc import Iterable, Sequence

from consilience.domain.domains import Domain
from consilience.numerics.graphical_models.junction_trees import junction_tree
from consilience.numerics.scopes import Scope

Names = tuple[str, ...]


class ModelSizes:
    """The predicted sizes of models over the marginals added so far and what the domain declares.

    >>> sizes = ModelSizes(Domain.from_sizes({"a": 10, "b": 10, "c": 10}))
    >>> sizes.add([("a", "b"), ("b", "c")])
    >>> sizes.cells, sizes.cells_with(("b",)), sizes.cells_with(("a", "c"))
    (200, 200, 1000)
    """

    def __init__(self, domain: Domain) -> None:
        self._places = {name: place for place, name in enumerate(domain.counted_names)}
        self._shape = domain.shape
        self._scopes: list[frozenset[int]] = []
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
        scope = self._scope(names)
        if any(scope <= set(clique) for clique in self._tree.cliques):
            return self._tree.cells
        scopes = [_in_order(each) for each in _with_scope(self._scopes, scope)]
        return junction_tree(self._shape, scopes, restarts=0).cells

    def _scope(self, names: Sequence[str]) -> frozenset[int]:
        return frozenset(self._places[name] for name in names)


def _with_scope(scopes: list[frozenset[int]], new: frozenset[int]) -> list[frozenset[int]]:
    """The scopes with a new one, without those that lie in another."""
    if any(new <= each for each in scopes):
        return scopes
    return [*(each for each in scopes if not each <= new), new]


def _in_order(scope: frozenset[int]) -> Scope:
    return tuple(sorted(scope))
