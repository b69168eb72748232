"""`consilience check`: is this file one of ours, is it whole, and may it be published?"""

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli import options
from consilience.cli.console import echo, print_json

EXAMPLE = "Example: consilience check release"


def check_command(
    path: Annotated[
        Path,
        typer.Argument(help="A bundle, a ledger, or a file: domain, workload, measurements, model, table, synthetic."),
    ],
    allow_simulated: Annotated[
        bool, typer.Option("--allow-simulated", help="Exit code 0 for simulated noise, too. It is still NOT PRIVATE.")
    ] = False,
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", help="Compare measurements with the checksum that this ledger has of them."),
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Say what a file is and that it is valid, or what is wrong with it (exit code 1).

    What must not be published has exit code 1 even if it is valid: simulated noise, measurements that were changed
    after they were drawn, and a draft of a domain.
    """
    from consilience.file_checks import check

    found = check(path, ledger=ledger)
    if json:
        first = {"notice": found.notice} if found.notice else {}
        about = {"file": str(path), "kind": found.kind, "valid": True, "summary": found.summary}
        print_json(first | {"private": found.private} | about)
    else:
        echo((f"{found.notice}\n" if found.notice else "") + f"{path}: {found.kind}, valid. {found.summary}")
    if found.warning or (found.private is False and not allow_simulated):
        raise typer.Exit(1)
