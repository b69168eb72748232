"""What the project says about its set-up agrees: README, Makefile, continuous integration and declared versions."""

import re
import tomllib
from pathlib import Path

import pytest

from consilience.privacy.noise import _refuse_biased_samplers

ROOT = Path(__file__).parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = DECLARED["project"]
REQUIREMENTS = [*PROJECT["dependencies"], *DECLARED["dependency-groups"]["test"]]


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
    assert re.fullmatch(r"[a-z-]+(\[[a-z]+\])?>=[0-9.]+", requirement)


def test_the_lowest_opendp_is_one_that_is_not_refused() -> None:
    (floor,) = (each.partition(">=")[2] for each in PROJECT["dependencies"] if each.startswith("opendp>="))
    _refuse_biased_samplers(floor)


def test_every_python_that_is_declared_is_checked_by_the_workflow() -> None:
    declared = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)}
    workflow = (ROOT / ".github/workflows/check.yml").read_text(encoding="utf-8")
    assert set(re.findall(r'"(3\.\d+)"', workflow)) == declared
    assert PROJECT["requires-python"] == ">=" + min(declared)


def test_the_container_runs_as_a_user_without_rights_and_sees_nothing_but_wheels() -> None:
    written = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    users = re.findall(r"^USER (\w+)$", written, flags=re.MULTILINE)
    assert users
    assert int(users[-1]) > 0  # by number: an engine can tell that it is not root
    assert written.index("USER") < written.index("ENTRYPOINT")
    tag = re.search(r"^FROM python:(3\.\d+)-slim-\w+$", written, flags=re.MULTILINE)
    assert tag is not None
    assert PROJECT["requires-python"] == f">={tag[1]}"  # the Python whose kernels `make wheel` compiles by default
    assert (ROOT / ".dockerignore").read_text(encoding="utf-8").split() == ["*", "!dist/*.whl"]
