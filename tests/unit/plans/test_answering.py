"""Workloads that an account could not answer are refused before anything is spent, and plans choose none of them."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Domain, Query
from consilience.domain.workloads import Workload
from consilience.errors import TooLarge
from consilience.measurements import MeasurementSet
from consilience.measuring import measure
from consilience.models import elimination_plans
from consilience.models.junction_trees import junction_tree
from consilience.plans.aim import Aim
from consilience.plans.answering import (
    CAREFUL,
    AnswersWorkload,
    _most_work,
    answering_sizes,
    answering_work,
    asked_queries,
)
from consilience.plans.best_buy import BestBuy
from consilience.plans.chosen import chosen_plan
from consilience.plans.forest import Forest, Independent, Mst
from consilience.plans.published.privbayes import PrivBayes
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import Source, open_table

HUB = Domain.from_sizes({"hub": 48, "a": 8, "b": 8, "c": 8}, name="hub")
"""By way of the hub, the marginal of the other three takes 48 · 512 steps."""
ASKED = Workload.of([Query.marginal("a", "b", "c"), *(Query.marginal("hub", name) for name in "abc")])
LARGE = Domain.from_sizes(dict.fromkeys("abcd", 200), name="large")
TOO_MUCH = Workload.of([Query.marginal("a", "b"), Query.marginal("a", "b", "c", "d"), Query.marginal("a", "b", "c")])


def hub_source() -> Source:
    hub = np.random.default_rng(0).integers(0, 48, 20_000)
    columns = {"hub": hub, "a": hub % 8, "b": (hub // 8 + 3 * hub) % 8, "c": (hub // 6 + hub * hub) % 8}
    return open_table(pa.table({name: codes.astype(str) for name, codes in columns.items()}), HUB)


def large_source() -> Source:
    return open_table(pa.table({name: ["1", "2"] * 50 for name in "abcd"}), LARGE)


def work_of(measured: MeasurementSet, names: tuple[str, ...]) -> int:
    places = {name: place for place, name in enumerate(measured.domain.counted_names)}
    scopes = [tuple(sorted(places[name] for name in each.query.attributes)) for each in measured]
    return answering_work(junction_tree(measured.domain.shape, scopes), frozenset(places[name] for name in names))


@pytest.mark.parametrize("seed", range(20))
def test_no_forest_takes_more_than_the_bound(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 40, 8)
    domain = Domain.from_sizes({f"x{place}": int(size) for place, size in enumerate(sizes)})
    order = rng.permutation(8)
    scopes = [tuple(sorted((int(order[i]), int(order[rng.integers(0, i)])))) for i in range(1, 8)]
    tree = junction_tree(domain.shape, scopes)
    for ways, asked in itertools.product((2, 3, 4), range(5)):
        chosen = np.random.default_rng(asked).choice(8, ways, replace=False)
        names = tuple(f"x{place}" for place in chosen)
        assert answering_work(tree, frozenset(map(int, chosen))) <= CAREFUL * _most_work(names, domain)


@pytest.mark.parametrize(
    "plan",
    [Forest(ASKED, care=0), Mst(ASKED), PrivBayes(degree=1, root="hub", workload=ASKED)],
    ids=["forest", "mst", "privbayes"],
)
def test_nothing_is_selected_that_makes_a_query_take_hours(plan, monkeypatch):
    source = hub_source()
    assert work_of(measure(source, plan, epsilon=50.0, simulate=1), ("a", "b", "c")) > 20_000
    monkeypatch.setattr(elimination_plans, "ELIMINATION", elimination_plans.EliminationSettings(most_work=20_000))
    measured = measure(source, plan, epsilon=50.0, simulate=1)
    assert work_of(measured, ("a", "b", "c")) <= 20_000
    assert sum(len(each.query.attributes) > 1 for each in measured) > 1


def test_forests_of_usual_sizes_are_not_looked_at_again():
    domain = Domain.from_sizes({f"x{place}": 100 for place in range(50)})
    assert answering_sizes(Workload.marginals(domain, ways=3), domain) is None
    assert answering_sizes(None, domain) is None
    wide = Domain.from_sizes(dict.fromkeys("abcd", 400) | {"hub": 3000})
    assert answering_sizes(Workload.of([Query.marginal("a", "b", "c")]), wide) is not None


PLANS = {
    "aim": Aim(TOO_MUCH),
    "best-buy": BestBuy(TOO_MUCH),
    "forest": Forest(TOO_MUCH),
    "independent": Independent(TOO_MUCH),
    "mst": Mst(TOO_MUCH),
    "privbayes": PrivBayes(workload=TOO_MUCH),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_workload_that_could_not_be_answered_is_refused_before_anything_is_spent(name, tmp_path):
    ledger = Ledger.open(tmp_path / "large.ledger", epsilon=1.0)
    source = large_source()
    ways: list[dict[str, Any]] = [{"ledger": ledger}, {"simulate": 1}]
    for options in ways:
        with pytest.raises(TooLarge, match=r"1 of 3 queries.*'a, b, c, d' asks for 1,600,000,000.*fewer attributes"):
            measure(source, PLANS[name], epsilon=0.5, **options)
    assert not ledger.entries()
    assert measure(source, PLANS[name], epsilon=0.5, dry_run=True).answers > 0


def test_a_request_that_was_recorded_before_still_answers(tmp_path, monkeypatch):
    ledger = Ledger.open(tmp_path / "large.ledger", epsilon=1.0)
    source, plan = large_source(), Independent(TOO_MUCH)
    with monkeypatch.context() as earlier:
        earlier.setattr(AnswersWorkload, "check_answers", lambda _plan, _example: None)
        first = measure(source, plan, ledger=ledger, epsilon=0.5)
    again = measure(source, plan, ledger=ledger, epsilon=0.5)
    assert [each.values.tolist() for each in again] == [each.values.tolist() for each in first]


def test_what_was_added_to_a_chosen_plan_leaves_its_workload_in_force():
    domain = Domain.from_sizes(dict.fromkeys("abcde", 200), name="large")
    plan, _ = chosen_plan(domain, TOO_MUCH, budget(epsilon=1.0))
    source = open_table(pa.table({name: ["1", "2"] * 50 for name in "abcde"}), domain)
    with pytest.raises(TooLarge, match="Nothing was spent"):
        measure(source, plan, epsilon=1.0, simulate=1)


def test_all_marginals_are_asked_for_by_their_largest():
    domain = Domain.from_sizes({"a": 2, "b": 5, "c": 3})
    assert asked_queries(Aim(ways=2), domain) == (Query.marginal("b", "c"),)
    assert asked_queries(PrivBayes(), domain) == ()


def test_a_network_that_is_asked_nothing_is_the_request_it_was():
    assert "workload" not in PrivBayes().to_json()
    assert PrivBayes(workload=ASKED).to_json()["workload"] == ASKED.to_json()
