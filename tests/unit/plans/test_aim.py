"""AIM: what it spends, what it selects, how its rounds grow, and that its model stays within its bounds."""

import itertools
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Domain, Query
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.public_facts import PublicFacts
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.measuring import PricingGate, measure
from consilience.plans.aim import Aim
from consilience.plans.answering import RunningEstimate
from consilience.privacy.budgets import budget
from consilience.privacy.gate import DataGate
from consilience.privacy.ledger import Ledger
from consilience.privacy.noise import SimulatedNoise
from consilience.privacy.scores import MarginalError
from consilience.source import open_table

ROWS = 4000
SIZES = {"a": 2, "b": 3, "c": 4, "d": 3, "e": 5}
DOMAIN = Domain.from_sizes(SIZES, name="five")
RNG = np.random.default_rng(7)
CODES = np.stack([RNG.integers(0, size, ROWS) for size in SIZES.values()], axis=1)
CODES[:, 3] = np.where(RNG.random(ROWS) < 0.9, CODES[:, 1], CODES[:, 3])  # b and d say nearly the same
AMOUNTS = [{"epsilon": 2.0}, {"rho": 0.2}, {"epsilon": 2.0, "delta": 1e-6}]


def source_of(codes: np.ndarray, domain: Domain = DOMAIN):
    return open_table(pa.table({name: codes[:, i].astype(str) for i, name in enumerate(domain.names)}), domain)


SOURCE = source_of(CODES)


def exact(*names: str, codes: np.ndarray = CODES) -> np.ndarray:
    table = np.zeros(DOMAIN.sizes(names))
    np.add.at(table, tuple(codes[:, DOMAIN.names.index(name)] for name in names), 1)
    return table


def gate_to(source=SOURCE, *, amounts=None, seed: int = 0, relation="add-remove") -> DataGate:
    whole = budget(**(amounts or {"rho": 0.2}))
    return DataGate(source, whole, neighbours=relation, noise=SimulatedNoise(seed), release_id="r")


class Watched:
    """A gate that remembers what was selected, by which score, and what each step cost."""

    def __init__(self, gate) -> None:
        self.gate, self.domain, self.budget = gate, gate.domain, gate.budget
        self.scores: list[MarginalError] = []
        self.chosen: list[tuple[str, ...]] = []
        self.costs: list[Decimal] = []
        self.measured: list[list] = []

    def select(self, score, cost, *, selector):
        self.scores.append(score)
        self.costs.append(cost.amount)
        self.chosen.append(self.gate.select(score, cost, selector=selector))
        return self.chosen[-1]

    def measure(self, queries, cost, *, shares=None):
        self.costs.append(cost.amount)
        self.measured.append(list(self.gate.measure(queries, cost, shares=shares)))
        return tuple(self.measured[-1])


def watched_run(plan: Aim, gate) -> Watched:
    watched = Watched(gate)
    plan.run(watched)  # type: ignore[arg-type]
    return watched


@pytest.mark.parametrize("model", ["graphical", "residual"])
@pytest.mark.parametrize("amounts", AMOUNTS)
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_all_of_the_budget_is_spent_and_never_more(model, amounts, relation) -> None:
    whole = budget(**amounts)
    dry = PricingGate(DOMAIN, whole, neighbours=relation, rows_per_unit=1)
    wet = gate_to(amounts=amounts, relation=relation)
    for gate in (dry, wet):
        spent = sum(watched_run(Aim(model=model, rounds=10), gate).costs)
        assert spent <= whole.amount
        assert float(spent) == pytest.approx(float(whole.amount), rel=1e-9)
    assert dry.selections


def test_the_ledger_holds_the_budget_once_and_replays_a_run(tmp_path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="five", total=budget(rho=1))
    first = measure(SOURCE, Aim(rounds=10), ledger=ledger, rho=0.2)
    again = measure(SOURCE, Aim(rounds=10), ledger=ledger, rho=0.2)
    assert [each.query for each in first] == [each.query for each in again]
    assert [each.values.tolist() for each in first] == [each.values.tolist() for each in again]
    assert str(ledger.spent) == "0.2"
    assert first.private


