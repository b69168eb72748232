"""What `consilience logistic` publishes: a folder with coefficients, the noisy rounds they come from, and pictures.

coefficients.csv       each term and its interval, for attributes between −1 and 1, and per unit of the attribute
regression.json        the whole estimate: settings, diagnostics, draws (`RegressionEstimate.load` reads it)
measurements.parquet   the noisy counts and gradients of all rounds, with the privacy statement
coefficients.png       coefficients with error bars, where the extra `plots` is installed
chain.png              the progress of the chains
"""

import io
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.estimators.logistic import RegressionEstimate
from consilience.measurements import MeasurementSet
from consilience.publication.answers import CsvWriter, cell, heading
from consilience.publication.iterate_folders import IterateFolder, six_digits
from consilience.publication.report_page import BLUE, GREY, altair, finished

Ends = tuple[NDArray[np.float64], NDArray[np.float64]]

REGRESSIONS = IterateFolder(
    RegressionEstimate, model="regression.json", table="coefficients.csv", picture="coefficients.png"
)


def publish_regression(
    estimate: RegressionEstimate,
    measured: MeasurementSet,
    path: str | os.PathLike[str],
    *,
    level: float = 0.9,
    pictures: bool = True,
    overwrite: bool = False,
) -> Path:
    """Write the folder, and return its path. `level` is that of the intervals in the table and the picture."""
    return REGRESSIONS.write(
        estimate,
        measured,
        Path(path),
        table=coefficient_table(estimate, level),
        draw=partial(draw_coefficients, estimate, level) if pictures else None,
        overwrite=overwrite,
    )


def coefficient_table(estimate: RegressionEstimate, level: float) -> str:
    """The coefficients as CSV, a line each, with the ends of their intervals; the first column tells simulated noise.

    The columns of coefficients per unit are empty where points are moved to a ball: there are none. Ends are where
    there are intervals.
    """
    text = io.StringIO()
    writer = CsvWriter(text)
    names = ("coefficient", "per_unit")
    ends = ("", "_low", "_high")
    writer.writerow([*heading(private=estimate.private), "term", *(f"{name}{end}" for name in names for end in ends)])
    numbers = [estimate.coefficients, *estimate.interval(level)]
    if estimate.region == "box":
        numbers += [estimate.in_original_units(), *estimate.interval_in_original_units(level)]
    for place, term in enumerate(estimate.terms):
        row = [six_digits(each[place]) for each in numbers]
        writer.writerow([*cell(private=estimate.private), term, *row, *[""] * (6 - len(row))])
    return text.getvalue()


def draw_coefficients(estimate: RegressionEstimate, level: float, path: Path) -> None:
    """Draw the coefficients with their intervals; the file's suffix says how (.png or .svg)."""
    alt = altair()
    low, high = (np.where(np.isnan(ends), estimate.coefficients, ends) for ends in estimate.interval(level))
    bars = (
        f"Bars: {level:.0%} intervals of the fit to the real records, attributes mapped to −1 and 1. "
        "Crosses: the last round alone."
    )
    rows = [
        {
            "term": term,
            "coefficient": float(estimate.coefficients[place]),
            "low": float(low[place]),
            "high": float(high[place]),
            "last": float(estimate.last_iterate[place]),
        }
        for place, term in enumerate(estimate.terms)
    ]
    title = alt.TitleParams(
        f"What speaks for the upper half of {estimate.label}, about {estimate.records:,.0f} records",
        subtitle=[
            ("Attributes mapped to −1 and 1. There are no error bars." if estimate.no_intervals else bars)
            + ("" if estimate.private else " SIMULATED NOISE: NOT PRIVATE.")
        ],
        anchor="start",
    )
    base = alt.Chart(alt.Data(values=rows)).encode(y=alt.Y("term:N", sort=None, title=None))
    axis: Any = alt.X("coefficient:Q", title="coefficient (log odds)")
    chart = alt.layer(
        alt.Chart(alt.Data(values=[{"zero": 0.0}])).mark_rule(color=GREY, strokeDash=[4, 4]).encode(x="zero:Q"),
        base.mark_point(shape="cross", size=40, color=GREY, filled=True).encode(x="last:Q"),
        base.mark_rule(color=BLUE, strokeWidth=1.5).encode(x="low:Q", x2="high:Q"),
        base.mark_point(color=BLUE, filled=True, size=50).encode(x=axis),
    ).properties(width=460, height=24 * len(rows), title=title)
    finished(chart).save(str(path), scale_factor=2)
