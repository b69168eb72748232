"""What `consilience demo` shows: a made-up town, released with differential privacy, next to the truth.

Because the town is made up, the demo may show what a real release never shows: the exact counts, and the error of
every number. Those columns are marked NON-PRIVATE.
"""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

import consilience as cs
from consilience.demo.town import DOMAIN_FILE, PEOPLE, SEED, write_table
from consilience.publication import open_release

MARKER = "made-by-the-demo.txt"
EPSILON = 1
REFITS = 50
"""Enough for a demo; a publication takes the 200 that are the default."""

Counts = NDArray[np.float64]


@dataclass(frozen=True)
class Compared:
    """One measured table three times: with noise, made consistent, and as it is, which only a demo may show."""

    attributes: tuple[str, ...]
    noisy: Counts
    consistent: Counts
    truth: Counts


def show_demo(*, people: int = PEOPLE, folder: Path = Path("demo"), refits: int = REFITS) -> None:
    """Print the demo, and leave what it makes in the folder."""
    console = plain_console()

    heading(console, f"1. A town of {people:,} people who do not exist")
    prepare(console, folder)
    data, domain = write_table(folder / "town.csv", people=people)
    console.print(
        f"Wrote {data}: seven attributes that depend on each other, with gaps and odd values as in real tables (seed "
        f"{SEED}). What they mean is declared in {domain}."
    )

    heading(console, f"2. Measured with differential privacy, epsilon = {EPSILON}")
    asked = [str(data), "--domain", str(domain), "--plan", "2-way", "--epsilon", str(EPSILON)]
    measured = folder / "town.measurements.parquet"
    run(console, ["measure", *asked, "--out", str(measured)])
    show_noisy(console, measured)
    heading(console, "3. Made consistent, and released: the same request again costs nothing")
    run(console, ["release", *asked, "--out", str(folder / "release")])

    compared = compare(folder)
    heading(console, "4. What came out")
    show_one_table(console, compared)
    heading(console, "5. Why it is better: the noisy tables contradict each other")
    show_contradiction(console, compared)
    show_summary(console, compared)
    heading(console, "6. How far to trust a number")
    show_error_bars(console, folder, refits)
    heading(console, "7. A report for people who were not there")
    page = write_page(console, folder, refits)
    heading(console, "8. Your turn")
    show_next_steps(console, folder, data, page)


def prepare(console: Console, folder: Path) -> None:
    """An empty folder that says it is the demo's; an earlier demo is removed, and nothing else ever is."""
    if folder.exists():
        if any(folder.iterdir()) and not (folder / MARKER).exists():
            sys.exit(f"{folder} holds files that no demo made; choose another folder with --folder")
        shutil.rmtree(folder)
        console.print(
            f"Removed {folder} from an earlier demo. Its ledger went with it, which real data would never allow."
        )
    folder.mkdir(parents=True)
    (folder / MARKER).write_text("Made by `consilience demo`. The next demo removes this folder.\n", encoding="utf-8")


def run(console: Console, arguments: Sequence[str]) -> None:
    """Show a command and run it as a person would, its words indented below it."""
    console.print("$ " + shlex.join(["consilience", *arguments]), style="bold", soft_wrap=True)
    command = [sys.executable, "-m", "consilience.cli.main", *arguments]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        for line in running.stdout or ():
            console.print(Padding(line.rstrip("\n"), (0, 0, 0, 2), expand=False))
    if running.returncode:
        sys.exit(f"the command failed with exit code {running.returncode}")


def compare(folder: Path) -> list[Compared]:
    """Every measured table of the release beside its exact counts: NON-PRIVATE, for made-up people only."""
    estimate = open_release(folder / "release").estimate
    measured = list(estimate.measurements)
    sets = [each.query.attributes for each in measured]
    exact = cs.open_table(folder / "town.csv", estimate.domain).exact_counts(sets)
    return [
        Compared(names, each.values.reshape(truth.shape), estimate.marginal(*names), truth.astype(np.float64))
        for names, each, truth in zip(sets, measured, exact, strict=True)
    ]


