"""All sentences of a report stand in one catalogue; another language is a file; large releases make bounded pages."""

import ast
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import tomli_w

import consilience.publication.report as package
from consilience.domain import Attribute, Domain
from consilience.errors import DeclarationError, FileFormatError
from consilience.estimators import estimate
from consilience.kernels.rng import generator
from consilience.measurements import DiscreteLaplace, MeasurementSet, PrivacyStatement
from consilience.publication import write_bundle
from consilience.publication.about import Publication
from consilience.publication.diagnostics import MEANINGS
from consilience.publication.report import make_report, report
from consilience.publication.report import tables as tables_module
from consilience.publication.report.privacy import odds
from consilience.publication.report.texts import english, load_texts

HERE = Path(str(package.__file__)).parent
SENTENCE = re.compile(r"[A-Za-z]{2,} [a-z]{2,}")


def nested(entries: dict) -> dict:
    found: dict = {}
    for name, entry in entries.items():
        *path, last = name.split(".")
        place = found
        for each in path:
            place = place.setdefault(each, {})
        place[last] = entry
    return found


def written(folder: Path, entries: dict) -> Path:
    path = folder / "texts.toml"
    path.write_text(tomli_w.dumps(nested(entries)), encoding="utf-8")
    return path


def bracketed(entry):
    return f"⟦{entry}⟧" if isinstance(entry, str) else {key: f"⟦{text}⟧" for key, text in entry.items()}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables that no measurement links, one attribute that nothing was measured of, and noise drawn elsewhere."""
    names = ("QQA", "QQB", "QQC", "QQD", "QQE")
    domain = Domain("QQ", tuple(Attribute.categorical(name, [f"{name}1", f"{name}2"]) for name in names))
    law, rng = DiscreteLaplace(4.0), generator(0)
    noisy = {
        pair: np.array([[90.0, 3.0], [40.0, 200.0]]) + law.simulate((2, 2), rng)
        for pair in (names[:2], names[1:3], (names[3],) * 1)
        if len(pair) == 2
    }
    noisy |= {(names[3],): np.array([120.0, 213.0]), (): np.array(333.0)}
    measured = MeasurementSet.from_marginals(domain, noisy, noise=law, private=False, spent={"epsilon": "1"})
    return write_bundle(estimate(measured, method="graphical"), tmp_path_factory.mktemp("texts") / "release")


class Outside(HTMLParser):
    """What stands on a page outside ⟦brackets⟧, in elements, alternative texts and labels."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tag = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tag = tag
        for name, value in attrs:
            if name in ("alt", "aria-label", "title"):
                self._look(value or "")

    def handle_data(self, data: str) -> None:
        if self.tag not in ("style", "pre"):
            self._look(data)

    def _look(self, text: str) -> None:
        depth, kept = 0, ""
        for letter in text:
            depth += (letter == "⟦") - (letter == "⟧")
            kept += letter if depth == 0 and letter != "⟧" else ""
        if kept.strip():
            self.found.append(kept.strip())


def test_every_sentence_of_a_page_comes_from_the_catalogue(bundle: Path, tmp_path: Path) -> None:
    entries = {name: bracketed(entry) for name, entry in english().entries.items()} | {"language": "de"}
    made = make_report(bundle, refits=20, texts=written(tmp_path, entries))
    assert '<html lang="de">' in made.html
    known = made.facts
    elsewhere = [known.diagnosis.noise.verdict, known.diagnosis.noise.next_step, *known.notes]
    elsewhere += known.estimate.measurements.privacy.describe().splitlines()
    elsewhere += [str(value) for value in (*known.estimate.method.values(), *known.estimate.stats.values())]
    elsewhere += [str(key).replace("_", " ") for key in (*known.estimate.method, *known.estimate.stats)]
    elsewhere += [
        known.estimate.status.explanation,
        f"{known.estimate.status.value}. {known.estimate.status.explanation}",
    ]
    elsewhere += [word for check in known.diagnosis.noise.checks for word in (check.found,)]

    elsewhere += list(MEANINGS.values())
    left = [text for text in Outside(made.html).found if SENTENCE.search(text) and text not in elsewhere]
    assert left == []
    for drawn in made.pictures.values():
        words = re.sub(r"<[^>]*>", "\n", drawn.svg).split("\n")
        assert [word for word in words if SENTENCE.search(word) and "⟦" not in word and "⟧" not in word] == []


def test_no_sentence_stands_in_the_code() -> None:
    for path in HERE.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        skipped: set[ast.AST] = set()
        for node in ast.walk(tree):
            documented = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            hint = isinstance(node, ast.Assign) and "hint" in ast.unparse(node.targets[0])
            told = isinstance(node, ast.Call) and any(each.arg == "hint" for each in node.keywords)
            checks = isinstance(node, ast.Call) and ast.unparse(node.func).startswith("check_")
            if documented or hint or told or checks or isinstance(node, ast.Raise):
                skipped |= set(ast.walk(node))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
                text = re.sub(r"^consilience \w+ .*|^ --.*|^not measured$", "", node.value)
                assert not SENTENCE.search(text), f"{path.name}:{node.lineno} says {text!r}; put it into english.toml"


