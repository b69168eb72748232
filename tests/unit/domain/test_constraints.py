"""Constraints against the sentences themselves, said of records one by one."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import consilience as cs
from consilience.domain import Attribute, Date, Domain
from consilience.errors import DeclarationError
from consilience.measurements import Laplace, MeasurementSet
from consilience.source import open_table

AGE = Attribute.numeric("age", [0, 2, 5, 9], unlisted="drop")
YEARS = Attribute.numeric("years", [0, 1, 4, 12], unlisted="clip", missing="Unknown")
JOB = Attribute.categorical("job", ["Child", "Work", "None"], missing="Unknown")
DOMAIN = Domain("people", (AGE, YEARS, JOB))
RECORDS: dict[str, list[tuple[object, str]]] = {
    "age": [(age, AGE.labels[int(np.searchsorted([2, 5], age, "right"))]) for age in range(9)],
    "years": [(y, YEARS.labels[int(np.searchsorted([1, 4], y, "right"))]) for y in range(-3, 16)] + [(None, "Unknown")],
    "job": [("Child", "Child"), ("Work", "Work"), ("None", "None"), (None, "Unknown")],
}
"""For each attribute all values of records, with the label that each gets; None is a missing one."""


def possible_cells(names: tuple[str, ...], holds: Callable[..., bool]) -> set[tuple[str, ...]]:
    """The cells in which a record of which the sentence is true can lie; a missing value may be any."""
    found = set()
    for record in itertools.product(*(RECORDS[name] for name in names)):
        known = [
            [value] if value is not None else [each for each, _ in RECORDS[name][:-1]]
            for name, (value, _) in zip(names, record, strict=True)
        ]
        if any(holds(*values) for values in itertools.product(*known)):
            found.add(tuple(label for _, label in record))
    return found


def allowed(text: str, names: tuple[str, ...]) -> set[tuple[str, ...]]:
    domain = Domain("people", DOMAIN.attributes, constraints=(text,))
    table = domain.allowed_cells(names)
    labels = [DOMAIN[name].labels for name in names]
    cells = itertools.product(*labels)
    marks = np.ones(DOMAIN.sizes(names), dtype=np.bool_) if table is None else table
    return {cell for cell, mark in zip(cells, marks.ravel(), strict=True) if mark}


TWO = ("age", "years")
WORDS: list[tuple[str, tuple[str, ...], Callable[..., bool]]] = [
    ("years <= age", TWO, lambda age, years: years <= age),
    ("years < age", TWO, lambda age, years: years < age),
    ("age <= years", TWO, lambda age, years: age <= years),
    ("age > years", TWO, lambda age, years: age > years),
    ("age >= years", TWO, lambda age, years: age >= years),
    ("age == years", TWO, lambda age, years: age == years),
    ("age != years", TWO, lambda age, years: age != years),
    ("not age <= years", TWO, lambda age, years: not age <= years),
    ("age>=5 or job=Child", ("age", "job"), lambda age, job: age >= 5 or job == "Child"),
    ("if age<5 then job=Child", ("age", "job"), lambda age, job: age >= 5 or job == "Child"),
    ("IF job=Work THEN age>=2 and not age=2..4", ("age", "job"), lambda age, job: job != "Work" or age >= 5),
    ("job in (Child, None) or age=5..8", ("age", "job"), lambda age, job: job != "Work" or age >= 5),
    ("(age=0..1 or age=5..) and job!=Work", ("age", "job"), lambda age, job: (age < 2 or age >= 5) and job != "Work"),
    ("age>4 or job==Child|Child", ("age", "job"), lambda age, job: age > 4 or job == "Child"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "names", "holds"), WORDS[:-1], ids=[text for text, *_ in WORDS[:-1]])
def test_a_cell_is_impossible_where_the_sentence_is_true_of_no_record_in_it(text, names, holds) -> None:
    assert allowed(text, names) == possible_cells(names, holds)


TESTS: dict[str, Callable[..., bool]] = {
    "age<5": lambda age, _years, _job: age < 5,
    "age >= years": lambda age, years, _job: age >= years,
    "years>=4": lambda _age, years, _job: years >= 4,
    "job=Child": lambda _age, _years, job: job == "Child",
    "job!=Work": lambda _age, _years, job: job != "Work",
}


@given(st.lists(st.sampled_from(sorted(TESTS)), min_size=2, max_size=3), st.booleans(), st.sets(st.integers(0, 2)))
@settings(max_examples=30, deadline=None)
def test_no_record_of_which_a_longer_sentence_is_true_lies_in_an_impossible_cell(tests, every, denied) -> None:
    parts = [f"not {test}" if place in denied else test for place, test in enumerate(tests)]
    text = (" and " if every else " or ").join(parts)

    def holds(*record: object) -> bool:
        found = [TESTS[test](*record) != (place in denied) for place, test in enumerate(tests)]
        return all(found) if every else any(found)

    expected = possible_cells(("age", "years", "job"), holds)
    if expected:
        assert allowed(text, ("age", "years", "job")) >= expected


def test_dates_are_compared_by_their_days() -> None:
    came = Date.between("came", "2019-01", "2019-06", "month")
    left = Date.between("left", "2019-Q1", "2019-Q2", "quarter", missing="Unknown")
    domain = Domain("stays", (came, left), constraints=("came <= left",))
    table = domain.allowed_cells(("came", "left"))
    assert table is not None
    assert table.tolist() == [[True, True, True]] * 3 + [[False, True, True]] * 3


def test_what_is_determined_is_written_as_a_table() -> None:
    declared = DOMAIN.to_declaration() | {
        "determined": [{"attribute": "job", "by": "age", "values": {"0..1": "Child", "2..4": "Child"}}]
    }
    domain = Domain.from_declaration(declared)
    assert domain.constraints == ('if "age" in ("0..1", "2..4") then "job"="Child"',)
    assert Domain.from_declaration(domain.to_declaration()) == domain
    table = domain.allowed_cells(("age", "job"))
    assert table is not None
    assert table.tolist() == [[True, False, False, True]] * 2 + [[True] * 4]


def test_a_part_of_the_domain_keeps_the_constraints_on_its_attributes() -> None:
    domain = Domain("people", DOMAIN.attributes, constraints=("years <= age", "if age<5 then job=Child"))
    part = domain.project(["age", "job"])
    assert part.constraints == ("if age<5 then job=Child",)
    assert Domain.from_declaration(part.to_declaration()) == part
    assert domain.fingerprint != DOMAIN.fingerprint


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (["age>=5", "years<=3", "age<5"], ["'age>=5'; 'age<5'"]),
        (
            ["years<=3", "if job=Work then age>=5", "age<5", "job=Work", "age!=job"],
            ["'if job=Work then age>=5'; 'age<5'"],
        ),
        (["age<5 and age>=5"], ["as this asks"]),
    ],
)
def test_sentences_that_contradict_each_other_are_refused_with_the_fewest_that_do(texts, named) -> None:
    attributes = (AGE, YEARS, Attribute.categorical("job", ["Work", "None"]))
    if "job=Work" in texts:
        texts = [text for text in texts if text != "age!=job"]
    with pytest.raises(DeclarationError, match="no record can be") as caught:
        Domain("people", attributes, constraints=tuple(texts))
    for fragment in named:
        assert fragment in str(caught.value)
    assert "years" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("", ["it is empty", "if age=..15"]),
        ("agee<3", ["no attribute 'agee'", "did you mean 'age'?"]),
        ("age<3", ["3 cuts through a bin"]),
        ("age", ["'age' has no condition"]),
        ("if age<5", ["expected 'then', found the end"]),
        ("age<5 or", ["expected an attribute"]),
        ("(age<5", ["expected ')'"]),
        ("age<5) ", ["')' was not expected"]),
        ("age<job", ["'age' is numeric and 'job' is categorical", "=="]),
        ("age==age", ["compared with itself"]),
        ("job=Wrk", ["no value 'Wrk'"]),
    ],
)
def test_mistakes_are_explained(text: str, fragments: list[str]) -> None:
    with pytest.raises(DeclarationError) as caught:
        Domain("people", DOMAIN.attributes, constraints=(text,))
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_too_many_combinations_are_refused_before_they_are_compared() -> None:
    wide = tuple(Attribute.numeric(name, [*range(3000)]) for name in "ab")
    with pytest.raises(DeclarationError, match=r"compares 8,994,001 combinations of a, b"):
        Domain("wide", wide, constraints=("a <= b",))
    narrower = tuple(Attribute.numeric(name, [*range(1503)], unlisted="drop") for name in "ab")
    with pytest.raises(DeclarationError, match="1,501 separate sets of cells"):
        Domain("wide", narrower, constraints=("a <= b",))


@pytest.mark.parametrize("method", ["graphical", "residual", "table"])
def test_estimates_and_synthetic_records_break_no_constraint(method: str) -> None:
    domain = Domain("people", DOMAIN.attributes, constraints=("years <= age", "if age<5 then job!=Work"))
    rng = np.random.default_rng(5)
    counts = np.where(domain.allowed_cells(), rng.integers(0, 40, domain.shape), 0)
    tables = {("age", "years"): counts.sum(2), ("age", "job"): counts.sum(1), ("years", "job"): counts.sum(0)}
    noisy = {names: table + rng.laplace(0, 8, table.shape) for names, table in tables.items()}
    fitted = cs.estimate(MeasurementSet.from_marginals(domain, noisy, noise=Laplace(8.0)), method=method)
    for names in tables:
        table = domain.allowed_cells(names)
        if table is not None:
            assert np.abs(fitted.marginal(*names)[~table]).max(initial=0.0) == 0.0
    records = cs.synthesize(fitted, rows=20_000, seed=1)
    source = open_table(records, domain)
    assert source.exact_counts([()])[0] == 20_000  # rows that the domain drops would be missing
