"""The code on pages: which blocks a page has, which of its lines are run, and how.

The tests run every page in a folder of its own (`tests/unit/docs/test_pages.py`), and `docs/pictures/make.py` runs
some of them to show what their commands print.
"""

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^ *```(?P<language>\w*)\n(?P<body>.*?)^ *```$", re.MULTILINE | re.DOTALL)
SHELLS = ("bash", "console", "sh")
PROGRAMS = ("consilience", "python", "cp")
SECONDS, WIDTH = 300, "100"


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
            _run_script(script, place)
            script = ""
            printed = [_run_line(line, place) for line in shell_lines(block) if is_run(line)]
            yield block, printed[-1] if printed else ""
    _run_script(script, place)


def _run_line(line: str, place: Path) -> str:
    words = shlex.split(line, comments=True)
    target = None
    if ">" in words:
        target = place / words[words.index(">") + 1]
        words = words[: words.index(">")]
    if words[0] == "consilience":
        printed = _run_here(lambda: _command_line(words), line, place)
    else:
        printed = _run_beside([sys.executable if words[0] == "python" else words[0], *words[1:]], place)
    if target is None:
        return printed
    target.write_text(printed, encoding="utf-8")
    return ""


def _run_script(script: str, place: Path) -> None:
    code = compile(script, "the page's Python blocks", "exec")
    _run_here(lambda: exec(code, {"__name__": "__main__"}), "the page's Python blocks", place)


def _command_line(words: list[str]) -> None:
    from consilience.cli.main import run

    kept, sys.argv = sys.argv, words
    try:
        run()
    finally:
        sys.argv = kept


def _run_here(action: Callable[[], object], name: str, place: Path) -> str:
    """What is printed by something that runs in this process, which has loaded already what most pages use."""
    printed, said, failed = io.StringIO(), io.StringIO(), False
    kept = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        with chdir(place), redirect_stdout(printed), redirect_stderr(said):
            action()
    except SystemExit as end:
        failed = bool(end.code)
    finally:
        os.environ.pop("COLUMNS")
        os.environ.update({} if kept is None else {"COLUMNS": kept})
    if failed:
        raise RuntimeError(f"{name}\n{printed.getvalue()}\n{said.getvalue()}")
    return printed.getvalue()


def _run_beside(command: list[str], place: Path) -> str:
    """What a program of its own prints."""
    narrow = os.environ | {"COLUMNS": WIDTH}
    done = subprocess.run(command, cwd=place, env=narrow, capture_output=True, text=True, check=False, timeout=SECONDS)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}")
    return done.stdout