def show_noisy(console: Console, path: Path) -> None:
    """The first numbers there are: what differential privacy allows to be seen."""
    measured = cs.MeasurementSet.load(path)
    found = next(each for each in measured if each.query.attributes == ("age", "employment"))
    ages, jobs = measured.domain["age"], measured.domain["employment"]
    console.print("The first numbers, as noisy as they are: retired people by age.")
    table = plain_table("", ["age", "noisy"])
    for label, row in zip(ages.labels, found.values.reshape(ages.size, jobs.size), strict=True):
        table.add_row(label, f"{row[jobs.code('Retired')]:,.0f}")
    console.print(table)


def show_one_table(console: Console, compared: Sequence[Compared]) -> None:
    """Retired people by age: simple to judge, because everybody knows how it should look."""
    domain = cs.Domain.load(DOMAIN_FILE)
    found = next(each for each in compared if each.attributes == ("age", "employment"))
    column = domain["employment"].code("Retired")
    rows = [values[:, column] for values in (found.noisy, found.consistent, found.truth)]
    header = ["age", "noisy", "consistent", "truth *", "noisy error *", "consistent error *"]
    table = plain_table("Retired people by age", header)
    for label, noisy, consistent, truth in zip(domain["age"].labels, *rows, strict=True):
        errors = [f"{noisy - truth:+,.0f}", f"{consistent - truth:+,.0f}"]
        table.add_row(label, f"{noisy:,.0f}", f"{_whole(consistent):,.0f}", f"{truth:,.0f}", *errors)
    table.add_section()
    means = [f"{np.abs(each - rows[2]).mean():,.1f}" for each in rows[:2]]
    table.add_row("mean absolute error", "", "", "", *means, style="bold")
    console.print(table)
    console.print("* NON-PRIVATE: no real release shows the truth or an error. This is a demo, and nobody lives here.")
    console.print()
    console.print("noisy       what differential privacy allows to be seen: each count plus random noise")
    console.print("consistent  the one table without negative numbers that fits all the noisy ones best")


def show_contradiction(console: Console, compared: Sequence[Compared]) -> None:
    """One number that every table with the attribute holds, and that no two noisy tables agree on."""
    domain = cs.Domain.load(DOMAIN_FILE)
    code = domain["age"].code("25..34")
    table = plain_table("How many people are 25 to 34 years old?", ["according to the table", "noisy", "consistent"])
    for each in compared:
        if "age" in each.attributes:
            axis = each.attributes.index("age")
            noisy, consistent = (np.take(counts, code, axis=axis).sum() for counts in (each.noisy, each.consistent))
            table.add_row(" by ".join(each.attributes), f"{noisy:,.0f}", f"{consistent:,.0f}")
    console.print(table)


def show_summary(console: Console, compared: Sequence[Compared]) -> None:
    """All measured tables at once: negative counts, inhabited impossible cells, and the mean absolute error."""
    domain = cs.Domain.load(DOMAIN_FILE)
    cells = sum(each.truth.size for each in compared)
    summary = plain_table(f"All {len(compared)} tables, {cells:,} counts", ["", "noisy", "consistent"])
    versions = [[each.noisy for each in compared], [each.consistent for each in compared]]
    truths = np.concatenate([each.truth.ravel() for each in compared])
    negative = [sum(int((counts < 0).sum()) for counts in version) for version in versions]
    working = [_impossible_people(domain, compared, version) for version in versions]
    totals = [len({round(float(counts.sum())) for counts in version}) for version in versions]
    error = [float(np.abs(np.concatenate([c.ravel() for c in version]) - truths).mean()) for version in versions]
    summary.add_row("negative counts", *(f"{value:,}" for value in negative))
    summary.add_row("people counted in impossible cells (children at work)", *(f"{value:,.0f}" for value in working))
    summary.add_row("different answers to: how many people are there?", *(f"{value:,}" for value in totals))
    summary.add_row("mean absolute error (NON-PRIVATE)", *(f"{value:,.1f}" for value in error), style="bold")
    console.print(summary)
    console.print(
        "Same noise, same privacy: the negative counts are gone, the parts sum to their totals, and the mean error "
        f"went from {error[0]:,.1f} to {error[1]:,.1f} people a count."
    )


