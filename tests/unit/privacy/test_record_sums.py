"""Sums over records through the gate: priced from declarations, drawn on the lattice, recorded, replayed."""

import json
import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain
from consilience.errors import BudgetExceeded, ConsilienceError, DeclarationError, LedgerError, SourceError
from consilience.measurements import DiscreteGaussian, DiscreteLaplace
from consilience.measuring import PricingGate
from consilience.privacy.budgets import budget
from consilience.privacy.cluster_statistics import BlockCentroids, cluster_statistics
from consilience.privacy.gate import DataGate
from consilience.privacy.ledger import Ledger
from consilience.privacy.noise import SecureNoise, SimulatedNoise
from consilience.privacy.pricing import ROUNDING_MARGIN, price_statistics
from consilience.source import local, open_table

DOMAIN = Domain("plane", (Attribute.continuous("x", (-1, 1)), Attribute.continuous("y", (-1, 1), unlisted="drop")))
CENTROIDS = [(-0.5, 0.0), (0.5, 0.0)]
STATISTICS = cluster_statistics(DOMAIN, ("x", "y"), "box", CENTROIDS)
ROWS = {"x": [-0.5, 0.25, 0.75, 9.0, None, 0.0], "y": [0.5, 0.25, -0.25, 0.0, 0.0, 2.0]}
"""One in the left cluster, two in the right one, one clipped into it; one missing and one out of bounds are dropped."""
COUNTS, SUMS = [1, 3], [[-0.5, 0.5], [0.25 + 0.75 + 1.0, 0.0]]


def source_of(rows=ROWS, **options):
    table = pa.table({name: pa.array(column, pa.float64()) for name, column in rows.items()})
    return open_table(table, DOMAIN, **options)


def gate_to(source=None, *, amount=1.0, noise=None, reservation=None, **options):
    return DataGate(
        source or source_of(),
        budget(epsilon=amount),
        neighbours="add-remove",
        noise=noise or SimulatedNoise(0),
        release_id="r",
        reserve=None if reservation is None else lambda: reservation,
        begun=reservation is not None,
        **options,
    )


@dataclass(frozen=True)
class Odd:
    """A statistic that is wrong in one way."""

    values: Any = ()
    claimed: float = 1.0
    bits: int = 0
    size: int = 1
    attributes: tuple[str, ...] = ("x",)
    additive = True

    def sensitivity(self, norm, neighbours):
        return self.claimed

    def exact(self, points):
        return self.values(points) if callable(self.values) else np.array(self.values)

    def describe(self):
        return {"algorithm": "odd"}

    def check(self, domain):
        pass


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("rows_per_unit", [1, 3])
def test_the_price_is_the_whole_budget_and_not_more(relation, rows_per_unit):
    options = {"shares": [0.3, 0.7], "neighbours": relation, "rows_per_unit": rows_per_unit}
    pure = price_statistics(STATISTICS, DOMAIN, budget(epsilon=0.4), **options)
    loss = sum(rows_per_unit * each.statistic.sensitivity(1, relation) / each.noise.scale for each in pure.parts)
    assert 0.4 * (1 - 2 * ROUNDING_MARGIN) <= loss <= 0.4
    concentrated = price_statistics(STATISTICS, DOMAIN, budget(rho=0.02), **options)
    rho = sum(
        (rows_per_unit * each.statistic.sensitivity(2, relation)) ** 2 / (2 * each.noise.stddev**2)
        for each in concentrated.parts
    )
    assert 0.02 * (1 - 4 * ROUNDING_MARGIN) <= rho <= 0.02
    assert [type(each.noise) for each in (*pure.parts, *concentrated.parts)] == [DiscreteLaplace] * 2 + [
        DiscreteGaussian
    ] * 2
    assert [each.noise.lattice_step for each in pure.parts] == [1.0, 2.0**-20]
    assert pure.parts[0].noise.scale == pytest.approx(
        rows_per_unit * {"add-remove": 1, "replace-one": 2}[relation] / (0.4 * 0.3)
    )


def test_sums_are_exact_sums_plus_noise_of_the_stated_scale():
    counts, sums = gate_to(amount=1e9).sum_records(STATISTICS, budget(epsilon=1e9), round=4)
    assert counts.values.tolist() == COUNTS
    assert sums.values.reshape(2, 2) == pytest.approx(np.array(SUMS), abs=1e-5)
    for each, statistic in zip((counts, sums), STATISTICS, strict=True):
        assert (each.kind, each.round, each.id) == ("record-sums", 4, f"r/0.{int(each is sums)}")
        assert each.extra == {"statistic": statistic.describe()}
        assert each.query.factors == ()


