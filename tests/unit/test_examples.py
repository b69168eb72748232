"""The examples run as a newcomer would run them."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


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


class TestTheScripts:
    def test_measure_and_ask(self, tmp_path: Path) -> None:
        printed = run_example("measure_and_ask.py", "2000", folder=tmp_path)
        assert re.search(r"fitted by graphical \((least risk|converged)\)", printed)  # as its noise has it
        assert "1 of epsilon 2" in printed
        assert (tmp_path / "release" / "release.json").exists()

    def test_bring_your_own_noise(self, tmp_path: Path) -> None:
        printed = run_example("bring_your_own_noise.py", folder=tmp_path)
        assert "consistent" in printed
        last = [line for line in printed.splitlines() if line.startswith("smokers aged")]
        assert len(last) == 4
        assert all(float(line.split()[-1].replace(",", "")) >= 0 for line in last)
