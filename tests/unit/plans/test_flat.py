"""Flat: the total is bought where the cells tell it badly, and earlier requests keep their answers."""

import numpy as np
import pyarrow as pa
import pytest

import consilience as cs
from consilience.domain import Domain, Query
from consilience.domain.public_facts import PublicFacts
from consilience.errors import DeclarationError
from consilience.measuring import measure, price
from consilience.plans.marginals import Flat
from consilience.plans.texts import plan_from_text
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.privacy.measure import charged_elsewhere
from consilience.source import Source, open_table

EPSILON, RHO = budget(epsilon=1.0), budget(rho=0.5)


def source(sizes: dict[str, int], rows: int = 2000) -> Source:
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(0, min(size, 5), rows).astype(str) for name, size in sizes.items()}
    return open_table(pa.table(columns), Domain.from_sizes(sizes, name="flat"))


@pytest.mark.parametrize(("cells", "whole", "bought"), [
    (899, RHO, False), (900, RHO, True), (89_999, EPSILON, False), (90_000, EPSILON, True),
])  # fmt: skip
def test_a_total_is_bought_from_the_size_on_at_which_its_noise_is_a_third(cells, whole, bought):
    domain = Domain.from_sizes({"x": cells})
    assert Flat().buys_total(domain, whole) is bought
    assert not Flat(total_share=0).buys_total(domain, whole)
    assert not Flat().buys_total(Domain("known", domain.attributes, public=PublicFacts(total=5)), whole)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("amounts", [{"epsilon": 1.0}, {"rho": 0.5}])
def test_cells_pay_for_the_total_what_is_said(amounts, relation):
    domain = Domain.from_sizes({"x": 300, "y": 300})
    before, after = (price(domain, plan, **amounts, neighbours=relation) for plan in (Flat(total_share=0), Flat()))
    (cells,) = before.rows()
    total, with_total = after.rows()
    costs = 0.99 if "epsilon" in amounts else np.sqrt(0.99)
    if relation == "replace-one":  # a record that is replaced leaves the total as it is
        assert with_total["scale"] == pytest.approx(cells["scale"], rel=1e-3)
    else:
        assert with_total["scale"] == pytest.approx(cells["scale"] / costs, rel=1e-6)
    assert total["query"] == "total"
    assert 3 * total["stddev"] <= np.sqrt(90_000) * cells["stddev"] * 1.05  # discrete noise of scale 1 has less
    assert any("1 % of the budget measures the total" in note for note in after.notes)
    assert not before.notes


def test_the_total_is_closer_and_the_cells_are_hardly_farther():
    one = source({"x": 100, "y": 100})
    truth = measure(one, Flat(total_share=0), rho=1e9, simulate=0).measurements[0].values.reshape(100, 100)
    errors = {}
    for plan in (Flat(total_share=0), Flat()):
        fits = [cs.estimate(measure(one, plan, rho=0.5, simulate=seed)) for seed in range(8)]
        cells = [np.square(fitted.marginal("x", "y") - truth).mean() for fitted in fits]
        errors[plan.total_share] = np.sqrt(np.mean([(fitted.total - 2000) ** 2 for fitted in fits])), np.mean(cells)
    assert errors[0.01][0] < 0.5 * errors[0][0]
    assert errors[0.01][1] < 1.05 * errors[0][1]


@pytest.mark.parametrize("name", [None, "mine"])
def test_a_request_of_an_earlier_version_is_answered_from_its_ledger(name, tmp_path):
    one = source({"x": 30, "y": 40})
    ledger = Ledger.open(tmp_path / "flat.ledger", rho=1.0)
    first = measure(one, Flat(total_share=0), ledger=ledger, rho=0.5, id=name)
    assert not charged_elsewhere(one, Flat(), ledger, RHO, "add-remove")
    again = measure(one, Flat(), ledger=ledger, rho=0.5, id=name)
    assert again.provenance["replayed"]
    assert again.provenance["release"] == first.provenance["release"]
    assert [each.values.tolist() for each in again] == [each.values.tolist() for each in first]
    assert len(ledger.entries()) == 1
    fresh = measure(one, Flat(), ledger=ledger, rho=0.25, id=None if name is None else "other")
    assert [each.query for each in fresh] == [Query(()), Query.marginal("x", "y")]


def test_a_request_of_its_own_comes_before_an_earlier_one(tmp_path):
    one = source({"x": 30, "y": 40})
    ledger = Ledger.open(tmp_path / "flat.ledger", rho=1.0)
    bought = measure(one, Flat(), ledger=ledger, rho=0.25)
    measure(one, Flat(total_share=0), ledger=ledger, rho=0.25)
    again = measure(one, Flat(), ledger=ledger, rho=0.25)
    assert [each.values.tolist() for each in again] == [each.values.tolist() for each in bought]
    assert len(ledger.entries()) == 2


def test_shares_are_said_in_words_and_odd_ones_refused():
    assert plan_from_text("flat") == Flat()
    assert plan_from_text("flat 0") == Flat(total_share=0)
    assert plan_from_text("flat 0.02") == Flat(total_share=0.02)
    assert Flat().to_json() == {"plan": "flat", "total_share": 0.01}
    for text in ("flat much", "flat 1", "flat -1"):
        with pytest.raises(DeclarationError, match=r"flat|share"):
            plan_from_text(text)
