"""Generated pages are up to date."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


def load_generator():
    specification = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", load_generator().PAGES)
def test_page_is_what_the_generator_writes(name: str) -> None:
    expected = load_generator().PAGES[name]()
    assert (DOCS / name).read_text(encoding="utf-8") == expected, "run `make docs`"
