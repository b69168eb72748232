"""Sets of measurements: made from arrays, widened by public facts, merged only where their promises add up."""

from pathlib import Path

import numpy as np
import pytest

from consilience.domain import Attribute, Domain, Query
from consilience.domain.public_facts import PublicFacts
from consilience.errors import ConsilienceError, DeclarationError, FileFormatError, MeasurementError
from consilience.measurements import (
    DiscreteLaplace,
    Exact,
    Gaussian,
    Laplace,
    Measurement,
    MeasurementSet,
    PrivacyStatement,
)

DOMAIN = Domain(
    "town", (Attribute.categorical("age", ["young", "middle", "old"]), Attribute.categorical("sex", ["F", "M"]))
)
NOISE = Laplace(2.0)
SEX = Query.marginal("sex")


def release(name: str, *measurements: Measurement, epsilon: str = "0.5", **options: object) -> MeasurementSet:
    """A set as a ledger's release makes it."""
    fields = {
        "domain": DOMAIN,
        "measurements": measurements,
        "privacy": PrivacyStatement(spent={"epsilon": epsilon}),
        "provenance": {"ledger": "town-ledger", "release": name},
    }
    return MeasurementSet(**(fields | options))  # type: ignore[arg-type]


def measured(name: str, *values: float) -> Measurement:
    return Measurement(SEX, np.array(values or (1.0, 2.0)), NOISE, id=name)


def test_marginals_come_in_the_order_of_their_key() -> None:
    table = np.arange(6.0).reshape(2, 3)
    found = MeasurementSet.from_marginals(DOMAIN, {("sex", "age"): table, "age": [1, 2, 3], (): 6}, noise=NOISE)
    assert [m.query.attributes for m in found] == [("sex", "age"), ("age",), ()]
    np.testing.assert_array_equal(found.measurements[0].values, np.arange(6.0))
    assert found.measurements[0].bind(DOMAIN).shape == (2, 3)
    assert (len(found), found.private, found.privacy.spent) == (3, True, None)


def test_flat_arrays_are_taken_in_the_same_order() -> None:
    flat, shaped = (
        MeasurementSet.from_marginals(DOMAIN, {("age", "sex"): array}, noise=NOISE)
        for array in (np.arange(6.0), np.arange(6.0).reshape(3, 2))
    )
    assert flat == shaped


def test_each_marginal_may_have_its_own_law() -> None:
    laws = {("sex",): Gaussian(1.0), "age": DiscreteLaplace(3.0)}
    found = MeasurementSet.from_marginals(DOMAIN, {"sex": [1, 2], "age": [1, 2, 3]}, noise=laws)
    assert [m.noise for m in found] == [Gaussian(1.0), DiscreteLaplace(3.0)]
    with pytest.raises(MeasurementError, match="marginal by sex has no noise law"):
        MeasurementSet.from_marginals(DOMAIN, {"sex": [1, 2]}, noise={"age": NOISE})


def test_what_arrays_do_not_say_is_carried_along() -> None:
    found = MeasurementSet.from_marginals(
        DOMAIN,
        {"sex": [1, 0]},
        noise=NOISE,
        neighbours="replace-one",
        unit="person, at most 2 rows",
        clipped=True,
        spent={"epsilon": 0.5},
        ledger="L",
        private=False,
    )
    assert found.measurements[0].clipped
    assert found.privacy == PrivacyStatement("replace-one", "person, at most 2 rows", {"epsilon": "0.5"})
    assert found.provenance["ledger"] == "L"
    assert not found.private


@pytest.mark.parametrize(
    ("key", "array", "problem"),
    [
        (("age", "sex"), np.zeros((2, 3)), r"shape \(2, 3\), but .* \(3, 2\), or flat \(6,\); the axes follow"),
        ("sex", np.zeros(3), r"by sex has the shape \(3,\), but the domain 'town' gives it the shape \(2,\)"),
        ("sex", ["1", "2"], "array of numbers"),
        ("sex", [None, 2], "array of numbers"),
        ("sex", np.ma.array([1.0, 2.0], mask=[0, 1]), "plain array of numbers"),
        ((), [1.0, 2.0], "nothing"),
    ],
)
def test_wrong_shapes_name_both_sides(key: object, array: object, problem: str) -> None:
    with pytest.raises(MeasurementError, match=problem):
        MeasurementSet.from_marginals(DOMAIN, {key: array}, noise=NOISE)  # type: ignore[dict-item]


def test_unknown_attributes_are_suggested() -> None:
    with pytest.raises(DeclarationError, match="did you mean 'sex'"):
        MeasurementSet.from_marginals(DOMAIN, {"sexx": [1, 2]}, noise=NOISE)


