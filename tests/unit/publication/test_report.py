"""The report: one page that stands alone, says what it must, and trusts no label."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from consilience.domain import Attribute, Domain
from consilience.errors import ConsilienceError, DeclarationError, FileFormatError
from consilience.estimators import estimate
from consilience.kernels.rng import generator
from consilience.measurements import DiscreteLaplace, MeasurementSet, PrivacyStatement
from consilience.publication import open_release, write_bundle
from consilience.publication.bundle import add_to_bundle, check_bundle
from consilience.publication.report import facts as facts_module
from consilience.publication.report import make_report, report
from consilience.publication.report.privacy import budget_in_words
from consilience.publication.report.texts import english

HOSTILE = "<script>alert('x')</script>\"&"
DOMAIN = Domain(
    "people <b>of</b> Aton",
    (
        Attribute.numeric("age", [0, 18, 65, 100]),
        Attribute.categorical("kind", [HOSTILE, "plain", "</style><img src=x onerror=alert(1)>"]),
        Attribute.categorical("flag </td>", ["yes", "no"]),
    ),
)


def measured(*, private: bool = True, spent=None) -> MeasurementSet:
    rng = generator(1)
    law = DiscreteLaplace(4.0)
    table = np.array([120, 4, 0, 60, 300, 2, 9, 40, 1.0]).reshape(3, 3)
    whole = np.stack([table, table[::-1]], axis=2)
    names = DOMAIN.names
    margins = {
        (names[0], names[1]): whole.sum(axis=2),
        (names[0], names[2]): whole.sum(axis=1),
        (names[1], names[2]): whole.sum(axis=0),
    }
    noisy = {key: counts + law.simulate(counts.shape, rng) for key, counts in margins.items()}
    return MeasurementSet.from_marginals(
        DOMAIN, noisy, noise=law, private=private, spent=spent or {"epsilon": "0.75"}, ledger="l"
    )


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(estimate(measured()), tmp_path_factory.mktemp("bundles") / "release")


@pytest.fixture(scope="module")
def made(bundle: Path):
    return make_report(bundle, refits=20)


class Elements(HTMLParser):
    """All elements of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data


def test_labels_are_text_and_never_markup(made) -> None:
    page = Elements(made.html)
    assert not page.open
    tags = {tag for tag, _ in page.found}
    assert "script" not in tags
    assert all(not name.startswith("on") for _, attributes in page.found for name in attributes)
    assert HOSTILE in page.text
    assert "people <b>of</b> Aton" in page.text
    assert "</style><img src=x onerror=alert(1)>" in page.text
    for drawn in made.pictures.values():
        assert "<script" not in drawn.svg


