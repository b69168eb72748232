"""McKenna et al. (2019), Figure 1c: MWEM with and without graphical estimation, on four tables."""

import math
from typing import Any

from benchmarks.reproduce.figures import Claim, brief
from benchmarks.reproduce.mckenna2019 import figure_1
from benchmarks.reproduce.mckenna2019.with_and_without import WITH, WITHOUT

NAME, MECHANISM = "mckenna2019-figure-1c", "MWEM"
PICTURE = figure_1.picture(MECHANISM, "c")


def run(quick: bool) -> bool:
    """Five runs on each table; one on Titanic if quick."""
    return figure_1.run_panel(NAME, MECHANISM, PICTURE, claims, quick=quick)


def claims(rows: list[dict[str, Any]]) -> list[Claim]:
    """Where the two ways run, and that where both do the error is no worse."""
    errors = figure_1.errors_of(rows)
    notes = {(str(row["records"]), str(row["method"])): str(row["note"]) for row in rows}
    names = list(dict.fromkeys(name for name, _ in errors))
    runs = {method: [name for name in names if math.isfinite(errors[name, method])] for method in (WITHOUT, WITH)}
    published = [name for name in names if name == "stroke"]
    told = [
        Claim(
            "with graphical estimation MWEM runs on every table",
            runs[WITH] == names,
            ", ".join(f"{name} {brief(errors[name, WITH])}" for name in runs[WITH]) or "on none",
        ),
        Claim(
            "without it MWEM runs on Stroke and fails on every other table, for want of memory or time",
            runs[WITHOUT] == published,
            "; ".join(f"{name}: {notes[name, WITHOUT] or brief(errors[name, WITHOUT])}" for name in names),
        ),
    ]
    both = [name for name in runs[WITH] if name in runs[WITHOUT]]
    if both:
        worst = min(errors[name, WITHOUT] / errors[name, WITH] for name in both)
        told.append(
            Claim(
                "where both run, graphical estimation is no worse",
                worst >= 1.0,
                ", ".join(f"{name}: {brief(errors[name, WITHOUT])} and {brief(errors[name, WITH])}" for name in both),
            )
        )
    return told
