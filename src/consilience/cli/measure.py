"""`consilience measure`: from a confidential table to a file of noisy measurements."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consilience.cli import options
from consilience.cli.console import announce_compilation, note, print_json, print_table, progress, shown_path

if TYPE_CHECKING:
    from consilience.measurements import MeasurementSet
    from consilience.privacy.measure import DryRun

EXAMPLE = (
    "Example: consilience measure data.csv --domain data.domain.toml --epsilon 0.5 --out data.measurements.parquet"
)


def measure_command(
    data: options.Data,
    domain: options.DomainFile,
    out: Annotated[Path | None, typer.Option("--out", help="The measurement file to write.")] = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    rho: options.Rho = None,
    plan: options.PlanText = "2-way",
    ledger: options.LedgerFile = None,
    budget: options.TotalBudget = None,
    request: options.RequestId = None,
    neighbours: options.NeighbourRelation = "add-remove",
    unit: options.UnitColumn = None,
    max_rows: options.MaxRows = None,
    table: options.SourceTable = None,
    query: options.SourceQuery = None,
    simulate: options.Simulate = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell the price and the noise; touch nothing.")] = False,
    json: options.AsJson = False,
) -> None:
    """Measure a table with differential privacy. Spends budget, which the ledger holds."""
    if dry_run:
        shown = preview(domain, plan, epsilon=epsilon, delta=delta, rho=rho, neighbours=neighbours, max_rows=max_rows)
        show_preview(shown, json=json)
        return
    if out is None:
        raise typer.BadParameter("name the file to write, or use --dry-run", param_hint="--out")
    options.refuse_existing(out)
    measured = spend(
        data,
        domain,
        plan,
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        ledger=ledger,
        total=budget,
        request=request,
        neighbours=neighbours,
        unit=unit,
        max_rows=max_rows,
        table=table,
        query=query,
        simulate=simulate,
    )
    measured.save(out)
    summary = {"file": str(out), "measurements": len(measured), "private": measured.private}
    if json:
        print_json(summary | {"privacy": measured.privacy.to_json(), "provenance": dict(measured.provenance)})
    else:
        typer.echo(f"wrote {len(measured)} measurements to {out}")


def preview(
    domain: Path,
    plan: str,
    *,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    neighbours: str,
    max_rows: int | None,
) -> "DryRun":
    """What the request would cost and yield; neither data nor ledger is touched."""
    from consilience.domain import Domain
    from consilience.plans import plan_from_text
    from consilience.privacy.measure import price

    return price(
        Domain.load(domain),
        plan_from_text(plan),
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        neighbours=neighbours,
        rows_per_unit=max_rows or 1,
    )


def show_preview(shown: "DryRun", *, json: bool) -> None:
    """Print a dry run."""
    rows = shown.rows()
    if json:
        print_json(
            {
                "budget": shown.budget.to_json(),
                "neighbours": shown.neighbours,
                "answers": shown.answers,
                "bytes": shown.bytes,
                "queries": rows,
            }
        )
        return
    typer.echo(f"would spend {shown.budget.describe()} ({shown.neighbours}) on {shown.answers:,} noisy numbers")
    cells = [
        [row["query"], f"{row['answers']:,}", row["noise"], f"{row['scale']:.6g}", f"{row['stddev']:.6g}"]
        for row in rows
    ]
    print_table(["query", "answers", "noise", "scale", "stddev"], cells, numeric=2)
    typer.echo("nothing was touched: no data, no ledger")


def spend(
    data: str,
    domain: Path,
    plan: str,
    *,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    ledger: Path | None,
    total: float | None,
    request: str | None,
    neighbours: str,
    unit: str | None,
    max_rows: int | None,
    table: str | None,
    query: str | None,
    simulate: int | None,
) -> "MeasurementSet":
    """Measure and charge the ledger, or simulate; everything declared is checked before anything is spent."""
    from consilience.domain import Domain
    from consilience.plans import plan_from_text
    from consilience.privacy.budgets import budget
    from consilience.privacy.measure import measure, price

    declared = Domain.load(domain)
    chosen = plan_from_text(plan)
    asked = budget(epsilon=epsilon, delta=delta, rho=rho)
    rows_per_unit = max_rows or 1
    price(declared, chosen, epsilon=epsilon, delta=delta, rho=rho, neighbours=neighbours, rows_per_unit=rows_per_unit)
    source = options.open_source(data, declared, table=table, query=query, unit=unit, max_rows=max_rows)
    book = None
    if simulate is None:
        book = options.open_ledger(source, ledger, asked=asked, total=total)
    announce_compilation()
    with progress() as show:
        measured = measure(
            source,
            chosen,
            ledger=book,
            epsilon=epsilon,
            delta=delta,
            rho=rho,
            neighbours=neighbours,
            id=request,
            simulate=simulate,
            progress=show,
        )
    if book is None:
        note("NOT PRIVATE: the noise was simulated from a seed and protects nothing")
    elif measured.provenance["replayed"]:
        note(
            f"this request was made before ({measured.provenance['release']}); its recorded values were used again and "
            "nothing was spent. For fresh noise give it another --id"
        )
    else:
        note(f"spent {asked.describe()}; {book.remaining_text} remains in {shown_path(book.path)}")
    return measured
