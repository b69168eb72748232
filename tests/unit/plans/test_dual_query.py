"""DualQuery: what each draw costs, what the draws leave behind, and that nothing else of the data leaves it."""

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.problems.selection_laws import selection_probabilities
from consilience.domain import Domain, Query, factors
from consilience.domain.answer_sets import AnswerSets
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.public_facts import PublicFacts, PublicMargin
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators.published.dual_query import DualQueryRun
from consilience.measuring import PricingGate, measure
from consilience.plans.published.dual_query import SCHEDULES, DualQuery, bought_rate, draw_costs, schedule
from consilience.privacy.budgets import budget
from consilience.privacy.gate import DataGate
from consilience.privacy.ledger import Ledger
from consilience.privacy.noise import SimulatedNoise
from consilience.privacy.query_scores import DualScore
from consilience.privacy.scores import epsilon_for_rho
from consilience.source import open_table

PLAIN = Domain.from_sizes({"x": 2, "y": 3, "z": 2}, name="table")
PUBLIC = Domain("table", PLAIN.attributes, public=PublicFacts(total=400))
CODES = np.random.default_rng(1).integers(0, [2, 3, 2], (400, 3)) * (np.random.default_rng(2).random((400, 3)) < 0.6)
WORKLOAD = Workload.of(
    [Query.marginal("x", "y"), Query.of({"y": factors.Prefix(), "z": factors.Identity()}), Query(())]
)


