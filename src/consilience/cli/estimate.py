"""`consilience estimate`: from a measurement file to a bundle with one consistent account."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consilience.cli import options
from consilience.cli.console import announce_compilation, echo, note, print_json, progress
from consilience.errors import MeasurementError

if TYPE_CHECKING:
    from consilience.estimators import Estimate

EXAMPLE = "Example: consilience estimate data.measurements.parquet --out release"


def estimate_command(
    measurements: Annotated[Path, typer.Argument(help="A measurement file.")],
    out: Annotated[Path, typer.Option("--out", help="The bundle to write: a new directory.")],
    method: Annotated[str, typer.Option("--method", help="auto, or the name of an estimator.")] = "auto",
    allow_misfit: options.AllowMisfit = False,
    interval: options.ErrorBars = False,
    level: options.Level = 0.95,
    refits: options.Refits = 200,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing bundle.")] = False,
    json: options.AsJson = False,
) -> None:
    """Turn noisy measurements into one consistent, non-negative account. Spends nothing."""
    from consilience.estimators import estimate
    from consilience.measurements import MeasurementSet

    if interval:
        check_wishes(level, refits)
    measured = MeasurementSet.load(measurements)
    announce_compilation()
    with progress() as show:
        fitted = estimate(measured, method=method, allow_misfit=allow_misfit, progress=show)
    write_bundle(fitted, out, overwrite=overwrite, level=level if interval else None, refits=refits)
    show_estimate(fitted, out, json=json)


def check_wishes(level: float, refits: int) -> None:
    """Refuse error bars that nobody can make, before anything is spent or fitted."""
    from consilience.publication.intervals import check_level, check_refits

    check_level(level)
    check_refits(refits)


def write_bundle(fitted: "Estimate", out: Path, *, overwrite: bool, level: float | None, refits: int) -> None:
    """Write the bundle, with error bars at this level if there is one; where there can be none, without, saying why."""
    from consilience.publication import release

    if level is not None:
        try:
            with progress() as show:
                release(fitted, out, overwrite=overwrite, interval=level, refits=refits, progress=show)
        except MeasurementError as error:
            note(f"no error bars: {error}")
        else:
            return
    release(fitted, out, overwrite=overwrite)


def _status(fitted: "Estimate") -> str:
    """The status, with the optimality gap where the optimum was what the fit was after."""
    from consilience.solvers.fit import Status

    if fitted.status in (Status.LEAST_RISK, Status.NOISE_LEVEL, Status.MISFIT):
        return f"{fitted.status.value}. {fitted.status.explanation}"
    gap, objective = float(fitted.stats["gap"]), float(fitted.stats["objective"])
    return f"{fitted.status.value}; optimality gap {gap:.2g} of objective {objective:.4g}"


def show_estimate(fitted: "Estimate", out: Path, *, json: bool) -> None:
    """Print what was fitted, what it has no basis for, and where it lies."""
    from consilience.measurements.basis import columns_basis

    basis, total = columns_basis(fitted.measurements), fitted.basis("total").worst
    if json:
        print_json(
            {
                "bundle": str(out),
                "method": dict(fitted.method),
                "status": fitted.status.value,
                "stats": dict(fitted.stats),
                "total": None if total == "not measured" else fitted.total,
                "total_basis": total,
                "basis": basis.to_json(),
                "private": fitted.private,
            }
        )
        return
    method = fitted.method
    echo(f"fitted by {method['method']}: {method['reason']}" if "reason" in method else f"fitted by {method['method']}")
    echo(f"status: {_status(fitted)}")
    if basis.not_measured:
        echo(f"not measured, and not published: {', '.join(basis.not_measured)}")
    if len(basis.linked) > 1:
        groups = " | ".join(", ".join(group) for group in basis.linked)
        echo(f"never measured together, so nothing is said of how they go together: {groups}")
    echo(f"wrote the release bundle {out}")
