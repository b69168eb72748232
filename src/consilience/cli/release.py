"""`consilience release`: the whole flow, from a confidential table to a bundle that can be published."""

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli import options
from consilience.cli.console import echo, listen, progress
from consilience.cli.estimate import show_estimate
from consilience.cli.measure import before_charge, show_preview

EXAMPLE = "Example: consilience release data.csv --domain data.domain.toml --epsilon 1 --out release"


@options.charged
def release_command(
    data: options.Data,
    domain: options.DomainFile,
    out: Annotated[Path | None, typer.Option("--out", help="The bundle to write: a new directory.")] = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    rho: options.Rho = None,
    plan: options.PlanText = None,
    workload: options.WorkloadFile = None,
    unnamed_share: options.UnnamedShare = None,
    method: Annotated[str, typer.Option("--method", help="auto, or the name of an estimator.")] = "auto",
    public_records: options.PublicFile = None,
    public_name: options.PublicName = None,
    *,
    charge: options.Charged,
    allow_misfit: options.AllowMisfit = False,
    interval: options.ErrorBars = False,
    level: options.Level = 0.95,
    refits: options.Refits = 200,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing bundle.")] = False,
    dry_run: options.DryRunOnly = False,
    verbose: options.Verbose = False,
    json: options.AsJson = False,
) -> None:
    """Measure, estimate and write the release bundle. Spends budget, which the ledger holds."""
    listen(verbose=verbose or dry_run)
    asked = charge.planned(data, domain, plan, workload, unnamed_share, epsilon=epsilon, delta=delta, rho=rho)
    public = options.public_records_of(public_records, public_name, asked.domain)
    if dry_run:
        asked.check(method, public)
        show_preview(asked.priced, json=json)
        return
    if out is None:
        raise typer.BadParameter("name the directory to write, or use --dry-run", param_hint="--out")
    suggestion = charge.suggestion(domain, data, asked.domain)
    with progress() as show:
        made = asked.release(
            out,
            method=method,
            public=public,
            allow_misfit=allow_misfit,
            interval=level if interval else None,
            refits=refits,
            overwrite=overwrite,
            before_charge=before_charge(asked.domain, suggestion),
            progress=show,
        )
    show_estimate(made.estimate, out, json=json, verbose=verbose)
    if not json:
        from consilience.domain.declarations import spell_attribute

        known = made.estimate.columns_basis.columns.items()
        first = next((f"by {spell_attribute(name)}" for name, basis in known if basis != "not measured"), "total")
        echo(f'ask it: consilience answer {out} "{first}"')
