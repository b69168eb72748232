"""Every page's code runs: Python blocks in order, and shell lines that call `consilience`, each page by itself."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md"])
BLOCK = re.compile(r"^```(python|console|bash|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def commands(block: str) -> list[str]:
    """The lines of a shell block that call consilience; a prompt `$ ` and continued lines are allowed."""
    joined = block.replace("\\\n", " ")
    lines = [line.strip().removeprefix("$ ") for line in joined.splitlines()]
    return [line for line in lines if line.startswith("consilience ")]


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import town
    finally:
        sys.path.pop(0)
    town.write_town(tmp_path / "town.csv", people=2_000)
    shutil.copy(ROOT / "examples" / "town.domain.toml", tmp_path)
    return tmp_path


def run(command: list[str], place: Path) -> None:
    outcome = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=300)
    assert outcome.returncode == 0, f"{command}\n{outcome.stdout}\n{outcome.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_on_the_page_runs(page: Path, workplace: Path) -> None:
    script = ""
    program = str(Path(sys.executable).with_name("consilience"))
    for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            script += block + "\n"
            continue
        if script:
            run([sys.executable, "-c", script], workplace)
            script = ""
        for line in commands(block):
            words = shlex.split(line, comments=True)
            redirected = None
            if ">" in words:
                redirected = workplace / words[words.index(">") + 1]
                words = words[: words.index(">")]
            outcome = subprocess.run([program, *words[1:]], cwd=workplace, capture_output=True, text=True, check=False)
            assert outcome.returncode == 0, f"{line}\n{outcome.stdout}\n{outcome.stderr}"
            if redirected:
                redirected.write_text(outcome.stdout, encoding="utf-8")
    if script:
        run([sys.executable, "-c", script], workplace)


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
