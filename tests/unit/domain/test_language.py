"""The query language: what each text means, how queries are spelled, and what is said of mistakes."""

import re

import pytest

from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.factors import Factor
from consilience.domain.questions import Question
from consilience.errors import DeclarationError

DOMAIN = Domain(
    "people",
    (
        Attribute.numeric("age", [17, 25, 35, 45, 65], missing="Unknown"),
        Attribute.numeric("year", [*range(2000, 2005)]),
        Attribute.numeric("weight", [0.5, 1.0, 2.5, 10.0]),
        Attribute.categorical("sex", ["Female", "Male"]),
        Attribute.categorical("marital status", ["Never married", "Married", "Widowed and alone"]),
        Attribute.categorical("income", ["<=50K", ">50K"]),
        Attribute.categorical("total", ["low", "high"]),
        Attribute.hierarchy("place", {"Bern": "Switzerland", "Basel": "Switzerland", "Lyon": "France"}),
    ),
)

Factors = list[tuple[str, Factor]]
TABLE: list[tuple[str, Factors]] = [
    ("total", []),
    ("count", []),
    ("TOTAL", []),
    ("total by sex", [("sex", factors.Identity())]),
    ("by sex", [("sex", factors.Identity())]),
    ("by sex, age", [("sex", factors.Identity()), ("age", factors.Identity())]),
    ("by sex and age", [("sex", factors.Identity()), ("age", factors.Identity())]),
    ("sex, age", [("sex", factors.Identity()), ("age", factors.Identity())]),
    ("age by sex", [("age", factors.Identity()), ("sex", factors.Identity())]),
    ("sex=Female", [("sex", factors.Value("Female"))]),
    ("sex = Female", [("sex", factors.Value("Female"))]),
    ("  sex=Female  ", [("sex", factors.Value("Female"))]),
    ("where sex=Female", [("sex", factors.Value("Female"))]),
    ("total where sex=Female", [("sex", factors.Value("Female"))]),
    ("by age where sex=Female", [("age", factors.Identity()), ("sex", factors.Value("Female"))]),
    (
        "sex=Female by age where year=2001",
        [("sex", factors.Value("Female")), ("year", factors.Value("2001")), ("age", factors.Identity())],
    ),
    ("sex=Female|Male", [("sex", factors.Subset(("Female", "Male")))]),
    ("sex in (Female, Male)", [("sex", factors.Subset(("Female", "Male")))]),
    ("sex in (Female|Male)", [("sex", factors.Subset(("Female", "Male")))]),
    ("sex IN (Female)", [("sex", factors.Subset(("Female",)))]),
    ("age=25..34", [("age", factors.Range("25", "34"))]),
    ("age=25 .. 34", [("age", factors.Range("25", "34"))]),
    ("age=25..", [("age", factors.Range("25", None))]),
    ("age=..34", [("age", factors.Range(None, "34"))]),
    ("age=..", [("age", factors.Range(None, None))]),
    ("age>=25", [("age", factors.Range("25", None))]),
    ("age <= 34", [("age", factors.Range(None, "34"))]),
    ('age="25..34"', [("age", factors.Value("25..34"))]),
    ('age="25..34".."35..44"', [("age", factors.Range("25..34", "35..44"))]),
    ("age=17..24|35..44", [("age", factors.Subset(("17..24", "35..44")))]),
    ("age in (17..24, 35..)", [("age", factors.Subset(("17..24", "35..")))]),
    ("weight=0.5..2.5", [("weight", factors.Range("0.5", "2.5"))]),
    ('weight="[0.5, 1)"', [("weight", factors.Value("[0.5, 1)"))]),
    ("year=2001", [("year", factors.Value("2001"))]),
    ("marital status=Never married", [("marital status", factors.Value("Never married"))]),
    ('"marital status"="Widowed and alone"', [("marital status", factors.Value("Widowed and alone"))]),
    ("marital status=Never married..Married", [("marital status", factors.Range("Never married", "Married"))]),
    ('income="<=50K"', [("income", factors.Value("<=50K"))]),
    ("income='>50K'", [("income", factors.Value(">50K"))]),
    ('name="5"" pipe"', [("name", factors.Value('5" pipe'))]),
    ("name='O''Brien'", [("name", factors.Value("O'Brien"))]),
    ('name=""', [("name", factors.Value(""))]),
    ("place=Switzerland", [("place", factors.Value("Switzerland"))]),
    ("total=high", [("total", factors.Value("high"))]),
    ("total in (high)", [("total", factors.Subset(("high",)))]),
    ('"total"', [("total", factors.Identity())]),
    ("total income=high", [("total income", factors.Value("high"))]),
    ("prefix(age)", [("age", factors.Prefix())]),
    ("Prefix(age) by sex", [("age", factors.Prefix()), ("sex", factors.Identity())]),
    ("by prefix(age), ranges(year)", [("age", factors.Prefix()), ("year", factors.AllRanges())]),
    ("haar(age)", [("age", factors.Haar())]),
    ("tree(age, 2)", [("age", factors.Tree(2))]),
    ("tree(age, 2, level 1)", [("age", factors.Tree(2, 1))]),
    ("tree(place)", [("place", factors.Tree())]),
    ("tree(place, level 0)", [("place", factors.Tree(None, 0))]),
    ("total(age) by sex", [("age", factors.Total()), ("sex", factors.Identity())]),
    ("sum(age)", [("age", factors.Mean())]),
    ("sum(age) by sex", [("age", factors.Mean()), ("sex", factors.Identity())]),
    ("sum(age) where sex=Male", [("age", factors.Mean()), ("sex", factors.Value("Male"))]),
    ("sum(age) sex=Male", [("age", factors.Mean()), ("sex", factors.Value("Male"))]),
    ("moments(age)", [("age", factors.Moments(2))]),
    ("moments(age, 3)", [("age", factors.Moments(3))]),
    (
        "age=25..34 and sex=Female by marital status",
        [
            ("age", factors.Range("25", "34")),
            ("sex", factors.Value("Female")),
            ("marital status", factors.Identity()),
        ],
    ),
    ("age=25..34, sex=Female", [("age", factors.Range("25", "34")), ("sex", factors.Value("Female"))]),
    (
        "age, year where sex=Female by place",
        [
            ("age", factors.Identity()),
            ("year", factors.Identity()),
            ("sex", factors.Value("Female")),
            ("place", factors.Identity()),
        ],
    ),
]


