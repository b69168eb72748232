"""An estimate as the counts of the full table, whatever estimator found them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError, FileFormatError, MeasurementError
from consilience.estimators.base import Estimate, SavedModel, check_rows
from consilience.kernels.rng import Generator
from consilience.measurements import MeasurementSet
from consilience.solvers.fit import shares_of_rows


@dataclass(frozen=True, eq=False)
class FullTableEstimate(Estimate):
    """An estimate that holds the count of every cell; `Tree`, `Table` and `Matrix` return it."""

    counts: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.counts.shape != self.domain.shape:
            raise MeasurementError(
                f"the estimated table has shape {self.counts.shape}, the domain {self.domain.shape}; they must agree"
            )

    def marginal(self, *attributes: str) -> NDArray[np.float64]:
        for name in attributes:
            if attributes.count(name) > 1:
                raise DeclarationError(f"the attribute {name!r} is named twice; name it once")
        names = self.domain.counted_names
        axes = [names.index(self._counted(name)) for name in attributes]
        away = tuple(axis for axis in range(len(names)) if axis not in axes)
        kept = sorted(axes)
        return np.asarray(self.counts.sum(axis=away)).transpose([kept.index(axis) for axis in axes])

    def _counted(self, name: str) -> str:
        self.domain[name].labels  # noqa: B018 - refuses unknown and continuous attributes
        return name

    def arrays(self) -> Mapping[str, NDArray[np.float64]]:
        return {"counts": self.counts}

    @classmethod
    def restore(cls, saved: SavedModel, measured: MeasurementSet) -> "FullTableEstimate":
        if set(saved.arrays) != {"counts"}:
            raise FileFormatError(
                f"a model of the full table holds 'counts', found {sorted(saved.arrays)}; write the bundle anew"
            )
        method = saved.method
        if method.get("method") == "table":
            # Tables that were saved before totals were held are fitted again as they were.
            method = {"hold_total": False, **method}
        return cls(measured, method, saved.status, saved.stats, saved.arrays["counts"])

    def sample(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        counts = shares_of_rows(np.maximum(self.counts, 0.0).ravel(), check_rows(rows), rng)
        cells = np.repeat(np.arange(counts.size), counts)
        rng.shuffle(cells)
        return np.stack(np.unravel_index(cells, self.domain.shape), axis=1).astype(np.int64)
