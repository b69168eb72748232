"""The page about R runs, as far as R and its libraries are there."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from consilience.cli.main import app
from consilience.demo import write_table

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "read-a-release-in-r.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("Rscript") is None, reason="there is no R here"),
]


def has(library: str) -> bool:
    asked = f'quit(status = !requireNamespace("{library}", quietly = TRUE))'
    return subprocess.run(["Rscript", "-e", asked], check=False, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("r")
    write_table(folder / "town.csv", people=2000)
    asked = next(body for language, body in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if language == "bash")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        outcome = CliRunner().invoke(app, shlex.split(asked)[1:])
    assert outcome.exit_code == 0, outcome.output
    return folder


@pytest.mark.parametrize("library", ["jsonlite", "arrow", "reticulate"])
def test_the_code_that_needs_a_library_runs(library: str, place: Path) -> None:
    if not has(library):
        pytest.skip(f"R has no {library} here")
    section = next(each for each in PAGE.read_text(encoding="utf-8").split("\n## ") if f"library({library})" in each)
    code = "\n".join(body for language, body in BLOCK.findall(section) if language in ("r", "text"))
    environment = os.environ | {"RETICULATE_PYTHON": sys.executable}
    done = subprocess.run(
        ["Rscript", "-e", code], cwd=place, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"jsonlite": "0..15 Female", "arrow": "discrete-laplace", "reticulate": "Female"}[library] in done.stdout
