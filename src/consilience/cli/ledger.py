"""`consilience ledger`: create a ledger, and see what has been spent."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consilience.cli import options
from consilience.cli.console import echo, print_json
from consilience.errors import LedgerError

if TYPE_CHECKING:
    from consilience.privacy.budgets import Protection

app = typer.Typer(help="Create a ledger, or show what has been spent.", no_args_is_help=True, rich_markup_mode=None)


@app.command(epilog="Example: consilience ledger create data.csv.ledger --dataset adult --epsilon 2")
def create(
    path: Annotated[Path, typer.Argument(help="The ledger to create; beside the data it is found by itself.")],
    dataset: Annotated[str, typer.Option("--dataset", help="The dataset's name, as in the domain file.")],
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    rho: options.Rho = None,
    failure_delta: options.FailureDelta = None,
    unit: options.UnitColumn = None,
    max_rows: options.MaxRows = None,
    neighbours: Annotated[
        str | None, typer.Option("--neighbours", help="add-remove or replace-one; by default as the first request.")
    ] = None,
) -> None:
    """Create a ledger with a total budget, which is set once. What it protects is set here or by its first request."""
    from consilience.privacy.budgets import budget
    from consilience.privacy.ledger import Ledger

    total = budget(epsilon=epsilon, delta=delta, rho=rho, failure_delta=failure_delta)
    protection = _protection(unit, max_rows, neighbours)
    Ledger.create(path, dataset=dataset, total=total, protection=protection)
    protects = "" if protection is None else f", to protect {protection.describe()}"
    echo(f"created {path} for {dataset!r} with {total.describe()}{protects}")


def _protection(unit: str | None, max_rows: int | None, neighbours: str | None) -> "Protection | None":
    from consilience.domain.sensitivity import check_neighbours
    from consilience.privacy.budgets import Protection
    from consilience.source.base import declared_unit

    if unit is None and max_rows is None and neighbours is None:
        return None
    relation = check_neighbours(neighbours or "add-remove")
    declared = declared_unit(unit, max_rows)
    return Protection(neighbours=relation) if declared is None else Protection(*declared, neighbours=relation)


@app.command(epilog="Example: consilience ledger show data.csv.ledger")
def show(
    path: Annotated[Path, typer.Argument(help="A ledger, or the data it lies beside.")], json: options.AsJson = False
) -> None:
    """Show the total, what was spent on what, and what remains."""
    from consilience.privacy.ledger import Ledger

    found = Ledger.open(_place(path))
    if json:
        print_json(found.to_json())
    else:
        echo(found.show())


def _place(path: Path) -> Path:
    """The ledger itself, or the one beside the data of that name."""
    beside = [given.with_name(given.name + ".ledger") for given in (path, Path(os.path.realpath(path)))]
    found = next((place for place in beside if place.exists()), path)
    if found.is_file() and found.suffix != ".ledger" and not _is_database(found):
        raise LedgerError(
            f"there is no ledger beside {path}: nothing was charged for it. The first measurement or release makes "
            "one; or name the ledger itself"
        )
    return found


def _is_database(path: Path) -> bool:
    """Whether the file begins as every ledger does."""
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"
