"""The notebooks among the examples run as programs, and read as notebooks."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
CELL = re.compile(r"^# %%.*$", re.MULTILINE)


def run_example(name: str, *arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_quickstart(tmp_path: Path) -> None:
    printed = run_example("quickstart.py", "2000", folder=tmp_path)
    assert re.search(r"fitted by graphical \((least risk|converged)\)", printed)  # as its noise has it
    assert "1 of epsilon 2" in printed
    assert (tmp_path / "release" / "release.json").exists()


def test_bring_your_own_measurements(tmp_path: Path) -> None:
    printed = run_example("bring_your_own_measurements.py", folder=tmp_path)
    assert "consistent" in printed
    last = [line for line in printed.splitlines() if line.startswith("smokers aged")]
    assert len(last) == 4
    assert all(float(line.split()[-1].replace(",", "")) >= 0 for line in last)


def test_what_if_epsilon(tmp_path: Path) -> None:
    printed = run_example("what_if_epsilon.py", "2000", folder=tmp_path)
    widths = [float(line.split()[1]) for line in printed.splitlines() if re.match(r"^\d", line)]
    assert len(widths) == 3
    assert widths == sorted(widths, reverse=True)
    assert not list(tmp_path.glob("*.ledger"))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_a_notebook_of_prose_and_cells_that_compile_by_themselves(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    head, *cells = CELL.split(text)
    assert "format_name: percent" in head
    kinds = CELL.findall(text)
    assert kinds[0] == "# %% [markdown]"
    for kind, cell in zip(kinds, cells, strict=True):
        if kind.endswith("[markdown]"):
            assert all(line.startswith("#") for line in cell.strip().splitlines())
        else:
            compile(cell, path.name, "exec")
