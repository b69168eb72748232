"""The gate draws, records and only then shows; it replays what the ledger holds, and never shows an exact count."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Domain, Query, factors
from consilience.errors import BudgetExceeded, LedgerError, SourceError
from consilience.privacy.budgets import budget
from consilience.privacy.gate import DataGate, PricingGate
from consilience.privacy.ledger import Ledger
from consilience.privacy.noise import SecureNoise, SimulatedNoise
from consilience.privacy.scores import MarginalError
from consilience.source import open_table

DOMAIN = Domain.from_sizes({"a": 3, "b": 2}, name="tiny")
ROWS = {"a": ["0", "0", "1", "2", "2", "2"], "b": ["0", "1", "1", "0", "0", "1"]}
EXACT = np.array([[1, 1], [0, 1], [2, 1]])


def gate_to(
    reservation=None, *, begun: bool = True, amount: float = 1.0, noise=None, release_id: str = "r", **options
) -> DataGate:
    return DataGate(
        open_table(pa.table(ROWS), DOMAIN),
        budget(epsilon=amount),
        neighbours="add-remove",
        noise=noise or SimulatedNoise(0),
        reserve=None if reservation is None else lambda: reservation,
        begun=begun,
        release_id=release_id,
        **options,
    )


def test_answers_are_exact_answers_plus_noise_of_the_stated_scale() -> None:
    gate = gate_to(amount=1e6)
    queries = [
        Query.marginal("a", "b"),
        Query.marginal("b", "a"),
        Query.of({"a": factors.Prefix()}),
        Query(()),
        Query.of({"a": factors.Matrix.of(np.array([[0.5, 0.25, -1.5]]))}),
    ]
    found = gate.measure(queries, gate.budget)
    assert np.array_equal(found[0].values, EXACT.ravel())
    assert np.array_equal(found[1].values, EXACT.T.ravel())
    assert np.array_equal(found[2].values, [2, 3, 6])
    assert np.array_equal(found[3].values, [6])
    assert found[4].values == pytest.approx([2 * 0.5 + 0.25 - 4.5])
    assert len({each.id for each in found}) == 5


def test_a_plan_cannot_spend_more_than_its_run_was_given() -> None:
    for gate in (gate_to(), PricingGate(DOMAIN, budget(epsilon=1), neighbours="add-remove", rows_per_unit=1)):
        gate.measure(Query.marginal("a"), budget(epsilon=0.6))
        with pytest.raises(BudgetExceeded, match=r"0\.4"):
            gate.measure(Query.marginal("a"), budget(epsilon=0.5))
        gate.measure(Query.marginal("a"), budget(epsilon=0.4))


def test_a_recorded_step_is_answered_from_the_ledger(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="tiny", total=budget(epsilon=1))
    arguments = {"fingerprint": "f", "cost": budget(epsilon=1), "description": "d"}
    with ledger.reserve("r", **arguments) as reservation:  # left without `complete`, as a failure would
        first = gate_to(reservation, noise=SecureNoise()).measure(Query.marginal("a"), budget(epsilon=0.5))
    with ledger.reserve("r", **arguments) as reservation:
        gate = gate_to(reservation, noise=SecureNoise())
        again = gate.measure(Query.marginal("a"), budget(epsilon=0.5))
        gate.measure(Query.marginal("b"), budget(epsilon=0.5))
        reservation.complete()
    assert np.array_equal(first[0].values, again[0].values)
    assert str(ledger.spent) == "1"


def test_a_recorded_step_for_another_request_is_refused(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="tiny", total=budget(epsilon=1))
    arguments = {"fingerprint": "f", "cost": budget(epsilon=1), "description": "d"}
    with ledger.reserve("r", **arguments) as reservation:
        gate_to(reservation).measure(Query.marginal("a"), budget(epsilon=0.5))
        reservation.complete()
    with ledger.reserve("r", **arguments) as reservation, pytest.raises(LedgerError, match="another request"):
        gate_to(reservation).measure(Query.marginal("b"), budget(epsilon=0.5))


def test_values_are_durable_before_they_are_shown(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="tiny", total=budget(epsilon=1))
    with ledger.reserve("r", fingerprint="f", cost=budget(epsilon=1), description="d") as reservation:

        def full(*_, **__) -> None:
            raise LedgerError("the disk is full")

        reservation.record = full  # type: ignore[method-assign]
        gate = gate_to(reservation)
        with pytest.raises(LedgerError, match="disk is full"):
            gate.measure(Query.marginal("a"), budget(epsilon=0.5))
        assert gate.measurements == []


def test_selection_picks_the_worst_marginal_and_is_replayed(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="tiny", total=budget(epsilon=100))
    score = MarginalError({("a",): np.array([2.0, 1.0, 3.0]), ("b",): np.array([300.0, 3.0])})
    arguments = {"fingerprint": "f", "cost": budget(epsilon=100), "description": "d"}
    for _ in range(2):
        with ledger.reserve("r", **arguments) as reservation:
            gate = gate_to(reservation, amount=100, noise=SecureNoise())
            assert gate.select(score, budget(epsilon=100)) == ("b",)
            if not reservation.replayed:
                reservation.complete()
    assert str(ledger.spent) == "100"


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_declared_sensitivity_of_a_score_is_its_largest_change(neighbours: str) -> None:
    rng = np.random.default_rng(0)
    estimate = rng.normal(2, 3, (3, 2))
    score = MarginalError({("a", "b"): estimate, ("a",): estimate.sum(1)}, weights={("a", "b"): 0.7, ("a",): 1.3})
    changes = []
    cells = [(i, j) for i in range(3) for j in range(2)]
    for _ in range(30):
        table = rng.integers(0, 5, (3, 2))
        for cell in cells:
            one = table.copy()
            one[cell] += 1
            others = [table] if neighbours == "add-remove" else []
            for second in cells:
                if neighbours == "replace-one":
                    two = table.copy()
                    two[second] += 1
                    others.append(two)
            base = score.values([one, one.sum(1)])
            changes += [np.abs(base - score.values([other, other.sum(1)])).max() for other in others]
    declared = score.sensitivity(neighbours)
    assert max(changes) <= declared
    assert max(changes) >= 0.95 * declared


def test_a_source_that_cannot_be_read_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object) -> None:
        raise SourceError("the source could not be counted")

    gate = DataGate(
        open_table(pa.table(ROWS), DOMAIN),
        budget(epsilon=1),
        neighbours="add-remove",
        noise=SecureNoise(),
        release_id="r",
        reserve=lambda: pytest.fail("the budget was reserved"),
    )
    monkeypatch.setattr(type(gate._source), "exact_counts", unreadable)
    with pytest.raises(SourceError):
        gate.measure(Query.marginal("a"), budget(epsilon=1))
