"""What the project says about its set-up agrees: README, Makefile, continuous integration and declared versions."""

import re
import tomllib
from pathlib import Path

import pytest

from consilience.privacy.noise import _refuse_biased_samplers

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
REQUIREMENTS = [*PROJECT["dependencies"], *EXTRAS["plots"], *EXTRAS["test"]]


def commands(path: str) -> set[str]:
    """The targets of make that a file calls."""
    return set(re.findall(r"\bmake ([a-z][a-z-]*)", (ROOT / path).read_text(encoding="utf-8")))


def test_the_first_screen_names_the_demo_and_the_tests_and_what_ci_calls() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first_screen = "\n".join(readme.splitlines()[:24])
    named = set(re.findall(r"^make ([a-z-]+)", first_screen, flags=re.MULTILINE))
    assert {"demo", "test"} <= named
    assert commands(".ci/run") <= named


@pytest.mark.parametrize("path", [".ci/run", ".github/workflows/check.yml", ".pre-commit-config.yaml"])
def test_every_command_that_is_called_is_a_target(path: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    assert commands(path)
    assert commands(path) <= targets


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_every_library_has_a_lowest_version_that_can_be_installed_alone(requirement: str) -> None:
    assert re.fullmatch(r"[a-z-]+>=[0-9.]+", requirement)


def test_the_lowest_opendp_is_one_that_is_not_refused() -> None:
    (floor,) = (each.partition(">=")[2] for each in PROJECT["dependencies"] if each.startswith("opendp>="))
    _refuse_biased_samplers(floor)


def test_every_python_that_is_declared_is_checked_by_the_workflow() -> None:
    declared = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)}
    workflow = (ROOT / ".github/workflows/check.yml").read_text(encoding="utf-8")
    assert set(re.findall(r'"(3\.\d+)"', workflow)) == declared
    assert PROJECT["requires-python"] == ">=" + min(declared)
