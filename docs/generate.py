"""Writes the pages that are generated: `python docs/generate.py`. A test fails when they are out of date."""

from pathlib import Path

HERE = Path(__file__).parent


def command_reference() -> str:
    """The page of all commands with their help texts, as a terminal of 100 columns shows them."""
    import click
    from typer.main import get_command

    from consilience.cli.main import app

    root = get_command(app)
    lines = [
        "# Commands",
        "",
        "Generated from the commands' own help by `make docs`.",
        "",
        "Exit codes: 0 done, 1 refused or failed with a clear reason, 2 wrong usage.",
        "",
    ]
    for words, command in _all_commands(root, ["consilience"]):
        context = click.Context(command, info_name=" ".join(words), terminal_width=100, max_content_width=100)
        lines += [f"## {' '.join(words)}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(lines)


def _all_commands(command, words: list[str]):
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _all_commands(inner, [*words, name])


PAGES = {"reference/commands.md": command_reference}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (HERE / name).write_text(make(), encoding="utf-8")
        print(f"wrote docs/{name}")
