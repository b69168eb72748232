"""Ledgers of format 1 stay readable for ever: they hold what they held, and answer what they answered."""

import shutil
from decimal import Decimal
from pathlib import Path

import pytest

from consilience.domain import Domain, Query
from consilience.errors import LedgerError
from consilience.measuring import measure
from consilience.plans import Flat, Marginals
from consilience.privacy.gate import Gate
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

GOLDEN = Path(__file__).parents[2] / "golden"
DATA = str(GOLDEN / "data" / "town.csv")
PLAN = Marginals(["age", ("sex", "district")])
RHO_OF_APPROXIMATE = "0.0066415243566605020279"

HELD = {
    "epsilon": ("epsilon 1", "0.75", "0.25"),
    "rho": ("rho 0.5", "0.125", "0.375"),
    "epsilon-delta": ("epsilon 1, delta 1e-6 (rho 0.02436)", RHO_OF_APPROXIMATE, None),
    "mixed-units": ("rho 0.5", "0.2566415243566605020279", "0.2433584756433394979721"),
    "mixed-protection": ("epsilon 2", "1.5", "0.5"),
    "dead": ("epsilon 2", "0.75", "1.25"),
    "unbound": ("epsilon 1", "0", "1"),
}

ENTRIES = {
    "epsilon": [("request-8beba993098219ed", "0.5", "committed"), ("second", "0.25", "committed")],
    "rho": [("request-792f15b37db371b3", "0.125", "committed")],
    "epsilon-delta": [("request-75ed114404847c18", RHO_OF_APPROXIMATE, "committed")],
    "mixed-units": [
        ("request-792f15b37db371b3", "0.125", "committed"),
        ("request-8beba993098219ed", "0.125", "committed"),
        ("approximate", RHO_OF_APPROXIMATE, "committed"),
    ],
    "mixed-protection": [(name, "0.5", "committed") for name in ("rows", "people", "replaced")],
    "dead": [("request-8beba993098219ed", "0.5", "committed"), ("dead", "0.25", "reserved")],
    "unbound": [],
}

EPSILON, RHO, APPROXIMATE = {"epsilon": 0.5}, {"rho": 0.125}, {"epsilon": 0.5, "delta": 1e-6}
REPLACED = {"epsilon": 0.5, "neighbours": "replace-one", "id": "replaced"}
RECORDED = [
    ("epsilon", PLAN, EPSILON, [[9, 29, 22], [21, 2, 4, 12, 5, 20]]),
    (
        "epsilon",
        Flat(),
        {"epsilon": 0.25, "id": "second"},
        [[4, 0, 6, 3, -10, 10, 11, 11, 5, 12, 5, 4, -1, 2, 3, 7, 4, 2]],
    ),
    ("rho", PLAN, RHO, [[15, 31, 21], [16, 6, 12, 11, 10, 14]]),
    ("epsilon-delta", PLAN, APPROXIMATE, [[1, 46, 23], [17, -14, -24, 19, 23, 9]]),
    ("mixed-units", PLAN, RHO, [[11, 26, 23], [12, 6, 8, 16, 9, 8]]),
    ("mixed-units", PLAN, EPSILON, [[11, 23, 30], [20, 7, 33, 15, 5, 10]]),
    ("mixed-units", PLAN, APPROXIMATE | {"id": "approximate"}, [[0, 11, 25], [15, -11, 17, 30, 17, 32]]),
    ("mixed-protection", PLAN, EPSILON | {"id": "rows"}, [[9, 30, 17], [7, 7, 9, 20, 14, 19]]),
    ("mixed-protection", PLAN, EPSILON | {"id": "people"}, [[10, 29, 18], [11, 1, -9, -8, 33, 21]]),
    ("mixed-protection", PLAN, REPLACED, [[8, 39, 9], [31, 7, 10, 41, 7, 19]]),
    ("dead", PLAN, EPSILON, [[9, 28, 16], [-22, 12, 13, 1, 1, 18]]),
]


def opened(name: str, folder: Path) -> Ledger:
    """A copy of a golden ledger: the first write may bring it up to date."""
    return Ledger.open(shutil.copy(GOLDEN / "ledgers" / f"{name}.ledger", folder))


def town(*, unit: str | None = None):
    domain = Domain.load(GOLDEN / "domains" / "town.toml")
    return open_table(DATA, domain, unit=unit, max_rows_per_unit=None if unit is None else 3)


def test_every_golden_ledger_is_tested_here() -> None:
    assert {path.stem for path in (GOLDEN / "ledgers").iterdir()} == set(HELD) == set(ENTRIES)


@pytest.mark.parametrize("name", HELD)
def test_ledgers_hold_what_they_held(name: str, tmp_path: Path) -> None:
    ledger = opened(name, tmp_path)
    total, spent, remaining = HELD[name]
    assert ledger.dataset == (None if name == "unbound" else "town")
    assert ledger.total.describe() == total
    assert ledger.spent == Decimal(spent)
    assert ledger.remaining == (Decimal(remaining) if remaining else ledger.total.amount - ledger.spent)
    assert [(each.id, str(each.cost), each.state) for each in ledger.entries()] == ENTRIES[name]


@pytest.mark.parametrize(("name", "plan", "request_", "values"), RECORDED)
def test_recorded_requests_are_answered_and_cost_nothing(name, plan, request_, values, tmp_path: Path) -> None:
    ledger = opened(name, tmp_path)
    spent = ledger.spent
    source = town(unit="person" if request_.get("id") == "people" else None)
    found = measure(source, plan, ledger=ledger, **request_)
    assert found.provenance["replayed"] is True
    assert [each.values.tolist() for each in found] == values
    assert ledger.spent == spent


class TwoSteps:
    """The plan of the process that was killed."""

    def run(self, gate: Gate) -> None:
        half = gate.budget.scaled(0.5)
        gate.measure([Query.marginal("sex")], half)
        gate.measure([Query.marginal("district")], half)

    def to_json(self) -> dict[str, str]:
        return {"plan": "two steps"}


def test_a_dead_reservation_is_finished_with_its_recorded_step_and_costs_nothing(tmp_path: Path) -> None:
    ledger = opened("dead", tmp_path)
    with pytest.raises(LedgerError, match="take_over"):
        measure(town(), TwoSteps(), ledger=ledger, epsilon=0.25, id="dead")
    found = measure(town(), TwoSteps(), ledger=ledger, epsilon=0.25, id="dead", take_over=True)
    assert found.measurements[0].values.tolist() == [14, 41, 11]
    assert [each.state for each in ledger.entries()] == ["committed", "committed"]
    assert ledger.spent == Decimal("0.75")


def test_a_ledger_of_format_1_can_be_charged_on(tmp_path: Path) -> None:
    ledger = opened("epsilon", tmp_path)
    measure(town(), PLAN, ledger=ledger, epsilon=0.125)
    assert ledger.spent == Decimal("0.875")
    assert Ledger.open(ledger.path).remaining == Decimal("0.125")


def test_a_ledger_without_a_dataset_belongs_to_the_first(tmp_path: Path) -> None:
    ledger = opened("unbound", tmp_path)
    measure(town(), PLAN, ledger=ledger, epsilon=0.125)
    assert ledger.dataset == "town"