@pytest.mark.parametrize("model", ["graphical", "residual"])
def test_a_run_that_died_goes_on_from_its_ledger_with_the_same_answers(tmp_path, monkeypatch, model) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="five", total=budget(rho=0.2))
    plan, add = Aim(model=model, rounds=15), RunningEstimate.add
    seen: list[list[float]] = []

    def dying(self, measurements) -> None:
        drawn = [each.values.tolist() for each in measurements if each.id]  # a dry run names nothing
        seen.extend(drawn)
        if drawn and len(self.measurements) >= 12:
            raise KeyboardInterrupt
        add(self, measurements)

    monkeypatch.setattr(RunningEstimate, "add", dying)
    with pytest.raises(KeyboardInterrupt):
        measure(SOURCE, plan, ledger=ledger, rho=0.2)
    monkeypatch.setattr(RunningEstimate, "add", add)
    whole = measure(SOURCE, plan, ledger=ledger, rho=0.2)
    assert [each.values.tolist() for each in whole][: len(seen)] == seen
    assert len(whole) > len(seen)
    assert str(ledger.spent) == "0.2"
    assert plan.estimator().fit(whole).total == pytest.approx(ROWS, rel=0.1)


@pytest.mark.parametrize(("amounts", "mean"), [({"rho": 0.2}, math.sqrt(2 / math.pi)), ({"epsilon": 3.0}, 1.0)])
def test_scores_are_the_weighted_errors_less_the_noise_that_measuring_adds(amounts, mean) -> None:
    found = watched_run(Aim(rounds=10), gate_to(amounts=amounts))
    singles = sum(len(step) > 1 for step in found.measured)
    assert len(found.scores) == len(found.measured) - singles > 1
    for score, (measurement,) in zip(found.scores, found.measured[singles:], strict=True):
        assert score.weights is not None
        assert score.penalties is not None
        noise = mean * measurement.noise.scale_parameter
        values = score.values([exact(*names).astype(np.int64) for names in score.candidates])
        for names, value in zip(score.candidates, values, strict=True):
            assert score.weights[names] == pytest.approx(len(names) / 3)  # all 3-way marginals: one weight each way
            assert score.penalties[names] == pytest.approx(score.weights[names] * noise * exact(*names).size)
            distance = np.abs(exact(*names) - score.estimates[names]).sum()
            expected = score.weights[names] * (distance - noise * exact(*names).size)
            assert value / 4**10 == pytest.approx(expected, rel=0.01, abs=1.0)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_no_neighbour_moves_a_score_by_more_than_its_sensitivity(relation) -> None:
    score = watched_run(Aim(rounds=2), gate_to()).scores[0]
    few = CODES[:6]
    records = [np.array(cells) for cells in itertools.product(*(range(size) for size in SIZES.values()))]
    removed = few[1:]
    neighbours = [np.vstack([few if relation == "add-remove" else removed, record]) for record in records]

    def values(codes: np.ndarray) -> np.ndarray:
        return score.values([exact(*names, codes=codes).astype(np.int64) for names in score.candidates])

    here = values(few)
    # A record can also be replaced by one that the domain drops.
    moved = max(np.abs(values(codes) - here).max() for codes in (*neighbours, removed))
    bound = score.sensitivity(relation)
    assert moved <= bound
    assert moved >= 0.5 * bound


def test_what_depends_most_is_measured_first_and_learnt() -> None:
    for seed in range(3):
        found = watched_run(Aim(rounds=10), gate_to(seed=seed))
        assert {"b", "d"} <= set(found.chosen[0])
    measured = measure(SOURCE, Aim(rounds=10), rho=0.2, simulate=0)
    alone = exact("b").reshape(3, 1) * exact("d") / ROWS
    fitted = Aim().estimator().fit(measured).marginal("b", "d")
    assert np.abs(fitted - exact("b", "d")).sum() < 0.2 * np.abs(alone - exact("b", "d")).sum()


