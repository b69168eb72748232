"""What is told of a release before there are data: the plan at each budget, and how far answers would be off."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import consilience as cs
from consilience.domain.domains import ImpossibleCells
from consilience.errors import ConsilienceError, DeclarationError
from consilience.estimators import estimate
from consilience.measuring import measure
from consilience.planning.expected_errors import AskedQuery, least_squares_errors
from consilience.planning.outcomes import Outcome, readable
from consilience.planning.stand_ins import (
    SKEWED,
    UNIFORM,
    most_records,
    open_stand_in,
    stand_in_domain,
    stand_in_table,
)
from consilience.publication.synthetic import are_possible
from consilience.source import open_table

SMALL = cs.Domain.from_sizes({"a": 4, "b": 3, "c": 2}, name="small")


def by_how(outcomes: tuple[Outcome, ...]) -> set[str]:
    return {each.how for each in outcomes}


def test_of_one_table_the_error_is_that_of_its_noise() -> None:
    """Every cell of a table by itself: |Laplace(1/ε)| has the mean 1/ε, and 95 % of it lies below ln(20)/ε."""
    found = cs.plan(SMALL, records=1000, plan="marginals a,b", epsilon=[0.1, 0.5])
    for outcome, epsilon in zip(found.outcomes, (0.1, 0.5), strict=True):
        assert outcome.how == "least squares"
        assert outcome.error == pytest.approx(1 / epsilon, rel=0.06)
        assert outcome.margin == pytest.approx(np.log(20) / epsilon, rel=0.06)
        assert outcome.in_words == f"counts below {readable(outcome.margin)} will drown"


def test_sums_of_measured_cells_have_the_error_of_all_of_them() -> None:
    """A total of 12 cells is off by their noise together; its standard deviation is √(12 · 2)/ε."""
    asked = cs.Workload.of([cs.Query.marginal()])
    found = cs.plan(SMALL, asked, records=1000, plan=cs.plans.Marginals([("a", "b")]), epsilon=1)
    assert found.outcomes[0].margin == pytest.approx(1.96 * np.sqrt(24), rel=0.2)


def test_what_is_told_by_noise_alone_is_what_dense_least_squares_is_off_by() -> None:
    domain = cs.Domain.from_sizes({"a": 3, "b": 2})
    plan = cs.plans.Marginals([("a", "b"), ("a",)])
    measured = measure(open_stand_in(UNIFORM, domain, 500), plan, rho=0.1, simulate=1)
    asked = [AskedQuery(cs.Query.marginal("a").bind(domain), 1.0)]
    found = least_squares_errors(measured, asked, np.random.default_rng(0))
    rows = np.concatenate([each.query.bind(domain).written_out() for each in measured])
    weights = np.repeat([1 / each.noise.variance for each in measured], [each.values.size for each in measured])
    covariance = np.linalg.inv(rows.T @ (weights[:, None] * rows))
    sums = cs.Query.marginal("a").bind(domain).written_out()
    deviation = np.sqrt(np.diag(sums @ covariance @ sums.T))
    assert found is not None
    assert found[0].error == pytest.approx(np.mean(deviation) * np.sqrt(2 / np.pi), rel=0.06)


def test_a_release_is_off_by_what_was_told_of_it() -> None:
    """On a table like neither stand-in, whose tables are measured themselves: within a factor of 1.5."""
    rng = np.random.default_rng(3)
    domain = cs.Domain.from_sizes({"a": 6, "b": 5})
    table = pa.table({"a": np.minimum(rng.poisson(1.5, 20_000), 5), "b": rng.integers(0, 5, 20_000)})
    told = cs.plan(domain, cs.Workload.of(["by a, b"]), records=20_000, epsilon=0.2)
    truth = open_table(table, domain).exact_counts([("a", "b")])[0]
    plan = cs.plans.chosen_plan(domain, cs.Workload.of(["by a, b"]), cs_budget(0.2))[0]
    errors = [
        np.abs(
            estimate(measure(open_table(table, domain), plan, epsilon=0.2, simulate=seed)).marginal("a", "b") - truth
        )
        for seed in range(20)
    ]
    assert by_how(told.outcomes) == {"least squares"}
    assert told.outcomes[0].error / 1.5 < np.mean(errors) < told.outcomes[0].error * 1.5


def cs_budget(epsilon: float):
    from consilience.privacy.budgets import budget

    return budget(epsilon=epsilon)


def test_plans_that_choose_are_simulated_on_two_made_up_tables() -> None:
    domain = cs.Domain.from_sizes(dict.fromkeys("abcdef", 5))
    found = cs.plan(domain, records=300, epsilon=[0.1, 20])
    little, much = found.by_budget
    assert [each.stand_in for each in little] == ["uniform", "skewed"]
    assert {each.stand_in for each in much} >= {"uniform", "skewed"}, "comparable with the others"
    assert "made-up" in found.sentences[0]
    assert much[0].error < little[0].error


def test_each_budget_is_told_in_two_sentences() -> None:
    found = cs.plan(SMALL, records=1000, epsilon=[0.5, 1])
    assert len(found.sentences) == 2
    for text in found.sentences:
        assert text.count(". ") == 1
        assert text.endswith("would drown in the noise.")
    assert "all 3 tables of two attributes" in found.sentences[0]


def test_the_same_seed_tells_the_same() -> None:
    domain = cs.Domain.from_sizes(dict.fromkeys("abcde", 4))
    one, two = (cs.plan(domain, records=200, epsilon=0.1, seed=5).to_json() for _ in range(2))
    assert one == two


def test_amounts_are_told_in_their_own_unit() -> None:
    income = {"kind": "numeric", "edges": [0, 1000, 5000], "amount": [0, 5000]}
    sex = {"kind": "categorical", "values": ["F", "M"]}
    domain = cs.Domain.from_declaration({"name": "pay", "attributes": {"income": income, "sex": sex}})
    found = cs.plan(domain, cs.Workload.of(["sum(income) by sex", "by sex"]), records=5000, epsilon=1)
    sums = [row for row in found.outcomes[0].rows if row.amount == "income"]
    assert len(sums) == 1
    assert sums[0].error > 100 * found.outcomes[0].error
    assert "1 set of sums" in found.outcomes[0].measured


def test_what_the_domain_leaves_open_is_taken_as_expected() -> None:
    job = {"kind": "categorical", "values": "discover"}
    sex = {"kind": "categorical", "values": ["F", "M"]}
    domain = cs.Domain.from_declaration({"name": "town", "attributes": {"job": job, "sex": sex}})
    found = cs.plan(domain, records=5000, epsilon=1, delta=1e-9)
    assert len(found.outcomes) >= 1


def test_a_public_total_is_the_number_of_records() -> None:
    declared = SMALL.to_declaration() | {"public": {"total": 700}}
    domain = cs.Domain.from_declaration(declared)
    assert cs.plan(domain, epsilon=1).records == 700
    with pytest.raises(DeclarationError, match=r"800 records were guessed, .* there are 700"):
        cs.plan(domain, records=800, epsilon=1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epsilon": 1}, "declares no number of records"),
        ({"records": 0, "epsilon": 1}, "from 1 up"),
        ({"records": 10, "epsilon": []}, "no budget"),
        ({"records": 10, "epsilon": -1}, "epsilon"),
        ({"records": 10, "epsilon": 1, "rho": 1}, "give one of them"),
    ],
)
def test_what_cannot_be_told_is_refused(given: dict, said: str) -> None:
    with pytest.raises(ConsilienceError, match=said):
        cs.plan(SMALL, **given)


def test_results_are_frames_files_and_pictures(tmp_path: Path) -> None:
    found = cs.plan(SMALL, records=1000, epsilon=[0.5, 1])
    frame = found.to_pandas()
    assert set(frame.columns) >= {"epsilon", "query", "error", "margin", "told_by", "stand_in"}
    assert len(frame) == sum(len(each.rows) for each in found.outcomes)
    for kind in ("png", "svg", "csv", "json"):
        found.save(tmp_path / f"told.{kind}")
        assert (tmp_path / f"told.{kind}").stat().st_size > 100
    assert json.loads((tmp_path / "told.json").read_text())["records"] == 1000
    with pytest.raises(DeclarationError, match=r"\.png, \.svg, \.csv or \.json"):
        found.save(tmp_path / "told.txt")
    assert "before any data are read" in repr(found)


# ----------------------------------------------------------------------------------------------------------------------
# Stand-ins.


def test_a_stand_in_is_uniform_or_skewed() -> None:
    domain = cs.Domain.from_sizes({"a": 10, "b": 10})
    for how, least, most in ((UNIFORM, 0.0, 1.5), (SKEWED, 2.0, np.inf)):
        counts = open_stand_in(how, domain, 20_000).exact_counts([("a",)])[0]
        assert counts.sum() == 20_000
        assert least <= counts.max() / max(counts.min(), 1) <= most


def test_columns_of_a_skewed_stand_in_are_related_and_those_of_a_uniform_one_are_not() -> None:
    domain = cs.Domain.from_sizes({"a": 5, "b": 5})
    apart = []
    for how in (UNIFORM, SKEWED):
        counts = open_stand_in(how, domain, 20_000).exact_counts([("a", "b")])[0] / 20_000
        apart.append(np.abs(counts - np.outer(counts.sum(axis=1), counts.sum(axis=0))).sum())
    assert apart[0] < 0.035 < 0.05 < apart[1]


def test_a_stand_in_has_no_impossible_records() -> None:
    rules = (ImpossibleCells((("a", (0,)), ("b", (0, 1)))), ImpossibleCells((("a", (1,)), ("b", (2,)))))
    domain = cs.Domain("ruled", SMALL.attributes, impossible=rules)
    table = stand_in_table(SKEWED, domain, 500)
    codes = np.stack([[domain[name].code(str(value)) for value in table[name].to_pylist()] for name in "abc"], axis=1)
    assert are_possible(codes, domain).all()
    assert sum(open_stand_in(SKEWED, domain, 500).exact_counts([("a",)])[0]) == 500


def test_stand_ins_follow_units_weights_dates_and_numbers() -> None:
    attributes = {
        "day": {"kind": "date", "from": "2020-01-01", "to": "2021-01-01", "by": "month"},
        "age": {"kind": "numeric", "edges": [0, 18, 65, 100]},
        "sex": {"kind": "categorical", "values": ["F", "M"]},
    }
    weight = {"column": "w", "bounds": [0, 10], "missing": 1}
    domain = cs.Domain.from_declaration({"name": "all", "attributes": attributes, "weight": weight})
    assert domain.weight is not None
    source = open_stand_in(SKEWED, stand_in_domain(domain), 400, rows_per_unit=3)
    assert source.max_rows_per_unit == 3
    assert float(source.exact_counts([("sex",)])[0].sum() * domain.weight.step) == pytest.approx(400 * 5.0)


def test_large_numbers_of_records_are_not_made() -> None:
    assert most_records(SMALL, 1000) == 1000
    assert most_records(SMALL, 10**10) < 10**7
