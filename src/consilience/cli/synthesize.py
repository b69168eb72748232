"""`consilience synthesize`: records that look like the original and are made from the account alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consilience.cli import options
from consilience.cli.answer import open_estimate
from consilience.cli.console import echo, listen, note, print_json, progress
from consilience.errors import DeclarationError

if TYPE_CHECKING:
    from consilience.publication.synthetic import SyntheticRecords

EXAMPLE = "Example: consilience synthesize release --out people.csv"


def synthesize_command(
    source: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release bundle, or a measurement file.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write: .csv or .parquet.")],
    rows: Annotated[
        int | None, typer.Option("--rows", help="How many records; by default as many as were estimated.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="A public seed: the same seed gives the same records.")] = 0,
    spread: Annotated[
        str, typer.Option("--spread", help="Numbers inside their bins: even (drawn evenly), midpoint, or lower.")
    ] = "even",
    fill_unmeasured: Annotated[
        bool, typer.Option("--fill-unmeasured", help="Fill columns that were not measured with what is assumed.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    json: options.AsJson = False,
) -> None:
    """Write synthetic records with the original's labels and types. Spends nothing."""
    from consilience.publication import write_synthetic
    from consilience.publication.record_files import check_target
    from consilience.publication.synthetic import check_wishes, expected_rows, prepare

    if out.exists() and not overwrite:
        raise DeclarationError(f"{out} exists already; choose another name, or replace it with --overwrite")
    check_target(out, overwrite=overwrite)
    listen()
    rule = check_wishes(rows, seed=seed, spread=spread)
    estimate = open_estimate(source)
    asked = prepare(estimate, rows, seed=seed, spread=rule, fill_unmeasured=fill_unmeasured)
    known = expected_rows(estimate)
    if asked.rows > known:
        note(
            f"warning: {asked.rows:,} rows were asked for, and the account has about {known:,} records; more rows add "
            "no information, and counts made from them have to be scaled down"
        )
    domain = estimate.domain
    left_out = [each.name for each in domain.attributes if each.release and each not in domain.counted]
    if left_out:
        note(f"left out, because they have no cells: {', '.join(left_out)}")
    _tell_basis(asked)
    with progress() as show:
        write_synthetic(
            estimate,
            out,
            asked.rows,
            seed=seed,
            spread=rule,
            fill_unmeasured=fill_unmeasured,
            overwrite=overwrite,
            progress=show,
        )
    if not estimate.private:
        note("NOT PRIVATE: these records come from simulated noise, and protect nobody")
    if json:
        written = {"file": str(out), "rows": asked.rows, "seed": seed, "spread": spread, "private": estimate.private}
        found = {"basis": asked.basis.to_json(), "left_out": list(asked.left_out), "filled": list(asked.filled)}
        print_json(written | found)
        return
    echo(f"wrote {asked.rows:,} synthetic records to {out}")


def _tell_basis(asked: "SyntheticRecords") -> None:
    """Say which columns stand on nothing, and which no measurement links."""
    if asked.left_out:
        note(
            f"left out, because they were not measured: {', '.join(asked.left_out)}; --fill-unmeasured fills them with "
            "what the account assumes"
        )
    if asked.filled:
        note(f"filled with what the account assumes, NOT MEASURED: {', '.join(asked.filled)}")
    groups = [written for group in asked.basis.linked if (written := [name for name in group if name in asked.names])]
    groups += [[name] for name in asked.filled if not any(name in group for group in groups)]
    if len(groups) > 1:
        note(
            "independent of each other in these records, because no measurement links them: "
            + " | ".join(", ".join(group) for group in groups)
        )
