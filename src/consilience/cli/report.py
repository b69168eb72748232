"""`consilience report`: a page about a release that can be published with it."""

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli import options
from consilience.cli.console import echo, listen, note, print_json, progress
from consilience.errors import FileFormatError

EXAMPLE = "Example: consilience report release"


def report_command(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release bundle.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write the page alone to this file; else it and its pictures go into RELEASE."),
    ] = None,
    level: Annotated[float, typer.Option("--level", help="The level of the error bars.")] = 0.95,
    refits: Annotated[int, typer.Option("--refits", help="Refits for the error bars; more are more exact.")] = 200,
    seed: Annotated[int, typer.Option("--seed", help="A public seed, for the error bars and the checks.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="With --out: replace an existing file.")] = False,
    json: options.AsJson = False,
) -> None:
    """Write a report of a release: one page of HTML, with error bars, pictures and checks. Spends nothing."""
    from consilience.publication.bundle import is_bundle
    from consilience.publication.report import report

    if not is_bundle(release):
        raise FileFormatError(f"{release} is no release bundle; make one with: consilience estimate or release")
    listen()
    with progress() as show:
        made = report(release, out=out, level=level, refits=refits, seed=seed, overwrite=overwrite, progress=show)
    diagnosis, estimate = made.facts.diagnosis, made.facts.estimate
    if not estimate.private:
        note("NOT PRIVATE: the noise of this release was simulated, and the report says so")
    if json:
        checks = {each.name: each.p_value for each in diagnosis.noise.checks}
        print_json(
            {
                "report": str(made.path),
                "pictures": sorted(made.pictures),
                "private": estimate.private,
                "error_bars": made.facts.no_intervals is None,
                "noise": {
                    "as_drawn": diagnosis.noise.as_drawn,
                    "as_declared": diagnosis.noise.as_declared,
                    "p_value": diagnosis.noise.p_value if checks else None,
                    "checks": checks,
                },
            }
        )
        return
    if made.facts.no_intervals is not None:
        echo(f"no error bars: {made.facts.no_intervals}")
    echo(diagnosis.noise.verdict)
    if not diagnosis.noise.as_declared:
        echo(diagnosis.noise.next_step)
    echo(f"wrote {made.path}{'' if out is not None else f' and {2 * len(made.pictures)} pictures beside it'}")
