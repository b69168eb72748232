"""`consilience demo` and `warm-up`: what a newcomer types first."""

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli.console import echo, listen, progress

DEMO_EXAMPLE = "Example: consilience demo; consilience demo --country; consilience demo --table town.csv --people 2000"


def demo_command(
    country: Annotated[
        bool, typer.Option("--country", help="A country with states, counties, tracts and blocks, and maps of it.")
    ] = False,
    people: Annotated[
        int | None,
        typer.Option(
            "--people", min=1, help="How many people there are: by default 50,000, and a million in a country."
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="Where to put what the demo makes: demo, or demo-country."),
    ] = None,
    refits: Annotated[int, typer.Option("--refits", min=20, help="How many refits error bars rest on.")] = 50,
    table: Annotated[
        Path | None,
        typer.Option("--table", help="Only write the made-up table, as this CSV file, and its domain beside it."),
    ] = None,
) -> None:
    """Release a made-up town or country, compare it with the truth, and write a report. It takes no data of yours."""
    from consilience.demo import country as made_up
    from consilience.demo import town

    people = people or (made_up.PEOPLE if country else town.PEOPLE)
    if table is not None:
        written = made_up.write_country(table, people=people) if country else town.write_table(table, people=people)
        data, domain = written[:2]
        echo(f"wrote {people:,} people who do not exist to {data}, and what its columns may hold to {domain}")
        return
    if country:
        from consilience.demo.show_country import show_country

        show_country(people=people, folder=folder or Path("demo-country"), refits=refits)
        return
    from consilience.demo.show import show_demo

    show_demo(people=people, folder=folder or Path("demo"), refits=refits)


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
