"""Killed at random moments and run again, rounds of sums over records keep the books and give one outcome."""

import json
import multiprocessing
import os
import random
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from consilience.domain import Attribute, Domain
from consilience.errors import LedgerError
from consilience.measuring import measure
from consilience.plans.rounds import KMeans
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

DOMAIN = Domain("city", (Attribute.continuous("east", (0, 1)), Attribute.continuous("north", (0, 1))))
KILLS = 10
RUNS = 20
COST = 0.5
PLAN = KMeans(3, rounds=6)


def run_all(folder: Path, seed: int) -> None:
    """Run the releases in random order, logging what came out; one that another process holds is left to it."""
    source = open_table(str(folder / "city.parquet"), DOMAIN)
    ledger = Ledger.open(folder / "city.ledger")
    log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for i in random.Random(seed).sample(range(RUNS), RUNS):
        try:
            measured = measure(source, PLAN, ledger=ledger, epsilon=COST, id=f"run-{i}")
        except LedgerError:
            continue
        os.write(log, (json.dumps([f"run-{i}", [each.values.tolist() for each in measured]]) + "\n").encode())


def start(folder: Path, seed: int):
    process = multiprocessing.get_context("fork").Process(target=run_all, args=(folder, seed), daemon=True)
    process.start()
    return process


def test_killed_and_repeated_rounds_return_the_recorded_values_uncharged(tmp_path: Path):
    points = np.random.default_rng(0).random((2000, 2))
    pq.write_table(pa.table({"east": points[:, 0], "north": points[:, 1]}), tmp_path / "city.parquet")
    ledger = Ledger.create(tmp_path / "city.ledger", dataset="city", total=budget(epsilon=RUNS * COST))
    source = open_table(str(tmp_path / "city.parquet"), DOMAIN)
    measure(source, PLAN, epsilon=COST, simulate=0)  # everything imported and compiled before the forks
    rng = random.Random(0)
    running = [start(tmp_path, seed) for seed in range(2)]
    for attempt in range(KILLS):
        time.sleep(rng.uniform(0, 0.1))
        victim = rng.randrange(2)
        running[victim].kill()
        running[victim].join()
        assert ledger.spent <= ledger.total.amount
        running[victim] = start(tmp_path, 100 + attempt)
    for process in running:
        process.join(120)
        assert process.exitcode == 0
    outcomes: dict[str, list] = {}
    for line in (tmp_path / "log").read_text().splitlines():
        identity, values = json.loads(line)
        outcomes.setdefault(identity, []).append(values)
    assert len(outcomes) == RUNS
    for identity, seen in outcomes.items():
        again = measure(source, PLAN, ledger=ledger, epsilon=COST, id=identity)
        assert again.provenance["replayed"]
        for values in seen:
            assert values == [each.values.tolist() for each in again], "one id gave two outcomes"
    entries = list(ledger.entries())
    assert len(entries) == RUNS
    assert ledger.spent == sum(entry.cost for entry in entries) == ledger.total.amount
