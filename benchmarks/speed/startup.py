"""What a newcomer waits for: how much is installed, how long an import and `--help` take, and a first release.

`install` is what the base install puts on disk, our package and all that it depends on, in megabytes. Times are the
best of some runs, each in a process of its own: elapsed time, and the processor time that targets are about. A first
release is that of the demo, with an empty cache and again with what that left; where kernels came with the package,
as with a wheel, the first is as quick as the second.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

Row = dict[str, Any]

RUNS = 5
TARGETS = {"import": 0.1, "--help": 0.5}
PEOPLE = 2000

IMPORT = "import time; begin = time.perf_counter(); import consilience; print(time.perf_counter() - begin)"


def run(quick: bool) -> list[Row]:
    runs = 2 if quick else RUNS
    helped = [_elapsed([sys.executable, "-m", "consilience.cli.main", "--help"]) for _ in range(runs)]
    rows = [
        {"what": "install", "megabytes": install_megabytes()},
        _row("import", min(float(_printed([sys.executable, "-c", IMPORT])) for _ in range(runs))),
        _row("--help", *min(helped)),
    ]
    with tempfile.TemporaryDirectory() as cache:
        for what in ("first release", "second release"):
            rows.append(_row(what, *_release(Path(cache))))
    return rows


def _row(what: str, seconds: float, processor: float | None = None) -> Row:
    row: Row = {"what": what, "seconds": seconds}
    if processor is not None:
        row["processor seconds"] = processor
    if what in TARGETS:
        row |= {"target": TARGETS[what], "met": "yes" if (processor or seconds) <= TARGETS[what] else "no"}
    return row


def install_megabytes() -> float:
    """The size of all files of the package and of what it needs."""
    found: set[str] = set()
    waiting = ["consilience"]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            requires = distribution(name).requires or []
        except PackageNotFoundError:  # for another system
            continue
        found.add(name)
        waiting += [re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in requires if "extra ==" not in each]
    paths = {Path(str(file.locate())).resolve() for name in found for file in distribution(name).files or ()}
    package = Path(__file__).parents[2] / "src" / "consilience"
    paths |= {path for path in package.rglob("*") if path.suffix not in (".nbi", ".nbc", ".pyc")}
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def _release(cache: Path) -> tuple[float, float]:
    """A release of the demo's town by the command, in a new folder."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "consilience.cli.main"]
        subprocess.run([*command, "demo", "--table", f"{place}/town.csv", "--people", str(PEOPLE)], check=True)
        asked = ["release", f"{place}/town.csv", "--domain", f"{place}/town.domain.toml", "--epsilon", "1"]
        return _elapsed([*command, *asked, "--plan", "2-way", "--out", f"{place}/release"], NUMBA_CACHE_DIR=str(cache))


def _elapsed(command: list[str], **environment: str) -> tuple[float, float]:
    """Elapsed and processor seconds of a process."""
    before, begin = os.times(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=os.environ | environment)
    after = os.times()
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    return time.perf_counter() - begin, spent


def _printed(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
