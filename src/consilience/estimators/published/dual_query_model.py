"""`DualQueryModel`: the graphical model under which the draws of a run of DualQuery are most likely.

The published account of a run is its synthetic records. But every draw also tells how wrong these records were, in a
way that depends on the data through known probabilities, and the model of greatest likelihood reads all of them
(McKenna, Sheldon, Miklau 2019, §4 and appendix C.3). `Graphical` fits it with the loss of `dual_query_loss`; the model
is over the marginals of the workload.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Query
from consilience.errors import MeasurementError, ModelTooLarge
from consilience.estimators.base import Estimate, Progress, SavedModel, Suitability
from consilience.estimators.graphical import LARGEST_TREE, Graphical, OptimiserName
from consilience.estimators.graphical_estimate import GraphicalEstimate
from consilience.estimators.published.dual_query import first_fact, run_total
from consilience.estimators.published.dual_query_loss import draws_loss
from consilience.estimators.published.dual_query_run import DualQueryRun
from consilience.kernels.rng import Generator
from consilience.measurements import Gaussian, Measurement, MeasurementSet

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DualQueryModel:
    """The graphical model of greatest likelihood; the options are those of `Graphical`.

    The search begins at the uniform model. `max_steps` ends it early on purpose: the last units of likelihood fit the
    chance of single draws, and the error has stopped falling by then. The status says so, and the gap how far the
    optimum is; `tolerance` is that gap in parts of the objective.
    """

    tolerance: float = 1e-3
    max_steps: int = 500
    time_limit: float | None = None
    optimiser: OptimiserName = "accelerated"
    largest_tree: int = LARGEST_TREE
    memory_limit: int = 4_000_000_000

    name: ClassVar[str] = "dual-query-model"

    def suitability(self, measured: MeasurementSet) -> Suitability:
        run = DualQueryRun.of(measured)
        fact = first_fact(measured)
        if fact is not None:
            return Suitability(
                False, f"{fact} is known exactly, and the likelihood of draws keeps a total only; use Table"
            )
        return self._sized(run).suitability(_carrier(measured, run))

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> "DualQueryModelEstimate":
        suitable = self.suitability(measured)
        if not suitable.possible:
            error = ModelTooLarge if suitable.predicted_bytes else MeasurementError
            raise error(f"dual-query-model cannot fit these measurements: {suitable.reason}; use dual-query")
        run = DualQueryRun.of(measured)
        settings = replace(self._sized(run), loss=draws_loss(run), total=run_total(measured, run))
        model = settings.fit(_carrier(measured, run), progress=progress)
        method = {**model.method, "method": self.name, "loss": "dual-query draws"}
        stats = {**model.stats, "draws": run.drawn.size, "rate": run.rate}
        return DualQueryModelEstimate(measured, method, model.status, stats, model)

    def _sized(self, run: DualQueryRun) -> Graphical:
        """The estimator with the scopes of the workload, before the loss is at hand."""
        return Graphical(
            stop="converged",
            optimiser=self.optimiser,
            also=run.sets.marginals,
            total=float(run.records),
            tolerance=self.tolerance,
            max_steps=self.max_steps,
            time_limit=self.time_limit,
            largest_tree=self.largest_tree,
            memory_limit=self.memory_limit,
        )


@dataclass(frozen=True, eq=False)
class DualQueryModelEstimate(Estimate):
    """A graphical model of the data behind a run of DualQuery."""

    model: GraphicalEstimate

    @property
    def total(self) -> float:
        return self.model.total

    def marginal(self, *attributes: str) -> Array:
        return self.model.marginal(*attributes)

    def answer(self, query: Query | str) -> Array:
        return self.model.answer(query)

    def answers(self, queries: Sequence[Query | str]) -> list[Array]:
        return self.model.answers(queries)

    def sample(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        return self.model.sample(rows, rng)

    def arrays(self) -> Mapping[str, Array]:
        return self.model.arrays()

    @classmethod
    def restore(cls, saved: SavedModel, measured: MeasurementSet) -> "DualQueryModelEstimate":
        carrier = _carrier(measured, DualQueryRun.of(measured))
        return cls(measured, saved.method, saved.status, saved.stats, GraphicalEstimate.restore(saved, carrier))


def _carrier(measured: MeasurementSet, run: DualQueryRun) -> MeasurementSet:
    """The linear measurements beside the draws, or the total in their place: what `Graphical` takes the cells from.

    Their answers play no part: the loss of the draws stands in their place.
    """
    linear: tuple[Measurement, ...] = tuple(each for each in measured if each.kind == "linear")
    if not linear:
        linear = (Measurement(Query(()), np.array([run_total(measured, run)]), Gaussian(1.0)),)
    provenance: dict[str, Any] = {}
    return MeasurementSet(measured.domain, linear, measured.privacy, provenance, measured.private)
