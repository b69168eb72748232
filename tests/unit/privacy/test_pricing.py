"""Noise scales are exactly what the budget buys: no more privacy loss, and no more noise than needed."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.source_format import Summand
from consilience.errors import DeclarationError
from consilience.privacy.budgets import budget
from consilience.privacy.pricing import price_queries, price_statistics

DOMAIN = Domain.from_sizes({"a": 3, "b": 2, "c": 4})
QUERIES = [
    Query.marginal("a", "b"),
    Query.marginal("c"),
    Query.of({"c": factors.Prefix(), "b": factors.Identity()}),
    Query.of({"c": factors.Haar()}),
    Query.of({"a": factors.Value("0"), "c": factors.Identity()}),
    Query.of({"a": factors.Value("1"), "b": factors.Identity()}),
    Query(()),
]


def column(query: Query, cell: tuple[int, ...]) -> np.ndarray:
    table = np.zeros(DOMAIN.shape)
    table[cell] = 1
    return query.bind(DOMAIN).answer_full(table).ravel()


def worst_loss(priced, *, pure: bool, replace: bool, rows: int, weights=(1.0,)) -> float:
    """max over neighbours of Σ |change| / scale, or of Σ change² / (2 stddev²), by enumeration."""
    cells = list(itertools.product(*map(range, DOMAIN.shape)))
    columns = [[column(each.bound.query, cell) for each in priced.queries] for cell in cells]
    changes = [[times * part for part in each] for each in columns for times in weights]
    if replace:
        pairs = [[x - y for x, y in zip(one, two, strict=True)] for one in changes for two in changes]
        pairs += changes  # replaced by a record that the domain drops
    else:
        pairs = changes
    losses = []
    for change in pairs:
        if pure:
            parts = [rows * np.abs(c).sum() / q.noise.scale for c, q in zip(change, priced.queries, strict=True)]
        else:
            parts = [
                (rows * c) @ (rows * c) / (2 * q.noise.stddev**2) for c, q in zip(change, priced.queries, strict=True)
            ]
        losses.append(sum(parts))
    return max(losses)


@settings(max_examples=25, deadline=None)
@given(
    chosen=st.lists(st.sampled_from(QUERIES), min_size=1, max_size=4, unique=True),
    shares=st.lists(st.floats(0.1, 10), min_size=4, max_size=4),
    pure=st.booleans(),
    replace=st.booleans(),
    amount=st.floats(0.01, 5),
    rows=st.integers(1, 3),
)
def test_the_price_is_the_worst_privacy_loss(chosen, shares, pure, replace, amount, rows) -> None:
    asked = budget(epsilon=amount) if pure else budget(rho=amount)
    relation = "replace-one" if replace else "add-remove"
    priced = price_queries(chosen, DOMAIN, asked, shares=shares[: len(chosen)], neighbours=relation, rows_per_unit=rows)
    loss = worst_loss(priced, pure=pure, replace=replace, rows=rows)
    assert loss <= float(asked.amount)
    assert loss == pytest.approx(float(asked.amount), rel=1e-9)
    assert priced.sensitivity.exact


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("chosen", [QUERIES[:2], QUERIES[2:4], QUERIES[4:]])
def test_the_price_of_weighted_counts_is_the_worst_loss_over_all_weights(unit, relation, chosen) -> None:
    """Noise is in weighted units; weights in between, and none at all, move answers by no more than the ends."""
    weighted = dataclasses.replace(DOMAIN, weight=Summand("w", (0.25, 2.6)))
    priced = price_queries(chosen, weighted, budget(**{unit: 0.7}), neighbours=relation, rows_per_unit=2)
    low, high = weighted.weight.range
    given = {"pure": unit == "epsilon", "replace": relation == "replace-one", "rows": 2}
    assert worst_loss(priced, **given, weights=(low, 1.0, high)) == pytest.approx(0.7, rel=1e-9)
    assert worst_loss(priced, **given, weights=(low, 1.0, high)) <= 0.7
    for each in priced.queries:
        assert each.noise.step == 2.0**-each.bits <= weighted.weight.step
        entries = np.concatenate([np.ravel(part.dense()) for part in each.bound.maps] or [np.ones(1)])
        assert np.abs(entries).max() * 2.0**each.bits * high * 2.0**33 < 2.0**62


AMOUNTS = {"signed": (-1.3, 2.6), "mostly negative": (-4.0, 0.5), "positive": (0.5, 3.0), "negative": (-2.0, -0.5)}


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("bounds", AMOUNTS)
@pytest.mark.parametrize("weight", [None, Summand("w", (0.25, 2.5))])
def test_the_price_of_sums_is_the_worst_loss_over_all_amounts(unit, relation, bounds, weight) -> None:
    """The noise is for records that add the least, the most, something in between, or nothing because they go."""
    pay = Attribute.numeric("pay", [-9.0, 0.0, 9.0], amount=AMOUNTS[bounds])
    domain = dataclasses.replace(DOMAIN, attributes=(*DOMAIN.attributes, pay), weight=weight)
    low, high = domain.summand("pay").range
    given = {"pure": unit == "epsilon", "replace": relation == "replace-one", "rows": 2}
    for chosen in (QUERIES[:1], QUERIES[-1:], QUERIES[:2], QUERIES[2:4]):
        priced = price_queries(
            chosen, domain, budget(**{unit: 0.7}), neighbours=relation, rows_per_unit=2, amount="pay"
        )
        loss = worst_loss(priced, **given, weights=(low, (low + high) / 3, high))
        assert loss <= 0.7
        assert loss == pytest.approx(0.7, rel=1e-9)
        assert {each.measurement(np.zeros(each.size, np.int64), "").kind for each in priced.queries} == {"amount-sums"}


def test_one_sum_of_signed_amounts_is_moved_by_their_range_where_a_record_is_replaced() -> None:
    pay = Attribute.numeric("pay", [-9.0, 0.0, 9.0], amount=(-4.0, 6.0))
    domain = dataclasses.replace(DOMAIN, attributes=(*DOMAIN.attributes, pay))
    for relation, moved in (("add-remove", 6.0), ("replace-one", 10.0)):
        (total,) = price_queries(
            [Query(())], domain, budget(epsilon=1), neighbours=relation, amount="pay", rows_per_unit=3
        ).queries
        assert total.noise.scale == pytest.approx(3 * moved, rel=1e-9)
        assert total.asks == "sum(pay)"


def test_sums_are_measured_of_declared_and_released_amounts_alone() -> None:
    pay = Attribute.numeric("pay", [-9.0, 0.0, 9.0])
    domain = dataclasses.replace(DOMAIN, attributes=(*DOMAIN.attributes, pay))
    with pytest.raises(DeclarationError, match="declare amount"):
        price_queries([Query(())], domain, budget(epsilon=1), amount="pay")
    hidden = dataclasses.replace(pay, amount=(-4.0, 6.0), release=False)
    domain = dataclasses.replace(DOMAIN, attributes=(*DOMAIN.attributes, hidden))
    with pytest.raises(DeclarationError, match="release = false"):
        price_queries([Query(())], domain, budget(epsilon=1), amount="pay")


def test_points_have_no_weighted_sums() -> None:
    points = Domain("d", (Attribute.continuous("x", (0, 1)),), weight=Summand("w", (0, 2)))
    with pytest.raises(DeclarationError, match="a sum over points has no weighted form"):
        price_statistics([], points, budget(epsilon=1))


def test_shares_divide_the_budget_of_overlapping_queries() -> None:
    priced = price_queries([Query.marginal("a"), Query.marginal("b")], DOMAIN, budget(epsilon=1), shares=[3, 1])
    assert [each.noise.scale for each in priced.queries] == pytest.approx([4 / 3, 4])
    priced = price_queries([Query.marginal("a"), Query.marginal("b")], DOMAIN, budget(rho=0.5), shares=[3, 1])
    assert [each.noise.stddev for each in priced.queries] == pytest.approx([math.sqrt(4 / 3), 2])


def test_disjoint_queries_are_measured_in_parallel() -> None:
    halves = [Query.of({"b": factors.Value(label), "a": factors.Identity()}) for label in "01"]
    priced = price_queries(halves, DOMAIN, budget(epsilon=1), shares=[1, 1])
    assert [each.noise.scale for each in priced.queries] == pytest.approx([1, 1])


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_a_larger_sensitivity_buys_more_noise_and_a_smaller_one_changes_nothing(unit: str) -> None:
    query = Query.of({"c": factors.Prefix()})
    own = price_queries([query], DOMAIN, budget(**{unit: 1.0}))
    for least, factor in ((0.0, 1.0), (own.sensitivity.value / 2, 1.0), (3 * own.sensitivity.value, 3.0)):
        found = price_queries([query], DOMAIN, budget(**{unit: 1.0}), sensitivity_at_least=least)
        expected = factor * own.queries[0].noise.scale_parameter
        assert found.queries[0].noise.scale_parameter == pytest.approx(expected, rel=1e-12)
        assert found.sensitivity.exact == (own.sensitivity.exact and factor == 1.0)
    for wrong in (-1.0, math.inf, math.nan):
        with pytest.raises(DeclarationError, match="sensitivity of at least"):
            price_queries([query], DOMAIN, budget(**{unit: 1.0}), sensitivity_at_least=wrong)


def test_real_valued_queries_are_put_on_a_lattice() -> None:
    matrix = factors.Matrix.of(np.array([[0.1, 1 / 3, math.pi, 0.0]]))
    priced = price_queries([Query.of({"c": matrix})], DOMAIN, budget(epsilon=1))
    query = priced.queries[0]
    entries = query.bound.maps[0].dense() * 2.0**query.bits
    assert np.array_equal(entries, np.round(entries))
    assert query.noise.step == 2.0**-query.bits
    assert query.noise.scale >= query.bound.maps[0].dense().max()


@pytest.mark.parametrize(
    ("shares", "message"), [([1.0], "give one for each"), ([1.0, 0.0], "above 0"), ([1.0, math.nan], "above 0")]
)
def test_bad_shares_are_refused(shares: list[float], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        price_queries([Query.marginal("a"), Query.marginal("b")], DOMAIN, budget(epsilon=1), shares=shares)


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(DeclarationError, match="nothing to measure"):
        price_queries([], DOMAIN, budget(epsilon=1))


def test_entries_too_wide_for_exact_arithmetic_are_refused() -> None:
    wide = factors.Matrix.of(np.array([[1e7, 0.3, 0.0, 0.0]]))
    with pytest.raises(DeclarationError, match="exact arithmetic"):
        price_queries(
            [Query.of({"c": wide, "a": factors.Matrix.of(np.array([[1e9, 0.1, 0.2]]))})], DOMAIN, budget(epsilon=1)
        )


def test_two_real_factors_share_the_digits_of_exact_integers() -> None:
    real = factors.Matrix.of(np.array([[0.1, 1 / 3, math.pi]]))
    other = factors.Matrix.of(np.array([[0.7, math.e, 0.0, 123.4]]))
    query = price_queries([Query.of({"a": real, "c": other})], DOMAIN, budget(epsilon=1)).queries[0]
    assert np.allclose(query.bound.maps[0].dense(), [[0.1, 1 / 3, math.pi]], rtol=0, atol=1e-3)
    assert np.allclose(query.bound.maps[1].dense(), [[0.7, math.e, 0.0, 123.4]], rtol=0, atol=0.02)