def test_every_text_is_used() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in HERE.glob("*.py"))
    stems = [stem for stem in re.findall(r"([\w.]+)\{", code) if "." in stem]  # say(f"pictures.{what}")
    for name in english().entries:
        assert name in code or any(name.startswith(stem) for stem in stems), f"nothing says {name!r}"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"title": None}, "the text 'title' is missing"),
        ({"titel": "x"}, "no text 'titel'; did you mean 'title'"),
        ({"title": "{nam}"}, "'title' has the places"),
        ({"title": "{name.__class__}"}, "a name and nothing else"),
        ({"title": "{name"}, "a brace too many or too few"),
        ({"language": "<b>"}, "'language' is a code"),
    ],
)
def test_a_catalogue_that_does_not_fit_is_refused(change: dict, error: str, tmp_path: Path) -> None:
    entries = {key: text for key, text in (dict(english().entries) | change).items() if text is not None}
    with pytest.raises(FileFormatError, match=re.escape(error)):
        load_texts(written(tmp_path, entries))


def test_what_a_publisher_says_is_text_and_kept_in_the_bundle(bundle: Path, tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    told = tmp_path / "publication.toml"
    told.write_text(f'title = "{hostile}"\npublisher = "A <b>B</b>"\n[assessment]\ncustodian = "{hostile}"\n')
    made = report(bundle, publication=told, refits=20)
    assert "<script" not in made.html
    assert "<b>" not in made.html
    assert made.html.count("&lt;script&gt;") >= 3
    again = make_report(bundle, refits=20)
    assert again.html == made.html
    assert Publication.load(bundle / "publication.toml").assessment == {"custodian": hostile}


def test_errors_about_a_publication_file_name_the_line(tmp_path: Path) -> None:
    told = tmp_path / "publication.toml"
    for text, words in {
        'title = "x"\n\npublishr = "y"': "line 3 of publication.toml: 'publishr' is not known here",
        'title = "x"\nlicence = 3': "line 2 of publication.toml",
        '[assessment]\ncustodian = "x"\nacces = "y"': "line 3 of publication.toml.assessment: 'acces'",
    }.items():
        told.write_text(text)
        with pytest.raises(DeclarationError, match=re.escape(words)):
            Publication.load(told)


def test_a_large_release_makes_a_bounded_page_that_says_what_it_leaves_out(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tables_module, "MOST_TABLES", 5)
    monkeypatch.setattr(tables_module, "LARGEST_TABLE", 500)
    names = [f"x{i}" for i in range(8)]
    places = Attribute.categorical("place", [f"place {i}" for i in range(200)])
    domain = Domain("large", (*(Attribute.categorical(name, ["a", "b"]) for name in names), places))
    noisy = {(names[i], names[i + 1]): np.full((2, 2), 200.0 + i) for i in range(7)}
    noisy |= {("x0", "place"): np.full((2, 200), 2.0), ("x0", "x1", "place"): np.full((2, 2, 200), 1.0)}
    measured = MeasurementSet.from_marginals(domain, noisy, noise=DiscreteLaplace(1.0), spent={"epsilon": "1"})
    path = write_bundle(estimate(measured, method="graphical"), tmp_path / "release")
    made = make_report(path, refits=20)
    assert len(made.facts.tables) == 5
    assert len(made.facts.choice.left_out) == 4
    assert "4 more measured tables are not shown here." in made.html
    assert "x0, x1, place" in made.html
    monkeypatch.setattr(tables_module, "MOST_TABLES", 60)
    monkeypatch.setattr(tables_module, "MOST_CELLS", 100)
    long = make_report(path, refits=20)
    assert "The next 3 rows" in long.html or "The next row" in long.html
    assert "more rows are left out here" in long.html
    assert "consilience answer RELEASE" in long.html


def test_odds_are_those_of_the_definition() -> None:
    """The worst case of two outcomes whose probabilities differ by the factor e^ε, by Bayes' rule."""
    found = odds(PrivacyStatement(spent={"epsilon": "0.7"}))
    assert found is not None
    for guess in (0.01, 0.3, 0.9):
        likely, unlikely = np.exp(0.7) / (1 + np.exp(0.7)), 1 / (1 + np.exp(0.7))
        after = guess * likely / (guess * likely + (1 - guess) * unlikely)
        before = guess * unlikely / (guess * unlikely + (1 - guess) * likely)
        assert found.highest(guess) == pytest.approx(after)
        assert found.lowest(guess) == pytest.approx(before)
    twice = odds(PrivacyStatement(spent={"epsilon": "0.7"}), steps=2)
    assert twice is not None
    assert twice.epsilon == pytest.approx(1.4)
    slack = odds(PrivacyStatement(spent={"epsilon": "0.7", "delta": "1e-6"}), steps=2)
    assert slack is not None
    assert float(str(slack.delta)) == pytest.approx(1e-6 * (1 + np.exp(0.7)), rel=1e-2)
    rho = odds(PrivacyStatement(spent={"rho": "0.1"}), steps=2)
    assert rho is not None
    assert rho.epsilon == pytest.approx(0.4 + 2 * np.sqrt(0.4 * np.log(1e6)))