def test_a_set_refuses_measurements_that_do_not_fit() -> None:
    with pytest.raises(MeasurementError, match="has 3 values"):
        release("r", Measurement(SEX, [1.0, 2.0, 3.0], NOISE))
    with pytest.raises(MeasurementError, match="two measurements have the id 'm'"):
        release("r", measured("m"), measured("m"))
    with pytest.raises(MeasurementError, match="private is True or False"):
        release("r", private=1)
    with pytest.raises(MeasurementError, match="provenance cannot be written as JSON"):
        release("r", provenance={"when": object()})


def test_public_facts_are_exact_measurements_and_named() -> None:
    found = release("r", measured("m")).with_public(total=100, margins={"sex": [40, 60]})
    assert [(m.id, m.noise, m.values.tolist()) for m in found.measurements[1:]] == [
        ("public:total", Exact(), [100.0]),
        ("public:sex", Exact(), [40.0, 60.0]),
    ]
    assert found.privacy.public_facts == ("the exact total", "the exact counts by sex")
    assert found.privacy.spent == {"epsilon": "0.5"}
    assert found.provenance == release("r").provenance
    assert found.with_public(total=100) == found


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ({"total": -1}, "-1"),
        ({"total": float("nan")}, "nan"),
        ({"total": "100"}, "must be a finite number, found '100'"),
        ({"margins": {"sex": [-1, 2]}}, "below 0"),
        ({"margins": {"sex": [1, 2, 3]}}, r"shape \(3,\)"),
        ({"total": 5, "margins": {"sex": [1, 2]}}, "public sex comes to 3, but the public total comes to 5"),
        ({"margins": {"sex": [1, 2], "age": [1, 2, 3]}}, "comes to 6, but the public sex comes to 3"),
    ],
)
def test_public_facts_that_cannot_be_are_refused(facts: dict[str, object], problem: str) -> None:
    with pytest.raises(ConsilienceError, match=problem):
        release("r").with_public(**facts)  # type: ignore[arg-type]


def test_public_facts_must_agree_with_earlier_ones() -> None:
    found = release("r").with_public(total=100)
    with pytest.raises(MeasurementError, match="comes to 99, but the public total comes to 100"):
        found.with_public(margins={"sex": [49, 50]})
    declared = Domain("town", DOMAIN.attributes, public=PublicFacts(total=10))
    with pytest.raises(MeasurementError, match="comes to 9, but the public total comes to 10"):
        MeasurementSet(declared, ()).with_public(total=9)


def test_facts_that_the_domain_declares_are_in_every_statement() -> None:
    declared = Domain("town", DOMAIN.attributes, public=PublicFacts(total=10))
    assert MeasurementSet(declared, ()).privacy.public_facts == ("the exact total",)


def test_merge_joins_measurements_and_adds_what_was_spent() -> None:
    one = release("r1", measured("r1/0"), epsilon="0.1").with_public(total=5)
    two = release("r2", measured("r2/0"), epsilon="0.2").with_public(total=5)
    both = one.merge(two)
    assert [m.id for m in both] == ["r1/0", "public:total", "r2/0"]
    assert both.privacy.spent == {"epsilon": "0.3"}
    assert both.privacy.public_facts == ("the exact total",)
    assert both.provenance["ledger"] == "town-ledger"
    assert [each["release"] for each in both.provenance["merged"]] == ["r1", "r2"]
    assert both.private


def test_merge_of_merges_keeps_every_release_and_pays_repeated_ones_once() -> None:
    sets = [release(f"r{i}", measured(f"r{i}/0", i, i), epsilon="0.1") for i in range(4)]
    left, right = sets[0].merge(sets[1]), sets[2].merge(sets[3])
    whole = left.merge(right)
    assert whole.privacy.spent == {"epsilon": "0.4"}
    assert len(whole.provenance["merged"]) == len(whole) == 4
    again = whole.merge(sets[2], whole)
    assert again == whole


def test_a_release_without_ids_is_still_kept_once() -> None:
    one = release("r1", Measurement(SEX, [1.0, 2.0], NOISE), Measurement(SEX, [1.0, 2.0], NOISE))
    assert len(one.merge(one)) == 2
    other = release("r2", Measurement(SEX, [1.0, 2.0], NOISE))
    assert len(one.merge(other)) == 3


