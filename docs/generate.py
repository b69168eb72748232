"""Writes what is generated on the pages: `python docs/generate.py`. A test fails when something is out of date.

The pages of commands and of the papers' items are written whole. Other pages have blocks between
`<!-- generated: NAME -->` and `<!-- end -->`, which are filled from `benchmarks/results`, or from the sources: a number
on a page is never typed.
"""

import importlib
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
BENCHMARKS = runpy.run_path(str(HERE / "benchmark_tables.py"))
"""What writes the blocks that say what benchmarks found."""
REPRODUCTIONS = runpy.run_path(str(HERE / "reproduced_verdicts.py"))
"""What writes the blocks of the page about the papers."""
BLOCK = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


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
        "Exit codes: 0 done, 1 refused or failed with a clear reason, 2 wrong usage, 130 stopped by Ctrl-C.",
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


def paper_tables() -> str:
    """The page of everything in the papers, from the entries that the tests in `tests/papers` check."""
    kept = list(sys.path)
    sys.path[:0] = [
        str(HERE.parent / "tests" / "papers"),
        str(HERE.parent),
    ]  # entries, and the benchmarks they name
    try:
        paper_items = importlib.import_module("paper_items")
        return paper_items.tables(paper_items.papers())
    finally:
        sys.path[:] = kept


def with_blocks(name: str) -> str:
    """A page with its generated blocks filled anew."""
    text = (HERE / name).read_text(encoding="utf-8")
    return BLOCK.sub(lambda found: f"{found[1]}\n{BLOCKS[found['name']]()}\n\n{found[3]}", text)


def audited() -> str:
    """How much an auditor must read: `source`, `privacy`, and all that they import."""
    lines: dict[str, int] = runpy.run_path(str(HERE / "import_graph.py"))["audited_lines"]()
    parts: dict[str, int] = {}
    for name, count in lines.items():
        part = name.split(".")[1]
        parts[part] = parts.get(part, 0) + count
    shown = ", ".join(f"`{part}` {parts[part]:,}" for part in sorted(parts, key=lambda part: -parts[part]))
    return (
        f"What protects the data is `source`, `privacy` and all that they import: {len(lines)} files of together "
        f"{sum(parts.values()):,} lines, comments included ({shown})."
    )


BLOCKS: dict[str, Callable[[], str]] = {
    **BENCHMARKS["BLOCKS"],
    "threshold-words": REPRODUCTIONS["threshold_words"],
    "outcomes": REPRODUCTIONS["outcomes"],
    "lee2015": lambda: REPRODUCTIONS["verdicts"]("lee2015"),
    "lee2016": lambda: REPRODUCTIONS["verdicts"]("lee2016"),
    "mckenna2019": lambda: REPRODUCTIONS["verdicts"]("mckenna2019"),
    "qardaji2014": lambda: REPRODUCTIONS["verdicts"]("qardaji2014"),
    "audited": audited,
}
PAGES: dict[str, Callable[[], str]] = {
    "../README.md": lambda: with_blocks("../README.md"),
    "../CONTRIBUTING.md": lambda: with_blocks("../CONTRIBUTING.md"),
    "reference/commands.md": command_reference,
    "reference/papers.md": paper_tables,
    "how-to/choose-a-method.md": lambda: with_blocks("how-to/choose-a-method.md"),
    "how-to/answer-any-marginal.md": lambda: with_blocks("how-to/answer-any-marginal.md"),
    "concepts/iterates.md": lambda: with_blocks("concepts/iterates.md"),
    "concepts/views.md": lambda: with_blocks("concepts/views.md"),
    "concepts/graphical-models.md": lambda: with_blocks("concepts/graphical-models.md"),
    "concepts/intervals.md": lambda: with_blocks("concepts/intervals.md"),
    "how-to/plan-a-release.md": lambda: with_blocks("how-to/plan-a-release.md"),
    "how-to/publish-a-geography.md": lambda: with_blocks("how-to/publish-a-geography.md"),
    "how-to/cluster-points.md": lambda: with_blocks("how-to/cluster-points.md"),
    "how-to/release-for-a-workload.md": lambda: with_blocks("how-to/release-for-a-workload.md"),
    "how-to/make-synthetic-records.md": lambda: with_blocks("how-to/make-synthetic-records.md"),
    "how-to/estimate-large-domains.md": lambda: with_blocks("how-to/estimate-large-domains.md"),
    "how-to/run-where-the-data-is.md": lambda: with_blocks("how-to/run-where-the-data-is.md"),
    "how-to/check-the-noise.md": lambda: with_blocks("how-to/check-the-noise.md"),
    "concepts/reproductions.md": lambda: with_blocks("concepts/reproductions.md"),
    "how-to/install.md": lambda: with_blocks("how-to/install.md"),
    "concepts/post-processing.md": lambda: with_blocks("concepts/post-processing.md"),
    "decisions/0032-large-sums-are-held.md": lambda: with_blocks("decisions/0032-large-sums-are-held.md"),
}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (HERE / name).write_text(make(), encoding="utf-8")
        print(f"wrote docs/{name}")
