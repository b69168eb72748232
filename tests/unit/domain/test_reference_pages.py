"""The reference pages of domains and queries say what the code does."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from consilience.domain import Domain, Query, Workload, language, questions
from consilience.domain.attribute_tables import MOST_BINS
from consilience.domain.factors import FACTORS
from consilience.domain.language import FUNCTIONS
from consilience.domain.questions import Question
from consilience.errors import DeclarationError
from consilience.publication.questions import BoundQuestion

DOCS = Path(__file__).parents[3] / "docs"
DOMAIN_PAGE = (DOCS / "reference" / "domain-file.md").read_text(encoding="utf-8")
QUERY_PAGE = (DOCS / "reference" / "query-language.md").read_text(encoding="utf-8")
GLOSSARY = (DOCS / "concepts" / "glossary.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def lines(page: str, language: str) -> list[tuple[str, str]]:
    """The lines of all blocks of a language: an example, two spaces or more, and what is said of it."""
    found = [re.split(r" {2,}", line, maxsplit=1) for block in blocks(page, language) for line in block.splitlines()]
    return [(example, said) for example, said in found]


def load(text: str, folder: Path) -> Domain:
    path = folder / "page.domain.toml"
    path.write_text(text, encoding="utf-8")
    return Domain.load(path)


@pytest.fixture
def survey(tmp_path: Path) -> Domain:
    (text,) = [block for block in blocks(QUERY_PAGE, "toml") if block.startswith("name = ")]
    return load(text, tmp_path)


def test_every_domain_on_the_page_loads(tmp_path: Path) -> None:
    texts = [block for block in blocks(DOMAIN_PAGE, "toml") if block.startswith("name = ")]
    assert texts
    for text in texts:
        domain = load(text, tmp_path)
        assert load(domain.to_toml(), tmp_path) == domain


def test_the_full_example_uses_every_kind_and_key(tmp_path: Path) -> None:
    domain = load(blocks(DOMAIN_PAGE, "toml")[0], tmp_path)
    assert {attribute.kind for attribute in domain.attributes} == {
        "categorical",
        "numeric",
        "hierarchy",
        "date",
        "continuous",
    }
    assert domain.impossible
    assert domain.public.total == 48842
    assert domain.public.margins
    assert domain["hours"].labels[1] == "[2.5, 5)"
    assert domain["sex"].labels == ("Female", "Male", "Unknown")


def test_the_labels_in_the_table_are_those_of_the_declarations() -> None:
    rows = re.findall(r"^\| `(edges = \[[^|]*)\| (.*) \|$", DOMAIN_PAGE, re.MULTILINE)
    assert len(rows) == 3
    for declared, labels in rows:
        keys = [text.strip("` ") for text in declared.split(" with ")]
        text = "name = 'd'\n[attributes.a]\nkind = 'numeric'\n" + "\n".join(keys)
        assert list(Domain.from_declaration(tomllib.loads(text))["a"].labels) == re.findall(r"`([^`]*)`", labels)


def test_the_page_names_every_key_and_limit() -> None:
    keys = """name attributes impossible public kind values missing unlisted edges from to step integer parents bounds
        total margins counts"""
    for key in re.findall(r"\w+", keys):
        assert f"`{key}`" in DOMAIN_PAGE or f"`{key} = " in DOMAIN_PAGE
    assert f"{MOST_BINS:,} bins" in DOMAIN_PAGE


def answered(text: str, domain: Domain) -> tuple[BoundQuestion, np.ndarray]:
    """What is asked, and the answers where every sum is 1."""
    asked = BoundQuestion(Question.parse(text), domain)
    return asked, asked.made([np.ones(query.bind(domain).size) for query in asked.parts])


@pytest.mark.parametrize("text", [text for text, _ in lines(QUERY_PAGE, "query")])
def test_every_query_on_the_page_fits_its_domain(text: str, survey: Domain) -> None:
    asked, made = answered(text, survey)
    assert made.size == asked.axes.size
    assert Question.parse(asked.question.describe()) == asked.question


@pytest.mark.parametrize(("text", "message"), lines(QUERY_PAGE, "refused"))
def test_every_refusal_on_the_page_is_word_for_word(text: str, message: str, survey: Domain) -> None:
    with pytest.raises(DeclarationError) as caught:
        answered(text, survey)
    assert message in str(caught.value)


def test_the_page_says_the_grammar_that_the_parser_states() -> None:
    stated = [line for each in (language, questions) for line in str(each.__doc__).splitlines() if line[:4] == " " * 4]
    assert stated
    for line in stated:
        assert line in QUERY_PAGE


def test_every_function_of_the_language_has_an_example() -> None:
    for name in FUNCTIONS:
        assert any(f"{name}(" in text for text, _ in lines(QUERY_PAGE, "query")), name


def test_factors_without_words_in_the_language_are_named() -> None:
    wordless = {"buckets", "intervals", "nominal", "fourier", "matrix"}
    spoken = {"identity", "value", "subset", "range", "equal", "level"}
    joint = {"joint-matrix"}
    assert (
        set(FACTORS) == set(FUNCTIONS) - {"sum", "median", "quantile"} | wordless | spoken | joint
    )  # the sum is of the kind "mean" in files
    for name in wordless:
        assert f"`{name}(age)`" in QUERY_PAGE
    assert "`matrix(home, work)`" in QUERY_PAGE


def test_pairs_that_the_page_calls_the_same_are_the_same(survey: Domain) -> None:
    for first, second in [
        ("marital status=Married|Never married", "marital status in (Married, Never married)"),
        ("sex=Female and age=25..34", "sex=Female, age=25..34"),
        ('age="25..34".."45..54"', "age=25..54"),
        ("total by sex", "by sex"),
    ]:
        left, right = (Query.parse(text).bind(survey) for text in (first, second))
        assert [each.dense().tolist() for each in left.maps] == [each.dense().tolist() for each in right.maps]


def test_the_workload_on_the_page_loads(tmp_path: Path, survey: Domain) -> None:
    (text,) = [block for block in blocks(QUERY_PAGE, "toml") if block.startswith("[[queries]]")]
    path = tmp_path / "questions.toml"
    path.write_text(text, encoding="utf-8")
    workload = Workload.load(path)
    assert workload.weights == (1.0, 2.5)
    workload.check(survey)


WORDS = """attribute, value, label, code, cell, marginal, query, factor, workload, measurement, noise law, estimate,
    release, budget, ledger, neighbour relation, sensitivity, post-processing, lattice, domain, impossible cell,
    public fact, unit of protection"""


@pytest.mark.parametrize("word", [word.strip() for word in WORDS.split(",")])
def test_the_glossary_explains_each_word_once_in_two_sentences(word: str) -> None:
    entries = re.findall(r"^\*\*(.+?)\.\*\* (.*?)(?=\n\n|\Z)", GLOSSARY, re.MULTILINE | re.DOTALL)
    (text,) = [text for name, text in entries if name.lower() == word]
    assert len(re.findall(r"\.(?:\s|$)", text)) == 2, text