def _impossible_people(domain: cs.Domain, compared: Sequence[Compared], version: Sequence[Counts]) -> float:
    """The sum of the absolute counts in cells that the domain declares impossible."""
    found = 0.0
    for each, counts in zip(compared, version, strict=True):
        allowed = domain.allowed_cells(each.attributes)
        if allowed is not None:
            found += float(np.abs(counts[~allowed]).sum())
    return found


def show_error_bars(console: Console, folder: Path, refits: int) -> None:
    """Answers with intervals, which need neither the data nor budget."""
    questions = ["age>=65 by employment", "district=Riverside by sex"]
    run(console, ["answer", str(folder / "release"), *questions, "--interval", "--refits", str(refits)])


def write_page(console: Console, folder: Path, refits: int) -> Path | None:
    """The report of the release, where the libraries for pictures are installed."""
    if not all(find_spec(name) for name in ("altair", "vl_convert")):
        console.print("Left out: pictures need altair and vl-convert. pip install altair vl-convert-python")
        return None
    run(console, ["report", str(folder / "release"), "--refits", str(refits)])
    return folder / "release" / "report.html"


def show_next_steps(console: Console, folder: Path, data: Path, page: Path | None) -> None:
    typed = program()
    release = folder / "release"
    if page is not None:
        console.print(f"Open this in a browser: {page.resolve().as_uri()}", style="bold", soft_wrap=True)
        console.print()
    console.print("The files:")
    files = [
        (data, "the confidential table (made up, here)"),
        (folder / "town.csv.ledger", "its privacy budget: beside the data, never published"),
        (release, "what may be published: measurements, model, tables"),
        (release / "tables" / "age-employment.csv", "the table above"),
        *([] if page is None else [(page, "what to show to people: one page that stands alone")]),
    ]
    for path, meaning in files:
        console.print(f"  {path!s:<38} {meaning}")
    console.print()
    console.print("Try:")
    commands = [
        f'{typed} answer {release} "by district, employment" --cross --integers',
        f"{typed} synthesize {release} --out {folder / 'people.csv'}",
        f"{typed} check {release}",
        f"{typed} ledger show {data}",
        f"{typed} measure {data} --domain {folder / 'town.domain.toml'} --epsilon 1 --plan flat --dry-run",
    ]
    for command in commands:
        console.print(f"  {command}", soft_wrap=True)
    console.print()
    console.print("And try to release more: the budget is spent, so the ledger refuses.")
    more = f"{typed} release {data} --domain {folder / 'town.domain.toml'} --epsilon 0.1 --out {folder / 'more'}"
    console.print(f"  {more}", soft_wrap=True)


def plain_console() -> Console:
    """Plain text in a pipe; on a terminal its own width, up to a hundred columns."""
    console = Console(highlight=False, markup=False, emoji=False)
    return Console(
        highlight=False, markup=False, emoji=False, width=min(console.width, 100) if console.is_terminal else 100
    )


def heading(console: Console, text: str) -> None:
    console.print()
    console.print(text, style="bold cyan")
    console.print("─" * len(text), style="cyan")


def plain_table(title: str, header: Sequence[str]) -> Table:
    table = Table(title=title or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for position, name in enumerate(header):
        table.add_column(name, justify="right" if position else "left")
    return table


def _whole(value: float) -> float:
    """The number without the sign that rounding leaves on a zero."""
    return abs(value) if abs(value) < 0.5 else value


def _shown(path: Path) -> Path:
    """The path as a person here would type it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path


def program() -> str:
    """How to call the command line from here, whether or not the virtual environment is active."""
    beside = Path(sys.executable).with_name("consilience")
    if shutil.which("consilience") or not beside.exists():
        return "consilience"
    return str(_shown(beside))
