"""Every page's code runs: Python blocks in order, and the commands of shell blocks, each page by itself."""

import importlib.util
import re
from pathlib import Path

import pytest

from consilience.demo import write_table, write_town

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md"])
SLOW = (
    "README.md",
    "docs/concepts/intervals.md",
    "docs/how-to/answer-any-marginal.md",
    "docs/how-to/ask-questions.md",
    "docs/how-to/cluster-points.md",
    "docs/how-to/draw-maps.md",
    "docs/how-to/explore-a-release.md",
    "docs/how-to/declare-dates-and-codes.md",
    "docs/how-to/fit-a-logistic-regression.md",
    "docs/how-to/make-synthetic-records.md",
    "docs/how-to/print-tables.md",
    "docs/how-to/read-a-messy-csv.md",
    "docs/how-to/run-where-the-data-is.md",
    "docs/how-to/use-your-own-algorithm.md",
    "docs/how-to/weigh-and-sum.md",
    "docs/how-to/write-a-report.md",
    "docs/reference/release-bundle.md",
    "docs/tutorials/from-csv-to-publication.md",
    "docs/tutorials/publish-a-country.md",
)
"""Pages whose commands take more than two seconds."""
NEEDS = {"docs/how-to/run-where-the-data-is.md": "pyspark"}
"""A library that the code of a page needs, which not every set-up has."""
SHOWN = re.compile(
    r"^```bash\n(?P<block>(?:(?!```).)*)^```\n\n<!-- shown -->\n\n```text\n(?P<text>.*?)^```$", re.M | re.S
)
NUMBER = re.compile(r"[\d,.]*\d")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def load_runner():
    specification = importlib.util.spec_from_file_location("page_code", ROOT / "docs" / "page_code.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    write_table(tmp_path / "town.csv", people=2_000)
    write_town(tmp_path / "town-2015.csv", people=3_000, seed=2015)
    return tmp_path


def page_or_slow(page: Path):
    name = str(page.relative_to(ROOT))
    return pytest.param(page, id=name, marks=[pytest.mark.slow] if name in SLOW else [])


@pytest.mark.parametrize("page", [page_or_slow(page) for page in PAGES])
def test_code_on_the_page_runs(page: Path, workplace: Path) -> None:
    if (needed := NEEDS.get(str(page.relative_to(ROOT)))) is not None:
        pytest.importorskip(needed, reason=f"the page needs {needed}, which is not installed here")
    text = page.read_text(encoding="utf-8")
    shown = {found["block"]: found["text"] for found in SHOWN.finditer(text)}
    assert len(shown) == text.count("<!-- shown -->"), "run `python docs/pictures/make.py`"
    for block, printed in load_runner().run_page(text, workplace):
        if block in shown:
            expected, found = words_of_lines(shown[block]), words_of_lines(printed)
            assert 2 * len(expected & found) >= len(expected | found), f"run `python docs/pictures/make.py`: {block}"


def words_of_lines(text: str) -> set[str]:
    """The lines of a printed text without what differs from run to run: numbers, marks and spaces."""
    lines = (" ".join(NUMBER.sub("#", line).replace("*", "").split()) for line in text.splitlines())
    return {line for line in lines if any(letter.isalpha() for letter in line)}


@pytest.mark.parametrize(
    "text",
    [
        "```python\nraise SystemExit(3)\n```\n",
        "```bash\nconsilience check nothing.toml\n```\n",
        "```sh\npython -c 'pass'\n```\n\n```python\nraise SystemExit(3)\n```\n",
    ],
    ids=["python", "a command", "python after a command"],
)
def test_code_that_fails_is_noticed(text: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        list(load_runner().run_page(text, tmp_path))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in ROOT.glob("docs/**/*.md"):
        name = str(page.relative_to(ROOT / "docs"))
        assert name == "README.md" or name.startswith("decisions/") or name in index, (
            f"docs/README.md does not link {name}"
        )
