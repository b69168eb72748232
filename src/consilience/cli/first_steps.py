"""`consilience demo` and `warm-up`: what a newcomer types first."""

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.console import echo, listen, progress

DEMO_EXAMPLE = "Example: consilience demo; consilience demo --table town.csv --people 2000"


def demo_command(
    people: Annotated[int, typer.Option("--people", min=1, help="How many people the town has.")] = 50_000,
    folder: Annotated[Path, typer.Option("--folder", help="Where to put what the demo makes.")] = Path("demo"),
    refits: Annotated[int, typer.Option("--refits", min=20, help="How many refits error bars rest on.")] = 50,
    table: Annotated[
        Path | None,
        typer.Option("--table", help="Only write the made-up table, as this CSV file, and its domain beside it."),
    ] = None,
) -> None:
    """Release a made-up town, compare it with the truth, and write a report. It takes no data of yours."""
    if table is not None:
        from consilience.demo import write_table

        data, domain = write_table(table, people=people)
        echo(f"wrote {people:,} people who do not exist to {data}, and what its columns may hold to {domain}")
        return
    from consilience.demo.show import show_demo

    show_demo(people=people, folder=folder, refits=refits)


WARM_UP_EXAMPLE = "Example: consilience warm-up"


def warm_up_command(
    everything: Annotated[
        bool, typer.Option("--everything", help="Every plan and method, not only what a first release needs.")
    ] = False,
) -> None:
    """Compile what a release needs, once and for all. Nothing is left to do where it came with the package."""
    from consilience.warm_up import warm_up

    listen()
    with progress() as show:
        compiled = warm_up(everything=everything, progress=show)
    echo(f"compiled {compiled:,} kernels" if compiled else "nothing had to be compiled")
