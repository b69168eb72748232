"""`consilience domain`: draft, show and check domain files."""

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli import options
from consilience.cli.console import echo, note, print_json, print_table
from consilience.errors import readable_count

app = typer.Typer(help="Draft, show or check a domain file.", no_args_is_help=True, rich_markup_mode=None)


@app.command(epilog="Example: consilience domain draft data.csv > data.domain.toml")
def draft(
    data: options.Data,
    name: Annotated[str | None, typer.Option("--name", help="The dataset's name; by default the file's.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write here instead of to standard output.")] = None,
) -> None:
    """Draft a domain from the data. Reading values off confidential data is NOT private: review and edit the draft."""
    from consilience.source.draft import draft_domain

    drafted, left_out = draft_domain(data, name=name or Path(data).name.partition(".")[0])
    text = (
        "# DRAFT, read off the data, which is not private. Go through the attributes one by one: replace every value\n"
        "# and edge by what is publicly known, then remove the attribute's mark. At last remove the mark below, and\n"
        "# this comment. Until then nothing can be measured or published with this file.\n\n" + drafted.to_toml()
    )
    if out is None:
        typer.echo(text, nl=False)
    else:
        options.refuse_existing(out)
        out.write_text(text, encoding="utf-8")
    if left_out:
        note(f"left out, because they look like names or free text: {', '.join(left_out)}")
    note("this draft was read off the data, which is not private: it can be used once you have reviewed every value")


@app.command(epilog="Example: consilience domain show data.domain.toml")
def show(
    path: Annotated[Path, typer.Argument(help="A domain file.")],
    json: options.AsJson = False,
) -> None:
    """Show the attributes, their values and rules."""
    from consilience.domain import Domain

    domain = Domain.load(path)
    if json:
        print_json(domain.to_declaration() | {"cells": domain.cells})
        return
    rows = []
    for attribute in domain.attributes:
        counted = attribute in domain.counted
        labels = ", ".join(attribute.labels[:6]) + (", ..." if attribute.size > 6 else "") if counted else "-"
        size = f"{attribute.size:,}" if counted else "-"
        rows.append([attribute.name, attribute.kind, labels, attribute.missing or "-", attribute.unlisted, size])
    if domain.left_to_review:
        echo(f"DRAFT: {domain.left_to_review}")
    echo(f"{domain.name}: {len(domain.attributes)} attributes, {readable_count(domain.cells)} cells")
    print_table(["attribute", "kind", "values", "missing", "unlisted", "size"], rows, numeric=1)
    for line in domain.public.describe():
        echo(f"public fact: {line}")
    if domain.impossible:
        count = len(domain.impossible)
        echo(f"impossible cells: {count} {'rule' if count == 1 else 'rules'}")


@app.command(epilog="Example: consilience domain check data.domain.toml")
def check(path: Annotated[Path, typer.Argument(help="A domain file.")]) -> None:
    """Say that a domain file is valid, or what is wrong with it or left to review (exit code 1)."""
    from consilience.domain import Domain

    domain = Domain.load(path)
    domain.refuse_draft()
    echo(f"{path} is valid: {domain.name}, {len(domain.attributes)} attributes, {readable_count(domain.cells)} cells")
