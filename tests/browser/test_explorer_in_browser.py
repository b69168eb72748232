"""The explorer in a real browser: the library's numbers, no request, no error, by keyboard, on phone and desk."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from consilience.publication import open_release, write_bundle
from consilience.publication.explorer import explore
from tests.browser.chromium import CHROMIUM, DRIVER, Browser
from tests.unit.web.page_views import differences, random_views
from tests.unit.web.test_explorer import HOSTILE, MODELS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="chromium and its driver are not installed"),
]

NPM = shutil.which("npm")
TAB, ENTER, DOWN = "\ue004", "\ue007", "\ue015"

ANSWER = """
const numbers = each => Array.from(each, number => (Number.isFinite(number) ? number : null));
try {
  const found = consilience.ask(arguments[0]);
  return { text: found.text, why: found.why, basis: Array.from(found.basis),
           estimates: numbers(found.estimates), low: numbers(found.low), high: numbers(found.high) };
} catch (error) { return { refused: String(error) }; }
"""


@pytest.fixture(scope="module", params=MODELS)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    method, given = MODELS[request.param]
    place = write_bundle(method.fit(given), tmp_path_factory.mktemp("release") / "release")
    return explore(place, refits=100).path


@pytest.fixture(params=[1280, 390], ids=["desk", "phone"])
def browser(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Browser]:
    opened = Browser(tmp_path / "profile", request.param)
    try:
        yield opened
    finally:
        opened.close()


def test_five_hundred_random_views_show_the_librarys_numbers(page: Path, tmp_path: Path) -> None:
    browser = Browser(tmp_path / "profile", 1280)
    try:
        browser.open(page)
        views = random_views(
            browser.run("const { attributes, scopes } = consilience.data; return { attributes, scopes }"), 125, 9
        )
        answers = [browser.run(ANSWER, view) for view in views]
    finally:
        browser.close()
    estimate = open_release(page.parent).estimate
    compared = [each for each in answers if "refused" not in each]
    assert len(compared) > 60
    for found in compared:
        what, worst = differences(estimate, found, 100)
        assert worst < 1e-6, (found["text"], what, worst)


VIEWS = [
    "",
    "rows=1/0&columns=0",
    "show=row&rows=0&columns=2&as=bars",
    "rows=0&columns=2&as=lines",
    "rows=3",
    "show=mean/0&rows=2&only.age=1",
]


def test_nothing_is_asked_of_the_network_and_nothing_goes_wrong(browser: Browser, page: Path) -> None:
    for view in VIEWS:
        browser.open(page, view)
        assert browser.run("return document.documentElement.scrollWidth") <= browser.width, view
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert browser.run("return document.documentElement.scrollWidth") <= browser.width
    assert browser.run("return document.querySelectorAll('img, b, iframe').length") == 0
    assert HOSTILE in browser.run("return document.body.innerText")
    assert "NOT PRIVATE" in browser.run("return document.body.innerText")
    assert browser.said("browser") == []
    assert [address for address in browser.requests() if address.startswith(("http", "ws"))] == []
    fetched = "fetch('https://example.org').then(() => 'sent', String).then(arguments[0])"
    assert "Failed to fetch" in browser.ask("POST", "/execute/async", {"script": fetched, "args": []})
    assert any("Content Security Policy" in each for each in browser.said("browser"))


def test_a_view_is_reached_by_keyboard_alone_and_its_link_leads_back(browser: Browser, page: Path) -> None:
    browser.open(page)
    focused = "return document.activeElement.id || document.activeElement.textContent"
    for wanted in ("show", "rows", "columns"):
        for _ in range(4):
            if browser.run(focused) == wanted:
                break
            browser.press(TAB)
        assert browser.run(focused) == wanted
    browser.press(DOWN + DOWN + DOWN)
    browser.settled()
    question = browser.run("return document.getElementById('question').textContent")
    assert " and " in question
    for _ in range(60):
        if browser.run("return document.activeElement.closest('details')?.id === 'filter-2'"):
            break
        browser.press(TAB)
    browser.press(ENTER + TAB + TAB + TAB + " ")
    browser.settled()
    assert browser.run("return location.hash") != ""
    assert "only sex: M" in browser.run("return document.getElementById('question').textContent")
    table = browser.run("return document.querySelector('table').innerText")
    link = browser.run("return location.hash")
    browser.open(page, link.removeprefix("#"))
    assert browser.run("return document.querySelector('table').innerText") == table


@pytest.mark.skipif(NPM is None, reason="npm is not installed")
def test_axe_finds_nothing_serious(browser: Browser, page: Path, tmp_path: Path) -> None:
    packed = subprocess.run(
        [str(NPM), "pack", "axe-core@4", "--silent"], cwd=tmp_path, check=False, capture_output=True
    )
    if packed.returncode:
        pytest.skip("axe-core cannot be had")
    shutil.unpack_archive(next(tmp_path.glob("axe-core-*.tgz")), tmp_path)
    axe = (tmp_path / "package" / "axe.min.js").read_text(encoding="utf-8")
    for view in VIEWS:
        browser.open(page, view)
        browser.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
        browser.devtools("Runtime.evaluate", expression=axe)
        told = "found => arguments[0](found.violations.map(each => [each.impact, each.id, each.nodes[0].html]))"
        run = f"axe.run(document).then({told})"
        found = browser.ask("POST", "/execute/async", {"script": run, "args": []})
        assert [each for each in found if each[0] in ("serious", "critical")] == [], view
