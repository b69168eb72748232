"""Ctrl-C says what was spent, what was recorded, and how to go on."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

DOMAIN = 'name = "people"\n[attributes.sex]\nkind = "categorical"\nvalues = ["F", "M"]\n'
RELEASE = [
    "release",
    "people.csv",
    "--domain",
    "people.domain.toml",
    "--epsilon",
    "1",
    "--plan",
    "1-way",
    "--out",
    "out",
]
WAITING = """
import sys, time
import consilience.estimators, consilience.measuring
from consilience.cli.main import run

def wait(*_, **__):
    print("waiting", flush=True)
    time.sleep(60)

{place} = wait
sys.argv = ["consilience", *sys.argv[1:]]
run()
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to one process")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "people.domain.toml").write_text(DOMAIN)
    (tmp_path / "people.csv").write_text("sex\n" + "F\nM\n" * 50)
    return tmp_path


def interrupted(place: Path, at: str) -> tuple[int, str]:
    """Exit code and standard error of a release that gets SIGINT where it calls the function of that name."""
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING.format(place=at), *RELEASE],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def test_an_interrupt_before_anything_was_spent_says_so(place: Path) -> None:
    code, err = interrupted(place, "consilience.measuring.price")
    assert code == 130
    assert "stopped. Nothing was spent." in err
    assert "Traceback" not in err


def test_an_interrupt_after_the_budget_was_spent_says_what_was_recorded_and_how_to_go_on(place: Path) -> None:
    code, err = interrupted(place, "consilience.estimators.estimate")
    assert code == 130
    assert "spent and recorded in people.csv.ledger" in err
    assert "Repeat the same command to go on" in err
    assert "Traceback" not in err
    assert not (place / "out").exists()
    again = subprocess.run(
        [sys.executable, "-m", "consilience.cli.main", *RELEASE], cwd=place, capture_output=True, text=True
    )
    assert again.returncode == 0, again.stderr
    assert "nothing was spent" in again.stderr
    assert (place / "out").is_dir()
