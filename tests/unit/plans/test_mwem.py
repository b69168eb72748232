"""MWEM: what it spends, what it learns, and that nothing but noisy answers leaves it."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Domain, Query, factors
from consilience.domain.public_facts import PublicFacts
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.measurements import MeasurementSet, PrivacyStatement
from consilience.measuring import PricingGate, measure
from consilience.plans.published.mwem import Mwem, balanced_rounds
from consilience.privacy.budgets import budget
from consilience.privacy.gate import DataGate
from consilience.privacy.ledger import Ledger
from consilience.privacy.noise import SimulatedNoise
from consilience.privacy.query_scores import QueryError
from consilience.source import open_table

SIZE = 32
CODES = np.minimum(np.random.default_rng(0).geometric(0.1, 2000) - 1, SIZE - 1)
TRUTH = np.bincount(CODES, minlength=SIZE).astype(float)
HISTOGRAM = Domain.from_sizes({"a": SIZE}, name="histogram")
PUBLIC = Domain("histogram", HISTOGRAM.attributes, public=PublicFacts(total=2000))
RANGES = Workload.of([Query.of({"a": factors.AllRanges()})])

TABLE = Domain("table", Domain.from_sizes({"x": 2, "y": 3, "z": 2}).attributes, public=PublicFacts(total=500))
CELLS = np.random.default_rng(1).integers(0, [2, 3, 2], (500, 3)) * (np.random.default_rng(2).random((500, 3)) < 0.7)
MARGINALS = Workload.of([q for ways in (0, 1, 2) for q, _ in Workload.marginals(TABLE, ways=ways)])


def histogram(domain: Domain = HISTOGRAM):
    return open_table(pa.table({"a": [str(code) for code in CODES]}), domain)


def contingency():
    return open_table(pa.table({name: [str(v) for v in CELLS[:, i]] for i, name in enumerate("xyz")}), TABLE)


def range_errors(counts: np.ndarray) -> np.ndarray:
    bound = RANGES.queries[0].bind(HISTOGRAM)
    return np.abs(bound.answer(counts) - bound.answer(TRUTH))


@pytest.mark.parametrize("amounts", [{"epsilon": 1.0}, {"rho": 0.1}, {"epsilon": 1.0, "delta": 1e-6}])
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_rounds_cost_equal_parts_and_never_more_than_the_budget(amounts, relation) -> None:
    whole = budget(**amounts)
    for workload, domain in ((RANGES, PUBLIC), (MARGINALS, TABLE)):
        gate = PricingGate(domain, whole, neighbours=relation, rows_per_unit=1)
        Mwem(workload, rounds=7).run(gate)
        parts = [*gate.selections, *(price.budget for price in gate.prices)]
        assert len(parts) == 14
        assert len({part.amount for part in parts}) == 1
        assert float(sum(part.amount for part in parts)) == pytest.approx(float(whole.amount), rel=1e-9)
        assert sum(part.amount for part in parts) <= whole.amount


def test_each_answer_has_the_noise_that_its_half_round_buys() -> None:
    measured = measure(histogram(), Mwem(RANGES, rounds=5, total_share=0.1), epsilon=1.0, simulate=0)
    assert [each.values.size for each in measured] == [1] * 6
    assert measured.measurements[0].query == Query(())
    assert measured.measurements[0].noise.scale_parameter == pytest.approx(1 / 0.1)
    for each in measured.measurements[1:]:
        assert each.noise.scale_parameter == pytest.approx(1 / (0.9 / 10))
    moved = measure(histogram(PUBLIC), Mwem(RANGES, rounds=5), epsilon=1.0, neighbours="replace-one", simulate=0)
    assert len(moved) == 5


class Watched:
    """A gate that remembers the estimates that the plan selects with."""

    def __init__(self, gate: DataGate) -> None:
        self.gate, self.domain, self.budget = gate, gate.domain, gate.budget
        self.seen: list[list[np.ndarray]] = []

    def select(self, score: QueryError, cost, *, selector):
        self.seen.append([np.array(each) for each in score.estimates])
        return self.gate.select(score, cost, selector=selector)

    def measure(self, queries, cost, *, shares=None):
        return self.gate.measure(queries, cost, shares=shares)


@pytest.mark.parametrize(("source", "workload"), [(histogram, RANGES), (contingency, MARGINALS)])
def test_the_estimator_repeats_what_the_plan_held_in_every_round(source, workload) -> None:
    opened = source()
    gate = DataGate(opened, budget(epsilon=2), neighbours="add-remove", noise=SimulatedNoise(5), release_id="r")
    watched = Watched(gate)
    plan = Mwem(workload, rounds=6, sweeps=20)
    plan.run(watched)  # type: ignore[arg-type]
    offset = 0 if opened.domain.public.total is not None else 1
    queries = [query for query in workload.queries if query.factors]
    for done, estimates in enumerate(watched.seen):
        so_far = tuple(gate.measurements[: done + offset])
        if done == 0:
            cells = queries[0].bind(opened.domain).answer_full(np.ones(opened.domain.shape))
            assert np.ptp(estimates[0] / cells) < 1e-9
            continue
        fitted = plan.estimator().fit(MeasurementSet(opened.domain, so_far, PrivacyStatement(), {}, private=False))
        for query, estimate in zip(queries, estimates, strict=True):
            assert np.array_equal(query.bind(opened.domain).answer_full(fitted.counts), estimate)


def test_precise_answers_bring_the_table_to_the_truth_and_vague_ones_do_not() -> None:
    uniform = range_errors(np.full(SIZE, 2000 / SIZE)).mean()
    precise = measure(histogram(PUBLIC), Mwem(RANGES, rounds=25), epsilon=1e5, simulate=1)
    vague = measure(histogram(PUBLIC), Mwem(RANGES, rounds=25), epsilon=1e-4, simulate=1)
    fit = Mwem(RANGES).estimator().fit
    assert range_errors(fit(precise).counts).mean() < 0.03 * uniform
    assert range_errors(fit(vague).counts).mean() > 0.3 * uniform


def test_the_largest_error_keeps_the_published_bound() -> None:
    rounds, epsilon = 8, 2.0
    answers = SIZE * (SIZE + 1) // 2
    bound = 2 * 2000 * math.sqrt(math.log(SIZE) / rounds) + 10 * rounds * math.log(answers) / epsilon
    for seed in range(8):
        measured = measure(histogram(PUBLIC), Mwem(RANGES, rounds=rounds), epsilon=epsilon, simulate=seed)
        for iterate in ("average", "last"):
            fitted = Mwem(RANGES, iterate=iterate).estimator().fit(measured)
            assert range_errors(fitted.counts).max() <= bound


def test_selecting_by_error_beats_selecting_at_random() -> None:
    """Two-sided: the rounds learn most where the estimate is worst."""
    rng = np.random.default_rng(3)
    learnt, random = [], []
    for seed in range(10):
        plan = Mwem(RANGES, rounds=4)
        measured = measure(histogram(PUBLIC), plan, epsilon=50.0, simulate=seed)
        learnt.append(range_errors(plan.estimator().fit(measured).counts).mean())
        ends = np.sort(rng.integers(0, SIZE, (4, 2)), axis=1)
        queries = [Query.of({"a": factors.Range(str(low), str(high))}) for low, high in ends]
        gate = DataGate(
            histogram(PUBLIC), budget(epsilon=25), neighbours="add-remove", noise=SimulatedNoise(seed), release_id="r"
        )
        gate.measure(queries, gate.budget)
        blind = MeasurementSet(PUBLIC, tuple(gate.measurements), PrivacyStatement(), {}, private=False)
        random.append(range_errors(plan.estimator().fit(blind).counts).mean())
    assert np.mean(learnt) < 0.6 * np.mean(random)


def test_the_real_path_replays_what_the_ledger_holds(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="table", total=budget(epsilon=1))
    plan = Mwem(MARGINALS, rounds=3)
    first = measure(contingency(), plan, ledger=ledger, epsilon=0.5)
    again = measure(contingency(), plan, ledger=ledger, epsilon=0.5)
    assert first.private
    assert [each.query for each in first] == [each.query for each in again]
    assert [each.values.tolist() for each in first] == [each.values.tolist() for each in again]
    assert str(ledger.spent) == "0.5"


def test_the_range_over_everything_is_never_selected_because_no_noise_could_be_scaled_to_it() -> None:
    tiny = Domain("tiny", Domain.from_sizes({"a": 2}).attributes, public=PublicFacts(total=3))
    source = open_table(pa.table({"a": ["0", "1", "1"]}), tiny)
    for seed in range(20):
        measured = measure(source, Mwem(RANGES, rounds=3), epsilon=0.01, neighbours="replace-one", simulate=seed)
        assert {each.query.describe() for each in measured} <= {"a=0", "a=1"}


def test_the_total_is_measured_when_records_are_replaced_because_rules_may_drop_one() -> None:
    measured = measure(histogram(), Mwem(RANGES, rounds=2), epsilon=1.0, neighbours="replace-one", simulate=0)
    assert measured.measurements[0].query.describe() == "total"


def test_the_number_of_rounds_is_public() -> None:
    one = measure(HISTOGRAM, Mwem(RANGES), epsilon=1.0, dry_run=True)
    assert len(one.selections) == 10
    many = [
        balanced_rounds(budget(epsilon=eps), records=1000, cells=64, candidates=100) for eps in (0.01, 0.1, 1.0, 100.0)
    ]
    assert many == sorted(many)
    assert many[0] == 1
    assert many[-1] == 50
    assert 1 < balanced_rounds(budget(rho=0.05), records=1000, cells=64, candidates=100) < 50

    def bound(rounds: int) -> float:
        return 2 * 1000 * math.sqrt(math.log(64) / rounds) + 10 * rounds * math.log(100) / 1.0

    assert many[2] == min(range(1, 51), key=bound)


def test_what_is_no_plan_is_refused() -> None:
    for options in ({"rounds": 0}, {"sweeps": 0}, {"iterate": "best"}, {"total_share": 1.0}):
        with pytest.raises(DeclarationError):
            Mwem(RANGES, **options)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError):
        Mwem(Workload.of([Query(())]))


def test_plans_are_told_apart_by_what_they_measure() -> None:
    assert Mwem(RANGES).to_json() != Mwem(RANGES, rounds=3).to_json()
    assert Mwem(RANGES, iterate="average").to_json() == Mwem(RANGES).to_json()
