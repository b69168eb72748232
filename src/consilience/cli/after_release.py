"""What comes after a release: `consilience synthesize`, `report`, `map`, `explore`, `check` and `evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from consilience.cli import options
from consilience.cli.answer import open_estimate, open_source
from consilience.cli.console import echo, listen, note, print_json, progress
from consilience.errors import DeclarationError, FileFormatError

if TYPE_CHECKING:
    from consilience.publication.synthetic import SyntheticRecords

# ----------------------------------------------------------------------------------------------------------------------
# `consilience synthesize`: records that look like the original and are made from the account alone.


SYNTHESIZE_EXAMPLE = "Example: consilience synthesize release --out people.csv"


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


# ----------------------------------------------------------------------------------------------------------------------
# `consilience report`: a page about a release that can be published with it.


REPORT_EXAMPLE = "Example: consilience report release"


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


# ----------------------------------------------------------------------------------------------------------------------
# `consilience map`: answers for places as a picture.


MAP_EXAMPLE = (
    'Example: consilience map release "by County where age>=65" --shapes counties.geojson --key GEOID --out map.png'
)


def map_command(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release bundle, or a measurement file.")],
    query: Annotated[str, typer.Argument(metavar="QUERY", help='Such as "by County" or "by County, sex".')],
    shapes: Annotated[Path, typer.Option("--shapes", help="The shapes of the places: a GeoJSON or TopoJSON file.")],
    out: Annotated[Path, typer.Option("--out", help="The file to write: .png, .svg or .html.")],
    key: Annotated[
        str | None,
        typer.Option("--key", help="The property of the shapes that names places; left out, it is found."),
    ] = None,
    per: Annotated[
        str | None,
        typer.Option("--per", metavar="QUERY", help='Divide by the answers to this: "by County".'),
    ] = None,
    projection: Annotated[
        str, typer.Option("--projection", help="auto, albers, mercator, albers-usa, or identity (no projection).")
    ] = "auto",
    level: options.Level = 0.95,
    refits: options.Refits = 200,
    seed: Annotated[int, typer.Option("--seed", help="A public seed, for the error bars.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    json: options.AsJson = False,
) -> None:
    """Draw a map of answers, and beside it how sure each is. Needs no network, and spends nothing."""
    from consilience.publication.maps import map  # noqa: A004
    from consilience.publication.maps.choropleths import Projection, check_place

    check_place(out, overwrite=overwrite)
    listen()
    opened = open_source(release)
    with progress() as show:
        made = map(
            opened,
            query,
            shapes,
            key=key,
            per=per,
            level=level,
            refits=refits,
            seed=seed,
            projection=cast(Projection, projection),
            out=out,
            overwrite=overwrite,
            progress=show,
        )
    if not made.answers.private:
        note("NOT PRIVATE: these numbers come from simulated noise, and the map says so")
    if json:
        print_json({"file": str(out), "private": made.answers.private, "notes": list(made.notes)})
        return
    echo("\n".join([*made.notes, f"wrote {out}"]))


# ----------------------------------------------------------------------------------------------------------------------
# `consilience explore`: a page that answers anything about a release, in the reader's browser.


EXPLORE_EXAMPLE = "Example: consilience explore release"


def explore_command(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release bundle.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the page to this file; else it goes into RELEASE.")
    ] = None,
    level: Annotated[float, typer.Option("--level", help="The level of the error bars.")] = 0.95,
    refits: Annotated[int, typer.Option("--refits", help="Refits for the error bars; more are more exact.")] = 200,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="With --out: replace an existing file.")] = False,
    json: options.AsJson = False,
) -> None:
    """Write a page to explore a release in a browser: any table, filter and share, offline. Spends nothing."""
    from consilience.publication.explorer import explore
    from consilience.publication.release import open_release

    listen()
    opened = open_release(release)
    with progress() as show:
        made = explore(opened, out=out, level=level, refits=refits, overwrite=overwrite, progress=show)
    if not opened.estimate.private:
        note("NOT PRIVATE: the noise of this release was simulated, and the page says so")
    if json:
        found = {"page": str(made.path), "bytes": made.path.stat().st_size, "refits": made.refits}
        print_json(found | {"private": opened.estimate.private})
        return
    echo(f"wrote {made.path}: open it in a browser")


# ----------------------------------------------------------------------------------------------------------------------
# `consilience check`: is this file one of ours, is it whole, and may it be published?


CHECK_EXAMPLE = "Example: consilience check release"


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


# ----------------------------------------------------------------------------------------------------------------------
# `consilience evaluate`: the error of a release against the truth. NOT PRIVATE.


EVALUATE_EXAMPLE = "Example: consilience evaluate release data.csv --domain data.domain.toml --workload wanted.toml"


def evaluate_command(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release bundle, or a measurement file.")],
    data: options.Data,
    workload: Annotated[Path, typer.Option("--workload", help="The workload file (TOML): the queries to judge.")],
    domain: Annotated[
        Path | None, typer.Option("--domain", help="The domain file (TOML); by default the release's own domain.")
    ] = None,
    unit: options.UnitColumn = None,
    max_rows: options.MaxRows = None,
    table: options.SourceTable = None,
    sql: options.SourceQuery = None,
    json: options.AsJson = False,
) -> None:
    """Tell the error of a release against the confidential table. NOT PRIVATE: do not publish what it prints."""
    from consilience.domain import Domain, Workload
    from consilience.evaluation import NOTICE, evaluate
    from consilience.source import open_table

    listen()
    wanted = Workload.load(workload)
    for line in wanted.notes:
        note(line)
    estimate = open_estimate(release)
    declared = estimate.domain if domain is None else Domain.load(domain)
    source = open_table(data, declared, table=table, query=sql, unit=unit, max_rows_per_unit=max_rows)
    found = evaluate(estimate, source, wanted)
    note(NOTICE)
    echo(found.to_json() if json else found.table())
