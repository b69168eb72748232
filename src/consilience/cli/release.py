"""`consilience measure`, `estimate` and `release`: from a confidential table to noisy measurements, from these to one
account, and both at once.
"""

from collections.abc import Callable
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consilience.cli import options
from consilience.cli.console import (
    echo,
    in_words_of_the_command_line,
    listen,
    note,
    print_json,
    print_table,
    progress,
    watch_spending,
)

if TYPE_CHECKING:
    from consilience.domain import Domain
    from consilience.estimators import Estimate
    from consilience.estimators.base import Suitability
    from consilience.measuring import DryRun
    from consilience.planning.outcomes import WhatIf
    from consilience.privacy.ledger import Ledger

MEASURE_EXAMPLE = (
    "Example: consilience measure data.csv --domain data.domain.toml --epsilon 0.5 --out data.measurements.parquet"
)


@options.charged
def measure_command(
    data: options.Data,
    domain: options.DomainFile,
    out: Annotated[Path | None, typer.Option("--out", help="The measurement file to write.")] = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    rho: options.Rho = None,
    plan: options.PlanText = None,
    workload: options.WorkloadFile = None,
    unnamed_share: options.UnnamedShare = None,
    sums_share: options.SumsShare = None,
    *,
    finding: options.Found,
    charge: options.Charged,
    dry_run: options.DryRunOnly = False,
    show_sql: options.ShowSql = False,
    verbose: options.Verbose = False,
    json: options.AsJson = False,
) -> None:
    """Measure a table with differential privacy. Spends budget, which the ledger holds."""
    listen(verbose=verbose or dry_run)
    shares = {"unnamed_share": unnamed_share, "sums_share": sums_share}
    amount = {"epsilon": epsilon, "delta": delta, "rho": rho} | vars(finding)
    asked = charge.planned(data, domain, plan, workload, **shares, **amount)
    if show_sql:
        for statement in asked.statements():
            echo(f"{statement};")
        return
    if dry_run:
        asked.priced.check_answers()
        show_preview(asked.priced, json=json)
        return
    if out is None:
        raise typer.BadParameter("name the file to write, or use --dry-run", param_hint="--out")
    options.refuse_existing(out)
    suggestion, beside = charge.suggestion(domain, data, asked.domain), asked.domain_beside(out)
    with progress() as show:
        measured = asked.measure(
            domain_out=beside, before_charge=before_charge(asked.domain, suggestion), progress=show
        )
    measured.save(out)
    summary = {"file": str(out), "measurements": len(measured), "private": measured.private}
    if json:
        print_json(summary | {"privacy": measured.privacy.to_json(), "provenance": dict(measured.provenance)})
    else:
        echo(f"wrote {len(measured)} measurements to {out}")
        tell_found(beside)


def tell_found(beside: Path | None) -> None:
    """Where the domain is that was found, if something was to be."""
    if beside is not None:
        from consilience.domain.files import shown_path

        echo(f"wrote the domain that was found to {shown_path(beside)}: later requests with it spend nothing on that")


def before_charge(domain: "Domain", suggestion: str | None) -> "Callable[[Ledger], None]":
    """Before the first spend of a ledger, suggest the command that compares the domain with the data.

    Neither the data nor what a check found has a part in it.
    """

    def suggest(book: "Ledger") -> None:
        from consilience.curation.draft import was_checked

        if suggestion is not None and not book.entries() and not was_checked(book.path, domain):
            note(
                "this is the first spend of the ledger, and a domain that does not fit the data spends it on nothing. "
                f"`{suggestion}` tells you whether it fits: NOT PRIVATE, for your eyes only. --checked leaves "
                "this note out"
            )
        watch_spending(book)

    return suggest


