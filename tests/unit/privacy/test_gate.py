"""The gate draws, records and only then shows; it replays what the ledger holds, and never shows an exact count."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Domain, Query, factors
from consilience.errors import BudgetExceeded, DeclarationError, LedgerError, MeasurementError, SourceError
from consilience.measurements import Gumbel, Measurement
from consilience.measuring import PricingGate
from consilience.privacy.budgets import budget
from consilience.privacy.gate import DataGate
from consilience.privacy.ledger import Ledger
from consilience.privacy.noise import SecureNoise, SimulatedNoise
from consilience.privacy.reservations import RunAccount
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


def test_candidates_chosen_before_are_left_out_and_the_choices_are_replayed(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="tiny", total=budget(epsilon=300))
    estimates = {("a",): np.zeros(3), ("b",): np.array([300.0, 3.0]), ("a", "b"): np.full((3, 2), 9.0)}
    arguments = {"fingerprint": "f", "cost": budget(epsilon=300), "description": "d"}
    for _ in range(2):
        with ledger.reserve("r", **arguments) as reservation:
            gate, chosen = gate_to(reservation, amount=300, noise=SecureNoise()), list[int]()
            for _ in range(3):
                found = gate.select(MarginalError(estimates), budget(epsilon=100), besides=chosen)
                chosen.append(list(estimates).index(found))
            assert chosen == [1, 2, 0]  # from the worst to the best
            if not reservation.replayed:
                reservation.complete()
    with ledger.reserve("r", **arguments) as reservation:
        gate = gate_to(reservation, amount=300)
        with pytest.raises(LedgerError, match="for another request"):
            gate.select(MarginalError(estimates), budget(epsilon=100), besides=[0])
    for gate in (gate_to(), PricingGate(DOMAIN, budget(epsilon=1), neighbours="add-remove", rows_per_unit=1)):
        assert gate.select(MarginalError(estimates), budget(epsilon=0.1), besides=[0, 1]) == ("a", "b")
        with pytest.raises(DeclarationError, match="no candidate is left"):
            gate.select(MarginalError(estimates), budget(epsilon=0.1), besides=[0, 1, 2])


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
    def unreadable(*_: object, **__: object) -> None:
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


class CountedSource:
    """A source that remembers what it was asked to count."""

    runs_code = False
    place = "in a test"

    def __init__(self) -> None:
        self._source = open_table(pa.table(ROWS), DOMAIN)
        self.domain, self.max_rows_per_unit = self._source.domain, self._source.max_rows_per_unit
        self.asked: list[list[tuple[str, ...]]] = []

    def exact_counts(self, marginals, *, amount=None):
        self.asked.append(list(marginals))
        return self._source.exact_counts(marginals)


def rounds_of_selecting_and_measuring(source) -> tuple[list[object], DataGate]:
    noise = SimulatedNoise(3)
    gate = DataGate(source, budget(epsilon=9), neighbours="add-remove", noise=noise, release_id="r")
    outcomes: list[object] = []
    for sets in ([("a",), ("b",)], [("b",), ("a", "b")], [("a",), ("b",), ("a", "b")]):
        score = MarginalError({names: np.zeros(DOMAIN.sizes(names)) for names in sets})
        chosen = gate.select(score, budget(epsilon=1))
        outcomes += [chosen, gate.measure(Query.marginal(*chosen), budget(epsilon=1))[0].values.tolist()]
    return outcomes, gate


def test_a_marginal_is_counted_once_for_all_rounds_and_kept_counts_cannot_change() -> None:
    source = CountedSource()
    _, gate = rounds_of_selecting_and_measuring(source)
    assert source.asked == [[("a",), ("b",)], [("a", "b")]]
    (kept,) = gate._exact_counts([("a", "b")])
    assert np.array_equal(kept, EXACT)
    with pytest.raises(ValueError, match="read-only"):
        kept[0, 0] = 9


def test_counts_that_are_too_many_to_keep_are_counted_again_with_the_same_outcome(monkeypatch) -> None:
    kept, counted_again = CountedSource(), CountedSource()
    expected, _ = rounds_of_selecting_and_measuring(kept)
    monkeypatch.setattr("consilience.privacy.gate.LARGEST_KEPT_COUNTS", 0)
    found, _ = rounds_of_selecting_and_measuring(counted_again)
    assert found == expected
    assert len(counted_again.asked) == 6 > len(kept.asked)


def test_selections_are_kept_under_an_id_of_the_run_and_nothing_else_is() -> None:
    chosen = Measurement(
        Query(()), np.array([1.0, 0.0]), Gumbel(2.0), kind="selections", extra={"selection": {"algorithm": "some"}}
    )
    gate = gate_to()
    (noisy,) = gate.measure(Query.marginal("a"), gate.budget)
    gate.keep(chosen)
    assert [each.kind for each in gate.measurements] == ["linear", "selections"]
    assert gate.measurements[1].id == "r/1.kept"
    assert gate.measurements[1].values.tolist() == [1.0, 0.0]
    with pytest.raises(MeasurementError, match="keeps selections"):
        gate.keep(noisy)
    pricing = PricingGate(DOMAIN, budget(epsilon=1), neighbours="add-remove", rows_per_unit=3)
    pricing.keep(chosen)
    assert [each.kind for each in pricing.kept] == ["selections"]
    with pytest.raises(MeasurementError, match="keeps selections"):
        pricing.keep(noisy)


def test_gates_tell_how_many_rows_a_unit_has() -> None:
    table = pa.table({**ROWS, "person": ["p", "p", "q", "q", "r", "r"]})
    source = open_table(table, DOMAIN, unit="person", max_rows_per_unit=2)
    gate = DataGate(source, budget(epsilon=1), neighbours="add-remove", noise=SimulatedNoise(0), release_id="r")
    assert gate.rows_per_unit == 2
    assert gate_to().rows_per_unit == 1
    assert PricingGate(DOMAIN, budget(epsilon=1), neighbours="add-remove", rows_per_unit=3).rows_per_unit == 3


def test_thousands_of_small_steps_add_up_exactly() -> None:
    account = RunAccount(budget(epsilon=1))
    for _ in range(3000):
        account.charge(budget(epsilon=1).scaled(Fraction(1, 3000)))
    with pytest.raises(BudgetExceeded, match="remains"):
        account.charge(budget(epsilon=1e-6))