def test_sets_without_release_names_are_paid_each() -> None:
    one = release("", measured("a"), provenance={"ledger": "L"})
    two = release("", measured("b"), provenance={"ledger": "L"})
    assert one.merge(two).privacy.spent == {"epsilon": "1"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"domain": Domain("city", DOMAIN.attributes)}, "different domains.*'town'.*'city'"),
        (
            {"domain": Domain("town", (DOMAIN.attributes[1], DOMAIN.attributes[0]))},
            "'town' with age, sex, and 'town' with sex, age",
        ),
        ({"privacy": PrivacyStatement("replace-one")}, "neighbour relation.*'add-remove' and 'replace-one'"),
        ({"privacy": PrivacyStatement(unit="person")}, "unit of protection.*'row' and 'person'"),
        ({"provenance": {"ledger": "other"}}, "the ledger 'town-ledger' and the ledger 'other'"),
        ({"provenance": {}}, "the ledger 'town-ledger' and an unnamed ledger"),
    ],
)
def test_strangers_do_not_merge(options: dict[str, object], problem: str) -> None:
    with pytest.raises(MeasurementError, match=problem):
        release("r1", measured("a")).merge(release("r2", measured("b"), **options))


def test_sets_of_no_ledger_do_not_merge() -> None:
    one = release("r1", provenance={})
    with pytest.raises(MeasurementError, match="an unnamed ledger and an unnamed ledger"):
        one.merge(one)


def test_sets_of_several_ledgers_merge_when_asked_to_and_their_budgets_add_up() -> None:
    one = release("r1", measured("a"), epsilon="0.1")
    two = release("r2", measured("b"), epsilon="0.2", provenance={"ledger": "other", "release": "r2"})
    unnamed = release("r3", measured("c"), epsilon="0.3", provenance={"release": "r3"})
    with pytest.raises(MeasurementError, match='ledgers="add"'):
        one.merge(two)
    both = one.merge(two, ledgers="add")
    assert both.privacy.spent == {"epsilon": "0.3"}
    assert both.provenance["ledgers"] == ["other", "town-ledger"]
    assert "the ledger 'other', the ledger 'town-ledger'" in both.privacy.notes[0]
    assert both.merge(unnamed, one, ledgers="add").privacy.spent == {"epsilon": "0.6"}
    with pytest.raises(MeasurementError, match="'town-ledger' and the ledger 'other'"):
        one.merge(both)
    with pytest.raises(MeasurementError, match="'row' and 'person'"):
        one.merge(release("r2", privacy=PrivacyStatement(unit="person")), ledgers="add")
    with pytest.raises(MeasurementError, match="'one' and 'add'"):
        one.merge(two, ledgers="max")  # type: ignore[arg-type]


def test_public_data_with_errors_of_their_own_join_any_set_and_cost_nothing() -> None:
    paid = release(
        "r1", measured("a"), epsilon="0.1", privacy=PrivacyStatement("replace-one", "person", {"rho": "0.1"})
    )
    census = MeasurementSet.from_marginals(DOMAIN, {"sex": [5.0, 6.0]}, noise=NOISE, public="Census 2021")
    for both in (paid.merge(census), census.merge(paid)):
        assert both.privacy.spent == {"rho": "0.1"}
        assert (both.privacy.neighbours, both.privacy.unit) == ("replace-one", "person")
        assert both.privacy.public_facts == ("Census 2021, with its own error",)
        assert both.provenance["ledger"] == "town-ledger"
        assert len(both) == 2
    alone = census.merge(MeasurementSet.from_marginals(DOMAIN, {"sex": [1, 2]}, noise=NOISE, public="a survey"))
    assert alone.provenance["public"] == "Census 2021, a survey"
    assert paid.merge(alone).privacy.spent == {"rho": "0.1"}
    with pytest.raises(MeasurementError, match="cost no budget"):
        MeasurementSet.from_marginals(DOMAIN, {"sex": [5, 6]}, noise=NOISE, public="Census", spent={"epsilon": "1"})


def test_merging_nothing_changes_nothing() -> None:
    found = release("r1", measured("a"), provenance={})
    assert found.merge() is found


def test_odd_provenance_does_not_disturb_a_merge() -> None:
    odd = {"ledger": "L", "release": ["r", {}], "merged": "all of it"}
    one, two = (release("", measured(name), provenance=odd) for name in "ab")
    with_list = release("", measured("c"), provenance={"ledger": "L", "merged": [{"release": {}}, {}]})
    assert len(one.merge(two, with_list)) == 3


def test_one_id_never_names_two_measurements() -> None:
    with pytest.raises(MeasurementError, match="the id 'm' names two different measurements"):
        release("r1", measured("m", 1, 2)).merge(release("r2", measured("m", 1, 3)))


def test_one_release_never_has_two_prices() -> None:
    with pytest.raises(MeasurementError, match="'r1' is said to have spent"):
        release("r1", measured("a")).merge(release("r1", measured("a"), epsilon="0.7"))


