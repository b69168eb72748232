"""CONTRIBUTING.md is true: the layers it draws, the paths it names, and the walk through `consilience release`."""

import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
STEP = re.compile(r"^\| (\d+) \| `([\w/]+\.py)` \| `([\w.]+)` \| .+ \|$", re.MULTILINE)
MOST_STEPS = 25

TABLE = "sex,age\n" + "".join(f"{'FM'[i % 2]},{7 * i % 100}\n" for i in range(200))
DECLARED = """
name = "walk"
[attributes.sex]
kind = "categorical"
values = ["F", "M"]
[attributes.age]
kind = "numeric"
edges = [0, 18, 65, 100]
"""
TRACED = """
import json, os, sys
from pathlib import Path

import consilience.cli.main
from typer.testing import CliRunner

root = str(Path(consilience.cli.main.__file__).parents[1]) + os.sep
called = {}


def note(frame, event, _):
    if event == "call" and frame.f_code.co_filename.startswith(root):
        called.setdefault((frame.f_code.co_filename.removeprefix(root).replace(os.sep, "/"), frame.f_code.co_qualname))


options = "--domain walk.domain.toml --epsilon 1 --plan 2-way --out release".split()
sys.setprofile(note)
outcome = CliRunner().invoke(consilience.cli.main.app, ["release", "walk.csv", *options])
sys.setprofile(None)
assert outcome.exit_code == 0, outcome.output
print(json.dumps(list(called)))
"""


def walk() -> list[tuple[str, str]]:
    part = TEXT[TEXT.index("<!-- walk -->") : TEXT.index("<!-- end walk -->")]
    rows = STEP.findall(part)
    assert [int(number) for number, _, _ in rows] == list(range(1, part.count("\n| ")))
    return [(file, function) for _, file, function in rows]


def test_the_walk_is_short() -> None:
    assert 0 < len(walk()) <= MOST_STEPS


@pytest.mark.parametrize(("file", "function"), walk())
def test_every_step_of_the_walk_exists(file: str, function: str) -> None:
    assert (ROOT / "src" / "consilience" / file).exists()
    found = importlib.import_module("consilience." + file.removesuffix(".py").replace("/", "."))
    for name in function.split("."):
        found = getattr(found, name)
    assert callable(found)


def test_a_release_takes_the_steps_of_the_walk_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "walk.csv").write_text(TABLE, encoding="utf-8")
    (tmp_path / "walk.domain.toml").write_text(DECLARED, encoding="utf-8")
    ran = subprocess.run([sys.executable, "-c", TRACED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    called = [tuple(each) for each in json.loads(ran.stdout.splitlines()[-1])]
    assert [step for step in walk() if step not in called] == []
    places = [called.index(step) for step in walk()]
    late = [step for step, place, before in zip(walk()[1:], places[1:], places, strict=False) if place < before]
    assert late == [], "first called before the step above it"


def test_the_drawing_has_every_package_where_its_layer_is() -> None:
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    [contract] = [each for each in layers if each["type"] == "layers"]
    drawing = TEXT[TEXT.index("## The layers") :].split("```")[1]
    names = {path.name for path in (ROOT / "src" / "consilience").iterdir() if (path / "__init__.py").exists()}
    line_of = {}
    for number, line in enumerate(drawing.splitlines()):
        line_of |= {word: number for word in re.findall(r"\w+", line[:44]) if word in names}
    assert set(line_of) == names
    lines = [{line_of[name] for name in re.findall(r"\w+", layer) if name in names} for layer in contract["layers"]]
    lines = [each for each in lines if each]
    assert all(len(each) == 1 for each in lines)
    assert [min(each) for each in lines] == sorted(min(each) for each in lines)


def test_paths_that_are_named_exist() -> None:
    named = [path for path in re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./]+)`", TEXT) if "NAME" not in path]
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_register_of_estimators_is_where_the_five_steps_say() -> None:
    choose = importlib.import_module("consilience.estimators.choose")
    assert set(choose.ESTIMATORS) == set(choose._HOMES)
