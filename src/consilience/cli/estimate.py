"""`consilience estimate`: from a measurement file to a bundle with one consistent account."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consilience.cli import options
from consilience.cli.console import echo, listen, print_json, progress

if TYPE_CHECKING:
    from consilience.estimators import Estimate

EXAMPLE = (
    "Example: consilience estimate data.measurements.parquet --out release; several files are merged: "
    "consilience estimate january.parquet february.parquet census.parquet --out release"
)


def estimate_command(
    measurements: Annotated[list[Path], typer.Argument(help="A measurement file, or several that are merged.")],
    out: Annotated[Path, typer.Option("--out", help="The bundle to write: a new directory.")],
    method: Annotated[str, typer.Option("--method", help="auto, or the name of an estimator.")] = "auto",
    add_ledgers: Annotated[
        bool,
        typer.Option("--add-ledgers", help="Merge files that several ledgers paid for; what they spent is added up."),
    ] = False,
    public_records: options.PublicFile = None,
    public_name: options.PublicName = None,
    allow_misfit: options.AllowMisfit = False,
    interval: options.ErrorBars = False,
    level: options.Level = 0.95,
    refits: options.Refits = 200,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing bundle.")] = False,
    verbose: options.Verbose = False,
    json: options.AsJson = False,
) -> None:
    """Turn noisy measurements into one consistent, non-negative account. Spends nothing."""
    from consilience.estimators import estimate
    from consilience.estimators.base import check_level
    from consilience.flow import publish
    from consilience.measurements import MeasurementSet
    from consilience.publication.intervals import check_refits

    listen(verbose=verbose)
    if interval:
        check_level(level)
        check_refits(refits)
    first, *others = map(MeasurementSet.load, measurements)
    measured = first.merge(*others, ledgers="add" if add_ledgers else "one")
    public = options.public_records_of(public_records, public_name, measured.domain)
    with progress() as show:
        fitted = estimate(measured, method=method, public=public, allow_misfit=allow_misfit, progress=show)
        publish(fitted, out, interval=level if interval else None, refits=refits, overwrite=overwrite, progress=show)
    show_estimate(fitted, out, json=json, verbose=verbose)


def _details(fitted: "Estimate") -> list[str]:
    """Why this method, what the status means, and how close the fit is to its optimum."""
    gap, objective = float(fitted.stats["gap"]), float(fitted.stats["objective"])
    reason = [f"  {fitted.method['reason']}"] if "reason" in fitted.method else []
    return [*reason, f"  {fitted.status.explanation}", f"  optimality gap {gap:.2g} of objective {objective:.4g}"]


def show_estimate(fitted: "Estimate", out: Path, *, json: bool, verbose: bool) -> None:
    """Print what was fitted, what it has no basis for, and where it lies; details of the fit if it is not well."""

    basis, total = fitted.columns_basis, fitted.basis("total").worst
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
    echo(f"fitted by {fitted.method['method']}, status: {fitted.status.value}")
    for line in _details(fitted) if verbose or not fitted.status.on_purpose else ():
        echo(line)
    if "public_check" in fitted.stats:
        echo(str(fitted.stats["public_check"]))
    if basis.not_measured:
        echo(f"not measured, and not published: {', '.join(basis.not_measured)}")
    if len(basis.linked) > 1:
        groups = " | ".join(", ".join(group) for group in basis.linked)
        echo(f"never measured together, so nothing is said of how they go together: {groups}")
    echo(f"wrote the release bundle {out}")
