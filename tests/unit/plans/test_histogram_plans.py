"""What every plan for histograms promises: exact budgets, dry runs, replays, plain data."""

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.measuring import measure
from consilience.plans.base import in_two_parts
from consilience.plans.histogram import Histogram
from consilience.plans.published.histograms import (
    Dawa,
    DawaAsPublished,
    Efpa,
    EfpaAsPublished,
    Php,
    PhpAsPublished,
    Wavelet,
)
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

SIZES = (1, 7, 20)
PLANS = {
    "histogram": Histogram("a"),
    "wavelet": Wavelet(("a",)),
    "efpa": Efpa("a", selection_share=1 / 3),
    "php": Php("a", partition_share=0.37),
    "dawa": Dawa("a", partition_share=1 / 7),
    "dawa all": Dawa("a", intervals="all", branching=3),
    "dawa ranges": Dawa("a", ranges=[("0", "0")]),
    "dawa nested": Dawa("a", intervals="nested", workload=Workload.of(["prefix(a)"])),
    "histogram workload": Histogram("a", workload=Workload.of(["prefix(a)"])),
    "efpa-published": EfpaAsPublished("a", selection_share=1 / 3),
    "php-published": PhpAsPublished("a", partition_share=0.37),
    "dawa-published": DawaAsPublished("a", partition_share=1 / 7),
    "dawa-published all": DawaAsPublished("a", intervals="all", ranges=[("0", "0")]),
}
AMOUNTS = {"epsilon": {"epsilon": 0.7}, "rho": {"rho": 0.3}, "epsilon-delta": {"epsilon": 0.9, "delta": 1e-6}}


def domain_of(size: int) -> Domain:
    return Domain("tiny", (Attribute.numeric("a", [*range(size + 1)]), Attribute.categorical("b", ["x", "y"])))


def source_of(size: int):
    rng = np.random.default_rng(size)
    places = rng.integers(0, size, 300) // 2
    return open_table(pa.table({"a": places, "b": rng.choice(["x", "y"], 300)}), domain_of(size))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("name", PLANS)
def test_steps_add_up_to_the_budget_to_the_last_digit(name: str, amount: str, size: int) -> None:
    shown = measure(domain_of(size), PLANS[name], **AMOUNTS[amount], dry_run=True)
    spent = [price.budget.amount for price in shown.prices] + [each.amount for each in shown.selections]
    assert sum(spent, Decimal(0)) == shown.budget.amount
    assert len(shown.example().measurements) >= 1


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("name", PLANS)
def test_plans_run_under_every_relation_and_unit(name: str, amount: str, neighbours: str) -> None:
    for size in SIZES:
        measured = measure(source_of(size), PLANS[name], **AMOUNTS[amount], neighbours=neighbours, simulate=size)
        assert all(np.isfinite(each.values).all() for each in measured)
    again = measure(source_of(size), PLANS[name], **AMOUNTS[amount], neighbours=neighbours, simulate=size)
    assert [each.values.tolist() for each in measured] == [each.values.tolist() for each in again]


@pytest.mark.parametrize("name", PLANS)
def test_the_ledger_replays_choices_and_values(name: str, tmp_path: Path) -> None:
    source = source_of(7)
    ledger = Ledger.create(tmp_path / "l", dataset="tiny", total=budget(epsilon=1))
    first = measure(source, PLANS[name], ledger=ledger, epsilon=0.6)
    again = measure(source, PLANS[name], ledger=ledger, epsilon=0.6)
    assert [each.query for each in first] == [each.query for each in again]
    assert [each.values.tolist() for each in first] == [each.values.tolist() for each in again]
    assert again.provenance["replayed"]
    assert float(ledger.spent) == 0.6


@pytest.mark.parametrize("name", PLANS)
def test_plans_are_plain_data(name: str) -> None:
    described = PLANS[name].to_json()
    assert json.loads(json.dumps(described)) == described
    assert described["plan"] == name.split()[0]


@pytest.mark.parametrize("name", PLANS)
def test_measured_queries_survive_files(name: str, tmp_path: Path) -> None:
    measured = measure(source_of(20), PLANS[name], epsilon=0.7, simulate=0)
    measured.save(tmp_path / "m.parquet")
    loaded = type(measured).load(tmp_path / "m.parquet")
    assert [each.query for each in loaded] == [each.query for each in measured]


def test_units_with_several_rows_get_more_noise_and_flatter_choices() -> None:
    table = pa.table({"a": [0, 1, 1, 5, 5, 6], "b": ["x"] * 6, "person": [1, 1, 2, 2, 3, 3]})
    bounded = open_table(table, domain_of(7), unit="person", max_rows_per_unit=2)
    for plan in (Php("a", levels=1), Efpa("a", largest=2)):
        two = measure(bounded, plan, epsilon=1.0, simulate=0).measurements[0].noise
        one = measure(open_table(table, domain_of(7)), plan, epsilon=1.0, simulate=0).measurements[0].noise
        assert two.scale_parameter == pytest.approx(2 * one.scale_parameter)


def test_unknown_attributes_are_refused() -> None:
    published = (EfpaAsPublished("z"), PhpAsPublished("z"), DawaAsPublished("z"))
    for plan in (Histogram("z"), Wavelet(("z",)), Efpa("z"), Php("z"), Dawa("z"), *published):
        with pytest.raises(DeclarationError):
            measure(domain_of(7), plan, epsilon=1.0, dry_run=True)


@pytest.mark.parametrize("share", [0.1, 1 / 3, 0.999999, 1e-7])
@pytest.mark.parametrize("whole", [budget(epsilon=1), budget(rho="0.123456789"), budget(epsilon=1, delta=1e-9)])
def test_two_parts_sum_to_the_whole(share: float, whole) -> None:
    first, rest = in_two_parts(whole, share)
    assert first.amount + rest.amount == whole.amount
    assert first.cost_in(whole.unit) + rest.cost_in(whole.unit) == whole.amount


@pytest.mark.slow
@pytest.mark.parametrize("name", ["efpa", "php", "dawa", "wavelet", "histogram"])
def test_large_histograms_are_measured_in_seconds(name: str, tmp_path: Path) -> None:
    size = 2**16
    domain = Domain("large", (Attribute.numeric("a", [*range(size + 1)]),))
    places = np.random.default_rng(0).normal(size / 2, size / 20, 100_000).astype(int)
    source = open_table(pa.table({"a": places}), domain)
    ledger = Ledger.create(tmp_path / "l", dataset="large", total=budget(epsilon=1))
    measured = measure(source, PLANS[name], ledger=ledger, epsilon=1.0)
    assert sum(each.values.size for each in measured) <= 2 * size
