"""Trees of cliques: attributes in groups, joined so that each attribute lives in one connected part.

A tree over cliques is a junction tree when the cliques that hold an attribute are connected, for every attribute (the
running intersection). Then two passes of messages between neighbours give the marginals of all cliques (Lauritzen and
Spiegelhalter 1988), in time proportional to the cells of the cliques. Those numbers are known before anything is
allocated: here they are exact integers, however large.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from consilience.marginals.table_stacks import Scope
from consilience.models.layout import cells_of


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
