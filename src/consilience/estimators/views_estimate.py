"""An estimate as the tables of some views, from which any marginal is reconstructed on request."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.queries import Query
from consilience.errors import TooLarge
from consilience.estimators.marginals_estimate import MarginalsEstimate
from consilience.marginals.margins import Reconstructed, ViewReader
from consilience.marginals.reconstruction import Method, reconstruct_from
from consilience.marginals.table_stacks import Scope
from consilience.solvers.fit import Status

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ViewsEstimate(MarginalsEstimate):
    """Views that agree with each other, and how marginals that none of them holds are put together.

    A marginal that is part of a view is summed from it. Any other is reconstructed from all views that share attributes
    with it; `reconstruction` says how well they fit together. Two such marginals need not agree with each other beyond
    what the views say.
    """

    @property
    def nonnegative(self) -> bool:
        """Whether all counts are 0 or more: not where the views were left with the negatives of the noise."""
        return bool(self.method.get("nonnegative", True))

    @property
    def way(self) -> Method:
        """How marginals are reconstructed."""
        found: Any = self.method.get("reconstruction", "entropy")
        return found

    @cached_property
    def reader(self) -> ViewReader:
        """The views, prepared to be asked for what they say of a marginal."""
        return ViewReader(self.tables.stack, self.counts)

    def put_together(self, known: Scope) -> Array:
        return self._reconstructed([known])[0].table

    def reconstruction(self, *attributes: str) -> Reconstructed:
        """The marginal of some attributes, with the largest count by which it misses what the views say of it."""
        scope = self.places(*attributes)
        known = tuple(place for place in scope if place in self.tables.attributes)
        return self._reconstructed([known])[0]

    def answers(self, queries: Sequence[Query | str]) -> list[Array]:
        """The answers to several queries; their marginals are reconstructed side by side, on all cores."""
        bound = [(Query.parse(query) if isinstance(query, str) else query).bind(self.domain) for query in queries]
        scopes = [self.places(*each.attributes) for each in bound]
        known = [tuple(place for place in scope if place in self.tables.attributes) for scope in scopes]
        distinct = list(dict.fromkeys(known))
        try:
            tables = dict(zip(distinct, self._reconstructed(distinct), strict=True))
        except TooLarge:
            return super().answers(queries)
        parts = zip(bound, scopes, known, strict=True)
        return [np.asarray(each.answer(self.spread(tables[held].table, held, scope))) for each, scope, held in parts]

    def _reconstructed(self, targets: Sequence[Scope]) -> list[Reconstructed]:
        """Marginals that views hold, as they are, and the others put together from views that agree or not."""
        held = {target: self.tables.known(target) for target in targets} if self.method.get("consistent", True) else {}
        asked = [target for target in targets if held.get(target) is None]
        made = reconstruct_from(self.reader, asked, method=self.way, total=self.count)
        others = dict(zip(asked, made, strict=True))
        found: list[Reconstructed] = []
        for target in targets:
            table = held.get(target)
            found.append(others[target] if table is None else Reconstructed(table, 0.0, False, 0, Status.CONVERGED))
        return found
