"""What a run of PrivGene leaves behind: the model that its last selection chose (Zhang et al. 2013).

It is one measurement of kind "selections", whose value is the place of the model among the last candidates.
`extra["selection"]` says what is modelled and over which attributes, and has the model in normalised coordinates:
centroids, or coefficients with the intercept last. The scale of its Gumbel noise is in units of the loss.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.domain.queries import Query
from consilience.errors import ConsilienceError, MeasurementError
from consilience.kernels.regions import Region, RegionKind, middles_and_halves
from consilience.measurements import Gumbel, Measurement, MeasurementSet

Floats = NDArray[np.float64]
Model = Literal["clusters", "regression"]

ALGORITHM = "privgene"
NO_BARS_OF_CHOICE = (
    "PrivGene chooses among candidates and measures nothing else, so that there is nothing to tell how far the choice "
    "is from the best: there are no error bars"
)


@dataclass(frozen=True, eq=False)
class ChosenModel:
    """The chosen centroids or coefficients, and what they are about."""

    model: Model
    attributes: tuple[str, ...]
    """For a regression the label comes last."""
    bounds: Floats
    region: RegionKind
    found: Floats

    def measurement(self, place: int, generations: int, scale: float) -> Measurement:
        """What the run leaves behind."""
        described = {
            "algorithm": ALGORITHM,
            "part": self.model,
            "attributes": list(self.attributes),
            "bounds": self.bounds.tolist(),
            "region": self.region,
            "generations": generations,
            "found": self.found.tolist(),
        }
        return Measurement(
            Query(()), np.array([float(place)]), Gumbel(scale), kind="selections", extra={"selection": described}
        )

    @staticmethod
    def of(measured: MeasurementSet, model: Model) -> "ChosenModel | None":
        """The model that was chosen; None where the measurements are of no run of PrivGene."""
        runs = [each for each in measured if (each.selection or {}).get("algorithm") == ALGORITHM]
        if not runs:
            return None
        if len(runs) > 1:
            raise MeasurementError(f"the measurements are of {len(runs)} runs of PrivGene; give those of one")
        described = runs[0].selection or {}
        if described.get("part") != model:
            raise MeasurementError(
                f"measurement {runs[0].name} chose {described.get('part')!r}, not {model!r}; read it with "
                "`estimators.cluster` if it is clusters, with `estimators.regress` if a regression"
            )
        try:
            return _read(described, model)
        except (ConsilienceError, KeyError, TypeError, ValueError) as error:
            raise MeasurementError(
                f"the run of PrivGene {runs[0].name} describes no {model}: {error!r}; measure with plans.PrivGene"
            ) from None


def _read(described: Mapping[str, Any], model: Model) -> ChosenModel:
    names = tuple(map(str, described["attributes"]))
    found, bounds = _finite(described["found"]), _finite(described["bounds"])
    points = len(names) - (model == "regression")
    region = Region(described["region"], points)
    middles_and_halves(bounds)
    if bounds.shape != (len(names), 2) or found.ndim != 1 + (model == "clusters") or found.shape[-1] != len(names):
        raise ValueError(f"{found.shape} numbers and {bounds.shape} bounds for {len(names)} attributes")
    if model == "clusters":
        found = region.project(found)
    return ChosenModel(model, names, bounds, region.kind, found)


def _finite(numbers: ArrayLike) -> Floats:
    found = np.array(numbers, dtype=np.float64)
    if not found.size or not np.isfinite(found).all():
        raise ValueError("numbers that are missing or not finite")
    return found