@pytest.mark.parametrize(("text", "expected"), TABLE, ids=[text for text, _ in TABLE])
def test_texts_mean_what_the_table_says(text: str, expected: Factors) -> None:
    assert Query.parse(text) == Query(tuple(expected))


@pytest.mark.parametrize("text", [text for text, _ in TABLE])
def test_what_was_parsed_is_described_as_text_that_parses_to_the_same(text: str) -> None:
    query = Query.parse(text)
    assert Query.parse(query.describe()) == query


@pytest.mark.parametrize("text", [text for text, names in TABLE if {name for name, _ in names} <= set(DOMAIN.names)])
def test_texts_over_the_domain_bind_to_it(text: str) -> None:
    bound = Query.parse(text).bind(DOMAIN)
    assert bound.size == len(list(bound.label_rows()))


DESCRIBED = [
    (Query.marginal(), "total"),
    (Query.marginal("age", "sex"), "age, sex"),
    (Query.marginal("total"), '"total"'),
    (Query.of({"income": factors.Value("<=50K")}), 'income="<=50K"'),
    (Query.of({"who": factors.Value("you and me")}), 'who="you and me"'),
    (Query.of({"a=b": factors.Identity()}), '"a=b"'),
    (Query.of({"sex": factors.Value("F"), "age": factors.Identity()}), "sex=F by age"),
    (Query.of({"age": factors.Mean(), "sex": factors.Value("F")}), "sum(age) where sex=F"),
    (Query.of({"age": factors.Range(None, "3.")}), 'age=.."3."'),
    (Query.of({"age": factors.Tree(4, 2)}), "tree(age, 4, level 2)"),
    (Query.of({"age": factors.Buckets.of({"x": ["1"]})}), "buckets(age)"),
    (Query.of({"age": factors.Matrix.of([[1.0]])}), "matrix(age)"),
]