def test_rounds_halve_their_noise_when_there_is_nothing_to_learn() -> None:
    even = source_of(np.random.default_rng(3).integers(0, list(SIZES.values()), (ROWS, 5)))
    for amounts, halves in (({"rho": 0.01}, 4), ({"epsilon": 0.5}, 2)):
        plan = Aim(first_share=0.5, rounds=64)
        scales = [step[0].noise.scale_parameter for step in watched_run(plan, gate_to(even, amounts=amounts)).measured]
        ratios = [before / after for before, after in itertools.pairwise(scales[1:])]
        assert all(ratio == pytest.approx(1.0) or ratio == pytest.approx(2.0) for ratio in ratios[:-1])
        assert any(ratio == pytest.approx(2.0) for ratio in ratios[:-1])
        assert len(scales) < 64
        assert ratios[-1] <= math.sqrt(halves) * 2.0


@pytest.mark.slow
def test_the_model_never_outgrows_its_limit() -> None:
    for limit in (60, 100, 200):
        measured = measure(SOURCE, Aim(largest_model=limit, rounds=10), rho=20.0, simulate=1)
        assert Aim().estimator().fit(measured).stats["junction_tree_cells"] <= limit
    free = measure(SOURCE, Aim(rounds=10), rho=20.0, simulate=1)
    assert Aim().estimator().fit(free).stats["junction_tree_cells"] > 200


def test_few_records_are_measured_by_one_way_marginals_alone() -> None:
    measured = measure(source_of(CODES[:30]), Aim(most_noise=0.2), rho=0.001, simulate=2)
    assert {len(each.query.attributes) for each in measured} == {1}


def test_marginals_that_are_declared_too_large_are_never_touched() -> None:
    sizes = {"x": 2, "y": 3, "z": 50_000}
    domain = Domain.from_sizes(sizes, name="wide")
    gate = PricingGate(domain, budget(rho=1), neighbours="add-remove", rows_per_unit=1)
    found = watched_run(Aim(most_cells=10_000), gate)
    assert all("z" not in names for score in found.scores for names in score.candidates)
    lines = Aim(most_cells=10_000).explain(measure(domain, Aim(), rho=1.0, dry_run=True).example(), budget(rho=1))
    assert any("never measured by themselves: z" in line for line in lines)


def test_a_workload_of_some_marginals_is_all_that_is_looked_at() -> None:
    workload = Workload.of([Query.marginal("a", "b"), Query.marginal("b", "d")], weights=[1.0, 3.0])
    found = watched_run(Aim(workload, rounds=10), gate_to())
    assert {names for score in found.scores for names in score.candidates} <= {
        ("a",), ("b",), ("d",), ("a", "b"), ("b", "d"),
    }  # fmt: skip
    assert Aim(workload).to_json() != Aim().to_json()


@pytest.mark.parametrize("model", ["graphical", "residual"])
def test_public_facts_and_impossible_cells_are_kept(model) -> None:
    rule = ImpossibleCells((("b", (0,)), ("d", (1, 2))))
    codes = CODES.copy()
    codes[codes[:, 1] == 0, 3] = 0
    domain = Domain("five", DOMAIN.attributes, (rule,), PublicFacts(total=ROWS))
    measured = measure(source_of(codes, domain), Aim(model=model, rounds=10), rho=0.2, simulate=0)
    table = Aim(model=model).estimator().fit(measured).marginal("b", "d")
    assert table.sum() == pytest.approx(ROWS)
    assert table[0, 1:] == pytest.approx(0.0, abs=1e-6 * ROWS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "tree"}, "choose one of"),
        ({"ways": 0}, "ways is 0"),
        ({"rounds": 1.5}, "rounds is 1.5"),
        ({"largest_model": 0}, "largest_model is 0"),
        ({"first_share": 1.0}, "between 0 and 1"),
        ({"selection_share": 0.0}, "between 0 and 1"),
        ({"most_noise": 0.0}, "most_noise"),
    ],
)
def test_bad_declarations_are_refused_before_anything_is_spent(options, said) -> None:
    with pytest.raises(DeclarationError, match=said):
        Aim(**options)


def test_a_workload_that_does_not_fit_the_domain_is_refused_before_anything_is_spent(tmp_path) -> None:
    ledger = Ledger.create(tmp_path / "l", dataset="five", total=budget(rho=1))
    with pytest.raises(DeclarationError, match="no attribute 'q'"):
        measure(SOURCE, Aim(Workload.of([Query.marginal("q")])), ledger=ledger, rho=0.5)
    assert str(ledger.spent) == "0"
