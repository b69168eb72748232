"""`consilience answer`: ask an estimate what a person would type."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consilience.cli import options
from consilience.cli.console import announce_compilation, note, print_table, progress
from consilience.errors import FileFormatError

if TYPE_CHECKING:
    from consilience.estimators import Estimate

EXAMPLE = 'Example: consilience answer release "age=25..34 by sex"'


def answer_command(
    source: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release bundle, or a measurement file.")],
    queries: Annotated[list[str], typer.Argument(metavar="QUERY...", help='Such as "age=25..34 by sex" or "total".')],
    csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated text.")] = False,
    json: options.AsJson = False,
) -> None:
    """Answer queries from a release: a table, CSV or JSON. Spends nothing."""
    from consilience.domain import Query
    from consilience.publication import answer_table

    if csv and json:
        raise typer.BadParameter("choose one of --csv and --json")
    parsed = [Query.parse(query) for query in queries]
    estimate = open_estimate(source)
    tables = [answer_table(estimate, query) for query in parsed]
    if not estimate.private:
        note("NOT PRIVATE: these numbers come from simulated noise")
    if json:
        documents = [table.to_json() for table in tables]
        typer.echo(documents[0] if len(documents) == 1 else "[\n" + ",\n".join(documents) + "\n]")
        return
    for table in tables:
        if csv:
            typer.echo(table.to_csv(), nl=False)
            continue
        rows = [[*labels, *_numbers(row)] for labels, row in zip(table.labels, table.rows(), strict=True)]
        print_table(table.header, rows, numeric=len(table.header) - len(table.columns), title=table.query.describe())


def open_estimate(path: Path) -> "Estimate":
    """The estimate of a bundle, or one fitted now to a measurement file."""
    from consilience.estimators import estimate
    from consilience.measurements import MeasurementSet
    from consilience.publication import open_release

    if path.is_dir():
        return open_release(path).estimate
    if not path.exists():
        raise FileFormatError(f"there is no release bundle or measurement file {path}")
    measured = MeasurementSet.load(path)
    announce_compilation()
    with progress() as show:
        return estimate(measured, progress=show)


def _numbers(row: dict[str, object]) -> list[str]:
    return [f"{value:,.1f}" for key in ("estimate", "noisy") if isinstance(value := row.get(key), float)]
