"""`measure`: checked before it spends, charged once, replayed for ever."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Domain
from consilience.errors import BudgetExceeded, ConsilienceError, DeclarationError, LedgerError
from consilience.measuring import measure
from consilience.plans import Direct, Flat, Histogram, Marginals
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

DOMAIN = Domain.from_sizes({"a": 3, "b": 2, "c": 5}, name="tiny")


@pytest.fixture
def source():
    rng = np.random.default_rng(0)
    columns = {name: [str(v) for v in rng.integers(0, DOMAIN[name].size, 500)] for name in DOMAIN.names}
    return open_table(pa.table(columns), DOMAIN)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "tiny.ledger", dataset="tiny", total=budget(epsilon=1))


def test_repeating_a_request_returns_the_same_values_uncharged(source, ledger) -> None:
    first = measure(source, Direct(ways=2), ledger=ledger, epsilon=0.4)
    again = measure(source, Direct(ways=2), ledger=ledger, epsilon=0.4)
    assert [a.values.tolist() for a in first] == [b.values.tolist() for b in again]
    assert float(ledger.spent) == 0.4
    fresh = measure(source, Direct(ways=2), ledger=ledger, epsilon=0.4, id="fresh")
    assert any(a.values.tolist() != b.values.tolist() for a, b in zip(first, fresh, strict=True))
    assert float(ledger.spent) == 0.8
    with pytest.raises(BudgetExceeded):
        measure(source, Direct(ways=2), ledger=ledger, epsilon=0.4, id="third")
    assert float(ledger.spent) == 0.8


@pytest.mark.parametrize(
    "changed", [{"plan": Flat()}, {"epsilon": 0.3}, {"neighbours": "replace-one"}], ids=["plan", "budget", "neighbours"]
)
def test_the_same_id_with_other_contents_is_refused(source, ledger, changed) -> None:
    request = {"plan": Direct(ways=1), "epsilon": 0.2, "neighbours": "add-remove"}
    measure(source, ledger=ledger, id="release-1", **request)
    with pytest.raises(LedgerError, match="release-1"):
        measure(source, ledger=ledger, id="release-1", **(request | changed))
    assert float(ledger.spent) == 0.2


def test_a_biased_sampler_is_refused_before_the_data_and_the_ledger_are_touched(source, ledger, monkeypatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", {"opendp": "0.14.1", "consilience": "0.1.0"}.__getitem__)
    monkeypatch.setattr(type(source), "exact_counts", lambda *_, **__: pytest.fail("the data was touched"))
    before = ledger.path.read_bytes()
    with pytest.raises(ConsilienceError, match=r"opendp 0\.14\.1"):
        measure(source, Direct(ways=1), ledger=ledger, epsilon=0.5, id="release-1")
    assert not ledger.knows("release-1")
    assert float(ledger.spent) == 0
    assert ledger.path.read_bytes() == before


def test_a_dry_run_touches_neither_data_nor_ledger(source, ledger, monkeypatch) -> None:
    monkeypatch.setattr(type(source), "exact_counts", lambda *_, **__: pytest.fail("the data was touched"))
    shown = measure(source, Direct(ways=2), ledger=ledger, epsilon=0.5, dry_run=True)
    assert shown.answers == 3 * 2 + 3 * 5 + 2 * 5
    assert [row["scale"] for row in shown.rows()] == pytest.approx([6.0] * 3)
    assert float(ledger.spent) == 0
    assert measure(DOMAIN, Direct(ways=2), rho=0.1, dry_run=True).answers == shown.answers


def test_every_mistake_in_the_request_costs_nothing(source, ledger) -> None:
    mistakes = [
        {"plan": Marginals([("a", "z")]), "epsilon": 0.1},
        {"plan": Histogram("z"), "epsilon": 0.1},
        {"plan": Flat(), "epsilon": 0.0},
        {"plan": Flat(), "epsilon": -1.0},
        {"plan": Flat(), "epsilon": float("nan")},
        {"plan": Flat()},
        {"plan": Flat(), "epsilon": 0.1, "rho": 0.1},
        {"plan": Flat(), "delta": 0.1},
        {"plan": Flat(), "epsilon": 0.1, "neighbours": "nearby"},
        {"plan": Flat(), "epsilon": 0.1, "simulate": 1},
        {"plan": Flat(), "rho": 0.1},
        {"plan": Flat(), "epsilon": 2.0},
    ]
    for mistake in mistakes:
        with pytest.raises(ConsilienceError):
            measure(source, ledger=ledger, **mistake)
    assert float(ledger.spent) == 0


def test_a_ledger_of_another_dataset_is_refused(source, tmp_path) -> None:
    other = Ledger.create(tmp_path / "other", dataset="other", total=budget(epsilon=1))
    with pytest.raises(LedgerError, match="other"):
        measure(source, Flat(), ledger=other, epsilon=0.1)


def test_measuring_without_a_ledger_is_refused(source) -> None:
    with pytest.raises(LedgerError, match="needs a ledger"):
        measure(source, Flat(), epsilon=0.1)


def test_simulated_noise_is_stamped_and_repeatable(source) -> None:
    one = measure(source, Flat(), epsilon=1.0, simulate=7)
    two = measure(source, Flat(), epsilon=1.0, simulate=7)
    assert not one.private
    assert one.provenance["simulation_seed"] == 7
    assert [m.values.tolist() for m in one] == [m.values.tolist() for m in two]


def test_the_statement_says_what_was_spent_and_relied_on(ledger) -> None:
    public = Domain.from_declaration(DOMAIN.to_declaration() | {"public": {"total": 3}})
    source = open_table(pa.table({name: ["0", "1", "1"] for name in DOMAIN.names}), public)
    measured = measure(source, Flat(), ledger=ledger, epsilon=0.25)
    assert measured.privacy.neighbours == "add-remove"
    assert measured.privacy.spent == {"epsilon": "0.25"}
    assert measured.privacy.public_facts == ("the exact total",)
    assert measured.private


def test_units_with_several_rows_get_more_noise(tmp_path) -> None:
    table = pa.table({"a": ["0"] * 6, "b": ["0"] * 6, "c": ["0"] * 6, "person": [1, 1, 1, 2, 2, 3]})
    source = open_table(table, DOMAIN, unit="person", max_rows_per_unit=2)
    single = open_table(table, DOMAIN)
    bounded = measure(source, Flat(), epsilon=1.0, simulate=0)
    plain = measure(single, Flat(), epsilon=1.0, simulate=0)
    assert bounded.measurements[0].noise.scale == pytest.approx(2 * plain.measurements[0].noise.scale)
    assert "person" in bounded.privacy.unit


def test_histogram_levels_share_the_budget(source) -> None:
    uniform = measure(source, Histogram("c", branching=2), epsilon=1.0, dry_run=True)
    assert [each.bound.size for p in uniform.prices for each in p.queries] == [1, 2, 3, 5]
    assert [row["scale"] for row in uniform.rows()] == pytest.approx([4.0] * 4)
    geometric = measure(source, Histogram("c", branching=2, level_budgets="geometric"), epsilon=1.0, dry_run=True)
    scales = [row["scale"] for row in geometric.rows()]
    assert np.allclose(np.array(scales[:-1]) / np.array(scales[1:]), 2 ** (1 / 3))
    assert sum(1 / scale for scale in scales) == pytest.approx(1.0)


def test_bad_plans_are_refused_when_they_are_made() -> None:
    for make in (
        lambda: Marginals([]),
        lambda: Histogram("a", branching=1),
        lambda: Histogram("a", level_budgets="linear"),  # type: ignore[arg-type]
    ):
        with pytest.raises(DeclarationError):
            make()


def test_a_request_that_another_process_begins_with_the_last_of_the_budget_is_not_refused(
    source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look for its id and that at the budget the same request is made elsewhere: its values come back."""
    ledger = Ledger.create(tmp_path / "last.ledger", dataset=source.domain.name, total=budget(epsilon=0.5))
    plan, first = Marginals(source.domain.names[:1]), []
    check = Ledger.check

    def check_late(book: Ledger, *arguments, **options) -> None:
        if not first:
            first.append(None)
            first.append(measure(source, plan, ledger=ledger, epsilon=0.5, id="same"))
        check(book, *arguments, **options)

    monkeypatch.setattr(Ledger, "check", check_late)
    second = measure(source, plan, ledger=ledger, epsilon=0.5, id="same")
    assert second.provenance["replayed"]
    assert second.measurements[0].values.tolist() == first[1].measurements[0].values.tolist()
    with pytest.raises(BudgetExceeded):
        measure(source, plan, ledger=ledger, epsilon=0.5, id="other")
