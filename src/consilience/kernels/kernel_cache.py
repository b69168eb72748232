"""Where compiled kernels come from: what an earlier run left, what came with the package, or numba's compiler.

numba keeps what it compiled for the processor that it ran on. A wheel may bring a second, read-only cache: kernels
compiled for a processor that nearly all machines contain (`SHIPPED_FOR`), for one minor version of Python and one
version of numba. It is used if this machine can run them; else kernels are compiled as ever.

The classes below rest on names that numba keeps to itself. `tests/unit/kernels/test_kernel_cache.py` fails when they
change; users of such a version of numba compile, and notice nothing else.
"""

import platform
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import llvmlite.binding as llvm
import numba

from consilience.kernels.compilation import compilation

Function = Callable[..., Any]

caching: Any = import_module("numba.core.caching")
config: Any = import_module("numba.core.config")

SHIPPED = Path(__file__).with_name("compiled")
"""The folder of a wheel's kernels: below it a folder for what they were compiled for, then the package's own."""

SHIPPED_FOR = {
    "x86_64": (
        "x86-64-v3",
        frozenset({"avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf", "sse4.2"}),
    ),
    "aarch64": ("generic", frozenset[str]()),
}
"""For each architecture the processor, as LLVM names it, and what a machine must have to run code for it.

x86-64-v3 is what Intel has sold since 2013 and AMD since 2015; every 64-bit ARM runs generic code.
"""

PACKAGE = Path(__file__).parents[1]


def njit(**options: Any) -> Callable[[Function], Any]:
    """numba's `njit`; with `cache=True`, kernels that came with the package are used before any is compiled."""
    cached: bool = options.pop("cache", False)

    def compiled(function: Function) -> Any:
        kernel: Any = numba.njit(**options)(function)
        if cached and not config.DISABLE_JIT:
            try:
                kernel._cache = KernelCache(function)
            except (AttributeError, TypeError):  # a numba whose own names differ
                kernel = numba.njit(cache=True, **options)(function)
        return kernel

    return compiled


def processor(architecture: str) -> str | None:
    """The processor that shipped kernels are for, if this machine can run them and nobody asked for another one."""
    name, needed = SHIPPED_FOR.get(architecture, (None, frozenset[str]()))
    if name is None or config.CPU_NAME is not None or config.CPU_FEATURES is not None:
        return None
    has = {feature for feature, present in llvm.get_host_cpu_features().items() if present}
    return name if needed <= has else None


def folder_for(name: str) -> str:
    """The name of the folder with kernels for a processor: it binds Python's minor version and numba's exact one."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}{getattr(sys, 'abiflags', '')}"
    return f"{python}-numba{numba.__version__}-{llvm.get_process_triple()}-{name}"


@cache
def shipped_folder() -> Path | None:
    """Where kernels lie that came with the package and that this machine can run."""
    architecture = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    name = processor(architecture)
    folder = None if name is None else SHIPPED / folder_for(name)
    return folder if folder is not None and folder.is_dir() else None


class KernelCache(caching.NullCache):
    """The cache of one kernel: numba's own, which is written, before the shipped one, which is only read."""

    def __init__(self, function: Function) -> None:
        try:
            self._own: Any = caching.FunctionCache(function)
        except RuntimeError:  # no folder can be written, as in some containers: what is compiled stays in memory
            self._own = caching.NullCache()
        folder = shipped_folder()
        self._shipped: Any = caching.NullCache() if folder is None else ShippedCache(function)

    @property
    def cache_path(self) -> Any:
        return self._own.cache_path

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = self._own.load_overload(sig, target_context)
        if found is None:
            found = self._shipped.load_overload(sig, target_context)
        if found is None:
            compilation.begin()
        return found

    def save_overload(self, sig: Any, cres: Any) -> None:
        compilation.end()
        self._own.save_overload(sig, cres)

    def enable(self) -> None:
        self._own.enable()

    def disable(self) -> None:
        self._own.disable()

    def flush(self) -> None:
        self._own.flush()


class ShippedPlace(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):
    """The folder of a module's shipped kernels, whose index holds the digest of the source they were made from."""

    def __init__(self, function: Function, source: str) -> None:
        self._py_file = source
        self._lineno = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Function, py_file: str) -> "ShippedPlace":
        return cls(py_func, py_file)

    def get_cache_path(self) -> str:
        folder = shipped_folder()
        assert folder is not None
        return str(folder / Path(self._py_file).parent.relative_to(PACKAGE))


class ShippedFiles(caching.CompileResultCacheImpl):
    _locator_classes: ClassVar = [ShippedPlace]


class ShippedCache(caching.FunctionCache):
    """Reads kernels as the processor would that they were compiled for."""

    _impl_class = ShippedFiles

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        own_signature, (triple, _, _), *hashes = super()._index_key(sig, codegen)
        folder = shipped_folder()
        assert folder is not None
        return (own_signature, (triple, folder.name.partition(triple)[2][1:], ""), *hashes)
