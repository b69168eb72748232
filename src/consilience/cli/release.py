"""`consilience release`: the whole flow, from a confidential table to a bundle that can be published."""

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli import options
from consilience.cli.console import echo, progress
from consilience.cli.estimate import check_wishes, show_estimate, write_bundle
from consilience.cli.measure import Request, show_preview
from consilience.errors import DeclarationError

EXAMPLE = "Example: consilience release data.csv --domain data.domain.toml --epsilon 1 --out release"


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
    ledger: options.LedgerFile = None,
    budget: options.TotalBudget = None,
    request: options.RequestId = None,
    neighbours: options.NeighbourRelation = "add-remove",
    unit: options.UnitColumn = None,
    max_rows: options.MaxRows = None,
    table: options.SourceTable = None,
    sql: options.SourceQuery = None,
    encoding: options.Encoding = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    missing_tokens: options.MissingTokens = None,
    name: options.SourceName = None,
    simulate: options.Simulate = None,
    take_over: options.TakeOver = False,
    convert: options.Convert = False,
    checked: options.Checked = False,
    allow_misfit: options.AllowMisfit = False,
    interval: options.ErrorBars = False,
    level: options.Level = 0.95,
    refits: options.Refits = 200,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing bundle.")] = False,
    dry_run: options.DryRunOnly = False,
    json: options.AsJson = False,
) -> None:
    """Measure, estimate and write the release bundle. Spends budget, which the ledger holds."""
    from consilience.domain import Domain
    from consilience.estimators import estimate
    from consilience.estimators.choose import check_answers, check_method
    from consilience.publication.bundle import is_bundle

    amounts = {"epsilon": epsilon, "delta": delta, "rho": rho}
    declared = options.written_as(
        Domain.load(domain),
        encoding=encoding,
        delimiter=delimiter,
        decimal=decimal,
        thousands=thousands,
        missing_tokens=missing_tokens,
    )
    asked = Request(
        data,
        declared,
        options.chosen_plan(plan, workload, declared, amounts, neighbours, unnamed_share),
        amounts,
        ledger,
        budget,
        request,
        neighbours,
        unit,
        max_rows,
        table,
        sql,
        simulate,
        take_over,
        convert,
        name,
        None if checked else options.check_command(domain, data, ledger, table, sql, declared),
    )
    if dry_run:
        show_preview(asked.price(), json=json)
        return
    if out is None:
        raise typer.BadParameter("name the directory to write, or use --dry-run", param_hint="--out")
    if out.exists() and not (overwrite and is_bundle(out)):
        raise DeclarationError(f"{out} exists already; choose another name, or replace a bundle with --overwrite")
    if interval:
        check_wishes(level, refits)
    # What no estimator could fit, and questions that none could answer, are refused before anything is paid for.
    example = asked.price().example()
    check_method(example, method)
    check_answers(example, method, options.asked_queries(asked.plan, workload, declared))
    measured = asked.spend()
    with progress() as show:
        fitted = estimate(measured, method=method, allow_misfit=allow_misfit, progress=show)
    write_bundle(fitted, out, overwrite=overwrite, level=level if interval else None, refits=refits)
    show_estimate(fitted, out, json=json)
    if not json:
        from consilience.domain.spelling import spell_attribute
        from consilience.measurements.basis import columns_basis

        known = [name for name, basis in columns_basis(fitted.measurements).columns.items() if basis != "not measured"]
        asked = f"by {spell_attribute(known[0])}" if known else "total"
        echo(f'ask it: consilience answer {out} "{asked}"')
