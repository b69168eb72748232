"""Discovered values: no set of them tells neighbours apart by more than rho, but for the failures that were paid for.

All probabilities are exact: discrete Gaussian noise is summed term by term, and every set of kept values is enumerated
for every pair of small neighbouring tables.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain
from consilience.errors import BudgetExceeded, DeclarationError
from consilience.measuring import PricingGate
from consilience.privacy.budgets import Budget, budget, epsilon_from_rho
from consilience.privacy.discovery import ValueSelection, least_threshold
from consilience.privacy.gate import DataGate
from consilience.privacy.ledger import Ledger
from consilience.privacy.noise import SecureNoise, SimulatedNoise
from consilience.source import open_table

JOBS = Domain("people", (Attribute.categorical("job", ["?"], unlisted="Other"),))
VALUES = ("a", "b", "c")
ORDERS = (1.25, 2.0, 4.0, 16.0, 64.0)


@lru_cache
def tail(stddev: float, at: int) -> Decimal:
    """P(Z ≥ at) for discrete Gaussian noise, summed far beyond what could matter."""
    with localcontext(Context(prec=80)):
        twice, far = 2 * Decimal(stddev) ** 2, math.ceil(40 * stddev) + 40
        weights = [(-Decimal(z * z) / twice).exp() for z in range(far)]
        above = sum(weights[max(at, 0) :], Decimal(0)) + (sum(weights[1 : 1 - at], Decimal(0)) if at < 0 else 0)
        return above / (2 * sum(weights, Decimal(0)) - 1)


# --- the threshold -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stddev", [0.3, 0.7, 1.0, 2.5, 10.0, 70.5])
@pytest.mark.parametrize(("failure", "values"), [("0.2", 1), ("0.01", 1), ("0.01", 3), ("1e-9", 2), ("1e-40", 1)])
def test_the_threshold_is_the_least_that_is_certain(stddev: float, failure: str, values: int) -> None:
    found = least_threshold(stddev, Decimal(failure), values)
    allowed = Decimal(failure) / values
    assert tail(stddev, found - 1) <= allowed
    assert found == 2 or tail(stddev, found - 2) > allowed


@pytest.mark.parametrize(
    ("rows", "relation", "distance"), [(1, "add-remove", 1), (3, "add-remove", 3), (3, "replace-one", 6)]
)
def test_noise_is_no_less_than_rho_asks_for(rows: int, relation: str, distance: int) -> None:
    for rho in ("0.5", "0.0123", "3e-6", "7"):
        made = ValueSelection.priced(budget(rho=rho, failure_delta="1e-6"), neighbours=relation, values_per_unit=rows)
        variance = Fraction(distance) / (2 * Fraction(rho))
        assert variance <= Fraction(made.stddev) ** 2 <= variance * (1 + Fraction(1, 10**12))
        assert made.threshold == least_threshold(made.stddev, Decimal("1e-6"), rows)


def test_budgets_that_cannot_find_values_are_refused_with_the_reason() -> None:
    for amounts, reason in (
        ({"epsilon": 1}, "pure epsilon 1: a value that one unit alone has could never be told"),
        ({"rho": 1}, "add a failure delta"),
        ({"epsilon": 1, "delta": 1e-9}, "add a failure delta"),
        ({"rho": 1e-10, "failure_delta": 1e-9}, "ask with a larger budget"),
    ):
        with pytest.raises(DeclarationError, match=reason):
            ValueSelection.priced(budget(**amounts), neighbours="add-remove", values_per_unit=1)
    assert 5 * 2000 < least_threshold(2000.0, Decimal("1e-9"), 1) < 7 * 2000


# --- every set of values, of every pair of neighbours --------------------------------------------------------


Table = tuple[frozenset[str], ...]
"""The values of each unit."""


def neighbours(relation: str, rows: int) -> Iterator[tuple[Table, Table]]:
    """Pairs of tables of up to three units, each with up to so many values."""
    units = [frozenset(values) for size in range(rows + 1) for values in itertools.combinations(VALUES, size)]
    for others in itertools.chain.from_iterable(
        itertools.combinations_with_replacement(units[1:], n) for n in range(3)
    ):
        if relation == "add-remove":
            yield from (((*others, one), others) for one in units)
        else:
            yield from (((*others, one), (*others, other)) for one, other in itertools.combinations(units, 2))


@cache
def counts_of(table: Table, rows: int) -> dict[str, int]:
    """As the source counts them."""
    columns = {
        "person": [str(unit) for unit, values in enumerate(table) for _ in values],
        "job": [value for values in table for value in sorted(values)],
    }
    arrays = {name: pa.array(column, pa.string()) for name, column in columns.items()}
    (found,) = open_table(pa.table(arrays), JOBS, unit="person", max_rows_per_unit=rows).exact_value_counts("job")
    assert found == {value: n for value in VALUES if (n := sum(value in values for values in table))}
    return found


def chances(counts: Mapping[str, int], kept: ValueSelection) -> np.ndarray:
    """The probability of each set of kept values, sets as bit patterns."""
    single = [float(tail(kept.stddev, kept.threshold - counts[v])) if v in counts else 0.0 for v in VALUES]
    return np.array(
        [
            math.prod(p if chosen else 1 - p for p, chosen in zip(single, pattern, strict=True))
            for pattern in itertools.product((False, True), repeat=len(VALUES))
        ]
    )


def alone(counts: Mapping[str, int], others: Mapping[str, int]) -> np.ndarray:
    """Which sets of values hold one that only the first table has: the failures."""
    patterns = itertools.product((False, True), repeat=len(VALUES))
    return np.array(
        [any(c and v in counts and v not in others for v, c in zip(VALUES, p, strict=True)) for p in patterns]
    )


def faults(relation: str, rows: int, rho: float, failure: float, *, lower: int = 0, factor: float = 1.0) -> set[str]:
    """What is broken by a selection at this price, with a lower threshold or less noise than it asks for."""
    cost = budget(rho=rho, failure_delta=failure)
    priced = ValueSelection.priced(cost, neighbours=relation, values_per_unit=rows)
    used = ValueSelection(priced.stddev * factor, priced.threshold - lower)
    known: dict[tuple[int, ...], np.ndarray] = {}
    found: set[str] = set()
    for pair in neighbours(relation, rows):
        counts = [counts_of(table, rows) for table in pair]
        laws = [known.setdefault(key(each), chances(each, used)) for each in counts]
        for here, there in ((0, 1), (1, 0)):
            failed, other_failed = alone(counts[here], counts[there]), alone(counts[there], counts[here])
            if laws[here][failed].sum() > failure * (1 + 1e-12):
                found.add("fails too often")
            p, q = laws[here][~failed & ~other_failed], laws[there][~failed & ~other_failed]
            p, q = p / (1 - laws[here][failed].sum()), q / (1 - laws[there][other_failed].sum())
            occurring = p > 0
            for order in ORDERS:
                moment = order * np.log(p[occurring]) + (1 - order) * np.log(q[occurring])
                if np.logaddexp.reduce(moment) / (order - 1) > order * rho * (1 + 1e-9):
                    found.add("beyond rho")
            for delta in (failure * 1.01, failure * 4):
                epsilon = float(epsilon_from_rho(rho, delta - failure))
                if np.maximum(laws[here] - math.exp(epsilon) * laws[there], 0).sum() > delta:
                    found.add("beyond epsilon and delta")
    return found


def key(counts: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(counts.get(value, 0) for value in VALUES)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(("rho", "failure"), [(0.5, 0.01), (2.0, 1e-5), (0.02, 0.2)])
def test_no_set_of_values_tells_neighbours_apart(relation: str, rows: int, rho: float, failure: float) -> None:
    assert faults(relation, rows, rho, failure) == set()


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_threshold_one_step_too_low_is_noticed(relation: str, rows: int) -> None:
    assert {"fails too often", "beyond epsilon and delta"} <= faults(relation, rows, 0.5, 0.01, lower=1)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_too_little_noise_is_noticed(relation: str) -> None:
    assert "beyond rho" in faults(relation, 1, 0.5, 0.2, factor=0.4)


# --- through the gate ----------------------------------------------------------------------------------------


def gate_to(rows: pa.Table, cost: Budget, *, noise: object = None, **options: object) -> DataGate:
    return DataGate(
        open_table(rows, JOBS), cost, neighbours="add-remove", noise=noise or SecureNoise(), release_id="r", **options
    )


COST = budget(rho="0.125", failure_delta="0.01")


def test_common_values_are_found_and_others_never_named() -> None:
    jobs = ["nurse"] * 400 + ["smith"] * 90 + [f"rare {number}" for number in range(20)]
    told: list[object] = []
    gate = gate_to(pa.table({"job": jobs}), budget(rho=2, failure_delta=1e-9), progress=lambda *seen: told.append(seen))
    assert gate.find_values("job", gate.budget) == ("nurse", "smith")
    assert told == [("counting", 0, 1)]
    assert gate.measurements == []


def test_the_order_of_rows_decides_nothing() -> None:
    rng = np.random.default_rng(0)
    jobs = [f"job {number}" for number in rng.zipf(1.3, 3000) if number < 400]
    found = {
        gate_to(pa.table({"job": rng.permutation(jobs)}), COST, noise=SimulatedNoise(5)).find_values("job", COST)
        for _ in range(4)
    }
    assert len(found) == 1


def test_what_was_found_is_replayed_and_never_drawn_again(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="people", total=budget(epsilon=3, delta=0.1))
    jobs = pa.table({"job": [f"job {number % 200}" for number in range(200 * 7)]})  # near the threshold: left to chance
    found = set()
    for _ in range(3):
        with ledger.reserve("r", fingerprint="f", cost=COST, description="d") as reservation:
            gate = gate_to(jobs, COST, reserve=lambda held=reservation: held, begun=True)
            found.add(gate.find_values("job", COST))
            gate.complete()
    assert len(found) == 1
    assert 0 < len(found.pop()) < 200
    assert (ledger.spent, ledger.to_json()["failure_delta"]) == (COST.amount, "0.01")


def test_a_run_cannot_fail_more_often_than_it_was_given() -> None:
    part = budget(rho="0.05", failure_delta="0.006")
    for gate in (
        gate_to(pa.table({"job": ["a"]}), COST),
        PricingGate(JOBS, COST, neighbours="add-remove", rows_per_unit=1),
    ):
        gate.find_values("job", part)
        with pytest.raises(BudgetExceeded, match="failure delta"):
            gate.find_values("job", part)
    with pytest.raises(DeclarationError, match="no attribute 'jib'"):
        gate_to(pa.table({"job": ["a"]}), COST).find_values("jib", part)
