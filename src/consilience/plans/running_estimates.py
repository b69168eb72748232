"""What a plan knows so far: its measurements, fitted when they are asked about and not before.

A plan that chooses what to measure next compares candidates with an estimate made of its own noisy answers. The fit is
post-processing: it sees public numbers alone, spends nothing, and is the same whenever the answers are the same.

*Warm starts.* A model that was fitted to fewer answers is where the next fit begins, so that a round costs a few steps.
A fit that stops early (`stop="least-risk"`) then ends elsewhere than one from the beginning would: what a plan asks
between rounds is close to, and not the same as, what its `estimator()` finds in the end.

*Dry runs* answer with zeros. Zeros alone say nothing of the data, and an even table is at hand without a fit.
"""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.errors import MeasurementError
from consilience.estimators.base import Estimate, Estimator
from consilience.estimators.graphical import Graphical
from consilience.estimators.graphical_model import GraphicalEstimate
from consilience.estimators.marginals import MarginalsEstimate
from consilience.estimators.published.uniform import Uniform
from consilience.measurements import Measurement, MeasurementSet, PrivacyStatement

Array = NDArray[np.float64]


class RunningEstimate:
    """The estimate of a domain from the measurements added so far; fitted once after each addition, when asked for.

    `warm=False` begins every fit anew. The estimate is a means to choose by and never leaves a plan: its measurement
    set names no ledger, and is marked as not private so that nothing made from it is taken for a release.

    >>> from consilience.measurements import Gaussian
    >>> running = RunningEstimate(Domain.from_sizes({"a": 2, "b": 2}), Graphical(total=12.0))
    >>> running.add([Measurement(Query.marginal("a"), np.array([9.0, 3.0]), Gaussian(0.01))])
    >>> running.marginal("a", "b").round(1).tolist()
    [[4.5, 4.5], [1.5, 1.5]]
    """

    def __init__(self, domain: Domain, estimator: Estimator, *, warm: bool = True) -> None:
        self.domain = domain
        self.estimator = estimator
        self._warm = warm
        self._measurements: list[Measurement] = []
        self._fitted: Estimate | None = None
        self._current = False

    def add(self, measurements: Iterable[Measurement]) -> None:
        """Take in more measurements; the next question is answered from all of them."""
        found = list(measurements)
        self._measurements += found
        self._current = self._current and not found

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Everything that was added, in order."""
        return tuple(self._measurements)

    def measured(self) -> MeasurementSet:
        """The measurements as estimators take them."""
        return MeasurementSet(self.domain, self.measurements, PrivacyStatement(), {}, private=False)

    @property
    def estimate(self) -> Estimate:
        """The estimate of all measurements so far."""
        if self._fitted is None or not self._current:
            self._fitted = self._fit()
            self._current = True
        return self._fitted

    def _fit(self) -> Estimate:
        measured = self.measured()
        if not self._measurements:
            raise MeasurementError("nothing was measured yet; add measurements, then ask")
        if not any(each.values.any() for each in self._measurements) and Uniform().suitability(measured).possible:
            return Uniform().fit(measured)
        if self._warm and isinstance(self.estimator, Graphical) and isinstance(self._fitted, GraphicalEstimate):
            return self.estimator.fit(measured, start=self._fitted)
        return self.estimator.fit(measured)

    def marginal(self, *attributes: str) -> Array:
        """The estimated counts by these attributes, one axis for each, in this order."""
        return self.estimate.marginal(*attributes)

    def marginals(self, sets: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], Array]:
        """The estimated marginals of several sets of attributes, found together."""
        estimate = self.estimate
        found: dict[tuple[str, ...], Array] = {}
        if isinstance(estimate, MarginalsEstimate):
            found = _products(estimate, sets)
        rest = [names for names in sets if names not in found]
        tables = estimate.answers([Query.marginal(*names) for names in rest])
        found |= {names: np.asarray(table, dtype=np.float64) for names, table in zip(rest, tables, strict=True)}
        return {names: found[names] for names in sets}


def _products(estimate: MarginalsEstimate, sets: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], Array]:
    """The pairs of which only the two attributes by themselves are known, as products: their greatest entropy.

    A domain of a hundred attributes has thousands of pairs, nearly all of this kind, and one search for each is slow.
    """
    domain, total = estimate.domain, estimate.total
    if not (estimate.nonnegative and total > 0):
        return {}
    held = [{domain.counted_names[place] for place in scope} for scope in estimate.scopes]
    related = [*held, *(set(rule.attributes) for rule in domain.impossible)]
    together = {pair for names in related for pair in itertools.permutations(sorted(names), 2)}
    apart = [names for names in sets if len(names) == 2 and names not in together]
    single = {name: estimate.marginal(name) for name in dict.fromkeys(name for names in apart for name in names)}
    return {names: np.outer(single[names[0]], single[names[1]]) / total for names in apart}
