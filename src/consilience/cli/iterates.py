"""What `kmeans` and `logistic` have in common: points or earlier rounds in, a folder out, nothing spent in between."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from consilience.cli import options
from consilience.cli.console import listen, note, progress
from consilience.cli.release import before_charge, show_preview

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from consilience.estimators.iterates import SavedIterates
    from consilience.measurements import MeasurementSet
    from consilience.privacy.measure import Plan


@dataclass(frozen=True)
class IterateOptions:
    """What both verbs ask about the points, the budget, the chains and the folder."""

    data: options.Points = None
    epsilon: options.Epsilon = None
    delta: options.Delta = None
    rho: options.Rho = None
    bounds: options.Bounds = None
    domain: options.PointsDomainFile = None
    out: options.NewFolder = None
    measurements: options.EarlierRounds = None
    region: options.RegionOfPoints = "box"
    level: options.BarLevel = 0.9
    steps: options.ChainSteps = None
    chains: options.Chains = None
    overwrite: options.OverwriteFolder = False
    pictures: options.Pictures = True
    dry_run: options.DryRunOnly = False
    json: options.AsJson = False

    def publish(
        self, publish: Callable[..., Any], charge: options.Charged, plan: Callable[[], "Plan"], **asked: object
    ) -> Any:
        """What `publish` found and wrote; None where only the price was asked for.

        `asked` are the options of the verb's own that say what to measure.
        """
        from consilience.measurements import MeasurementSet

        listen()
        amount = {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho}
        before: dict[str, Any] = {}
        if self.measurements is not None:
            options.refuse_both(data=self.data, **asked, bounds=self.bounds, domain=self.domain, **amount)
            request = None
        else:
            declared = charge.written_as(options.points_domain(self.data, self.bounds, self.domain))
            suggestion = None if self.domain is None else charge.suggestion(self.domain, str(self.data), declared)
            request = charge.asked(data=self.data, domain=declared, plan=plan(), **amount)
            before["before_charge"] = before_charge(declared, suggestion)
        if self.dry_run:
            if request is None:
                raise typer.BadParameter("rounds that were measured before cost nothing", param_hint="--dry-run")
            show_preview(request.priced, json=self.json)
            return None
        if self.out is None:
            raise typer.BadParameter("name the folder to write, or use --dry-run", param_hint="--out")
        if request is None:
            note("the rounds were measured before: nothing is spent")
        same = ("level", "steps", "chains", "pictures", "overwrite")
        with progress() as show:
            return publish(
                MeasurementSet.load(str(self.measurements)) if request is None else request,
                self.out,
                **{name: getattr(self, name) for name in same},
                **before,
                progress=show,
            )

    @property
    def folder(self) -> Path:
        """The folder that was written."""
        assert self.out is not None
        return self.out


def names_of(text: str | None) -> list[str] | None:
    """The attributes that were typed as a,b,c; None for all."""
    return None if text is None else [name.strip() for name in text.split(",")]


def summary(found: "SavedIterates", measured: "MeasurementSet") -> dict[str, Any]:
    """What both verbs print as JSON about how the result came about."""
    return {
        "method": found.method["name"],
        "no_intervals": found.no_intervals,
        "private": found.private,
        "privacy": measured.privacy.to_json(),
        "diagnostics": {key: value for key, value in found.diagnostics.items() if key not in ("trace", "trace_stride")},
    }


def or_none(values: "NDArray[np.float64]") -> list[Any]:
    """The values for JSON, which has no NaN."""
    return [or_none(row) if row.ndim else (None if row != row else float(row)) for row in values]


def wrote(out: Path, *files: str) -> str:
    """A line that names the files of the folder, those of them that are there."""
    return f"wrote {out}: {', '.join(name for name in files if (out / name).exists())}"