def source(domain: Domain = PUBLIC, codes: np.ndarray = CODES, **options):
    table = pa.table({name: [str(v) for v in codes[:, i]] for i, name in enumerate("xyz")})
    if options:
        table = table.append_column("person", pa.array([str(i // 2) for i in range(len(codes))]))
    return open_table(table, domain, **options)


@pytest.mark.parametrize("amounts", [{"epsilon": 1.0}, {"rho": 0.1}, {"epsilon": 1.0, "delta": 1e-6}])
@pytest.mark.parametrize("domain", [PLAIN, PUBLIC])
@pytest.mark.parametrize("options", [{}, {"rounds": 9, "draws": 4}])
def test_draws_cost_what_the_budget_holds_and_never_more(amounts, domain, options) -> None:
    whole = budget(**amounts)
    gate = PricingGate(domain, whole, neighbours="replace-one", rows_per_unit=1)
    DualQuery(WORKLOAD, **options).run(gate)
    spent = sum(each.amount for each in [*gate.selections, *(price.budget for price in gate.prices)])
    assert spent <= whole.amount
    assert float(spent) == pytest.approx(float(whole.amount), rel=1e-9)
    if options:
        assert len(gate.selections) == 8 * 4
        power = 1 if whole.unit == "epsilon" else 2
        costs = np.array([float(each.amount) for each in gate.selections]).reshape(8, 4)
        np.testing.assert_allclose(costs / costs[0, 0], np.arange(1, 9)[:, None] ** power * np.ones(4), rtol=1e-9)


class Watched:
    """A gate that remembers what was selected by, and at what price."""

    def __init__(self, gate: DataGate) -> None:
        self.gate, self.domain, self.budget, self.measurements = gate, gate.domain, gate.budget, gate.measurements
        self.rows_per_unit, self.keep = gate.rows_per_unit, gate.keep
        self.seen: list[tuple[DualScore, float, int]] = []

    def select(self, score: DualScore, cost, *, selector):
        assert selector == "exponential"
        chosen = self.gate.select(score, cost, selector=selector)
        amount = float(cost.amount)
        epsilon = amount if cost.additive_unit == "epsilon" else epsilon_for_rho(amount, "exponential")
        self.seen.append((score, epsilon, chosen))
        return chosen

    def measure(self, queries, cost, *, shares=None):
        return self.gate.measure(queries, cost, shares=shares)


def watched_run(plan: DualQuery, whole, *, seed: int = 0, codes: np.ndarray = CODES) -> Watched:
    gate = DataGate(source(codes=codes), whole, neighbours="replace-one", noise=SimulatedNoise(seed), release_id="r")
    watched = Watched(gate)
    plan.run(watched)  # type: ignore[arg-type]
    return watched


@pytest.mark.parametrize("amounts", [{"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-3}])
def test_the_learning_rate_is_the_same_in_every_round_and_the_result_knows_it(amounts) -> None:
    watched = watched_run(DualQuery(WORKLOAD, rounds=8, draws=3), budget(**amounts))
    rates = [400 * epsilon / (2 * score.found) for score, epsilon, _ in watched.seen]
    (draws,) = watched.measurements
    assert rates == pytest.approx([400 / draws.noise.scale_parameter] * 21, rel=1e-12)
    pure = "delta" not in amounts
    assert rates[0] == pytest.approx(bought_rate(float(watched.budget.amount), 3, 8, 400.0, pure=pure), rel=1e-9)
    assert draws.values.tolist() == [float(chosen) for _, _, chosen in watched.seen]


class Spied(SimulatedNoise):
    """Noise that remembers its scales."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.scales: list[float] = []

    def noisy_argmax(self, scores, scale, *, law):
        self.scales.append(scale)
        return super().noisy_argmax(scores, scale, law=law)


@pytest.mark.parametrize("options", [{}, {"unit": "person", "max_rows_per_unit": 2}])
@pytest.mark.parametrize("amounts", [{"epsilon": 1.0}, {"rho": 0.05}])
def test_the_scale_that_is_kept_is_the_one_that_every_draw_had(options, amounts) -> None:
    noise = Spied(0)
    gate = DataGate(source(**options), budget(**amounts), neighbours="replace-one", noise=noise, release_id="r")
    DualQuery(WORKLOAD, rounds=8, draws=3).run(gate)
    (draws,) = gate.measurements
    assert noise.scales == pytest.approx([draws.noise.scale_parameter] * 21, rel=1e-12)


def test_each_score_counts_the_records_found_before_it() -> None:
    watched = watched_run(DualQuery(WORKLOAD, rounds=8, draws=3), budget(epsilon=1.0))
    found = np.array(watched.measurements[0].extra["selection"]["found"])
    sets = AnswerSets(Workload.of(WORKLOAD.queries[:2]), PUBLIC)
    for place, (score, _, _) in enumerate(watched.seen):
        k = 1 + place // 3
        assert score.found == k
        assert score.records == 400
        assert score.held.tolist() == np.sum([sets.holding(codes) for codes in found[:k]], axis=0).tolist()


def test_each_record_is_in_as_few_of_the_drawn_sets_as_any_record() -> None:
    watched = watched_run(DualQuery(WORKLOAD, rounds=12, draws=5), budget(epsilon=1.0))
    described = watched.measurements[0].extra["selection"]
    sets = AnswerSets(Workload.of(WORKLOAD.queries[:2]), PUBLIC)
    drawn = watched.measurements[0].values.astype(int).reshape(11, 5)

    def inside(codes, places) -> int:
        held = sets.holding(codes)
        return sum(int(held[p]) if p < len(sets) else 1 - int(held[p - len(sets)]) for p in places)

    for places, codes in zip(drawn, described["found"][1:], strict=True):
        assert inside(codes, places) == min(inside(other, places) for other in np.ndindex(2, 3, 2))


@pytest.mark.parametrize("amounts", [{"epsilon": 0.8}, {"rho": 0.02}])
def test_the_draws_tell_neighbours_apart_by_no_more_than_the_budget_and_with_half_the_noise_by_more(amounts) -> None:
    """On transcripts of 20 tables: the exact law of every draw, compared with that of the neighbouring table."""
    whole = budget(**amounts)
    rng = np.random.default_rng(0)
    domain = Domain("table", PLAIN.attributes, public=PublicFacts(total=12))
    losses: dict[float, list[float]] = {1.0: [], 2.0: []}
    for trial in range(20):
        codes = rng.integers(0, [2, 3, 2], (12, 3))
        other = codes.copy()
        other[0] = [1, 2, 1] - codes[0]
        tables = [source(domain, each) for each in (codes, other)]
        gate = DataGate(tables[0], whole, neighbours="replace-one", noise=SimulatedNoise(trial), release_id="r")
        watched = Watched(gate)
        DualQuery(WORKLOAD, rounds=4, draws=3, seed=trial).run(watched)  # type: ignore[arg-type]
        counts = [each.exact_counts(list(watched.seen[0][0].marginals)) for each in tables]
        for factor, found in losses.items():
            laws = [[_law(score, exact, factor * epsilon) for exact in counts] for score, epsilon, _ in watched.seen]
            found.append(sum(_largest_ratio(*pair) if "epsilon" in amounts else _rho(*pair) for pair in laws))
    assert max(losses[1.0]) <= float(whole.amount) * (1 + 1e-9)
    assert max(losses[2.0]) > float(whole.amount)


def _law(score: DualScore, exact: list[np.ndarray], epsilon: float) -> np.ndarray:
    """The probability of every outcome of one draw."""
    return selection_probabilities(
        score.values(exact), sensitivity=score.sensitivity("replace-one"), epsilon=epsilon, selector="exponential"
    )


def _largest_ratio(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(np.log(one / other)).max())


def _rho(one: np.ndarray, other: np.ndarray) -> float:
    """The least ρ with D_α(one ‖ other) ≤ ρα at some orders α."""
    orders = (1.5, 2.0, 4.0, 16.0)
    return max(math.log(float((one**a * other ** (1 - a)).sum())) / (a - 1) / a for a in orders)


def test_a_run_is_charged_once_and_replayed_from_the_ledger(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="table", total=budget(epsilon=1, delta=1e-3))
    plan = DualQuery(WORKLOAD, rounds=5, draws=3)
    amounts = {"ledger": ledger, "epsilon": 0.5, "delta": 5e-4}
    first = measure(source(), plan, **amounts)
    again = measure(source(), plan, **amounts)
    assert first.private
    assert first.measurements == again.measurements
    assert ledger.spent == budget(epsilon=0.5, delta=5e-4).amount
    run = DualQueryRun.of(first)
    assert run.drawn.shape == (4, 3)
    assert run.found.shape == (5, 3)


def test_runs_are_repeatable_and_depend_on_their_seed() -> None:
    plan = DualQuery(WORKLOAD, rounds=6, draws=3)
    one, same = (measure(source(), plan, epsilon=1.0, simulate=4) for _ in range(2))
    assert one.measurements == same.measurements
    other = measure(source(), DualQuery(WORKLOAD, rounds=6, draws=3, seed=1), epsilon=1.0, simulate=4)
    assert one.measurements != other.measurements
    assert plan.to_json() != DualQuery(WORKLOAD, rounds=6, draws=3, seed=1).to_json()


@pytest.mark.slow
def test_a_large_budget_finds_records_like_the_data_and_a_small_one_does_not() -> None:
    exact = [query.bind(PUBLIC) for query in WORKLOAD.queries[:2]]
    table = np.zeros((2, 3, 2))
    np.add.at(table, tuple(CODES.T), 1.0)

    def error(epsilon: float) -> float:
        measured = measure(source(), DualQuery(WORKLOAD, rounds=40, draws=20), epsilon=epsilon, simulate=0)
        fitted = DualQuery(WORKLOAD).estimator().fit(measured)
        return float(np.mean([np.abs(b.answer_full(table) - fitted.answer(b.query)).sum() / 800 for b in exact]))

    assert error(1000.0) < 0.06
    assert error(0.001) > 0.15


def test_the_total_is_measured_where_it_is_not_public() -> None:
    measured = measure(source(PLAIN), DualQuery(WORKLOAD, rounds=5, draws=3, total_share=0.2), epsilon=1.0, simulate=0)
    total, draws = measured.measurements
    assert total.query == Query(())
    assert total.noise.scale_parameter == pytest.approx(1 / 0.2)
    assert draws.extra["selection"]["records"] == max(1, round(float(total.values[0])))


def test_records_respect_impossible_cells() -> None:
    rule = ImpossibleCells((("x", (0,)), ("y", (1, 2))))
    domain = Domain("table", PLAIN.attributes, impossible=(rule,), public=PublicFacts(total=400))
    measured = measure(source(domain), DualQuery(WORKLOAD, rounds=30, draws=3), epsilon=1.0, simulate=0)
    found = DualQueryRun.of(measured).found
    assert not ((found[:, 0] == 0) & (found[:, 1] > 0)).any()


def test_given_rounds_the_budget_decides_the_rate_and_else_the_rate_the_rounds() -> None:
    for whole in (budget(epsilon=1), budget(epsilon=1, delta=1e-3)):
        pure = whole.unit == "epsilon"
        amount = float(whole.amount)
        small, large = (schedule(whole, records=n) for n in (1304, 48842))
        assert small.draws < large.draws <= 50
        assert small.rounds < large.rounds
        for found, records in ((small, 1304.0), (large, 48842.0)):
            assert found.share == 1
            assert bought_rate(amount, found.draws, found.rounds, records, pure=pure) >= 2.0
            assert bought_rate(amount, found.draws, found.rounds + 1, records, pure=pure) < 2.0
        assert schedule(whole, records=1304, rows_per_unit=4).rounds < small.rounds
    assert schedule(budget(epsilon=0.001), records=10).rounds == 2
    assert schedule(budget(epsilon=1), records=10, rounds=7, draws=3).rounds == 7


def test_a_budget_for_more_rounds_than_help_is_left_over_in_part() -> None:
    whole = budget(rho=1.0)
    found = schedule(whole, records=10_000_000)
    assert found.rounds == SCHEDULES.most_rounds
    assert 0 < found.share < 1
    spent = float(whole.amount) * float(found.share)
    assert bought_rate(spent, found.draws, found.rounds, 1e7, pure=False) == pytest.approx(2.0)
    shares = found.draws * sum((found.share_of_draw(k) for k in range(1, found.rounds)), Fraction(0))
    assert shares == found.share


def test_costs_are_the_sums_of_the_costs_of_draws() -> None:
    costs = draw_costs(draws=7, rounds=9, rate=1.3, units=500.0, delta=1e-4)
    each = [2 * 1.3 * k / 500.0 for k in range(1, 9)]
    assert costs.basic == pytest.approx(7 * sum(each))
    assert costs.rho == pytest.approx(7 * sum(epsilon**2 / 8 for epsilon in each))
    assert costs.from_zcdp < costs.advanced


def test_a_dry_run_tells_all_three_costs() -> None:
    preview = measure(PUBLIC, DualQuery(WORKLOAD), epsilon=1.0, delta=1e-3, dry_run=True)
    assert "basic composition" in preview.notes[1]
    assert "advanced composition" in preview.notes[1]
    assert preview.notes[1].endswith("Charged: zCDP.")
    assert "measures the number of records" in measure(PLAIN, DualQuery(WORKLOAD), epsilon=1.0, dry_run=True).notes[0]


def test_what_is_no_plan_is_refused() -> None:
    for options in (
        {"rounds": 1},
        {"draws": 0},
        {"rate": 0.0},
        {"rate": math.inf},
        {"total_share": 1.0},
        {"seed": -1},
        {"largest_search": 0},
    ):
        with pytest.raises(DeclarationError):
            DualQuery(WORKLOAD, **options)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="nothing but the total"):
        DualQuery(Workload.of([Query(())]))
    with pytest.raises(DeclarationError, match="weights"):
        DualQuery(Workload.of(["x", "y"], weights=[1.0, 2.0]))


def test_what_cannot_be_kept_is_refused_before_anything_is_spent() -> None:
    margins = (PublicMargin(("x",), (300.0, 100.0)),)
    known = Domain("table", PLAIN.attributes, public=PublicFacts(total=400, margins=margins))
    signs = Workload.of([Query.of({"x": factors.Matrix.of([[1.0, -1.0]])})])
    for domain, workload, message in ((known, WORKLOAD, "by x are public"), (PLAIN, signs, "0 and 1")):
        gate = PricingGate(domain, budget(epsilon=1), neighbours="add-remove", rows_per_unit=1)
        with pytest.raises(DeclarationError, match=message):
            DualQuery(workload).run(gate)
        assert not gate.selections
        assert not gate.prices
