"""Folders of what all rounds of an iterative algorithm speak for: clusters, or a regression.

A folder holds the estimate as JSON, the noisy rounds as `measurements.parquet`, a table as CSV, and pictures. It is
written beside its place and renamed, so that it is there whole or not at all.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from consilience.domain.files import folder_in_place_of
from consilience.errors import FileFormatError
from consilience.estimators.iterates import SavedIterates
from consilience.measurements import MeasurementSet
from consilience.publication.report_page import BLUE, GREEN, GREY, ORANGE, PINK, altair, finished

Saved = TypeVar("Saved", bound=SavedIterates)

MEASUREMENTS, PROGRESS = "measurements.parquet", "chain.png"


@dataclass(frozen=True)
class IterateFolder(Generic[Saved]):
    """One kind of folder: what its estimate is called and read by, its table and its picture."""

    kind: type[Saved]
    model: str
    table: str
    picture: str

    @property
    def files(self) -> frozenset[str]:
        """Everything that such a folder may hold."""
        return frozenset({self.model, self.table, self.picture, MEASUREMENTS, PROGRESS})

    def is_at(self, path: Path) -> bool:
        """Whether a folder is one of these, with nothing else in it."""
        inside = {each.name for each in path.iterdir()} if path.is_dir() else set[str]()
        return self.model in inside and inside <= self.files

    def open(self, path: Path) -> tuple[Saved, MeasurementSet]:
        """The estimate and the noisy rounds it comes from, which agree on whether the noise was real."""
        found = self.kind.load(path / self.model)
        measured = MeasurementSet.load(path / MEASUREMENTS)
        if found.private != measured.private:
            said = {True: "private", False: "not private"}
            raise FileFormatError(
                f"the files of {path} do not agree: {self.model} calls itself {said[found.private]}, and "
                f"{MEASUREMENTS} {said[measured.private]}; they are of different runs, or were changed"
            )
        return found, measured

    def refuse_other_place(self, path: Path, *, overwrite: bool) -> None:
        """Refuse a place where something else lies, before anything is spent."""
        if path.exists() and not (overwrite and self.is_at(path)):
            hint = "or overwrite it on purpose" if self.is_at(path) else "it holds other things"
            raise FileFormatError(f"{path} exists already; choose another name, {hint}")
        if not path.absolute().parent.is_dir():
            raise FileFormatError(f"there is no folder {path.parent}; create it first")

    def write(
        self,
        estimate: Saved,
        measured: MeasurementSet,
        path: Path,
        *,
        table: str,
        draw: Callable[[Path], None] | None,
        overwrite: bool = False,
    ) -> Path:
        """Write the folder, and return its path; without `draw` it has no pictures."""
        self.refuse_other_place(path, overwrite=overwrite)
        with folder_in_place_of(path) as building:
            (building / self.table).write_text(table, encoding="utf-8")
            estimate.save(building / self.model)
            measured.save(building / MEASUREMENTS)
            if draw is not None:
                draw(building / self.picture)
                if "trace" in estimate.diagnostics:
                    draw_progress(estimate, building / PROGRESS)
        return path


def six_digits(value: float) -> str:
    """The number as tables have it, and nothing for what is not known."""
    return "" if math.isnan(value) else f"{float(value):.6g}"


def draw_progress(estimate: SavedIterates, path: Path) -> None:
    """Draw the log posterior of each chain against its steps: it should settle, and all chains at one height."""
    alt = altair()
    found = estimate.diagnostics
    stride = int(found["trace_stride"])
    rows = [
        {"chain": f"{number}", "step": stride * place, "log posterior": height}
        for number, trace in enumerate(found["trace"], start=1)
        for place, height in enumerate(trace, start=1)
    ]
    agreement = "the chains have not moved" if found["rhat"] is None else f"R-hat {found['rhat']:.2f}"
    title = alt.TitleParams(
        f"{len(found['trace'])} chains of {found['steps']:,} steps",
        subtitle=[
            f"Accepted: {found['acceptance']:.0%} of the steps; effective sample size "
            f"{found['effective_sample_size']:,.0f}; {agreement}.",
            "Left of the dashed line, burn-in: tuned there, and not used.",
        ],
        anchor="start",
    )
    lines = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(strokeWidth=1)
        .encode(
            x=alt.X("step:Q"),
            y=alt.Y("log posterior:Q", scale=alt.Scale(zero=False)),
            color=alt.Color("chain:N", scale=alt.Scale(range=[BLUE, ORANGE, GREEN, PINK])),
            strokeDash=alt.StrokeDash("chain:N"),
        )
    )
    end = alt.Chart(alt.Data(values=[{"step": found["burn_in"]}])).mark_rule(strokeDash=[4, 4], color=GREY)
    chart = alt.layer(lines, end.encode(x="step:Q")).properties(width=520, height=260, title=title)
    finished(chart).save(str(path), scale_factor=2)
