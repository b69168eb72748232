"""`consilience ledger`: create a ledger, and see what has been spent."""

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli import options
from consilience.cli.console import echo, print_json, print_table

app = typer.Typer(help="Create a ledger, or show what has been spent.", no_args_is_help=True, rich_markup_mode=None)


@app.command(epilog="Example: consilience ledger create data.csv.ledger --dataset adult --epsilon 2")
def create(
    path: Annotated[Path, typer.Argument(help="The ledger to create; beside the data it is found by itself.")],
    dataset: Annotated[str, typer.Option("--dataset", help="The dataset's name, as in the domain file.")],
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    rho: options.Rho = None,
) -> None:
    """Create a ledger with a total budget, which is set once."""
    from consilience.privacy.budgets import budget
    from consilience.privacy.ledger import Ledger

    made = Ledger.create(path, dataset=dataset, total=budget(epsilon=epsilon, delta=delta, rho=rho))
    echo(f"created {path} for {dataset!r} with {made.total.describe()}")


@app.command(epilog="Example: consilience ledger show data.csv.ledger")
def show(
    path: Annotated[Path, typer.Argument(help="A ledger, or the data it lies beside.")], json: options.AsJson = False
) -> None:
    """Show the total, what was spent on what, and what remains."""
    from consilience.privacy.budgets import decimal_text
    from consilience.privacy.ledger import Ledger

    beside = path.with_name(path.name + ".ledger")
    found = Ledger.open(beside if beside.exists() else path)
    entries = found.entries()
    if json:
        print_json(
            {
                "dataset": found.dataset,
                "total": found.total.to_json(),
                "unit": found.total.additive_unit,
                "spent": decimal_text(found.spent),
                "remaining": decimal_text(found.remaining),
                "entries": [
                    {
                        "id": entry.id,
                        "state": entry.state,
                        "cost": decimal_text(entry.cost),
                        "created": entry.created,
                        "description": entry.description,
                    }
                    for entry in entries
                ],
            }
        )
        return
    echo(f"dataset {found.dataset!r}: {found.total.describe()} in all, {found.remaining_text} remains")
    if entries:
        rows = [[each.id, each.state, each.created, each.description, decimal_text(each.cost)] for each in entries]
        print_table(["id", "state", "created", "plan", found.total.additive_unit], rows, numeric=1)
