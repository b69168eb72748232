"""The code on pages: which blocks a page has, which of its lines are run, and how.

The tests run every page in a folder of its own (`tests/unit/docs/test_pages.py`), and `docs/pictures/make.py` runs
some of them to show what their commands print.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^ *```(?P<language>\w*)\n(?P<body>.*?)^ *```$", re.MULTILINE | re.DOTALL)
SHELLS = ("bash", "console", "sh")
PROGRAMS = ("consilience", "python", "cp")
SECONDS = 300


def blocks(text: str) -> list[tuple[str, str]]:
    """Every fenced block of a page: its language and its content."""
    return [(found["language"], found["body"]) for found in BLOCK.finditer(text)]


def shell_lines(block: str) -> list[str]:
    """The commands of a shell block; a prompt `$ `, comments and continued lines are allowed."""
    joined = block.replace("\\\n", " ")
    lines = [line.strip().removeprefix("$ ") for line in joined.splitlines()]
    return [line for line in lines if shlex.split(line, comments=True)]


def is_run(line: str) -> bool:
    """Whether a command of a page is one that `run_page` carries out."""
    return shlex.split(line, comments=True)[0] in PROGRAMS


def run_page(text: str, place: Path) -> Iterator[tuple[str, str]]:
    """Run a page's code in a folder, block by block, and yield each shell block with what its last command printed.

    Python blocks that follow each other are one program. A command that fails raises an error with its words.
    """
    examples = place / "examples"
    if not examples.exists():
        examples.symlink_to(ROOT / "examples")
    script = ""
    for language, block in blocks(text):
        if language == "python":
            script += block + "\n"
        elif language in SHELLS:
            _run([sys.executable, "-c", script], place)
            script = ""
            printed = [_run_line(line, place) for line in shell_lines(block) if is_run(line)]
            yield block, printed[-1] if printed else ""
    _run([sys.executable, "-c", script], place)


def _run_line(line: str, place: Path) -> str:
    words = shlex.split(line, comments=True)
    target = None
    if ">" in words:
        target = place / words[words.index(">") + 1]
        words = words[: words.index(">")]
    beside = Path(sys.executable)
    programs = {"python": str(beside), "consilience": str(beside.with_name("consilience"))}
    printed = _run([programs.get(words[0], words[0]), *words[1:]], place)
    if target is None:
        return printed
    target.write_text(printed, encoding="utf-8")
    return ""


def _run(command: list[str], place: Path) -> str:
    if command[1:] == ["-c", ""]:
        return ""
    narrow = os.environ | {"COLUMNS": "100"}
    done = subprocess.run(command, cwd=place, env=narrow, capture_output=True, text=True, check=False, timeout=SECONDS)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}")
    return done.stdout
