"""Names of a package that are imported when they are first used, so that nobody waits for what is not needed."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def imported_late(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a package: it finds each name in the module of the package that is its home, and keeps it."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
