"""The architecture's contracts hold, and break when a forbidden import is planted."""

import importlib
import inspect
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import consilience.solvers

ROOT = Path(__file__).parents[3]
PLANTS = {
    "domain imports privacy": ("domain/queries.py", "import consilience.privacy.ledger\n"),
    "an estimator imports the source": ("estimators/table.py", "import consilience.source\n"),
    "publication imports plans": ("publication/answers/tables.py", "import consilience.plans\n"),
    "a plan imports the source": ("plans/marginals.py", "from consilience.source import open_table\n"),
    "a kernel imports domain": ("kernels/linear_maps.py", "import consilience.domain.domains\n"),
    "a solver imports domain": ("solvers/fit.py", "import consilience.domain.domains\n"),
    "privacy imports a solver": ("privacy/pricing.py", "import consilience.solvers.fit\n"),
    "numba where plain data is read": ("measurements/measurement.py", "import numba\n"),
    "a package that no layer names": ("stray/__init__.py", ""),
}


def lint_imports(project: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(project / "src")}
    command = [
        str(Path(sys.executable).with_name("lint-imports")),
        "--config",
        str(project / "pyproject.toml"),
        "--no-cache",
    ]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_contracts_hold(project: Path) -> None:
    outcome = lint_imports(project)
    assert outcome.returncode == 0, outcome.stdout
    assert "0 broken" in outcome.stdout


@pytest.mark.parametrize("plant", PLANTS, ids=lambda name: name.replace(" ", "-"))
def test_a_planted_import_breaks_a_contract(project: Path, plant: str) -> None:
    name, line = PLANTS[plant]
    target = project / "src" / "consilience" / name
    target.parent.mkdir(exist_ok=True)
    target.write_text(line + (target.read_text(encoding="utf-8") if target.exists() else ""), encoding="utf-8")
    outcome = lint_imports(project)
    assert outcome.returncode != 0, f"{plant} was not noticed"


@pytest.mark.parametrize(
    "line", ["import numpy.random\n", "import random\n", "import secrets\n", "from os import urandom\n"]
)
def test_randomness_is_banned_outside_its_two_modules(project: Path, line: str) -> None:
    ruff = str(Path(sys.executable).with_name("ruff"))
    command = [ruff, "check", "--config", "pyproject.toml", "--select", "TID251", "--no-cache", "src"]
    assert subprocess.run(command, cwd=project, capture_output=True, check=False).returncode == 0
    victim = project / "src/consilience/estimators/table.py"
    victim.write_text(line + victim.read_text(encoding="utf-8"), encoding="utf-8")
    assert subprocess.run(command, cwd=project, capture_output=True, check=False).returncode != 0


def test_the_auditors_contract_names_every_other_part() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    [contract] = [each for each in contracts if each["name"].startswith("What an auditor must trust")]
    parts = {path.stem for path in (ROOT / "src" / "consilience").iterdir() if (path / "__init__.py").exists()}
    parts |= {path.stem for path in (ROOT / "src" / "consilience").glob("*.py")} - {
        "__init__",
        "errors",
        "late_imports",
    }
    named = {name.removeprefix("consilience.") for name in contract["source_modules"] + contract["forbidden_modules"]}
    assert named == parts


def test_what_an_auditor_must_trust_is_checked_with_strict_types() -> None:
    written = (ROOT / "pyrightconfig.audit.json").read_text(encoding="utf-8")
    settings = json.loads("\n".join(line for line in written.splitlines() if not line.strip().startswith("//")))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    [contract] = [each for each in contracts if each["name"].startswith("What an auditor must trust")]
    trusted = {"src/" + name.replace(".", "/") for name in contract["source_modules"]}
    assert set(settings["include"]) == trusted | {"src/consilience/errors.py"}
    assert settings["typeCheckingMode"] == "strict"
    assert settings["pythonVersion"] == project["tool"]["pyright"]["pythonVersion"]


def test_no_module_draws_from_scipy() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        assert ".rvs(" not in path.read_text(encoding="utf-8"), path


def test_one_word_of_the_solvers_is_one_number() -> None:
    """No constant of a module, and no default of a setting, has the name of another one with another number."""
    found: dict[str, set[float]] = {}
    for info in pkgutil.walk_packages(consilience.solvers.__path__, "consilience.solvers."):
        for name, value in vars(importlib.import_module(info.name)).items():
            if name.isupper() and isinstance(value, int | float):
                found.setdefault(name, set()).add(value)
            if isinstance(value, type) and name.endswith("Settings"):
                for field in inspect.signature(value).parameters.values():
                    found.setdefault(field.name, set()).update({field.default} - {field.empty})
    assert len(found) > 100
    assert {name: numbers for name, numbers in found.items() if len(numbers) > 1} == {}


def test_public_names_are_pinned() -> None:
    import consilience

    pinned = """
        Attribute ConsilienceError Date DiscreteGaussian DiscreteLaplace Domain Estimate Gaussian Laplace Ledger
        Measurement MeasurementSet Query Release Workload answer check check_domain compare discover_domain
            draft_domain estimate
        estimators evaluate factors interval kmeans logistic map measure open_release open_table plan plans public_records
        release report synthesize write_bundle write_synthetic
    """
    assert sorted(consilience.__all__) == sorted(pinned.split())
    for name in consilience.__all__:
        assert getattr(consilience, name) is not None


def test_public_names_are_explained_by_an_example() -> None:
    import consilience

    silent = {name for name in consilience.__all__ if ">>> " not in (inspect.getdoc(getattr(consilience, name)) or "")}
    assert silent == set()


def test_importing_the_package_is_light() -> None:
    script = (
        "import sys, consilience\n"
        "print(sorted({'numpy', 'numba', 'pyarrow', 'duckdb', 'opendp', 'scipy'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_command_line_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom consilience.cli.main import app\n"
        "print(sorted({'numpy', 'numba', 'pyarrow', 'duckdb', 'opendp', 'scipy', 'pandas'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_packages_of_many_import_what_is_used_alone() -> None:
    """A command about one plan or one saved account does not compile, or even load, the kernels of all others."""
    script = (
        "import sys\n"
        "from consilience.plans import plan_from_text\n"
        "from consilience.publication import open_release\n"
        "from consilience import estimators, plans\n"
        "plan_from_text('marginals a,b')\n"
        "print(sorted({'numba', 'pandas'} & set(sys.modules)))\n"
        "for package in (estimators, plans):\n"
        "    for name in package.__all__:\n"
        "        getattr(package, name)\n"
        "print(callable(estimators.choose), 'numba' in sys.modules)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["[]", "True True"]
