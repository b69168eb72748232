"""What `consilience demo --country` shows: a made-up country, a table for each of its places, and maps of them.

From a CSV of people to a bundle, answers, maps and a report. Because the country is made up, the demo may show what a
real release never shows: the error of every level. Those numbers are marked NON-PRIVATE.
"""

from pathlib import Path

import numpy as np
from rich.console import Console

import consilience as cs
from consilience.demo.country import LEVELS, PEOPLE, PLURAL, SEED, write_country
from consilience.demo.show import heading, plain_console, plain_table, prepare, program, run, write_page
from consilience.domain import factors
from consilience.publication import open_release

RHO = "0.5"
PLAN = "geography age, sex, group; age, sex; total"
REFITS = 50
"""Enough for a demo; a publication takes the 200 that are the default."""


def show_country(*, people: int = PEOPLE, folder: Path = Path("demo-country"), refits: int = REFITS) -> None:
    """Print the demo, and leave what it makes in the folder."""
    console = plain_console()
    heading(console, f"1. A country of {people:,} people who do not exist")
    prepare(console, folder)
    data, domain, shapes = write_country(folder / "people.csv", people=people)
    places = cs.Domain.load(domain)["block"]
    counts = ", ".join(f"{len(places.groups(level)):,} {PLURAL[level]}" for level in LEVELS)
    console.print(
        f"Wrote {data} (seed {SEED}), {domain}, places.csv, which says what each block is part of, and a map of each "
        f"level as GeoJSON: {counts}. Half of all blocks have below 30 people."
    )

    heading(console, "2. What it will cost, and how far numbers will be off: before any budget is spent")
    asked = [str(data), "--domain", str(domain), "--plan", PLAN, "--rho", RHO]
    run(console, ["measure", *asked, "--dry-run"])
    heading(console, "3. Measured at every level, and made one account in which all places add up")
    release = folder / "release"
    run(console, ["release", *asked, "--checked", "--out", str(release)])

    heading(console, "4. How far off it is")
    show_errors(console, data, release)
    heading(console, "5. Questions about places")
    state = min(places.groups("State"))
    counties = sorted(county for county in places.groups("County") if county.startswith(state))[:2]
    asked = ["by State, sex", f"County={counties[0]} minus County={counties[-1]}"]
    run(console, ["answer", str(release), *asked, "--interval", "--refits", str(refits)])
    heading(console, "6. Maps")
    maps = draw_maps(console, release, {path.stem: path for path in shapes}, state, refits)
    heading(console, "7. A report for people who were not there")
    page = write_page(console, folder, refits)
    heading(console, "8. Your turn")
    for made in [*maps, *([] if page is None else [page])]:
        console.print(f"Open this: {made.resolve().as_uri()}", style="bold", soft_wrap=True)
    console.print()
    console.print(f"  {program()} answer {release} 'by State, sex' --interval", soft_wrap=True)
    counties_of = f"'by County where age>=65 per by County' --shapes {folder / 'counties.geojson'}"
    console.print(f"  {program()} map {release} {counties_of} --out {folder / 'old.html'}", soft_wrap=True)


def show_errors(console: Console, data: Path, release: Path) -> None:
    """The mean absolute error of totals and cells at each level, before and after: for made-up people only."""
    estimate = open_release(release).estimate
    domain = estimate.domain
    exact = cs.open_table(data, domain).exact_counts([domain.names])[0].astype(np.float64).reshape(domain.shape)
    table = plain_table(
        "Mean absolute error, in people (NON-PRIVATE)",
        ["level", "places", "people each", "table", "measured", "released"],
    )
    measured = {each.query: each for each in estimate.measurements}
    for level in LEVELS:
        places = len(domain["block"].groups(level))
        for others in ((), ("sex", "age", "group")):
            query = cs.Query((("block", factors.Level(level)), *((name, factors.Identity()) for name in others)))
            truth = np.ravel(query.bind(domain).answer_full(exact))
            answers = [measured[query].values if query in measured else None, estimate.answer(query)]
            errors = [None if each is None else float(np.abs(np.ravel(each) - truth).mean()) for each in answers]
            shown = ["not measured" if error is None else f"{error:,.2f}" for error in errors]
            cells = truth.size // places
            first = [level, f"{places:,}", f"{exact.sum() / places:,.0f}"] if cells == 1 else ["", "", ""]
            table.add_row(*first, "total" if cells == 1 else f"{cells} cells", *shown)
    console.print(table)
    console.print(
        "measured: the noisy numbers as they are. released: one account of all of them. Tables of blocks sum to those "
        "of tracts, and so on up, and no count is negative."
    )


def draw_maps(console: Console, release: Path, shapes: dict[str, Path], state: str, refits: int) -> list[Path]:
    """Pictures of the country by county, and of one state by tract."""
    folder = release.parent / "maps"
    folder.mkdir()
    wanted = {
        "old": ("by County where age>=65 per by County", "counties"),
        "newcomers": ("by County, group", "counties"),
        "tracts": (f"State={state} by Tract where age<=4", "tracts"),
    }
    made = []
    for name, (query, level) in wanted.items():
        out = folder / f"{name}.png"
        options = ["--shapes", str(shapes[level]), "--key", "GEOID", "--out", str(out), "--refits", str(refits)]
        run(console, ["map", str(release), query, *options])
        made.append(out)
    return made