def test_noise_is_on_the_lattice_and_of_the_stated_size():
    drawn = []
    for seed in range(300):
        _, sums = gate_to(noise=SimulatedNoise(seed)).sum_records(STATISTICS, budget(epsilon=1))
        drawn.append(sums.values - np.ravel(SUMS))
        assert np.array_equal(sums.values * 2**20, np.rint(sums.values * 2**20))
    spread = np.std(np.concatenate(drawn))
    assert spread == pytest.approx(math.sqrt(sums.noise.variance), rel=0.1)


def test_the_gates_answer_alike_and_the_dry_run_needs_no_data():
    dry = PricingGate(DOMAIN, budget(epsilon=1), neighbours="add-remove", rows_per_unit=1)
    priced = dry.sum_records(STATISTICS, budget(epsilon=0.5), shares=[1, 3], round=2)
    drawn = gate_to().sum_records(STATISTICS, budget(epsilon=0.5), shares=[1, 3], round=2)
    for zero, real in zip(priced, drawn, strict=True):
        assert not zero.values.any()
        assert (zero.noise, zero.round, zero.kind, zero.extra) == (real.noise, real.round, real.kind, real.extra)
        assert zero.values.size == real.values.size
    assert [price.budget for price in dry.prices] == [budget(epsilon=0.5)]
    assert dry.prices[0].parts[0].asks == "k-means counts"


def test_both_gates_refuse_to_spend_more_than_the_run_was_given():
    for gate in (gate_to(), PricingGate(DOMAIN, budget(epsilon=1), neighbours="add-remove", rows_per_unit=1)):
        gate.sum_records(STATISTICS, budget(epsilon=0.6))
        with pytest.raises(BudgetExceeded, match=r"0\.4"):
            gate.sum_records(STATISTICS, budget(epsilon=0.5))


def test_the_rows_of_a_unit_multiply_the_scale():
    source = source_of(ROWS | {"who": [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]}, unit="who", max_rows_per_unit=2)
    one = gate_to().sum_records(STATISTICS, budget(epsilon=1))
    two = gate_to(source).sum_records(STATISTICS, budget(epsilon=1))
    for single, double in zip(one, two, strict=True):
        assert double.noise.scale == pytest.approx(2 * single.noise.scale)


def test_points_are_read_once_for_all_rounds_and_again_only_if_they_are_too_many(monkeypatch):
    source = source_of()
    reads = []
    original = type(source).exact_points
    monkeypatch.setattr(type(source), "exact_points", lambda self, names: reads.append(names) or original(self, names))
    gate = gate_to(source, amount=100)
    for round_number in range(3):
        gate.sum_records(STATISTICS, budget(epsilon=1), round=round_number)
    assert reads == [("x", "y")]


@pytest.mark.parametrize("smaller", [{"LARGEST_POINTS": 10}, {"gives_points": False}], ids=["too many", "elsewhere"])
def test_points_that_are_not_brought_together_are_summed_in_parts_with_the_same_outcome(monkeypatch, smaller):
    for name, value in smaller.items():
        monkeypatch.setattr(local if name.isupper() else local.LocalSource, name, value)
    monkeypatch.setattr("consilience.source.readers.ROWS_PER_BATCH", 2)
    gate = gate_to(amount=2e6)
    for _ in range(2):
        counts, _ = gate.sum_records(STATISTICS, budget(epsilon=1e6))
        assert counts.values.tolist() == COUNTS


def test_what_is_no_sum_over_records_is_refused_before_it_is_paid_where_points_stay_away(monkeypatch):
    monkeypatch.setattr(local.LocalSource, "gives_points", False)
    gate = DataGate(
        source_of(),
        budget(epsilon=1),
        neighbours="add-remove",
        noise=SecureNoise(),
        release_id="r",
        reserve=lambda: pytest.fail("the budget was reserved"),
    )
    blocks = BlockCentroids(("x", "y"), STATISTICS[0].bounds, "box", ((0.0, 0.0),), blocks=3)
    with pytest.raises(DeclarationError, match="choose another plan"):
        gate.sum_records([blocks], budget(epsilon=1))


