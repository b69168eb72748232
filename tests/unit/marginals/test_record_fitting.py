"""Records that follow all tables: the sweep against one that counts everything anew, and what it never does."""

import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import consilience as cs
from consilience.marginals.local_marginals import Settings, fit_records
from consilience.marginals.table_stacks import TableStack, stored_order


def counted(codes: np.ndarray, stack: TableStack) -> np.ndarray:
    found = np.zeros(stack.size)
    for scope in stack.scopes:
        np.add.at(stack.table(found, scope), tuple(codes[:, attribute] for attribute in scope), 1.0)
    return found


def loss(codes: np.ndarray, stack: TableStack, wanted: np.ndarray) -> float:
    return float(np.sum((counted(codes, stack) - wanted) ** 2))


def swept_anew(codes, stack, wanted, order, impossible) -> None:
    """One sweep that counts all tables for every value it tries."""

    def is_possible(row, changed) -> bool:
        concerned = [rule for rule in impossible if changed in dict(rule)]
        return not any(all(row[attribute] in values for attribute, values in rule) for rule in concerned)

    for record, attribute in itertools.product(order, range(codes.shape[1])):
        row = codes[record]
        value = row[attribute]
        costs = {}
        for other in range(stack.sizes[attribute]):
            row[attribute] = other
            if is_possible(row, attribute) or other == value:
                costs[other] = loss(codes, stack, wanted)
        row[attribute] = value
        now = costs.pop(value) if is_possible(row, attribute) else np.inf * (costs.pop(value) + 1)
        if costs and min(costs.values()) < now:
            row[attribute] = min(costs, key=lambda each: (costs[each], each))


@st.composite
def problems(draw):
    sizes = tuple(draw(st.lists(st.integers(1, 4), min_size=2, max_size=4)))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    scopes = {
        stored_order(sizes, rng.choice(len(sizes), rng.integers(1, len(sizes) + 1), replace=False)) for _ in "abc"
    }
    stack = TableStack(sizes, sorted(tuple(int(each) for each in scope) for scope in scopes))
    codes, others = ([rng.integers(0, sizes) for _ in range(12)] for _ in "ab")
    rule = [(place, [int(rng.integers(0, sizes[place]))]) for place in range(2)]
    impossible = [rule] if draw(st.booleans()) else []
    return stack, np.array(codes), counted(np.array(others), stack), impossible


@settings(max_examples=40)
@given(problems())
def test_a_sweep_is_the_one_that_counts_anew(problem) -> None:
    stack, codes, wanted, impossible = problem
    fast, slow, rng = codes.copy(), codes.copy(), np.random.default_rng(len(codes))
    order = np.random.default_rng(len(codes)).permutation(len(codes))
    fit_records(fast, stack, wanted, rng, impossible=impossible, settings=Settings(most_sweeps=1))
    swept_anew(slow, stack, wanted, order, impossible)
    assert fast.tolist() == slow.tolist()


@settings(max_examples=40)
@given(problems(), st.integers(0, 5))
def test_tables_come_nearer_and_no_impossible_record_is_made(problem, seed) -> None:
    stack, codes, wanted, impossible = problem
    fitted = codes.copy()
    fit_records(fitted, stack, wanted, np.random.default_rng(seed), impossible=impossible)
    broken = [
        np.all([np.isin(rows[:, place], values) for place, values in rule], axis=0).sum()
        for rule in impossible
        for rows in (codes, fitted)
    ]
    assert broken == [] or broken[1] <= broken[0]
    if not any(broken):
        assert loss(fitted, stack, wanted) <= loss(codes, stack, wanted)
    assert fitted.min() >= 0
    assert np.all(fitted < stack.sizes)


def test_an_impossible_record_is_left_also_by_an_attribute_that_no_table_has() -> None:
    stack = TableStack((1, 2), [()])
    codes = np.array([[0, 1], [0, 0]])
    rule = [(0, [0]), (1, [1])]
    fit_records(codes, stack, np.array([2.0]), np.random.default_rng(0), impossible=[rule])
    assert codes.tolist() == [[0, 0], [0, 0]]


def test_limited_work_changes_some_records_alone() -> None:
    stack = TableStack((2, 2), [(0, 1)])
    codes = np.zeros((100, 2), dtype=np.int64)
    fit_records(
        codes, stack, np.array([0.0, 0.0, 0.0, 1.0]), np.random.default_rng(0), settings=Settings(most_work=40.0)
    )
    assert codes.any(axis=1).sum() == 10


def test_records_of_all_pairs_follow_pairs_that_no_tree_has() -> None:
    """Twenty flags of which every pair depends: a tree has 19 of 190 pairs."""
    rng = np.random.default_rng(0)
    hidden = rng.random(20_000) < 0.5
    codes = np.stack([np.where(rng.random(20_000) < 0.8, hidden, ~hidden) for _ in range(20)], axis=1).astype(int)
    domain = cs.Domain.from_sizes({f"a{place}": 2 for place in range(20)})
    pairs = list(itertools.combinations(range(20), 2))
    tables = {pair: np.bincount(codes[:, pair[0]] * 2 + codes[:, pair[1]], minlength=4).reshape(2, 2) for pair in pairs}
    noisy: dict[Any, np.ndarray] = {
        (f"a{i}", f"a{j}"): table + rng.normal(0, 20, (2, 2)) for (i, j), table in tables.items()
    }
    measured = cs.MeasurementSet.from_marginals(domain, noisy, noise=cs.Gaussian(20.0))
    fitted = cs.estimators.Residual().fit(measured)
    rows = fitted.sample(20_000, np.random.default_rng(1))
    for (i, j), table in tables.items():
        found = np.bincount(rows[:, i] * 2 + rows[:, j], minlength=4).reshape(2, 2)
        assert np.abs(found - table).max() < 100  # a tree is off by about 1,000 in most of them