@pytest.mark.parametrize(("query", "text"), DESCRIBED, ids=[text for _, text in DESCRIBED])
def test_queries_are_described_as_a_person_would_type_them(query: Query, text: str) -> None:
    assert query.describe() == text


@pytest.mark.parametrize(
    "word", ["by", "AND", "where", "in", "a  b", " a", "a\u00a0b", "x..y", "it's", '"', "a,b", "(x)", "a|b", "!", ""]
)
def test_words_that_need_quotes_get_them(word: str) -> None:
    query = Query.of({word: factors.Identity(), "b": factors.Value(word), "c": factors.Range(word, word)})
    assert Query.parse(query.describe()) == query


BAD: list[tuple[str, list[str]]] = [
    ("", ["it is empty", '"total"']),
    ("   ", ["it is empty"]),
    ('sex="Female', ["quote at position 4 is not closed"]),
    ("name=O'Brien", ["quote at position 6 is not closed"]),
    ("age<30", ["'<' is not in the language", "'<='"]),
    ("age > 30", ["'>' is not in the language"]),
    ("sex!=Male", ["'!=' is not in the language"]),
    ("income=<=50K", ["expected a value, found '<='", "in quotes"]),
    ("sex=", ["expected a value, found the end"]),
    ("sex=Female and", ["expected an attribute, found the end"]),
    ("sex=Female and by age", ["expected an attribute, found 'by'"]),
    ("sex=Female, age", ["'age' has no condition", "age=value", "by age"]),
    ("total where", ["expected an attribute, found the end"]),
    ("by", ["expected an attribute, found the end"]),
    ("by sex,", ["expected an attribute, found the end"]),
    ("by sex by age", ["'by' was not expected"]),
    ("by age=25..34", ["condition on 'age' comes too late", "'where'"]),
    ("sex in Female", ["expected '(', found 'Female'"]),
    ("sex in (Female", ["expected ')', found the end"]),
    ("sex=|Male", ["expected a value, found '|'"]),
    ("prefix(age", ["expected ')', found the end"]),
    ("prefix(age, 3)", ["prefix(attribute) does not take '3'"]),
    ("moments(age, 2, 3)", ["moments(attribute, number) does not take '3'"]),
    ("moments(age, level 3)", ["expected a whole number, found 'level 3'"]),
    ("tree(age, two)", ["expected a whole number, found 'two'"]),
    ("tree(age, ²)", ["expected a whole number, found '²'"]),
    ("tree(age, -1)", ["expected a whole number, found '-1'"]),
    (f"tree(age, {'9' * 5000})", ["expected a whole number"]),
    ("sex=Male, sex=Female", ["'sex' twice"]),
    ("=3", ["expected an attribute, found '='"]),
]


@pytest.mark.parametrize(("text", "fragments"), BAD, ids=[text[:30] for text, _ in BAD])
def test_mistakes_in_the_text_are_explained(text: str, fragments: list[str]) -> None:
    with pytest.raises(DeclarationError) as caught:
        Query.parse(text)
    for fragment in fragments:
        assert fragment in str(caught.value)