def test_the_page_stands_alone(made) -> None:
    page = Elements(made.html)
    for tag, attributes in page.found:
        for name in ("src", "href"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:image/svg+xml;base64,", "#")), (tag, value)
    policy = [attributes for tag, attributes in page.found if tag == "meta" and "http-equiv" in attributes]
    assert "default-src 'none'" in str(policy[0]["content"])
    assert not re.search(r"url\(|@import", made.html)


def test_every_picture_has_words_and_a_table(made) -> None:
    page = Elements(made.html)
    images = [attributes for tag, attributes in page.found if tag == "img"]
    assert len(images) == len(made.pictures) == 3 + 3 + 3
    assert all(len(str(attributes.get("alt"))) > 40 for attributes in images)
    assert made.html.count("The same as a table") == len(images) - len(made.facts.tables)
    assert made.html.count('<h3 id="table-') == len(made.facts.tables) == 3
    tables = len(re.findall(r"<table[ >]", made.html))
    assert made.html.count("<caption>") == tables
    assert not re.search(r"<th(?![^>]*scope=)[ >]", made.html)
    listed = [attributes["href"] for tag, attributes in page.found if tag == "a"]
    identifiers = [f"#{attributes['id']}" for _, attributes in page.found if "id" in attributes]
    assert set(listed) <= set(identifiers)
    assert len(set(identifiers)) == len(identifiers)
    assert len(listed) == made.html.count("<section")


def test_the_page_says_what_it_must(made) -> None:
    text = " ".join(Elements(made.html).text.split())
    for words in (
        "ε = 0.75",
        "add-remove",
        "One row of the table is protected",
        "cost no privacy",
        "below zero",
        "Cramér's V",
        "The noise looks as declared",
        "consilience report release --level 0.95 --refits 20 --seed 0",
        made.facts.checksum,
        "optimality gap",
        "Optimality gap",
        "records, estimated",
    ):
        assert words in text, words
    assert "NOT PRIVATE" not in text
    assert "nan" not in re.findall(r"[a-z]+", text)


def test_simulated_noise_has_a_banner(tmp_path: Path) -> None:
    path = write_bundle(estimate(measured(private=False)), tmp_path / "release")
    made = make_report(path, refits=20)
    text = Elements(made.html).text
    assert "NOT PRIVATE" in text
    assert "protects nobody" in text
    assert 'class="banner"' in made.html


def test_uncertain_counts_are_flagged(made) -> None:
    wide = sum(int(each.uncertain.sum()) for each in made.facts.margins)
    assert made.html.count("† wide") == wide


def test_a_bundle_takes_the_report_and_stays_whole(bundle: Path) -> None:
    before = open_release(bundle).estimate.marginal("age")
    page = report(bundle, refits=20).path
    assert page == bundle / "report.html"
    manifest = check_bundle(bundle)
    pictures = [name for name in manifest["files"] if name.startswith("pictures/")]
    assert {Path(name).suffix for name in pictures} == {".svg", ".png"}
    assert len(pictures) == 18
    assert manifest["report"] == {"level": 0.95, "refits": 20, "seed": 0}
    assert np.array_equal(open_release(bundle).estimate.marginal("age"), before)
    report(bundle, refits=20, level=0.9)
    assert check_bundle(bundle)["report"]["level"] == 0.9
    assert "90 % interval" in page.read_text(encoding="utf-8")
    assert [each.name for each in bundle.parent.iterdir()] == ["release"]


def test_a_report_is_a_function_of_release_and_settings(bundle: Path, made) -> None:
    assert make_report(bundle, refits=20).html == made.html


def test_the_page_alone_goes_elsewhere_and_overwrites_nothing_by_accident(bundle: Path, tmp_path: Path) -> None:
    before = check_bundle(bundle)
    out = tmp_path / "page.html"
    assert report(open_release(bundle), out=out, refits=20).path == out
    assert check_bundle(bundle) == before
    with pytest.raises(FileFormatError, match="exists already"):
        report(bundle, out=out, refits=20)
    report(bundle, out=out, refits=20, overwrite=True)
    with pytest.raises(FileFormatError, match="no folder"):
        report(bundle, out=tmp_path / "no" / "page.html", refits=20)


def test_bad_settings_are_refused_before_any_work(bundle: Path) -> None:
    for wrong in ({"level": 1.0}, {"level": 0.0}, {"seed": -1}, {"refits": 0}):
        with pytest.raises(DeclarationError):
            report(bundle, **wrong)


def test_a_bundle_that_was_tampered_with_gets_no_report(tmp_path: Path) -> None:
    path = write_bundle(estimate(measured()), tmp_path / "release")
    (path / "tables" / "total.csv").write_text("estimate\n1\n")
    with pytest.raises(FileFormatError, match="differs"):
        report(path, refits=20)


def test_files_of_the_release_are_not_replaced(tmp_path: Path) -> None:
    path = write_bundle(estimate(measured()), tmp_path / "release")
    with pytest.raises(FileFormatError, match="already"):
        add_to_bundle(path, {"domain.toml": b""}, about={})
    add_to_bundle(path, {"notes/a.txt": b"x"}, about={"k": 1})
    assert json.loads((path / "release.json").read_text())["k"] == 1
    check_bundle(path)


def test_estimates_that_cannot_have_intervals_are_shown_without(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConsilienceError("this <method> cannot be refitted")

    monkeypatch.setattr(facts_module, "intervals", refuse)
    made = make_report(bundle, refits=20)
    text = Elements(made.html).text
    assert "There are no error bars here. this <method> cannot be refitted" in text
    assert made.facts.no_intervals is not None
    assert "most certain" not in text


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        ({"epsilon": "1"}, "at most 73.1 %"),
        ({"epsilon": "1", "delta": "1e-9"}, "but for a chance of 1e-9"),
        ({"rho": "0.1"}, "which implies ε = 2.45"),
        ({"epsilon": "30"}, "promises next to nothing"),
        (None, "nothing can be promised"),
    ],
)
def test_budgets_in_words(spent, words: str) -> None:
    assert words in " ".join(budget_in_words(PrivacyStatement(spent=spent), english()))