def test_a_recorded_step_is_replayed_uncharged_and_another_request_refused(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "l", dataset="plane", total=budget(epsilon=1))
    arguments = {"fingerprint": "f", "cost": budget(epsilon=1), "description": "d"}
    with ledger.reserve("r", **arguments) as reservation:  # left without `complete`, as a failure would
        first = gate_to(noise=SecureNoise(), reservation=reservation).sum_records(
            STATISTICS, budget(epsilon=0.5), round=1
        )
    with ledger.reserve("r", **arguments) as reservation:
        again = gate_to(noise=SecureNoise(), reservation=reservation).sum_records(
            STATISTICS, budget(epsilon=0.5), round=1
        )
    assert first == again
    moved = cluster_statistics(DOMAIN, ("x", "y"), "box", [(-0.5, 0.0), (0.5, 0.25)])
    for changed, options in ((moved, {"round": 1}), (STATISTICS, {"round": 2}), (STATISTICS, {"shares": [1, 2]})):
        with ledger.reserve("r", **arguments) as reservation, pytest.raises(LedgerError, match="another request"):
            gate_to(noise=SecureNoise(), reservation=reservation).sum_records(changed, budget(epsilon=0.5), **options)
    assert str(ledger.spent) == "1"


def test_values_are_durable_before_they_are_shown(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "l", dataset="plane", total=budget(epsilon=1))
    with ledger.reserve("r", fingerprint="f", cost=budget(epsilon=1), description="d") as reservation:

        def full(*_, **__) -> None:
            raise LedgerError("the disk is full")

        reservation.record = full  # type: ignore[method-assign]
        gate = gate_to(reservation=reservation)
        with pytest.raises(LedgerError, match="disk is full"):
            gate.sum_records(STATISTICS, budget(epsilon=0.5))
        assert gate.measurements == []


def test_what_cannot_be_read_or_summed_costs_nothing_and_tells_nothing(monkeypatch, caplog):
    def unpaid():
        pytest.fail("the budget was reserved")

    def failing(points):
        raise MemoryError(f"{len(points)} records of {points.tolist()}")

    def gate_without_payment():
        return DataGate(
            source_of(), budget(epsilon=1), neighbours="add-remove", noise=SecureNoise(), release_id="r", reserve=unpaid
        )

    with caplog.at_level(logging.DEBUG), pytest.raises(SourceError) as refused:
        gate_without_payment().sum_records([Odd(failing)], budget(epsilon=1))
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
    assert not any(digit.isdigit() for digit in str(refused.value) + caplog.text)
    for wrong in ([1.5], [1, 2], [[1]]):
        with pytest.raises(ConsilienceError, match="nothing was released"):
            gate_without_payment().sum_records([Odd(wrong)], budget(epsilon=1))

    def unreadable(*_: object):
        raise SourceError("the source could not be counted")

    monkeypatch.setattr("consilience.source.local.LocalSource.exact_points", unreadable)
    with pytest.raises(SourceError, match="could not be counted"):
        gate_without_payment().sum_records(STATISTICS, budget(epsilon=1))


@pytest.mark.parametrize("claimed", [0.0, -1.0, math.inf, math.nan])
def test_sensitivities_that_promise_nothing_are_refused(claimed):
    with pytest.raises(DeclarationError, match="sensitivity"):
        price_statistics([Odd(claimed=claimed)], DOMAIN, budget(epsilon=1))


def test_sums_that_could_overflow_are_refused():
    price_statistics([Odd(bits=28)], DOMAIN, budget(epsilon=1))
    with pytest.raises(DeclarationError, match="too wide"):
        price_statistics([Odd(bits=29)], DOMAIN, budget(epsilon=1))
    with pytest.raises(DeclarationError, match="too wide"):
        price_statistics([Odd(bits=20, claimed=600.0)], DOMAIN, budget(epsilon=1))


@pytest.mark.parametrize("shares", [[], [1.0], [0.0, 1.0], [math.nan, 1.0], [1.0, 2.0, 3.0]])
def test_shares_that_make_no_sense_are_refused(shares):
    with pytest.raises(DeclarationError, match="share"):
        price_statistics(STATISTICS, DOMAIN, budget(epsilon=1), shares=shares)
    with pytest.raises(DeclarationError, match="nothing to measure"):
        price_statistics([], DOMAIN, budget(epsilon=1))


def test_the_ledger_holds_noisy_sums_in_lattice_units_and_nothing_exact(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "l", dataset="plane", total=budget(epsilon=1))
    with ledger.reserve("r", fingerprint="f", cost=budget(epsilon=1), description="d") as reservation:
        found = gate_to(noise=SecureNoise(), reservation=reservation).sum_records(STATISTICS, budget(epsilon=1))
        _, payload = reservation.recorded(0)
    expected = [each.values * 2.0**statistic.bits for each, statistic in zip(found, STATISTICS, strict=True)]
    assert json.loads(payload) == [each.tolist() for each in expected]
