"""`consilience plan`: what each budget would buy, told from a domain, a workload and a guess, without data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consilience.cli import options
from consilience.cli.console import echo, in_words_of_the_command_line, print_table, progress

if TYPE_CHECKING:
    from consilience.estimators.base import Suitability
    from consilience.planning.outcomes import WhatIf
    from consilience.request import Request

EXAMPLE = "Example: consilience plan --domain town.domain.toml --records 20000 --out town.png"
ASSUMED = 10_000
"""As many records does a dry run try a plan on where their number is neither public nor guessed."""


@options.charged
def plan_command(
    domain: options.DomainFile,
    workload: options.WorkloadFile = None,
    records: options.Records = None,
    epsilon: Annotated[
        list[float] | None,
        typer.Option("--epsilon", help="A budget to try; once for each. By default 0.1, 0.3, 1, 3 and 10."),
    ] = None,
    delta: options.Delta = None,
    rho: Annotated[list[float] | None, typer.Option("--rho", help="A budget in rho to try; once for each.")] = None,
    plan: options.PlanText = None,
    *,
    unnamed_share: options.UnnamedShare = None,
    sums_share: options.SumsShare = None,
    neighbours: options.NeighbourRelation = "add-remove",
    max_rows: Annotated[
        int | None, typer.Option("--max-rows-per-unit", help="How many rows each protected unit has at most; 1.")
    ] = None,
    method: Annotated[str, typer.Option("--method", help="auto, or the name of an estimator.")] = "auto",
    seed: Annotated[int, typer.Option("--seed", help="A public seed for the made-up tables and their noise.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="A picture (.png, .svg) or the numbers (.csv, .json) to write.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Tell the error of every query, too.")] = False,
    json: options.AsJson = False,
) -> None:
    """Tell what each budget would buy: what is measured and how far answers are off. Needs no data, spends nothing."""
    from consilience.planning.outcomes import check_what_if_file
    from consilience.planning.what_if import plan as tried

    if out is not None:
        check_what_if_file(out)
        options.refuse_existing(out, overwrite=overwrite)
    with progress() as show:
        found = tried(
            domain,
            workload,
            records=records,
            epsilon=epsilon or None,
            delta=delta,
            rho=rho or None,
            plan=plan,
            unnamed_share=unnamed_share,
            sums_share=sums_share,
            neighbours=neighbours,
            max_rows_per_unit=max_rows,
            method=method,
            seed=seed,
            progress=show,
        )
    if out is not None:
        found.save(out)
    if json:
        echo(found.to_json())
        return
    show_what_if(found, verbose=verbose)
    if out is not None:
        echo(f"wrote {out}")


def show_what_if(found: "WhatIf", *, verbose: bool) -> None:
    """Print the table, and with `verbose` every query."""
    from consilience.planning.outcomes import readable

    told = found.described()
    echo(told.title)
    for line in told.lines:
        echo(in_words_of_the_command_line(line))
    print_table(told.header, told.rows)
    if verbose:
        rows = [
            [
                f"{each.amount:g}",
                each.stand_in or "noise alone",
                row.query,
                row.basis,
                f"{row.answers:,}",
                readable(row.error),
                readable(row.margin),
            ]
            for each in found.outcomes
            for row in each.rows
        ]
        print_table([found.unit, "told by", "query", "basis", "answers", "error", "95 % within"], rows, numeric=3)
    echo("nothing was touched: no data, no ledger")


def tried_out(asked: "Request", records: int | None, fit: "Suitability", method: str) -> "WhatIf | str":
    """What a request would do on made-up tables, for a dry run; or why that was not tried."""
    from consilience.errors import ConsilienceError
    from consilience.estimators.choose import is_slow
    from consilience.planning.what_if import what_if

    domain = asked.domain
    if records is None and domain.public.total is None:
        records = ASSUMED
    if is_slow(fit):
        return "not tried on made-up tables, as a fit takes long; consilience plan does it"
    amounts = {name: amount for name in ("epsilon", "delta", "rho") if (amount := getattr(asked, name)) is not None}
    try:
        with progress() as show:
            return what_if(asked, records, [amounts], method=method, progress=show)
    except ConsilienceError as error:
        return f"not tried on made-up tables: {error}"
