"""A wheel brings everything that a newcomer needs: the demo, its data, and kernels that need not be compiled."""

import json
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from consilience.kernels.kernel_cache import SHIPPED_FOR, folder_for

ROOT = Path(__file__).parents[2]
ARCHITECTURE = platform.machine()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or ARCHITECTURE not in SHIPPED_FOR, reason="wheels with kernels are for Linux"
    ),
]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel with the kernels of a first release holds."""
    place = tmp_path_factory.mktemp("wheel")
    compile_them = [sys.executable, str(ROOT / "packaging" / "kernels.py"), str(place / "kernels"), "--first"]
    subprocess.run(compile_them, check=True, capture_output=True)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), str(ROOT)]
    subprocess.run(build, check=True, env=os.environ | {"CONSILIENCE_KERNELS": str(place / "kernels")})
    [wheel] = place.glob("*.whl")
    assert wheel.name.endswith(f"-py3-none-manylinux_2_28_{ARCHITECTURE}.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(place / "installed")
    return place / "installed"


def consilience(installed: Path, place: Path, *words: str, cache: Path) -> str:
    """What a command prints that runs from the wheel, in a folder of its own, with nothing compiled on this machine."""
    environment = os.environ | {"PYTHONPATH": str(installed), "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-m", "consilience.cli.main", *words]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_first_release_from_the_wheel_compiles_nothing(installed: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    consilience(installed, tmp_path, "demo", "--table", "town.csv", "--people", "1000", cache=cache)
    asked = ["town.csv", "--domain", "town.domain.toml", "--epsilon", "1", "--plan", "2-way"]
    said = consilience(installed, tmp_path, "release", *asked, "--out", "release", cache=cache)
    assert "compiling" not in said
    assert not list(cache.rglob("*.nbc"))


def test_the_demo_runs_from_the_wheel_with_its_report(installed: Path, tmp_path: Path) -> None:
    words = ["demo", "--people", "1000", "--refits", "20"]
    consilience(installed, tmp_path, *words, cache=tmp_path / "cache")
    assert list((tmp_path / "demo" / "release" / "pictures").glob("*.svg"))


def test_the_wheel_asks_for_what_pictures_need(installed: Path) -> None:
    [metadata] = installed.glob("*.dist-info/METADATA")
    required = [line for line in metadata.read_text(encoding="utf-8").splitlines() if "extra ==" not in line]
    for library in ("altair", "vl-convert-python"):
        assert any(line.startswith(f"Requires-Dist: {library}") for line in required)


def test_without_its_kernels_the_wheel_compiles_them(installed: Path, tmp_path: Path) -> None:
    shipped = installed / "consilience" / "kernels" / "compiled" / folder_for(SHIPPED_FOR[ARCHITECTURE][0])
    shipped.rename(tmp_path / "elsewhere")
    try:
        assert "compiled" in consilience(installed, tmp_path, "warm-up", cache=tmp_path / "cache")
        assert list((tmp_path / "cache").rglob("*.nbc"))
    finally:
        (tmp_path / "elsewhere").rename(shipped)


@pytest.fixture(scope="module")
def fresh(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment, with the wheel, what it asks for, and what runs notebooks."""
    place = tmp_path_factory.mktemp("fresh") / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    [wheel] = installed.parent.glob("*.whl")
    asked = [str(wheel), "jupytext", "nbclient", "ipykernel"]
    install = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    done = subprocess.run([*install, *asked], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no package index is in reach: {done.stderr.strip().splitlines()[-1]}")
    return place / "bin"


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_the_notebooks_run_from_the_wheel_in_a_fresh_environment(fresh: Path, path: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{fresh}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    made = tmp_path / f"{path.stem}.ipynb"
    run = [str(fresh / "jupytext"), "--to", "ipynb", "--execute", "--set-kernel", "python3", "-o", str(made), str(path)]
    done = subprocess.run(run, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    cells = json.loads(made.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output["output_type"] == "error"]
    pages = ["".join(output["data"]["text/html"]) for output in outputs if "text/html" in output.get("data", {})]
    assert pages
    assert not [page for page in pages if "<script" in page and "vega" not in page]
