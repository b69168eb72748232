"""`consilience evaluate`: the error of a release against the truth. NOT PRIVATE."""

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli import options
from consilience.cli.answer import open_estimate
from consilience.cli.console import echo, listen, note

EXAMPLE = "Example: consilience evaluate release data.csv --domain data.domain.toml --workload wanted.toml"


def evaluate_command(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release bundle, or a measurement file.")],
    data: options.Data,
    workload: Annotated[Path, typer.Option("--workload", help="The workload file (TOML): the queries to judge.")],
    domain: Annotated[
        Path | None, typer.Option("--domain", help="The domain file (TOML); by default the release's own domain.")
    ] = None,
    unit: options.UnitColumn = None,
    max_rows: options.MaxRows = None,
    table: options.SourceTable = None,
    sql: options.SourceQuery = None,
    json: options.AsJson = False,
) -> None:
    """Tell the error of a release against the confidential table. NOT PRIVATE: do not publish what it prints."""
    from consilience.domain import Domain, Workload
    from consilience.evaluation import NOTICE, evaluate
    from consilience.source import open_table

    listen()
    wanted = Workload.load(workload)
    for line in wanted.notes:
        note(line)
    estimate = open_estimate(release)
    declared = estimate.domain if domain is None else Domain.load(domain)
    source = open_table(data, declared, table=table, query=sql, unit=unit, max_rows_per_unit=max_rows)
    found = evaluate(estimate, source, wanted)
    note(NOTICE)
    echo(found.to_json() if json else found.table())
