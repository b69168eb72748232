"""The league: its tables are what they say, and cells are won and lost as it says."""

import numpy as np
import pytest

from benchmarks.accuracy import league, plan_choice
from benchmarks.problems.league_tables import HELD_OUT, TUNING
from benchmarks.problems.shaped_tables import shaped_table

GENERATED = ["chain", "spins 10", "skewed", "salaries", "trips", "survey", "sparse", "independent", "copies"]


@pytest.mark.parametrize("name", GENERATED)
def test_generated_tables_are_the_same_each_time_and_lie_in_their_domain(name: str) -> None:
    table = (TUNING | HELD_OUT)[name]
    one, two = table.make(), table.make()
    np.testing.assert_array_equal(one.codes, two.codes)
    assert one.codes.min() >= 0
    assert (one.codes.max(axis=0) < one.sizes).all()
    assert all(place < len(one.sizes) for place in table.numeric)


def test_no_table_is_in_both_halves_and_enough_are_held_out() -> None:
    assert not TUNING.keys() & HELD_OUT.keys()
    assert len(HELD_OUT) >= 12


def test_a_cell_compares_the_choice_with_the_best_plan_by_name(monkeypatch) -> None:
    errors = {league.CHOICE: 0.11, "the tables themselves": 0.12, "AIM": 0.10}

    def pretend(_module, arguments, mechanism, *, timeout):
        assert timeout == league.PATIENCE
        if mechanism not in errors:
            return {"note": "too slow"}
        error = errors[mechanism] + 0.001 * arguments[-1]
        return {"error": 0.0, "workload_error": error, "seconds": 2.0, "megabytes": 3.0, "plan": "p", "estimator": "e"}

    monkeypatch.setattr(league, "in_a_process", pretend)
    row = league.cell("chain", "pairs", 1.0, seeds=3)
    assert row is not None
    assert (row["best plan"], row["error"], row["its error"]) == ("AIM", pytest.approx(0.111), pytest.approx(0.101))
    assert row["regret"] == pytest.approx(0.111 / 0.101 - 1.0)
    assert "MST: too slow" in row["note"]
    assert league.told([row, row | {"regret": 0.12}, row | {"regret": None}]) == "  tuning: won 0 of 3 (0%), lost 2"
    assert league.told([row | {"half": "held out", "regret": 0.05}]) == "  held out: won 1 of 1 (100%), lost 0"


def test_workloads_that_a_table_has_not_are_left_out() -> None:
    assert league.cell("spins 10", "prefixes", 1.0, seeds=1) is None


@pytest.mark.parametrize("seed", [2, 5, 6, 9, 82])
def test_tables_of_many_shapes_are_the_same_each_time_and_lie_in_their_domain(seed: int) -> None:
    one, two = shaped_table(seed), shaped_table(seed)
    np.testing.assert_array_equal(one.codes, two.codes)
    assert 4 <= len(one.sizes) <= 20
    assert all(2 <= size <= 100 for size in one.sizes)
    assert 1_000 <= len(one.codes) <= 1_000_000
    assert one.codes.min() >= 0
    assert (one.codes.max(axis=0) < one.sizes).all()


def test_a_limit_takes_tables_below_it_and_a_forest_above() -> None:
    row = {"noise left": 0.03, "the tables themselves": 0.02, "forest": 0.03, "independent": 0.04, "AIM": 0.025}
    assert plan_choice.regret(row, 0.035) == pytest.approx(1.0)
    assert plan_choice.regret(row, 0.02) == pytest.approx(1.5)
