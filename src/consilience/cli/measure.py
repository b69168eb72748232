"""`consilience measure`: from a confidential table to a file of noisy measurements."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consilience.cli import options
from consilience.cli.console import (
    announce_compilation,
    echo,
    note,
    print_json,
    print_table,
    progress,
    shown_path,
    watch_spending,
)

if TYPE_CHECKING:
    from consilience.domain import Domain
    from consilience.measurements import MeasurementSet
    from consilience.privacy.budgets import Budget
    from consilience.privacy.ledger import Ledger
    from consilience.privacy.measure import DryRun, Plan
    from consilience.source import Source

EXAMPLE = (
    "Example: consilience measure data.csv --domain data.domain.toml --epsilon 0.5 --out data.measurements.parquet"
)


@dataclass(frozen=True)
class Request:
    """What the user asked to be measured."""

    data: str
    domain: "Domain"
    plan: "Plan"
    amounts: dict[str, float | None]
    """Epsilon, delta and rho."""
    ledger: Path | None
    total: float | None
    id: str | None
    neighbours: str
    unit: str | None
    max_rows: int | None
    table: str | None
    sql: str | None
    simulate: int | None
    take_over: bool
    convert: bool
    name: str | None
    suggestion: str | None = None
    """The command that compares the domain with the data, to be suggested before the first spend."""

    def price(self) -> "DryRun":
        """What the request would cost and yield; neither data nor ledger is touched."""
        from consilience.privacy.measure import price

        amounts: Any = self.amounts
        return price(self.domain, self.plan, **amounts, neighbours=self.neighbours, rows_per_unit=self.max_rows or 1)

    def spend(self) -> "MeasurementSet":
        """Measure and charge the ledger, or simulate; everything declared is checked before anything is spent."""
        from consilience.privacy.measure import measure

        priced = self.price()
        source = options.open_source(
            self.data,
            priced.domain,
            table=self.table,
            query=self.sql,
            unit=self.unit,
            max_rows=self.max_rows,
            name=self.name,
        )
        book = None
        if self.simulate is None:
            book = options.open_ledger(source, self.ledger, asked=priced.budget, total=self.total)
            self._say_what_is_known(source, book, priced.budget)
            self._suggest_check(book)
        watch_spending(book)
        announce_compilation()
        amounts: Any = self.amounts
        with progress() as show:
            measured = measure(
                source,
                self.plan,
                ledger=book,
                **amounts,
                neighbours=self.neighbours,
                id=self.id,
                take_over=self.take_over,
                convert=self.convert,
                simulate=self.simulate,
                progress=show,
            )
        if book is None:
            note("NOT PRIVATE: the noise was simulated from a seed and protects nothing")
        elif measured.provenance["replayed"]:
            note(
                f"this request was made before ({measured.provenance['release']}); its recorded values were used again "
                "and nothing was spent. For fresh noise give it another --id"
            )
        else:
            charged = book.entry(measured.provenance["release"])
            cost = f", charged as {charged.charged.describe()}" if charged is not None and charged.charged else ""
            note(f"spent {priced.budget.describe()}{cost}; {book.remaining_text} remains in {shown_path(book.path)}")
        return measured

    def _suggest_check(self, book: "Ledger") -> None:
        """Before the first spend of a ledger; neither the data nor what a check found has a part in it."""
        from consilience.privacy.ledger_places import was_checked

        if self.suggestion is not None and not book.entries() and not was_checked(book.path, self.domain):
            note(
                "this is the first spend of the ledger, and a domain that does not fit the data spends it on nothing. "
                f"`{self.suggestion}` tells you whether it fits: NOT PRIVATE, for your eyes only. --checked leaves "
                "this note out"
            )

    def _say_what_is_known(self, source: "Source", book: "Ledger", cost: "Budget") -> None:
        """Before anything is spent: the same request of another source was charged already, and this one will be."""
        from consilience.privacy.measure import charged_elsewhere

        if self.id is None:
            for entry in charged_elsewhere(source, self.plan, book, cost, self.neighbours):
                told = ", ".join(f"{name} {value!r}" for name, value in (entry.source or {}).items() if value)
                note(f"the ledger holds this request for another source ({told}); for this one it is charged anew")


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
    dry_run: options.DryRunOnly = False,
    json: options.AsJson = False,
) -> None:
    """Measure a table with differential privacy. Spends budget, which the ledger holds."""
    from consilience.domain import Domain

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
        raise typer.BadParameter("name the file to write, or use --dry-run", param_hint="--out")
    options.refuse_existing(out)
    measured = asked.spend()
    measured.save(out)
    summary = {"file": str(out), "measurements": len(measured), "private": measured.private}
    if json:
        print_json(summary | {"privacy": measured.privacy.to_json(), "provenance": dict(measured.provenance)})
    else:
        echo(f"wrote {len(measured)} measurements to {out}")


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
                "notes": list(shown.notes),
            }
        )
        return
    echo(f"would spend {shown.budget.describe()} ({shown.neighbours}) on {shown.answers:,} noisy numbers")
    for line in shown.notes:
        echo(line)
    cells = [
        [row["query"], f"{row['answers']:,}", row["noise"], f"{row['scale']:.6g}", f"{row['stddev']:.6g}"]
        for row in rows
    ]
    print_table(["query", "answers", "noise", "scale", "stddev"], cells, numeric=2)
    echo("nothing was touched: no data, no ledger")