def test_a_merge_is_private_only_if_all_parts_are() -> None:
    one, two = release("r1", measured("a")), release("r2", measured("b"), private=False)
    assert not one.merge(two).private
    assert not two.merge(one).private


def test_spending_that_cannot_be_added_is_said_in_words() -> None:
    one = release("r1", measured("a"))
    rho = release("r2", measured("b"), privacy=PrivacyStatement(spent={"rho": "0.1"}))
    unknown = release("r3", measured("c"), privacy=PrivacyStatement())
    mixed = one.merge(rho)
    assert mixed.privacy.spent is None
    assert "epsilon 0.5; rho 0.1" in mixed.privacy.notes[0]
    assert one.merge(unknown).privacy.spent is None
    assert "not known" in one.merge(unknown).privacy.notes[0]


def test_files_bring_everything_back(tmp_path: Path) -> None:
    found = release("r1", measured("a"), private=False).with_public(total=3)
    path = tmp_path / "set.parquet"
    found.save(path)
    assert MeasurementSet.load(path) == found
    assert MeasurementSet.load(str(path)) == found
    assert list(tmp_path.iterdir()) == [path]


def test_saving_where_nothing_can_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="cannot write"):
        release("r1").save(tmp_path / "absent" / "set.parquet")
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_not_unicode_are_refused_when_saving(tmp_path: Path) -> None:
    domain = Domain("x", (Attribute.categorical("a\ud800", ["1"]),))
    found = MeasurementSet(domain, (Measurement(Query.marginal("a\ud800"), [1.0], NOISE),))
    with pytest.raises(FileFormatError, match="not valid Unicode"):
        found.save(tmp_path / "set.parquet")
    assert list(tmp_path.iterdir()) == []


def test_description_warns_of_simulations_first() -> None:
    found = release("r1", *(measured(f"m{i}") for i in range(30)), private=False)
    text = found.describe()
    assert text.startswith("NOT PRIVATE")
    assert "30 measurements (60 values) over the domain 'town'" in text
    assert "and 10 more" in text
    assert "epsilon 0.5" in text
    assert "NOT PRIVATE" not in release("r1").describe()


def test_the_package_is_imported_without_its_heavy_friends() -> None:
    import subprocess
    import sys

    script = (
        "import sys, consilience.measurements; "
        "print(*sorted({'pyarrow', 'narwhals', 'pandas', 'polars', 'numba'} & set(sys.modules)))"
    )
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert outcome.stdout.strip() == ""


def margins_of(counts: np.ndarray, kind: type) -> dict:
    """The margins of a table of x, y, z by pairs, rounded to another precision, and one with its axes turned."""
    xz = counts.sum(axis=1).T
    tables = {("x", "y"): counts.sum(axis=2), ("z", "x"): xz, ("y", "z"): counts.sum(axis=0)}
    return {names: table.astype(kind).astype(np.float64) for names, table in tables.items()}


def test_public_margins_that_differ_by_single_precision_are_facts_that_agree() -> None:
    domain = Domain.from_sizes({"x": 3, "y": 4, "z": 2})
    counts = np.random.default_rng(4).gamma(0.5, 900.0, (3, 4, 2))
    counts[1] = 0.0
    given = margins_of(counts, np.float32)
    found = MeasurementSet(domain, (), private=False).with_public(total=float(counts.sum()), margins=given)
    kept = {each.query.attributes: each.values for each in found}
    tables = {names: kept[tuple(names)].reshape(table.shape) for names, table in given.items()}
    for names, table in given.items():
        assert tables[names] == pytest.approx(table, rel=1e-6)
        assert (tables[names] == 0).tolist() == (table == 0).tolist()
        assert tables[names].sum() == pytest.approx(counts.sum(), rel=1e-14)
    assert tables["x", "y"].sum(axis=1) == pytest.approx(tables["z", "x"].sum(axis=0), rel=1e-13)
    assert tables["x", "y"].sum(axis=0) == pytest.approx(tables["y", "z"].sum(axis=1), rel=1e-13)


def test_public_margins_that_differ_by_a_record_are_refused_with_both_sums() -> None:
    domain = Domain.from_sizes({"x": 3, "y": 4, "z": 2})
    given = margins_of(np.random.default_rng(4).poisson(50.0, (3, 4, 2)).astype(float), np.float64)
    given["x", "y"][0, 0] += 1.0
    with pytest.raises(MeasurementError, match=r"comes to \d+, but .* comes to \d+"):
        MeasurementSet(domain, (), private=False).with_public(margins=given)
