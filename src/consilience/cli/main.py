"""The command line: one function per verb, thin over the library.

Exit codes: 0 done, 1 refused or failed with a clear reason, 2 wrong usage, 130 stopped by Ctrl-C. Heavy imports happen
inside the verbs, so that `--help` answers at once.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from consilience.cli import after_release, answer, domain, iterates, ledger, release
from consilience.cli.console import (
    Interrupted,
    echo,
    listen,
    note,
    progress,
    refuse,
    report_bug,
    stopping_at_interrupt,
    what_was_recorded,
)
from consilience.errors import ConsilienceError

app = typer.Typer(
    name="consilience",
    help="Measure a table with differential privacy, and turn the noisy numbers into one consistent account.",
    epilog="New here? consilience demo. With data of your own: consilience domain draft data.csv > data.domain.toml",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(domain.app, name="domain")
app.add_typer(ledger.app, name="ledger")
app.command("measure", epilog=release.MEASURE_EXAMPLE)(release.measure_command)
app.command("estimate", epilog=release.ESTIMATE_EXAMPLE)(release.estimate_command)
app.command("answer", epilog=answer.EXAMPLE)(answer.answer_command)
app.command("compare", epilog=answer.COMPARE_EXAMPLE)(answer.compare_command)
app.command("synthesize", epilog=after_release.SYNTHESIZE_EXAMPLE)(after_release.synthesize_command)
app.command("release", epilog=release.RELEASE_EXAMPLE)(release.release_command)
app.command("report", epilog=after_release.REPORT_EXAMPLE)(after_release.report_command)
app.command("explore", epilog=after_release.EXPLORE_EXAMPLE)(after_release.explore_command)
app.command("kmeans", epilog=iterates.KMEANS_EXAMPLE)(iterates.kmeans_command)
app.command("logistic", epilog=iterates.LOGISTIC_EXAMPLE)(iterates.logistic_command)
app.command("evaluate", epilog=after_release.EVALUATE_EXAMPLE)(after_release.evaluate_command)
app.command("check", epilog=after_release.CHECK_EXAMPLE)(after_release.check_command)


@app.command("demo", epilog="Example: consilience demo; consilience demo --table town.csv --people 2000")
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


@app.command("warm-up", epilog="Example: consilience warm-up")
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


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"consilience {version('consilience')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that stand before the verb."""


def run() -> None:
    """Run the command line; errors become one clear text and exit code 1, never a traceback with data in it.

    Ctrl-C tells what was spent and how to go on, with exit code 130. The second one ends the process as usual.
    """
    try:
        with stopping_at_interrupt():
            app()
    except ConsilienceError as error:
        refuse(" ".join([str(error), *what_was_recorded()]))
    except Interrupted:
        note(" ".join(["consilience: stopped.", *(what_was_recorded() or ["Nothing was spent."])]))
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        report_bug(error)


if __name__ == "__main__":
    run()
