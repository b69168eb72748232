"""Intervals of sums and means hold the truth of the clipped numbers as often as they say, whatever the table."""

from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain, Workload
from consilience.domain.source_format import Summand
from consilience.estimators import estimate
from consilience.publication.answers import answer_table
from consilience.publication.intervals import intervals
from consilience.publication.intervals.drawn_errors import ratio_ends
from consilience.request import Request

SEX, REGIONS = ("Female", "Male"), ("north", "south", "east", "west", "islands")
ASKED = ("sum(income) by sex", "mean(income) by sex, region", "mean(income) by region", "mean(income)")
ROWS = 5_000

TABLES = {
    "heavy tail": (0.0, 150_000.0, lambda rng, size: np.exp(rng.normal(10.0, 1.2, size))),
    "signed": (-3_000.0, 8_000.0, lambda rng, size: rng.normal(500.0, 2_500.0, size)),
    "mostly nothing": (0.0, 1_000.0, lambda rng, size: np.where(rng.random(size) < 0.9, 0.0, 2_000 * rng.random(size))),
}
"""The bounds to which each is clipped, and how its numbers are drawn."""


def domain_of(table: str, *, weighted: bool = False) -> Domain:
    low, high, _ = TABLES[table]
    edges = [low, low + (high - low) / 50, low + (high - low) / 10, high]
    attributes = (
        Attribute.categorical("sex", SEX),
        Attribute.categorical("region", REGIONS),
        Attribute.numeric("income", edges, missing="unknown", amount=(low, high)),
    )
    return Domain("people", attributes, weight=Summand("weight", (0.0, 4.0)) if weighted else None)


@cache
def people(table: str, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    income = TABLES[table][2](rng, ROWS)
    return pa.table(
        {
            "sex": rng.choice(SEX, ROWS, p=[0.6, 0.4]),
            "region": rng.choice(REGIONS, ROWS, p=[0.4, 0.3, 0.2, 0.08, 0.02]),
            "income": pa.array(np.where(rng.random(ROWS) < 0.05, np.nan, income), from_pandas=True),
            "weight": 6.0 * rng.random(ROWS),
        }
    )


def truth(table: str, rows: pa.Table, *, weighted: bool) -> list[np.ndarray]:
    """What is asked, of the clipped numbers and weights."""
    low, high, _ = TABLES[table]
    frame = rows.to_pandas()
    times = np.clip(frame["weight"], 0.0, 4.0) if weighted else np.ones(len(frame))
    known = frame["income"].notna() * times
    added = np.clip(frame["income"].fillna(0.0), low, high) * known
    groups = [[(sex, None) for sex in SEX], [(sex, region) for sex in SEX for region in REGIONS]]
    groups += [[(None, region) for region in REGIONS], [(None, None)]]
    found = []
    for asked, each in zip(ASKED, groups, strict=True):
        members = [
            (frame["sex"].eq(sex) | (sex is None)) & (frame["region"].eq(region) | (region is None))
            for sex, region in each
        ]
        below = [1.0 if asked.startswith("sum") else known[which].sum() for which in members]
        found.append(np.array([added[which].sum() for which in members]) / below)
    return found


def share_held(table: str, unit: str, relation: str, *, weighted: bool, draws: int) -> np.ndarray:
    """In which share of the draws each kind of answer is held."""
    workload = Workload.of([*ASKED, "by income"])
    amounts = {"epsilon": 2.0} if unit == "epsilon" else {"rho": 0.3}
    held = np.zeros((draws, len(ASKED)))
    for draw in range(draws):
        rows = people(table, draw % 5)
        request = Request(
            data=rows,
            domain=domain_of(table, weighted=weighted),
            workload=workload,
            neighbours=relation,
            simulate=draw,
            **amounts,
        )
        found = intervals(estimate(request.measure()), ASKED, refits=60, seed=draw)
        for place, (each, exact) in enumerate(zip(found, truth(table, rows, weighted=weighted), strict=True)):
            assert each.covers == "measured"
            held[draw, place] = np.mean((each.low <= exact) & (exact <= each.high))
    return held.mean(axis=0)


CASES = [
    ("heavy tail", "epsilon", "add-remove", False),
    ("heavy tail", "rho", "replace-one", False),
    ("heavy tail", "rho", "add-remove", True),
    ("signed", "epsilon", "replace-one", False),
    ("signed", "rho", "add-remove", False),
    ("mostly nothing", "epsilon", "add-remove", True),
]


@pytest.mark.slow
@pytest.mark.parametrize(("table", "unit", "relation", "weighted"), CASES)
def test_intervals_hold_the_clipped_truth(table: str, unit: str, relation: str, *, weighted: bool) -> None:
    """In 100 draws; of the small groups among them too."""
    held = share_held(table, unit, relation, weighted=weighted, draws=100)
    assert np.all(held >= 0.92)
    assert np.all(held <= 0.99)


@pytest.mark.parametrize("seed", range(2))
def test_the_mean_of_a_heavy_tail_is_off_by_less_than_three_percent_and_bins_by_most_of_it(seed: int) -> None:
    """Of 50,000 incomes, clipped at the 99.5 % quantile of their law, with epsilon 1."""
    income = np.exp(np.random.default_rng(5).normal(10.0, 1.1, 50_000))
    rows = pa.table({"income": income, "sex": np.where(income > 22_000.0, "Male", "Female")})
    edges = [0, 10_000, 25_000, 50_000, 100_000, 2_000_000]
    domain = Domain(
        "people",
        (Attribute.categorical("sex", SEX), Attribute.numeric("income", edges, amount=(0, 375_000))),
    )
    off = []
    for share in (None, 0):
        workload = Workload.of(["mean(income) by sex", "by income"])
        request = Request(data=rows, domain=domain, workload=workload, epsilon=1, simulate=seed, sums_share=share)
        off.append(answer_table(estimate(request.measure()), "mean(income)").numbers[0] / income.mean() - 1.0)
    assert abs(off[0]) < 0.03
    assert off[1] > 0.8


def test_ends_of_ratios_are_those_of_fieller() -> None:
    """Of Gaussian errors they solve (S - m n)^2 = z^2 (V + m^2 W); limits are left where draws contradict them."""
    rng = np.random.default_rng(0)
    above, below = 50.0 + 4.0 * rng.normal(size=(40_000, 1)), 20.0 + 2.0 * rng.normal(size=(40_000, 1))
    z = 1.959964
    roots = np.roots([20.0**2 - z**2 * 4.0, -2 * 50.0 * 20.0, 50.0**2 - z**2 * 16.0])
    np.testing.assert_allclose(np.ravel(ratio_ends(above, below, 0.95)), np.sort(roots), rtol=0.02)
    low, high = ratio_ends(above, below - 20.0, 0.95, (0.0, 7.0))
    assert (low[0], high[0]) == (0.0, 7.0)