BAD_WITH_DOMAIN: list[tuple[str, list[str]]] = [
    ("agee=25..34", ["no attribute 'agee'", "did you mean 'age'?"]),
    ("by AGE", ["no attribute 'AGE'", "did you mean 'age'?"]),
    ("age=26..34", ["'age'", "26 cuts through a bin", "25 or 35"]),
    ("age=25..30", ["30 cuts through a bin", "24 or 34"]),
    ("age=0..34", ["0 lies outside the bins", "nearest possible is 17"]),
    ("age=50..", ["50 cuts through a bin", "nearest possible is 45"]),
    ("age=25..99", ["99 lies outside the bins", "nearest possible is 64"]),
    ("age=35..24", ["35..24 runs backwards"]),
    ("age=25..x", ["'x' is no number"]),
    ("weight=0.7..2.5", ["0.7 cuts through a bin", "0.5 or 1"]),
    ("sex=Femal", ["no value 'Femal'", "did you mean 'Female'?"]),
    ("sex=Male..Female", ["runs backwards"]),
    ("sum(sex)", ["categorical", "no mean"]),
    ("tree(sex)", ["no hierarchy"]),
    ("place=Austria", ["no value 'Austria'"]),
    ("year=1999", ["no bin '1999'"]),
    ("prefx(age)", ["'prefx' is no function", "did you mean 'prefix'?"]),
    ("by canton(place)", ["no level of 'place'"]),
]


@pytest.mark.parametrize(("text", "fragments"), BAD_WITH_DOMAIN)
def test_mistakes_about_the_domain_are_explained(text: str, fragments: list[str]) -> None:
    query = Query.parse(text)
    with pytest.raises(DeclarationError) as caught:
        query.bind(DOMAIN)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_a_mean_is_one_query_per_another_and_read_back_from_its_words() -> None:
    for text in ("mean(age)", "mean(age) by sex", "mean(age) where sex=Male", "sex=Male by mean(age)"):
        found = Question.parse(text)
        assert found.mean_of == "age"
        assert Question.parse(found.describe()) == found
    found = Question.parse("mean(age) by sex")
    assert found.query == Query.of({"age": factors.Mean(), "sex": factors.Identity()})
    assert found.per == Query.of({"age": factors.Range(None, None), "sex": factors.Identity()})
    assert Question.parse("sum(age) by sex") == Question(found.query)
    assert Question(found.query, Query.marginal("sex")).describe() == "sum(age), sex per sex"


def test_where_sums_are_needed_a_mean_is_refused_with_the_sum_to_ask_for() -> None:
    with pytest.raises(DeclarationError, match=r"a mean is made of.*ask for sum\(age\) and age=\.\."):
        Query.parse("mean(age) by sex")
    with pytest.raises(DeclarationError, match="one at a time"):
        Question.parse("mean(age), sum(hours)")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("median(age) by sex", ["age, sex"]),
        ("quantile(age, 0.1, 0.9) where sex=Male", ["age where sex=Male"]),
        ("sex=Male by age minus sex=Female by age", ["sex=Male by age", "sex=Female by age"]),
        ("sex=Male per total minus sex=Female per total", ["sex=Male", "total", "sex=Female", "total"]),
        ("mean(age) by sex per mean(age)", ["sum(age), sex", "age=.. by sex", "sum(age)", "age=.."]),
        ("top 2 of median(age) by sex", ["age, sex"]),
    ],
)
def test_questions_are_read_back_from_their_words_and_know_their_parts(text: str, parts: list[str]) -> None:
    found = Question.parse(text)
    assert [query.describe() for query in found.parts] == parts
    assert Question.parse(found.describe()) == found
    with pytest.raises(DeclarationError, match="here a query of sums is needed"):
        Query.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("median(age), mean(hours)", "one at a time"),
        ("median(age, 0.3)", "does not take '0.3'"),
        ("quantile(age)", "says not which one"),
        ("top 0 of age", "asks for nothing"),
        ("age minus", "found the end"),
        ("age minus sex minus year", "two answers are compared at a time"),
        ("distinct(age)", "no question for noisy counts"),
    ],
)
def test_questions_that_cannot_be_read_say_why(text: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(message)):
        Question.parse(text)


def test_words_of_comparisons_are_values_in_quotes() -> None:
    query = Query.of({"price": factors.Value("cost per unit")})
    assert query.describe() == 'price="cost per unit"'
    assert Query.parse(query.describe()) == query
