"""The docs are whole: every public name and every command has its page, and every command on a page is run.

The rules are functions of a folder of docs, so that the tests can also take something away and see it missed.
"""

import importlib
import importlib.util
import re
import runpy
import shlex
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from typer.main import get_command

import consilience
from benchmarks.__main__ import BENCHMARKS
from consilience.cli.main import app

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
MODULES = runpy.run_path(str(DOCS / "make_site.py"))["MODULES"]
NOT_RUN = {
    "consilience demo": "tests/unit/test_demo.py runs it with fewer people",
    "docker build --tag consilience .": "takes an engine for containers; tests/unit/test_setup.py reads the Dockerfile",
    "docker run --rm --network none --volume '$PWD:/data' consilience check release": "likewise",
    "make wheel": "compiles all kernels; tests/unit/test_wheel.py builds a wheel with those of a release",
    "pip install consilience": "needs a package index; tests/unit/test_wheel.py installs the wheel",
    "make setup": "builds the environment that the tests run in",
    "make test": "runs the tests, this one among them",
    "make check": "runs lint, types, architecture and the tests",
    "make demo": "runs `consilience demo`, as tests/unit/test_demo.py does with fewer people",
}
"""Commands in shell blocks that no test runs, and why."""

LINKED_ROW = re.compile(r"^\| `(?P<name>[^`]+)` \|(?P<line>.+)\|(?P<page>.+)\|$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]+\]\((?P<file>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"<!-- shown.*?<!-- end shown -->", re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LOOKS_TYPED = re.compile(r"^\s*(\$ |(consilience|python|pip|make) [\w./-])", re.MULTILINE)


def load(name: str):
    specification = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


PAGE_CODE = load("page_code")


def pages(docs: Path) -> list[Path]:
    return sorted(docs.rglob("*.md")) + [docs.parent / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]


@cache
def commands() -> dict[str, click.Command]:
    """Every verb that does something by itself, by the words one types after `consilience`."""

    def below(command: click.Command, words: list[str]) -> Iterator[tuple[str, click.Command]]:
        inner = getattr(command, "commands", {})
        if not inner:
            yield " ".join(words), command
        for name, each in inner.items():
            yield from below(each, [*words, name])

    return dict(below(get_command(app), []))


def shell_lines(docs: Path) -> list[tuple[Path, str]]:
    return [
        (page, line)
        for page in pages(docs)
        for language, block in PAGE_CODE.blocks(page.read_text(encoding="utf-8"))
        if language in PAGE_CODE.SHELLS
        for line in PAGE_CODE.shell_lines(block)
    ]


def verb(words: list[str]) -> str:
    """The command that typed words call, such as `ledger show`; empty if there is none."""
    known = commands()
    return next((" ".join(words[1:n]) for n in (3, 2) if " ".join(words[1:n]) in known), "")


def sections(page: Path) -> dict[str, str]:
    """The text below each heading of the second level."""
    if not page.exists():
        return {}
    parts = re.split(r"^## (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def names_without_page(docs: Path) -> list[str]:
    """Public names that have no row with a line and a link in the section of their module, and rows without a name."""
    found = []
    written = sections(docs / "reference" / "python.md")
    for heading, path in MODULES.items():
        rows = {row["name"]: row for row in LINKED_ROW.finditer(written.get(heading, ""))}
        public = set(importlib.import_module(path).__all__)
        found += [f"{heading}.{name}" for name in sorted(public ^ set(rows))]
        found += [
            f"{heading}.{name}"
            for name, row in rows.items()
            if not row["line"].strip() or not leads_somewhere(docs / "reference" / "python.md", row["page"])
        ]
    return found


def leads_somewhere(page: Path, text: str) -> bool:
    link = LINK.search(text)
    return link is not None and (not link["file"] or (page.parent / link["file"]).exists())


def commands_without_page(docs: Path) -> list[str]:
    """Commands that have no heading in the reference, or that no how-to page runs."""
    headings = set(sections(docs / "reference" / "commands.md"))
    shown = {verb(shlex.split(line, comments=True)) for page, line in shell_lines(docs) if page.parent.name == "how-to"}
    return [name for name in commands() if f"consilience {name}" not in headings or name not in shown]


def commands_not_run(docs: Path) -> list[str]:
    """Commands that a page tells to type and that neither run with the page nor have a reason.

    A page's commands run if it is one of those that `test_pages.py` takes: README.md and all below docs.
    """
    taken = {*docs.rglob("*.md"), docs.parent / "README.md"}
    found = []
    for page, line in shell_lines(docs):
        bare = shlex.join(shlex.split(line, comments=True))
        if bare not in NOT_RUN and not (page in taken and PAGE_CODE.is_run(line)):
            found.append(f"{page.name}: {bare}")
    for page in pages(docs):
        text = SHOWN.sub("", page.read_text(encoding="utf-8"))
        for language, block in PAGE_CODE.blocks(text):
            if language in ("", "text") and page.name != "commands.md":
                found += [f"{page.name}: {each.group().strip()}" for each in LOOKS_TYPED.finditer(block)]
    return found


def spans_out_of_date(docs: Path) -> list[str]:
    """Commands within sentences that do not exist: an unknown verb, option, target, benchmark or script."""
    found = []
    for page in pages(docs):
        for span in SPAN.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
            if not is_sound(span):
                found.append(f"{page.name}: {span}")
    return found


def is_sound(span: str) -> bool:
    known, words = commands(), span.split()
    match words:
        case ["consilience", option] if option.startswith("--"):
            return option in {"--help", *(each for of in get_command(app).params for each in of.opts)}
        case ["consilience", first, *rest]:
            groups = {name.split()[0] for name in known}
            command = known.get(verb(words))
            if command is None:
                return first in groups and not rest
            options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
            return all(word.split("=")[0] in options | {"--help"} for word in rest if word.startswith("--"))
        case ["make", target]:
            return re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE) is not None
        case ["python", "-m", "benchmarks", *names]:
            return all(name in BENCHMARKS or name.startswith("-") for name in names)
        case ["python", script, *_] if script.endswith(".py"):
            return (ROOT / script).exists()
    return True


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_public_name_has_a_line_and_a_page() -> None:
    assert names_without_page(DOCS) == []


def test_every_command_has_a_reference_and_a_how_to() -> None:
    assert commands_without_page(DOCS) == []


def test_every_command_to_type_is_run_or_has_a_reason() -> None:
    assert commands_not_run(DOCS) == []


def test_reasons_are_about_commands_that_pages_have() -> None:
    typed = {shlex.join(shlex.split(line, comments=True)) for _, line in shell_lines(DOCS)}
    assert set(NOT_RUN) <= typed
    assert "consilience demo" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_commands_within_sentences_exist() -> None:
    assert spans_out_of_date(DOCS) == []


@pytest.mark.parametrize("page", pages(DOCS), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_headings_lead_to_one(page: Path) -> None:
    for link in LINK.finditer(FENCED.sub("", page.read_text(encoding="utf-8"))):
        target = page if not link["file"] else page.parent / link["file"]
        if link["anchor"] and "://" not in link["file"]:
            assert link["anchor"] in anchors(target), link.group()


class TestTheRulesThemselves:
    """Something is taken away, and missed."""

    @pytest.fixture
    def docs(self, tmp_path: Path) -> Path:
        for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"):
            shutil.copy(ROOT / name, tmp_path)
        return Path(shutil.copytree(DOCS, tmp_path / "docs"))

    def test_the_page_of_names(self, docs: Path) -> None:
        assert names_without_page(docs) == []
        (docs / "reference" / "python.md").unlink()
        missed = names_without_page(docs)
        assert {f"consilience.{name}" for name in consilience.__all__} < set(missed)

    def test_the_row_of_one_name(self, docs: Path) -> None:
        page = docs / "reference" / "python.md"
        rows = page.read_text(encoding="utf-8").splitlines(keepends=True)
        page.write_text("".join(row for row in rows if not row.startswith("| `open_table`")), encoding="utf-8")
        assert names_without_page(docs) == ["consilience.open_table"]

    def test_the_page_that_a_name_links_to(self, docs: Path) -> None:
        (docs / "concepts" / "intervals.md").unlink()
        assert "consilience.interval" in names_without_page(docs)

    @pytest.mark.parametrize(
        ("page", "command"),
        [
            ("how-to/make-synthetic-records.md", "synthesize"),
            ("how-to/ask-questions.md", "compare"),
            ("how-to/explore-a-release.md", "explore"),
            ("how-to/cluster-points.md", "kmeans"),
            ("how-to/fit-a-logistic-regression.md", "logistic"),
            ("how-to/evaluate-a-release.md", "evaluate"),
            ("how-to/draft-a-domain.md", "domain review"),
            ("how-to/watch-the-budget.md", "ledger create"),
            ("reference/commands.md", "answer"),
        ],
    )
    def test_the_page_of_a_command(self, docs: Path, page: str, command: str) -> None:
        assert commands_without_page(docs) == []
        (docs / page).unlink()
        assert command in commands_without_page(docs)

    @pytest.mark.parametrize(
        "block",
        [
            "```sh\nmake bench\n```\n",
            "```bash\npip install numpy\n```\n",
            "```text\n$ consilience check release\n```\n",
            "```\nconsilience check release\n```\n",
        ],
    )
    def test_a_command_that_nobody_runs(self, docs: Path, block: str) -> None:
        (docs / "concepts" / "new.md").write_text(block, encoding="utf-8")
        assert len(commands_not_run(docs)) == 1

    @pytest.mark.parametrize(
        "span",
        [
            "consilience synthesise release",
            "consilience --install-competition",
            "consilience report release --pdf",
            "make tea",
            "python -m benchmarks nonsense",
            "python examples/nothing.py",
        ],
    )
    def test_a_command_that_does_not_exist(self, docs: Path, span: str) -> None:
        (docs / "concepts" / "new.md").write_text(f"Type `{span}` and see.\n", encoding="utf-8")
        assert spans_out_of_date(docs) == [f"new.md: {span}"]
