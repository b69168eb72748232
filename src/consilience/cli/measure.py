"""`consilience measure`: from a confidential table to a file of noisy measurements."""

from collections.abc import Callable
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
    from consilience.measuring import DryRun
    from consilience.privacy.ledger import Ledger

EXAMPLE = (
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
    *,
    charge: options.Charged,
    dry_run: options.DryRunOnly = False,
    verbose: options.Verbose = False,
    json: options.AsJson = False,
) -> None:
    """Measure a table with differential privacy. Spends budget, which the ledger holds."""
    listen(verbose=verbose or dry_run)
    asked = charge.planned(data, domain, plan, workload, unnamed_share, epsilon=epsilon, delta=delta, rho=rho)
    if dry_run:
        asked.priced.check_answers()
        show_preview(asked.priced, json=json)
        return
    if out is None:
        raise typer.BadParameter("name the file to write, or use --dry-run", param_hint="--out")
    options.refuse_existing(out)
    suggestion = charge.suggestion(domain, data, asked.domain)
    with progress() as show:
        measured = asked.measure(before_charge=before_charge(asked.domain, suggestion), progress=show)
    measured.save(out)
    summary = {"file": str(out), "measurements": len(measured), "private": measured.private}
    if json:
        print_json(summary | {"privacy": measured.privacy.to_json(), "provenance": dict(measured.provenance)})
    else:
        echo(f"wrote {len(measured)} measurements to {out}")


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
        echo(in_words_of_the_command_line(line))
    cells = [
        [row["query"], f"{row['answers']:,}", row["noise"], f"{row['scale']:.6g}", f"{row['stddev']:.6g}"]
        for row in rows
    ]
    print_table(["query", "answers", "noise", "scale", "stddev"], cells, numeric=2)
    echo("nothing was touched: no data, no ledger")
