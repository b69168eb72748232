"""Kernels that came with the package are used where they can be, and nothing depends on them."""

import inspect
import os
import pickle
import platform
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import numba
import pytest
from numba.core import caching

from consilience.kernels import kernel_cache
from consilience.kernels.kernel_cache import SHIPPED_FOR, KernelCache, folder_for, njit, processor

ROOT = Path(__file__).parents[3]
ARCHITECTURE = platform.machine()
SHIPPABLE = pytest.mark.skipif(
    sys.platform != "linux" or ARCHITECTURE not in SHIPPED_FOR, reason="wheels with kernels are for Linux"
)
PROGRAM = """
import logging, sys
from pathlib import Path
from consilience.kernels import kernel_cache
kernel_cache.SHIPPED = Path(sys.argv[1])
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
import numpy as np
from consilience.kernels.compilation import compilation
from consilience.kernels.transforms import exact_coefficients
print(exact_coefficients(np.arange(8), 5, 10).tolist())
print("compiled", compilation.kernels)
"""


class TestWhatNumbaKeepsToItself:
    """If one of these fails, a new numba has other names: `kernel_cache.py` has to follow them."""

    def test_a_kernel_has_a_cache_that_can_be_replaced(self) -> None:
        @njit(nogil=True, cache=True)
        def add_one(x):  # pragma: no cover - compiled
            return x + 1

        assert isinstance(add_one._cache, KernelCache)
        assert add_one(1) == 2

    def test_a_key_is_a_signature_a_machine_and_digests(self) -> None:
        @numba.njit
        def add_two(x):  # pragma: no cover - compiled
            return x + 2

        add_two(1)
        [compiled] = add_two.overloads.values()
        codegen = compiled.library.codegen
        signature, machine, digests = caching.FunctionCache(add_two.py_func)._index_key(compiled.signature, codegen)
        assert signature == compiled.signature
        assert machine[0] == llvm.get_process_triple()
        assert len(machine) == 3
        assert len(digests) == 2

    def test_places_are_found_by_classes_that_are_asked_in_turn(self) -> None:
        assert caching.CacheImpl._locator_classes
        assert caching.FunctionCache._impl_class is caching.CompileResultCacheImpl
        assert list(inspect.signature(caching._CacheLocator.from_function).parameters) == ["py_func", "py_file"]
        assert {"get_cache_path", "get_source_stamp", "get_disambiguator"} <= set(dir(kernel_cache.ShippedPlace))


class TestTheProcessor:
    @pytest.fixture
    def machine(self, monkeypatch: pytest.MonkeyPatch):
        def has(features: dict[str, bool]) -> None:
            monkeypatch.setattr(kernel_cache.llvm, "get_host_cpu_features", lambda: features)

        return has

    def test_a_machine_with_all_that_is_needed_takes_the_kernels(self, machine) -> None:
        name, needed = SHIPPED_FOR["x86_64"]
        machine(dict.fromkeys([*needed, "avx512f"], True))
        assert processor("x86_64") == name

    @pytest.mark.parametrize("lacks", ["avx2", "fma"])
    def test_a_machine_that_lacks_something_compiles(self, machine, lacks: str) -> None:
        _, needed = SHIPPED_FOR["x86_64"]
        machine(dict.fromkeys(needed, True) | {lacks: False})
        assert processor("x86_64") is None
        machine(dict.fromkeys(needed - {lacks}, True))
        assert processor("x86_64") is None

    def test_an_architecture_that_no_wheel_is_for_compiles(self, machine) -> None:
        machine({})
        assert processor("riscv64") is None

    def test_who_asks_for_a_processor_gets_it(self, machine, monkeypatch: pytest.MonkeyPatch) -> None:
        machine(dict.fromkeys(SHIPPED_FOR["x86_64"][1], True))
        monkeypatch.setattr(kernel_cache.config, "CPU_NAME", "generic")
        assert processor("x86_64") is None

    def test_the_folder_binds_python_and_numba(self, monkeypatch: pytest.MonkeyPatch) -> None:
        name = folder_for("x86-64-v3")
        assert name.startswith(f"cp{sys.version_info.major}{sys.version_info.minor}")
        assert f"-numba{numba.__version__}-" in name
        monkeypatch.setattr(numba, "__version__", "0.0.0")
        assert folder_for("x86-64-v3") != name


def first_use(shipped: Path, cache: Path, **environment: str) -> list[str]:
    """What a process prints that uses a kernel for the first time on this machine."""
    command = [sys.executable, "-c", PROGRAM, str(shipped)]
    surroundings = os.environ | {"NUMBA_CACHE_DIR": str(cache)} | environment
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Kernels as `make wheel` lays them out, and what the process printed that compiled them."""
    collect = runpy.run_path(str(ROOT / "packaging" / "kernels.py"))["collect"]
    compiled, folder = tmp_path_factory.mktemp("compiled"), tmp_path_factory.mktemp("shipped")
    name = SHIPPED_FOR[ARCHITECTURE][0]
    printed = first_use(folder, compiled, NUMBA_CPU_NAME=name, NUMBA_CPU_FEATURES="")
    collect(compiled, folder, name)
    return folder, printed


@SHIPPABLE
class TestAWheelsKernels:
    def test_are_used_by_a_machine_with_an_empty_cache(self, shipped: tuple[Path, list[str]], tmp_path: Path) -> None:
        folder, printed = shipped
        assert printed[-1] == "compiled 1"
        assert first_use(folder, tmp_path) == [printed[-2], "compiled 0"]
        assert not list(tmp_path.rglob("*.nbc"))

    def test_are_not_missed_where_there_are_none(self, shipped: tuple[Path, list[str]], tmp_path: Path) -> None:
        announced, *rest = first_use(tmp_path / "nothing", tmp_path)
        assert rest == [shipped[1][-2], "compiled 1"]
        assert "compiling" in announced
        assert first_use(tmp_path / "nothing", tmp_path) == [rest[0], "compiled 0"]  # kept, as ever

    def test_of_another_source_are_not_used(self, shipped: tuple[Path, list[str]], tmp_path: Path) -> None:
        folder = tmp_path / "changed"
        shutil.copytree(shipped[0], folder)
        for index in folder.rglob("*.nbi"):
            with index.open("rb") as file:
                version, (stamp, overloads) = pickle.load(file), pickle.load(file)
            assert isinstance(stamp, bytes)
            with index.open("wb") as file:
                pickle.dump(version, file)
                pickle.dump((stamp[::-1], overloads), file)
        assert first_use(folder, tmp_path / "empty")[-1] == "compiled 1"


def test_where_nothing_can_be_written_kernels_are_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, function: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(caching.FunctionCache, "__init__", refuse)

    @njit(nogil=True, cache=True)
    def add_three(x):  # pragma: no cover - compiled
        return x + 3

    assert add_three(1) == 4
