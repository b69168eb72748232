"""Which module of the library imports which: for the test that finds no cycles, and the count of what is audited.

Every import statement counts, also those inside functions and under `TYPE_CHECKING`. `from consilience.domain import
Query` is an import of the package `consilience.domain`, and so of all that its `__init__` imports; that a package's
`__init__` also runs before any of its modules is not counted, for it hands out names and computes nothing.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src"
AUDITED = ("consilience.source", "consilience.privacy")


def modules(sources: Path = SOURCES) -> dict[str, Path]:
    """The files of the library by the names of their modules."""
    found: dict[str, Path] = {}
    for path in sorted(sources.rglob("*.py")):
        parts = path.relative_to(sources).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """For each module the modules of the library that it imports."""
    return {name: _imported(path, files) - {name} for name, path in files.items()}


def _imported(path: Path, known: Mapping[str, Path]) -> set[str]:
    found: set[str] = set()
    for node in _statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            inner = {f"{node.module}.{each.name}" for each in node.names}
            found |= inner & known.keys() if inner <= known.keys() else {node.module, *inner}
    return found & known.keys()


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements inside a statement, however deep; no import is inside an expression."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(node, part, []):
            yield statement
            yield from _statements(statement)


def closure(graph: Mapping[str, set[str]], packages: Iterable[str] = AUDITED) -> set[str]:
    """The modules of some packages, and all that these import, directly or not."""
    roots = tuple(packages)
    waiting = [name for name in graph if name in roots or name.startswith(tuple(f"{root}." for root in roots))]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found


def audited_lines(sources: Path = SOURCES) -> dict[str, int]:
    """The lines of each module that an auditor must read: `source`, `privacy` and what they import."""
    files = modules(sources)
    return {name: len(files[name].read_text(encoding="utf-8").splitlines()) for name in sorted(closure(imports(files)))}
