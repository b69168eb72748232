"""No module of the library imports itself in a circle, and what an auditor must read stays small."""

import importlib.util
from collections.abc import Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MOST_LINES = 19_300
"""What an auditor must read, `source` and `privacy` with all that they import, has no more lines than this."""


@cache
def load_graph():
    specification = importlib.util.spec_from_file_location("import_graph", ROOT / "docs" / "import_graph.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def written(folder: Path, files: Mapping[str, str]) -> dict[str, set[str]]:
    for name, text in files.items():
        path = folder / "consilience" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    graph = load_graph()
    return graph.imports(graph.modules(folder))


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = load_graph()
    TopologicalSorter(graph.imports(graph.modules())).prepare()


@pytest.mark.parametrize(
    "back",
    [
        "from consilience.one import here\n",
        "import consilience.one\n",
        "from consilience import one\n",
        "def late():\n    from consilience.one import here\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from consilience.one import here\n",
    ],
)
def test_a_circle_is_found_wherever_its_imports_stand(tmp_path: Path, back: str) -> None:
    found = written(tmp_path, {"__init__.py": "", "one.py": "from consilience.two import there\n", "two.py": back})
    with pytest.raises(CycleError):
        TopologicalSorter(found).prepare()


def test_the_closure_follows_packages_and_leaves_out_what_nobody_imports(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "source/__init__.py": "",
        "source/tables.py": "from consilience.domain import Query\n",
        "domain/__init__.py": "from consilience.domain.queries import Query\n",
        "domain/queries.py": "class Query:\n    pass\n",
        "plans.py": "from consilience.source import tables\n",
    }
    graph = written(tmp_path, files)
    found = load_graph().closure(graph, ["consilience.source"])
    assert found == {f"consilience.{name}" for name in ("source", "source.tables", "domain", "domain.queries")}


def test_what_an_auditor_must_read_stays_small() -> None:
    lines = load_graph().audited_lines()
    assert sum(lines.values()) <= MOST_LINES
    parts = {name.split(".")[1] for name in lines}
    assert parts == {"source", "privacy", "domain", "measurements", "kernels", "errors"}
