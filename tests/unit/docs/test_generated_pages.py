"""Generated pages are up to date."""

import importlib.util
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


@cache
def load_generator():
    specification = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def constraints() -> list[str]:
    return (ROOT / "constraints.txt").read_text(encoding="utf-8").split()


@pytest.mark.parametrize("name", load_generator().PAGES)
def test_page_is_what_the_generator_writes(name: str) -> None:
    if name == "reference/commands.md" and f"typer=={version('typer')}" not in constraints():
        pytest.skip("the layout of --help is that of the typer in constraints.txt")
    expected = load_generator().PAGES[name]()
    assert (DOCS / name).read_text(encoding="utf-8") == expected, "run `make docs`"
