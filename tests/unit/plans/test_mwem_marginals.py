"""MWEM on whole marginals: what a round selects, what it measures, and what it costs."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.reproduce.qardaji2014.expected_errors import marginal_rounds
from consilience.domain import Domain, Query, factors
from consilience.domain.public_facts import PublicFacts
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError, TooLarge
from consilience.measurements import MeasurementSet, PrivacyStatement
from consilience.measuring import PricingGate, measure
from consilience.plans.published.mwem import Mwem
from consilience.privacy.budgets import budget
from consilience.privacy.gate import DataGate
from consilience.privacy.ledger import Ledger
from consilience.privacy.noise import SimulatedNoise
from consilience.privacy.scores import MarginalError
from consilience.source import open_table

ROWS = 600
FLAGS = Domain("flags", Domain.from_sizes(dict.fromkeys("abcde", 2)).attributes, public=PublicFacts(total=ROWS))
RNG = np.random.default_rng(1)
CODES = (RNG.random((ROWS, 5)) < 0.5).astype(int)
CODES[:, 3] = CODES[:, 1] ^ (RNG.random(ROWS) < 0.02)  # b and d say nearly the same
SOURCE = open_table(pa.table({name: CODES[:, i].astype(str) for i, name in enumerate("abcde")}), FLAGS)
PAIRS = Workload.marginals(FLAGS, ways=2)
TABLE = np.zeros(FLAGS.shape)
np.add.at(TABLE, tuple(CODES.T), 1)


def marginal_errors(counts: np.ndarray) -> np.ndarray:
    bounds = [query.bind(FLAGS) for query in PAIRS.queries]
    return np.array([np.abs(bound.answer_full(counts) - bound.answer_full(TABLE)).sum() for bound in bounds])


@pytest.mark.parametrize("amounts", [{"epsilon": 1.0}, {"rho": 0.1}])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_rounds_cost_equal_parts_and_together_the_budget(amounts, relation) -> None:
    gate = PricingGate(FLAGS, budget(**amounts), neighbours=relation, rows_per_unit=1)
    Mwem(PAIRS, rounds=6, candidates="marginals").run(gate)
    parts = [*gate.selections, *(price.budget for price in gate.prices)]
    assert len(parts) == 12
    assert len({part.amount for part in parts}) == 1
    assert float(sum(part.amount for part in parts)) == pytest.approx(float(budget(**amounts).amount), rel=1e-9)
    assert all(price.queries[0].bound.size == 4 for price in gate.prices)


def test_a_whole_marginal_has_the_noise_of_one_answer() -> None:
    whole = measure(SOURCE, Mwem(PAIRS, rounds=5, candidates="marginals"), epsilon=1.0, simulate=0)
    single = measure(SOURCE, Mwem(PAIRS, rounds=5), epsilon=1.0, simulate=0)
    assert [each.values.size for each in whole] == [4] * 5
    assert [each.values.size for each in single] == [1] * 5
    scales = {round(each.noise.scale_parameter, 6) for each in (*whole, *single)}
    assert scales == {10.0}


def test_the_marginal_that_is_estimated_worst_is_selected_first() -> None:
    for seed in range(10):
        measured = measure(SOURCE, Mwem(PAIRS, rounds=1, candidates="marginals"), epsilon=2.0, simulate=seed)
        assert measured.measurements[0].query == Query.marginal("b", "d")
    at_random = {
        measure(SOURCE, Mwem(PAIRS, rounds=1, candidates="marginals"), epsilon=1e-4, simulate=seed)
        .measurements[0]
        .query.describe()
        for seed in range(40)
    }
    assert len(at_random) > 5


def test_a_marginal_that_counts_more_is_selected_sooner() -> None:
    """Only the proportions of weights matter, and no weight raises the sensitivity above 1."""
    pairs = [Query.marginal(*names) for names in itertools.combinations("abcde", 2)]
    heavy = Workload.of(pairs, weights=[1e15 if query.attributes == ("a", "c") else 1.0 for query in pairs])
    measured = measure(SOURCE, Mwem(heavy, rounds=1, candidates="marginals"), epsilon=50.0, simulate=0)
    assert measured.measurements[0].query == Query.marginal("a", "c")
    twice = Workload.of([*pairs, Query.marginal("d", "b")])
    again = measure(SOURCE, Mwem(twice, rounds=1, candidates="marginals"), epsilon=2.0, simulate=0)
    assert again.measurements[0].query == Query.marginal("b", "d")


class Watched:
    """A gate that remembers the estimates that the plan selects with."""

    def __init__(self, gate: DataGate) -> None:
        self.gate, self.domain, self.budget = gate, gate.domain, gate.budget
        self.seen: list[dict[tuple[str, ...], np.ndarray]] = []

    def select(self, score: MarginalError, cost, *, selector):
        self.seen.append({names: np.array(table) for names, table in score.estimates.items()})
        return self.gate.select(score, cost, selector=selector)

    def measure(self, queries, cost, *, shares=None):
        return self.gate.measure(queries, cost, shares=shares)


def test_the_estimator_repeats_what_the_plan_held_in_every_round() -> None:
    gate = DataGate(SOURCE, budget(epsilon=2), neighbours="add-remove", noise=SimulatedNoise(5), release_id="r")
    watched, plan = Watched(gate), Mwem(PAIRS, rounds=6, sweeps=20, candidates="marginals")
    plan.run(watched)  # type: ignore[arg-type]
    assert all(np.ptp(table) < 1e-9 for table in watched.seen[0].values())
    for done in range(1, 6):
        so_far = MeasurementSet(FLAGS, tuple(gate.measurements[:done]), PrivacyStatement(), {}, private=False)
        fitted = plan.estimator().fit(so_far)
        for names, estimate in watched.seen[done].items():
            assert np.array_equal(fitted.marginal(*names), estimate)


def test_precise_rounds_bring_the_table_to_the_truth_and_sweeps_bring_it_nearer() -> None:
    plan = Mwem(PAIRS, rounds=10, candidates="marginals")
    precise = measure(SOURCE, plan, epsilon=1e5, simulate=1)
    uniform = marginal_errors(np.full(FLAGS.shape, ROWS / 32)).max()
    swept = marginal_errors(plan.estimator().fit(precise).counts).max()
    once = marginal_errors(Mwem(PAIRS, sweeps=1).estimator().fit(precise).counts).max()
    assert swept < 0.05 * uniform
    assert swept < once
    average = marginal_errors(Mwem(PAIRS, iterate="average").estimator().fit(precise).counts).max()
    assert swept < average < uniform


def test_the_real_path_replays_what_the_ledger_holds(tmp_path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="flags", total=budget(epsilon=1))
    plan = Mwem(PAIRS, rounds=3, candidates="marginals")
    first = measure(SOURCE, plan, ledger=ledger, epsilon=0.5)
    again = measure(SOURCE, plan, ledger=ledger, epsilon=0.5)
    assert [each.query for each in first] == [each.query for each in again]
    assert [each.values.tolist() for each in first] == [each.values.tolist() for each in again]
    assert str(ledger.spent) == "0.5"


def test_the_rounds_of_the_paper() -> None:
    assert marginal_rounds(9) == 15
    assert [marginal_rounds(d) for d in (1, 2, 16)] == [2, 6, 18]
    with pytest.raises(DeclarationError):
        marginal_rounds(0)


def test_what_is_no_marginal_is_refused() -> None:
    prefixes = Workload.of([Query.marginal("a"), Query.of({"b": factors.Prefix()})])
    with pytest.raises(DeclarationError, match="no marginal"):
        Mwem(prefixes, candidates="marginals")
    with pytest.raises(DeclarationError, match="answers, marginals"):
        Mwem(PAIRS, candidates="tables")  # type: ignore[arg-type]
    single = Domain.from_sizes({"only": 1, "b": 2})
    with pytest.raises(DeclarationError, match="nothing but the total"):
        measure(single, Mwem(Workload.of([Query.marginal("only")]), candidates="marginals"), epsilon=1.0, dry_run=True)


def test_tables_too_large_for_whole_marginals_are_refused() -> None:
    domain = Domain.from_sizes({f"a{i}": 2 for i in range(22)})
    plan = Mwem(Workload.marginals(domain, ways=2), rounds=15, candidates="marginals")
    with pytest.raises(TooLarge, match="15 rounds of up to 4 answers"):
        measure(domain, plan, epsilon=1.0, dry_run=True)


def test_plans_of_single_answers_are_described_as_before() -> None:
    described = Mwem(PAIRS, rounds=3).to_json()
    assert set(described) == {"plan", "workload", "rounds", "sweeps", "total_share", "selector"}
    assert Mwem(PAIRS, rounds=3, candidates="marginals").to_json() == described | {"candidates": "marginals"}
