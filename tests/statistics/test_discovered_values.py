"""Values of one unit survive as rarely as was paid for: a threshold one step too low is rejected, and so is less noise.

How many of many values that one unit has are kept follows a binomial law with a known chance. Too many, or too few, for
that law with a probability below 10^-7 reject it.
"""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from consilience.domain import Attribute, Domain
from consilience.privacy.budgets import budget
from consilience.privacy.discovery import ValueSelection
from consilience.privacy.gate import DataGate
from consilience.privacy.noise import SecureNoise
from consilience.source import open_table

REJECTED_BELOW = 1e-7
DELTA = Decimal("0.01")
PEOPLE = Domain("people", (Attribute.categorical("job", ["?"], unlisted="Other"),))


def chance_of_one(selection: ValueSelection) -> float:
    """The probability that a value of one unit is kept."""
    span = np.arange(-60 * int(selection.stddev + 1), 60 * int(selection.stddev + 1) + 1)
    weights = np.exp(-(span**2) / (2 * selection.stddev**2))
    return float(weights[span >= selection.threshold - 1].sum() / weights.sum())


def rejected(kept: int, values: int, chance: float) -> bool:
    law = stats.binom(values, chance)
    return min(law.cdf(kept), law.sf(kept - 1)) < REJECTED_BELOW


@pytest.mark.parametrize("rho", ["0.5", "0.05"])
@pytest.mark.parametrize("draws", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_value_of_one_unit_survives_at_most_as_often_as_delta_says(rho: str, draws: int) -> None:
    cost = budget(rho=rho, failure_delta=DELTA)
    rows = pa.table({"job": np.arange(draws)})
    gate = DataGate(
        open_table(rows, PEOPLE), cost, neighbours="add-remove", noise=SecureNoise(), release_id="survivors"
    )
    kept = len(gate.find_values("job", cost))
    selection = ValueSelection.priced(cost, neighbours="add-remove", values_per_unit=1)
    assert stats.binom(draws, float(DELTA)).sf(kept - 1) > REJECTED_BELOW
    assert chance_of_one(selection) <= DELTA
    assert not rejected(kept, draws, chance_of_one(selection))

    lower = ValueSelection(selection.stddev, selection.threshold - 1)
    too_many = len(lower.kept(dict.fromkeys(map(str, range(draws)), 1), SecureNoise()))
    assert stats.binom(draws, float(DELTA)).sf(too_many - 1) < REJECTED_BELOW
    assert rejected(too_many, draws, chance_of_one(selection))


@pytest.mark.parametrize("off", [0.8, 1.25])
def test_noise_a_quarter_off_is_noticed(off: float) -> None:
    selection = ValueSelection.priced(
        budget(rho="0.05", failure_delta=DELTA), neighbours="add-remove", values_per_unit=1
    )
    values, draws = dict.fromkeys(map(str, range(40_000)), selection.threshold - 2), 40_000
    right = len(selection.kept(values, SecureNoise()))
    wrong = len(ValueSelection(selection.stddev * off, selection.threshold).kept(values, SecureNoise()))
    span = np.arange(-200, 201)
    weights = np.exp(-(span**2) / (2 * selection.stddev**2))
    chance = float(weights[span >= 2].sum() / weights.sum())
    assert not rejected(right, draws, chance)
    assert rejected(wrong, draws, chance)
