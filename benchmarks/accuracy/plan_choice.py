"""From what noise on the tables of a workload are better left to other plans: on generated tables of many shapes.

For each table of `benchmarks.problems.shaped_tables`, with a workload (all pairs or all triples) and an ε of its own,
between 0.05 and 20, and δ = 10⁻⁹: the errors of the tables themselves, a forest, one-way marginals alone and
AIM, and what a fit leaves of the tables' noise, by noisy one-way marginals as `BestBuy` buys them. The last lines say,
for several limits, how often tables below the limit and a forest above it are within 5 % of the best, and how often
more than 10 % off. The limit of `BuyingSettings` was chosen by this, and by nothing of the league.
"""

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.accuracy.mechanism_runs import measured_and_judged
from benchmarks.problems.declared_records import declared
from benchmarks.problems.shaped_tables import shaped_table

Row = dict[str, Any]

TABLES, FOREST = "the tables themselves", "forest"
PLANS = (TABLES, FOREST, "independent", "AIM")
LIMITS = (0.015, 0.025, 0.035, 0.045, 0.06)
SEEDS = 300
MOST_ENTRIES, MOST_CELLS, MOST_ATTRIBUTES_OF_TRIPLES = 800_000, 1_000_000, 12
"""Larger problems are left out, for time."""
JUDGED = 60
WON, LOST = 1.05, 1.10


def run(quick: bool) -> list[Row]:
    """A row for each seed whose problem is small enough; the first few if quick."""
    rows = [row for row in map(problem, range(12 if quick else SEEDS)) if row is not None]
    for limit in LIMITS:
        regrets = np.array([regret(row, limit) for row in rows])
        print(f"  limit {limit:g}: won {np.mean(regrets <= WON):.0%}, lost {np.mean(regrets > LOST):.0%}", flush=True)
    return rows


def problem(seed: int) -> Row | None:
    """The errors of the plans on the table of a seed, and what a fit leaves of the noise of its tables."""
    from consilience.domain import Workload

    rng = np.random.default_rng([seed, 7])
    ways = int(rng.choice([2, 3], p=[0.7, 0.3]))
    epsilon = round(math.exp(rng.uniform(math.log(0.05), math.log(20.0))), 3)
    records = shaped_table(seed)
    table = declared(records, tuple(f"x{place}" for place in range(len(records.sizes))))
    wanted = Workload.marginals(table.domain, ways=ways)
    cells = sum(math.prod(table.domain.sizes(query.attributes)) for query in wanted.queries)
    few = len(records.sizes) <= MOST_ATTRIBUTES_OF_TRIPLES or ways == 2
    if records.codes.size > MOST_ENTRIES or cells > MOST_CELLS or not few:
        return None
    queries = list(wanted.queries)
    asked = wanted if len(queries) <= JUDGED else Workload.of(random.Random(0).sample(queries, JUDGED))
    errors = {
        plan: round(measured_and_judged(table, plan, wanted, asked, epsilon, seed)["workload_error"], 5)
        for plan in PLANS
    }
    return {
        "problem": records.name,
        "attributes": len(records.sizes),
        "records": table.rows,
        "ways": ways,
        "epsilon": epsilon,
        "noise left": round(noise_left(table, wanted, epsilon, seed), 5),
        **errors,
    }


def noise_left(table: Any, wanted: Any, epsilon: float, seed: int) -> float:
    """In parts of all records, as `BestBuy` finds it for the tables of the workload."""
    from consilience.measuring import measure
    from consilience.plans.best_buy import BestBuy
    from consilience.plans.spanning_pairs import OneWayCounts
    from consilience.privacy.budgets import budget

    found = []

    class OneWay:
        name = "one-way"

        def run(self, gate: Any) -> None:
            share = Fraction(plan.one_way_share).limit_denominator(1000)
            names = gate.domain.counted_names
            found.append(OneWayCounts.measure(gate, names, share, [1.0] * len(names)))

        def to_json(self) -> dict[str, Any]:
            return {"plan": self.name}

    plan, spent = BestBuy(wanted), budget(epsilon=epsilon, delta=1e-9)
    measure(table.source(), OneWay(), epsilon=epsilon, delta=1e-9, simulate=seed)
    return plan.considered(table.domain)[0].left(spent, found[-1], 1.0)


def regret(row: Row, limit: float) -> float:
    """The error of tables below a limit and of a forest above it, in units of the least of all plans."""
    return row[TABLES if row["noise left"] <= limit else FOREST] / max(min(row[plan] for plan in PLANS), 1e-9)
