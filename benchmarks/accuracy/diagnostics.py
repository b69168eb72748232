"""How often the diagnostic of the noise rejects: the right declaration, scales wrong by 1.3×, and clipped values.

Adult at ε = 1 with simulated noise: all 2-way marginals, with discrete Laplace noise and with discrete Gaussian noise
of δ = 1e-9; and each attribute by itself, where only the totals are measured twice, which shows how little can be seen
then. Only the declaration changes: "1.3× too large" says that the noise has 1.3 times the scale that it was drawn with.
The last columns are the median of the estimated size of the noise, in parts of what is declared, and the seconds of one
diagnosis.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.problems.declared_records import declared_records
from consilience import plans
from consilience.measurements import Measurement, MeasurementSet, noise_law
from consilience.measuring import measure
from consilience.publication.diagnostics import LEVEL, check_noise

Change = Callable[[Measurement], Measurement]


def run(quick: bool) -> list[dict[str, Any]]:
    """The rows; 200 draws of the noise for the right declaration and 50 for each wrong one, a tenth if quick."""
    records = declared_records("adult")
    source = records.source()
    ways: dict[str, tuple[Any, dict[str, Any]]] = {
        "all pairs": (plans.Direct(ways=2), {"epsilon": 1.0}),
        "all pairs, δ = 1e-9": (plans.Direct(ways=2), {"epsilon": 1.0, "delta": 1e-9}),
        "each attribute": (plans.Direct(ways=1), {"epsilon": 1.0}),
    }
    rows = []
    for name, (plan, budget) in ways.items():
        exact = _exact(measure(source, plan, **budget, simulate=0), source)
        for declared, change in CHANGES.items():
            runs = (200 if change is _as_it_is else 50) // (10 if quick else 1)
            about = {"table": records.name, "plan": name, "declared": declared, "level": LEVEL}
            rows.append(about | _rates(exact, change, runs))
            print(f"  {name}, {declared}: done", flush=True)
    return rows


def _exact(measured: MeasurementSet, source: Any) -> MeasurementSet:
    """The same measurements with exact values in place of noisy ones: there is nobody to protect here."""
    counts = source.exact_counts([each.query.attributes for each in measured])
    kept = [replace(each, values=table.ravel()) for each, table in zip(measured, counts, strict=True)]
    return replace(measured, measurements=tuple(kept))


def _rates(exact: MeasurementSet, change: Change, runs: int) -> dict[str, Any]:
    rejected, ratios, seconds = 0, [], []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        drawn = [replace(each, values=each.values + each.noise.simulate(each.values.size, rng)) for each in exact]
        start = time.perf_counter()
        found = check_noise(replace(exact, measurements=tuple(map(change, drawn))), seed=seed, simulations=199)
        seconds.append(time.perf_counter() - start)
        rejected += found.p_value < LEVEL
        ratios += [each.ratio for each in found.checks if each.ratio is not None][:1]
    size = float(np.median(ratios)) if ratios else float("nan")
    return {"runs": runs, "rejected": rejected / runs, "noise / declared": size, "seconds": float(np.median(seconds))}


def _as_it_is(measurement: Measurement) -> Measurement:
    return measurement


def _scaled(factor: float) -> Change:
    def change(measurement: Measurement) -> Measurement:
        law = measurement.noise
        declared = noise_law(law.law, factor * law.scale_parameter, step=law.lattice_step)
        return replace(measurement, noise=declared)

    return change


def _clipped(measurement: Measurement) -> Measurement:
    return replace(measurement, values=np.maximum(measurement.values, 0.0))


CHANGES: dict[str, Change] = {
    "as drawn": _as_it_is,
    "1.3× too large": _scaled(1.3),
    "1.3× too small": _scaled(1 / 1.3),
    "clipped, not said": _clipped,
}
