"""The site of the documentation: every page is in its order, links that lead nowhere are found, and it builds."""

import doctest
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def site():
    specification = importlib.util.spec_from_file_location("make_site", ROOT / "docs" / "make_site.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_page_has_its_place_in_the_order(site):
    listed = [page for _, rows in site.order() for _, page in rows]
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    decisions = {page for page in written if page.startswith("docs/decisions/0")}
    assert len(listed) == len(set(listed))
    assert set(listed) - {"CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"} >= written - decisions
    assert all((ROOT / page).is_file() for page in listed if not page.startswith("docs/api/"))


def test_the_reference_has_every_public_name_with_its_signature(site):
    import consilience

    page = site.reference("consilience", "consilience")
    modules = {"plans", "estimators", "factors"}
    assert [name for name in consilience.__all__ if name not in modules and f"\n## {name}\n" not in page] == []
    assert "unlisted: str = 'drop'" in page
    assert "```pycon\n>>> " in page


def test_examples_in_docstrings(site):
    assert doctest.testmod(site).failed == 0


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("there.html", None),
        ("there.html#part", None),
        ("#here", None),
        ("https://example.org/", None),
        ("nowhere.html", "leads nowhere"),
        ("there.html#gone", "names a place"),
        ("#gone", "names a place"),
    ],
)
def test_links_that_lead_nowhere_are_found(site, tmp_path, link, said):
    (tmp_path / "index.html").write_text(f'<h1 id="here">x</h1><a href="{link}">y</a>', encoding="utf-8")
    (tmp_path / "there.html").write_text('<h2 id="part">z</h2>', encoding="utf-8")
    found = site.broken_links(tmp_path)
    assert found == [] if said is None else (len(found) == 1 and said in found[0])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zensical", path=os.path.dirname(sys.executable)) is None, reason="make docs-site")
def test_the_site_builds_and_all_its_links_lead_somewhere():
    ran = subprocess.run([sys.executable, ROOT / "docs" / "make_site.py"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
