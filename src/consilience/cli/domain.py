"""`consilience domain`: draft, review, show and check domain files."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consilience.cli import options
from consilience.cli.console import echo, listen, note, print_json, print_table, progress, watch_spending
from consilience.errors import ConsilienceError, DeclarationError, readable_count

if TYPE_CHECKING:
    from consilience.curation.review import Review
    from consilience.domain import Attribute, Domain

app = typer.Typer(help="Draft, review, show or check a domain file.", no_args_is_help=True, rich_markup_mode=None)


@app.command(epilog="Example: consilience domain draft data.csv > data.domain.toml")
def draft(
    data: options.Data,
    name: Annotated[str | None, typer.Option("--name", help="The dataset's name; by default the file's.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write here instead of to standard output.")] = None,
    table: options.SourceTable = None,
    sql: options.SourceQuery = None,
    encoding: options.Encoding = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    missing_tokens: options.MissingTokens = None,
    codebook: Annotated[
        Path | None,
        typer.Option("--codebook", help="Titles and labels: DDI (.xml), CSVW (.json), .csv, .sav, .dta, .sas7bdat."),
    ] = None,
) -> None:
    """Draft a domain from the data. Reading values off confidential data is NOT private: review and edit the draft."""
    from consilience.curation.draft import draft_domain
    from consilience.domain.source_format import Notation, SourceFormat

    notation = Notation(decimal or ".", thousands, tuple(missing_tokens or ()))
    how = SourceFormat(encoding or "utf-8", options.as_delimiter(delimiter), notation)
    drafted = draft_domain(data, name=name or None, how=how, table=table, query=sql, code_book=codebook)
    if out is None:
        typer.echo(drafted.to_toml(), nl=False)
    else:
        options.refuse_existing(out)
        out.write_text(drafted.to_toml(), encoding="utf-8")
    for reason, names in drafted.reasons.items():
        note(f"left out, {', '.join(names)}: {reason}")
    file = shlex.quote(str(out or "FILE"))
    note(
        "this draft was read off the data, which is not private: it can be used once you have reviewed every value, "
        f"with `consilience domain review {file}`"
    )


@app.command(
    epilog="Example: consilience domain discover data.csv --domain open.domain.toml --epsilon 0.1 --delta 1e-9 "
    "--out data.domain.toml"
)
@options.charged
def discover(
    data: options.Data,
    domain: options.DomainFile,
    out: Annotated[Path | None, typer.Option("--out", help="Where to write the domain that is found.")] = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    rho: options.Rho = None,
    failure_delta: options.FailureDelta = None,
    *,
    charge: options.Charged,
    dry_run: options.DryRunOnly = False,
    json: options.AsJson = False,
) -> None:
    """Find what a domain file leaves open ('discover') with differential privacy. Spends budget, for that alone."""
    from consilience.domain import Domain

    listen(verbose=False)
    amount = {"epsilon": epsilon, "delta": delta, "rho": rho, "failure_delta": failure_delta}
    declared = charge.written_as(Domain.load(domain))
    asked = charge.asked(data=data, domain=declared, discover_share=1, **amount)
    if asked.discovery is None:
        raise DeclarationError(f"{domain} leaves nothing to be found; write 'discover' in place of values or edges")
    if dry_run:
        lines = asked.discovery.promises
        print_json({"budget": asked.discovery.whole.to_json(), "notes": lines}) if json else echo("\n".join(lines))
        return
    if out is None:
        raise typer.BadParameter("name the file to write, or use --dry-run", param_hint="--out")
    options.refuse_existing(out)
    with progress() as show:
        found = asked.find(before_charge=watch_spending, progress=show)
    found.save(out)
    if json:
        print_json({"file": str(out)} | found.to_json())
    else:
        echo(f"wrote the domain that was found to {out}")


QUESTION = "[k]eep, [d]rop, change [v]alues, [w]ords, [n]ext or [q]uit"


@app.command(epilog="Example: consilience domain review data.domain.toml")
def review(path: Annotated[Path, typer.Argument(help="A domain file that is a draft.")]) -> None:
    """Go through a draft attribute by attribute; what you decide is written at once, so that you can go on later.

    What you keep or drop loses its mark and the comments that tell of the data. When nothing is left, so does the file.
    """
    from consilience.curation.review import Review

    going = Review(path)
    if going.left:
        echo(f"{going.domain.name}: {len(going.left)} of {len(going.domain.names)} attributes are left to review.")
        if going.remarks:
            echo(f"\n{going.remarks}")
    for place, name in enumerate(names := going.left, start=1):
        if not _review_attribute(going, name, f"[{place}/{len(names)}]"):
            break
    if going.left:
        note(f"{len(going.left)} attributes are left to review; the same command goes on with them")
        return
    going.finish()
    note(f"nothing is left to review in {path}: its marks and the comments that told of the data are gone")


def _review_attribute(going: "Review", name: str, place: str) -> bool:
    """Ask about one attribute until it is decided or put off; whether to go on."""
    while True:
        attribute = going.domain[name]
        echo(f"\n{place} {_described(attribute)}\n{going.remark(name)}")
        answer = _ask(QUESTION)[:1].lower()
        try:
            if answer == "k":
                going.keep(name)
            elif answer == "d":
                going.drop(name)
            elif answer == "v":
                _review_values(going, attribute)
                continue
            elif answer == "w":
                _review_words(going, attribute)
                continue
            elif answer not in ("n", "q"):
                note(f"answer with one of the letters: {QUESTION}")
                continue
        except DeclarationError as error:
            note(f"not done: {error}")
            continue
        return answer != "q"


def _ask(question: str) -> str:
    """What a person answers; where nobody can answer, that is `quit`."""
    try:
        return typer.prompt(question, default="", show_default=False).strip()
    except (typer.Abort, OSError):
        echo("")
        return "q"


def _review_values(going: "Review", attribute: "Attribute") -> None:
    from consilience.curation.review import with_values

    typed = _ask("all values, or all edges, with commas between (nothing changes nothing)")
    if typed not in ("", "q"):
        going.put(with_values(attribute, typed))


def _review_words(going: "Review", attribute: "Attribute") -> None:
    from consilience.curation.review import with_words

    while (typed := _ask("title = ..., unit = ..., or VALUE = its label (nothing ends)")) not in ("", "q"):
        value, equals, text = (part.strip() for part in typed.partition("="))
        if not equals:
            note("write what it is about, an equals sign, and the text, such as title = Age")
            continue
        attribute = with_words(attribute, value, text)
        going.put(attribute)


def _described(attribute: "Attribute") -> str:
    """An attribute with all its values, each with its label."""
    values = [] if attribute.kind == "continuous" else attribute.labels
    shown = ", ".join(
        value if value == attribute.say(value) else f"{value} = {attribute.say(value)}" for value in values
    )
    heading = "" if attribute.heading == attribute.name else f" ({attribute.heading})"
    return f"{attribute.name}{heading}, {attribute.kind}, {len(values)} values: {shown}"


@app.command(epilog="Example: consilience domain show data.domain.toml")
def show(
    path: Annotated[Path, typer.Argument(help="A domain file.")],
    json: options.AsJson = False,
) -> None:
    """Show the attributes, their values and rules."""
    from consilience.domain import Domain

    domain = Domain.load(path)
    if json:
        print_json(domain.to_declaration() | ({} if domain.to_find else {"cells": domain.cells}))
        return
    rows = []
    for attribute in domain.attributes:
        if attribute.to_find:
            rows.append([attribute.name, attribute.kind, f"({attribute.to_find} to be found)", "-", "-", "-"])
            continue
        counted = attribute in domain.counted
        labels = _first_labels(attribute) if counted else "-"
        size = f"{attribute.size:,}" if counted else "-"
        heading = attribute.heading
        named = attribute.name if heading == attribute.name else f"{attribute.name}: {heading}"
        rows.append([named, attribute.kind, labels, attribute.missing or "-", attribute.unlisted, size])
    if domain.left_to_review:
        echo(f"DRAFT: {domain.left_to_review}")
    cells = "" if domain.to_find else f", {readable_count(domain.cells)} cells"
    echo(f"{domain.name}: {len(domain.attributes)} attributes{cells}")
    print_table(["attribute", "kind", "values", "missing", "unlisted", "size"], rows, numeric=1)
    for key, value in domain.source_format.to_declaration().items():
        echo(f"source: {key} = {value!r}")
    for line in domain.public.describe():
        echo(f"public fact: {line}")
    for text in domain.constraints:
        echo(f"constraint: {text}")
    count = sum(not rule.because for rule in domain.impossible)
    if count:
        echo(f"impossible cells: {count} {'rule' if count == 1 else 'rules'}")


def _first_labels(attribute: "Attribute") -> str:
    """The first values of an attribute, each with its label."""
    words = ((value, attribute.say(value)) for value in attribute.labels[:6])
    shown = [value if value == label else f"{value} = {label}" for value, label in words]
    return ", ".join(shown) + (", ..." if attribute.size > 6 else "")


@app.command(epilog="Example: consilience domain check data.domain.toml --against data.csv")
def check(
    path: Annotated[Path, typer.Argument(help="A domain file.")],
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            help="Compare it with this confidential table. NOT PRIVATE: what it prints is for the curator alone.",
        ),
    ] = None,
    table: options.SourceTable = None,
    sql: options.SourceQuery = None,
    unit: options.UnitColumn = None,
    max_rows: options.MaxRows = None,
    encoding: options.Encoding = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    missing_tokens: options.MissingTokens = None,
    ledger: options.LedgerFile = None,
    json: options.AsJson = False,
) -> None:
    """Say that a domain file is valid, or what is wrong with it or left to review (exit code 1).

    With --against, tell the curator how many rows of the data each rule drops or moves, and what to write: NOT PRIVATE.
    """
    from consilience.domain import Domain

    domain = Domain.load(path)
    if domain.to_find:
        _check_open(path, domain, against, json=json)
        return
    if against is None:
        domain.refuse_draft()
        if json:
            print_json({"file": str(path), "valid": True, "domain": domain.name, "cells": domain.cells})
        else:
            size = f"{len(domain.attributes)} attributes, {readable_count(domain.cells)} cells"
            echo(f"{path} is valid: {domain.name}, {size}")
        return
    from consilience.curation.fit_report import check_domain

    declared = options.written_as(
        domain,
        encoding=encoding,
        delimiter=delimiter,
        decimal=decimal,
        thousands=thousands,
        missing_tokens=missing_tokens,
    )
    found = check_domain(against, declared, table=table, query=sql, unit=unit, max_rows_per_unit=max_rows)
    if json:
        print_json(found.to_json())
    else:
        echo(found.describe())
    if found.found is not None and not found.found.absent:
        _note_check(against, declared, table, sql, ledger)


def _check_open(path: Path, domain: "Domain", against: str | None, *, json: bool) -> None:
    """What can be said of a domain of which something is to be found first."""
    if against is not None:
        domain.refuse_open()
    domain.refuse_marks()
    if json:
        print_json({"file": str(path), "valid": True, "domain": domain.name, "to_find": list(domain.to_find)})
    else:
        echo(f"{path} is valid: {domain.name}, {len(domain.attributes)} attributes, {len(domain.to_find)} to be found")


def _note_check(data: str, domain: "Domain", table: str | None, sql: str | None, ledger: Path | None) -> None:
    """Note beside the ledger that this domain was checked: its fingerprint and the date, no count."""
    from dataclasses import replace

    from consilience.curation.draft import note_check
    from consilience.privacy.measure import ledger_place
    from consilience.source import open_table

    try:
        if ledger is None:
            reviewed = replace(domain, draft=False, unreviewed=(), quotes_data=False)
            source = open_table(data, reviewed, table=table, query=sql)
            ledger = ledger_place(source)
        note_check(ledger.absolute(), domain)
    except ConsilienceError as error:
        note(f"that this domain was checked could not be noted beside the ledger: {error}")
