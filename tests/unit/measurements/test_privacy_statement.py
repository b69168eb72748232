"""Privacy statements say what is promised, survive JSON, and add up exactly."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.errors import MeasurementError
from consilience.measurements import PrivacyStatement
from consilience.measurements.measurement_set import sum_spent

PURE = PrivacyStatement(spent={"epsilon": "0.5"})


@pytest.mark.parametrize(
    ("spent", "unit"),
    [
        ({"epsilon": "0.5"}, "epsilon"),
        ({"rho": "0.01"}, "rho"),
        ({"epsilon": "1", "delta": "1e-9"}, "epsilon-delta"),
        (None, None),
    ],
)
def test_the_numbers_of_a_budget_tell_its_unit(spent: dict[str, str] | None, unit: str | None) -> None:
    statement = PrivacyStatement(spent=spent)
    assert statement.spent_unit == unit
    assert statement.spent == spent


def test_a_named_unit_must_agree_and_is_not_kept() -> None:
    assert PrivacyStatement(spent={"unit": "epsilon", "epsilon": "0.5"}) == PURE
    with pytest.raises(MeasurementError, match="no known unit"):
        PrivacyStatement(spent={"unit": "rho", "epsilon": "0.5"})


def test_numbers_become_the_texts_they_print_as() -> None:
    assert PrivacyStatement(spent={"delta": 1e-9, "epsilon": Decimal("0.10")}).spent == {
        "epsilon": "0.10",
        "delta": "1e-09",
    }


@pytest.mark.parametrize(
    "spent",
    [
        {},
        {"epsilon": "half"},
        {"epsilon": "-1"},
        {"epsilon": "nan"},
        {"epsilon": "Infinity"},
        {"epsilon": True},
        {"epsilon": None},
        {"epsilon": "1e10"},
        {"epsilon": "1e-999999"},
        {"epsilon": "1" * 300},
        {"epsilon": "1", "delta": "2"},
        {"delta": "1e-9"},
        {"rho": "1", "epsilon": "1"},
        "0.5",
        ["epsilon"],
    ],
)
def test_budgets_that_are_none_are_refused(spent: object) -> None:
    with pytest.raises(MeasurementError, match="spent"):
        PrivacyStatement(spent=spent)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"neighbours": "swap"}, "'swap' is not known"),
        ({"unit": " "}, "unit of protection"),
        ({"unit": 3}, "unit of protection"),
        ({"notes": "one text"}, "notes is a list of texts"),
        ({"public_facts": [1]}, "public_facts is a list of texts"),
    ],
)
def test_statements_that_say_nothing_are_refused(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(MeasurementError, match=problem):
        PrivacyStatement(**fields)  # type: ignore[arg-type]


def test_description_of_pure_privacy_gives_the_odds() -> None:
    text = PURE.describe()
    assert "one row is added or removed" in text
    assert "epsilon 0.5" in text
    assert "1.65" in text


def test_description_names_unit_relation_and_slack() -> None:
    text = PrivacyStatement(
        "replace-one", "person_id, at most 3 rows", {"epsilon": "1", "delta": "1e-9"}, notes=("Noted.",)
    ).describe()
    assert "person_id, at most 3 rows" in text
    assert "replaced by another" in text
    assert "up to a probability of 1e-9" in text
    assert text.endswith("Noted.")
    assert "Rényi" in PrivacyStatement(spent={"rho": "0.1"}).describe()
    assert "not known" in PrivacyStatement().describe()


@pytest.mark.parametrize(
    ("spent", "price"),
    [
        ({"epsilon": "1"}, "twice the epsilon"),
        ({"rho": "1"}, "four times the rho"),
        ({"epsilon": "1", "delta": "1e-6"}, "1 + e^epsilon times the delta"),
        (None, "twice the price"),
    ],
)
def test_a_public_total_alone_weakens_add_remove_to_replacement(spent: dict[str, str] | None, price: str) -> None:
    weakened = PrivacyStatement(spent=spent).relying_on(["the exact total"]).describe()
    with_more = PrivacyStatement(spent=spent).relying_on(["the exact total", "the exact counts by sex"]).describe()
    replaced = PrivacyStatement("replace-one", spent=spent).relying_on(["the exact total"]).describe()
    assert "neighbours that share these facts" in weakened
    assert price in weakened
    assert price not in with_more
    assert price not in replaced


def test_facts_are_named_once() -> None:
    assert PURE.relying_on(["a", "b"]).relying_on(["a"]).public_facts == ("a", "b")


lines = st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=3, unique=True).map(tuple)
amounts = st.decimals(min_value=0, max_value=1000, places=6).map(str)


@given(
    st.builds(
        PrivacyStatement,
        st.sampled_from(["add-remove", "replace-one"]),
        st.sampled_from(["row", "person, at most 2 rows"]),
        st.one_of(st.none(), amounts.map(lambda a: {"epsilon": a}), amounts.map(lambda a: {"rho": a})),
        lines,
        lines,
    )
)
def test_json_round_trip(statement: PrivacyStatement) -> None:
    assert PrivacyStatement.from_json(statement.to_json()) == statement


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"neighbours": "swap"}, "swap"),
        ({"unit": 5}, "'unit' must be a text"),
        ({"spent": {"epsilon": 0.5, "rho": 1}}, "no known unit"),
        ({"notes": [1]}, "list of texts"),
        ({"surplus": 1}, "'surplus' is not known"),
    ],
)
def test_json_of_no_statement_is_refused(change: dict[str, object], problem: str) -> None:
    with pytest.raises(MeasurementError, match=problem):
        PrivacyStatement.from_json(PURE.to_json() | change)


def test_a_missing_part_is_refused() -> None:
    mapping = PURE.to_json()
    del mapping["neighbours"]
    with pytest.raises(MeasurementError, match="'neighbours' is missing"):
        PrivacyStatement.from_json(mapping)


@given(st.lists(st.decimals(min_value=0, max_value=10**9, places=30), min_size=1, max_size=8))
def test_sums_are_exact_decimals(found: list[Decimal]) -> None:
    from fractions import Fraction

    total = sum_spent([{"epsilon": str(each)} for each in found])["epsilon"]
    assert Fraction(Decimal(total)) == sum(Fraction(each) for each in found)


def test_ten_tenths_are_one() -> None:
    assert sum_spent([{"epsilon": "0.1", "delta": "1e-9"}] * 10) == {"epsilon": "1", "delta": "1e-8"}
