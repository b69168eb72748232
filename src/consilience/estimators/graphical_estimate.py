"""An estimate as a graphical model: any marginal, any factored query, conditions, records, without the full table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain.queries import BoundQuery, Query
from consilience.errors import FileFormatError, all_or_unanswered
from consilience.estimators.base import Estimate, SavedModel, check_rows
from consilience.estimators.measured_model import MeasuredModel, known_tree
from consilience.kernels.rng import Generator
from consilience.marginals.table_stacks import Scope
from consilience.measurements import MeasurementSet
from consilience.models.elimination import CalibratedModel
from consilience.models.factored_queries import FactoredQuery, answer, answer_many, conditional
from consilience.models.junction_trees import JunctionTree
from consilience.models.model import GraphicalModel
from consilience.models.oracle import MarginalOracle
from consilience.models.program import Allowed
from consilience.models.sampling import sample

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GraphicalEstimate(Estimate):
    """An estimate that holds one table of log-potentials for each measured scope, and the total."""

    scopes: tuple[tuple[str, ...], ...]
    potentials: tuple[Array, ...]
    records: float
    """The estimated number of records."""

    @property
    def total(self) -> float:
        return self.records

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The number of each counted attribute in the model."""
        return {name: place for place, name in enumerate(self.domain.counted_names)}

    @cached_property
    def model(self) -> CalibratedModel:
        """The model with its messages passed, ready for queries."""
        measured = MeasuredModel.of(self.measurements, loss="l2", alpha=0.0)
        scopes: list[Scope] = [tuple(self.places[name] for name in scope) for scope in self.scopes]
        model = GraphicalModel.of(
            self.domain.shape, scopes, self.potentials, total=self.records, allowed=measured.allowed
        )
        return CalibratedModel(model, known_tree(model.sizes, model.all_scopes))

    def marginal(self, *attributes: str) -> Array:
        self.check_names(attributes)
        return self.model.marginal([self.places[name] for name in attributes])

    def answer(self, query: Query | str) -> Array:
        """The estimated answers to a query, without the marginal it is about where that is the cheaper way."""
        bound = self._bound(query)
        return answer(self.model, self._factored(bound)).reshape(bound.shape)

    def answers(self, queries: Sequence[Query | str]) -> list[Array]:
        """The answers to several queries, which share the work that they have in common."""
        bound = [self._bound(query) for query in queries]
        found = all_or_unanswered(answer_many(self.model, [self._factored(each) for each in bound]))
        return [values.reshape(each.shape) for values, each in zip(found, bound, strict=True)]

    def conditional(
        self, query: Query | str, given: Query | str, *, impossible: Literal["refuse", "nan"] = "refuse"
    ) -> Array:
        """What the answers would be for one record of which `given` is known: with indicators, probabilities.

        `estimate.conditional("income", given="age=25..34 by sex")` has an axis for income and one for sex. A condition
        that the account holds for impossible is refused, or answered by NaN.
        """
        return conditional(
            self.model,
            self._factored(self._bound(query)),
            self._factored(self._bound(given)),
            impossible=impossible,
        )

    def log_likelihood(self, codes: NDArray[np.integer]) -> float:
        """Σ log p(x) over records, one row of codes each with a column for each counted attribute.

        −∞ where a record is impossible. Public post-processing only for records that are themselves public.
        """
        return self.model.log_likelihood(codes)

    def _bound(self, query: Query | str) -> BoundQuery:
        return (Query.parse(query) if isinstance(query, str) else query).bind(self.domain)

    def _factored(self, bound: BoundQuery) -> FactoredQuery:
        return FactoredQuery(tuple(self.places[name] for name in bound.attributes), bound.maps)

    def sample(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        """Codes of synthetic records: every clique's counts are rounded, not drawn."""
        return sample(self.model, check_rows(rows), rng)

    def arrays(self) -> Mapping[str, Array]:
        tables = {f"potentials {k}": table for k, table in enumerate(self.potentials)}
        return {"total": np.array([self.records]), **tables}

    @classmethod
    def restore(cls, saved: SavedModel, measured: MeasurementSet) -> "GraphicalEstimate":
        scopes = tuple(tuple(str(name) for name in scope) for scope in saved.method.get("scopes", ()))
        expected = ["total", *(f"potentials {k}" for k in range(len(scopes)))]
        if sorted(saved.arrays) != sorted(expected):
            raise FileFormatError(
                f"a graphical model of {len(scopes)} scopes holds {expected}, found {sorted(saved.arrays)}; write the "
                "bundle anew"
            )
        tables = tuple(saved.arrays[f"potentials {k}"] for k in range(len(scopes)))
        for scope, table in zip(scopes, tables, strict=True):
            if table.shape != measured.domain.sizes(scope):
                raise FileFormatError(
                    f"the potentials by {', '.join(scope)} have shape {table.shape}, the domain "
                    f"{measured.domain.sizes(scope)}; write the bundle anew"
                )
        return cls(
            measured, saved.method, saved.status, saved.stats, scopes, tables, float(saved.arrays["total"].ravel()[0])
        )


# ----------------------------------------------------------------------------------------------------------------------
# The answers of many models with the same scopes to the same queries: one pass over a junction tree that holds both.
#
# Elimination finds the answers of one model without such a tree, and takes as long as several passes of the oracle over
# the model's own tree. Where models come by the hundred and are asked the same, a tree that holds the scopes of the
# queries as well is built once, and one pass over it gives all their marginals, unless it is much larger.


MOST_LARGER = 5.0
"""On `adult-fine` a pass over a tree with 3.7 times the cells took a quarter of the time of elimination."""


@dataclass(frozen=True, eq=False)
class ModelAnswers:
    """What every model is asked, and the tree that holds it."""

    queries: tuple[BoundQuery, ...]
    asked: tuple[Scope, ...]
    """The attributes of each query."""
    tree: JunctionTree
    scopes: tuple[Scope, ...]
    """The scopes of the model, and then those that only queries have."""
    allowed: Allowed

    @classmethod
    def of(cls, model: GraphicalEstimate, queries: Sequence[Query]) -> "ModelAnswers | None":
        """Prepare for models like this one; None where the tree would be much larger than the model's own."""
        bound = tuple(query.bind(model.domain) for query in queries)
        asked = tuple(tuple(model.places[name] for name in each.attributes) for each in bound)
        own = tuple(tuple(model.places[name] for name in scope) for scope in model.scopes)
        known = {frozenset(scope) for scope in own}
        only_asked = {frozenset(scope): scope for scope in asked if scope and frozenset(scope) not in known}
        scopes = (*own, *only_asked.values())
        allowed = MeasuredModel.of(model.measurements, loss="l2", alpha=0.0).allowed
        more = [scope for scope, _ in allowed]
        tree = known_tree(model.domain.shape, (*scopes, *more))
        if tree.cells > MOST_LARGER * known_tree(model.domain.shape, (*own, *more)).cells:
            return None
        return cls(bound, asked, tree, scopes, allowed)

    def answers(self, model: GraphicalEstimate) -> list[Array]:
        """The answers of one model."""
        oracle = MarginalOracle(self.tree, self.scopes, total=model.records, allowed=self.allowed, threads=1)
        nothing = [np.zeros([model.domain.shape[axis] for axis in scope]) for scope in self.scopes[len(model.scopes) :]]
        layout = oracle.layout
        found = oracle.marginals(layout.pack([*model.potentials, *nothing])).values
        places = {frozenset(scope): place for place, scope in enumerate(self.scopes)}

        def marginal(scope: Scope) -> Array:
            if not scope:
                return np.asarray(model.records)
            place = places[frozenset(scope)]
            return layout.view(found, place).transpose([layout.axes[place].index(axis) for axis in scope])

        return [query.answer(marginal(scope)) for query, scope in zip(self.queries, self.asked, strict=True)]