def show_preview(
    shown: "DryRun", *, json: bool, fit: "Suitability | None" = None, tried: "WhatIf | str | None" = None
) -> None:
    """Print a dry run, with the memory that it would take; with that of the fit where there will be one, and with what
    the plan did on made-up tables where it was tried."""
    from consilience.errors import readable_bytes

    rows, peak = shown.rows(), shown.peak_bytes if fit is None else shown.peak_bytes_of(fit)
    if json:
        print_json(
            {
                "budget": shown.budget.to_json(),
                "neighbours": shown.neighbours,
                "answers": shown.answers,
                "bytes": shown.bytes,
                "peak_bytes": peak,
                "queries": rows,
                "notes": list(shown.notes),
            }
            | ({} if tried is None else {"tried": tried if isinstance(tried, str) else loads(tried.to_json())})
        )
        return
    if tried is not None:
        for line in [tried] if isinstance(tried, str) else [*tried.sentences, *tried.notes]:
            echo(in_words_of_the_command_line(line))
    echo(f"would spend {shown.budget.describe()} ({shown.neighbours}) on {shown.answers:,} noisy numbers")
    echo(f"would take about {readable_bytes(peak)} of memory at its peak")
    for line in shown.notes:
        echo(in_words_of_the_command_line(line))
    cells = [
        [row["query"], f"{row['answers']:,}", row["noise"], f"{row['scale']:.6g}", f"{row['stddev']:.6g}"]
        for row in rows
    ]
    print_table(["query", "answers", "noise", "scale", "stddev"], cells, numeric=2)
    echo("nothing was touched: no data, no ledger")


# ----------------------------------------------------------------------------------------------------------------------
# `consilience estimate`: from a measurement file to a bundle with one consistent account.


ESTIMATE_EXAMPLE = (
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
    from consilience.measurements import MeasurementSet
    from consilience.publication.intervals.refits import check_refits
    from consilience.publication.release import publish

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


# ----------------------------------------------------------------------------------------------------------------------
# `consilience release`: the whole flow, from a confidential table to a bundle that can be published.


RELEASE_EXAMPLE = "Example: consilience release data.csv --domain data.domain.toml --epsilon 1 --out release"


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
    sums_share: options.SumsShare = None,
    method: Annotated[str, typer.Option("--method", help="auto, or the name of an estimator.")] = "auto",
    public_records: options.PublicFile = None,
    public_name: options.PublicName = None,
    *,
    finding: options.Found,
    charge: options.Charged,
    allow_misfit: options.AllowMisfit = False,
    interval: options.ErrorBars = False,
    level: options.Level = 0.95,
    refits: options.Refits = 200,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing bundle.")] = False,
    dry_run: options.DryRunOnly = False,
    records: options.Records = None,
    verbose: options.Verbose = False,
    json: options.AsJson = False,
) -> None:
    """Measure, estimate and write the release bundle. Spends budget, which the ledger holds."""
    listen(verbose=verbose or dry_run)
    shares = {"unnamed_share": unnamed_share, "sums_share": sums_share}
    amount = {"epsilon": epsilon, "delta": delta, "rho": rho} | vars(finding)
    asked = charge.planned(data, domain, plan, workload, **shares, **amount)
    public = options.public_records_of(public_records, public_name, asked.domain)
    if dry_run:
        from consilience.cli.planning import tried_out

        fit = asked.check(method, public)
        show_preview(asked.priced, json=json, fit=fit, tried=tried_out(asked, records, fit, method))
        return
    if records is not None:
        raise typer.BadParameter("it is for --dry-run; a release learns the number privately", param_hint="--records")
    if out is None:
        raise typer.BadParameter("name the directory to write, or use --dry-run", param_hint="--out")
    suggestion, beside = charge.suggestion(domain, data, asked.domain), asked.domain_beside(out, overwrite=overwrite)
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
        tell_found(beside)
        from consilience.domain.declarations import spell_attribute

        known = made.estimate.columns_basis.columns.items()
        first = next((f"by {spell_attribute(name)}" for name, basis in known if basis != "not measured"), "total")
        echo(f'ask it: consilience answer {out} "{first}"')
