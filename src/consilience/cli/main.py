"""The command line: one function per verb, thin over the library.

Exit codes: 0 done, 1 refused or failed with a clear reason, 2 wrong usage, 130 stopped by Ctrl-C. Heavy imports happen
inside the verbs, so that `--help` answers at once.
"""

import os
import sys
from typing import Annotated

import typer

from consilience.cli import after_release, answer, domain, first_steps, iterates, ledger, planning, release
from consilience.cli.console import Interrupted, note, refuse, report_bug, stopping_at_interrupt, what_was_recorded
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
app.command("plan", epilog=planning.EXAMPLE)(planning.plan_command)
app.command("measure", epilog=release.MEASURE_EXAMPLE)(release.measure_command)
app.command("estimate", epilog=release.ESTIMATE_EXAMPLE)(release.estimate_command)
app.command("answer", epilog=answer.EXAMPLE)(answer.answer_command)
app.command("compare", epilog=answer.COMPARE_EXAMPLE)(answer.compare_command)
app.command("synthesize", epilog=after_release.SYNTHESIZE_EXAMPLE)(after_release.synthesize_command)
app.command("release", epilog=release.RELEASE_EXAMPLE)(release.release_command)
app.command("report", epilog=after_release.REPORT_EXAMPLE)(after_release.report_command)
app.command("map", epilog=after_release.MAP_EXAMPLE)(after_release.map_command)
app.command("explore", epilog=after_release.EXPLORE_EXAMPLE)(after_release.explore_command)
app.command("kmeans", epilog=iterates.KMEANS_EXAMPLE)(iterates.kmeans_command)
app.command("logistic", epilog=iterates.LOGISTIC_EXAMPLE)(iterates.logistic_command)
app.command("evaluate", epilog=after_release.EVALUATE_EXAMPLE)(after_release.evaluate_command)
app.command("check", epilog=after_release.CHECK_EXAMPLE)(after_release.check_command)
app.command("demo", epilog=first_steps.DEMO_EXAMPLE)(first_steps.demo_command)
app.command("warm-up", epilog=first_steps.WARM_UP_EXAMPLE)(first_steps.warm_up_command)


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
