"""Killed at random moments and run four at a time, measuring never overspends and loses nothing.

Workers are forked from a process that has everything imported, so that a kill lands inside the measuring itself.
"""

import json
import multiprocessing
import os
import random
import re
import sqlite3
import struct
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.domain import Domain
from consilience.errors import BudgetExceeded, LedgerError
from consilience.measuring import measure
from consilience.plans import Flat, Marginals
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

DOMAIN = Domain.from_sizes({"a": 2, "b": 3}, name="town")
EXACT = np.array([[98765, 43210, 77777], [65432, 34567, 23456]])
COST = 0.01  # noise of a few hundred, far below the counts: no recorded value can be mistaken for noise
IDS_PER_KILL = 4  # enough work that the processes are still measuring when they are killed
AFFORDABLE_PER_KILL = 3


def request(identity: str):
    """The plan of an id: always the same for the same id."""
    return Flat() if int(identity.split("-")[1]) % 2 else Marginals(["a", ("b", "a")])


def measure_all(folder: Path, ids: int, seed: int) -> None:
    """Measure the ids in random order, logging what came out; refusals by the ledger are part of the game."""
    order = [f"release-{i}" for i in random.Random(seed).sample(range(ids), ids)]
    source = open_table(str(folder / "town.parquet"), DOMAIN)
    ledger = Ledger.open(folder / "town.ledger")
    log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for identity in order:
        try:
            measured = measure(source, request(identity), ledger=ledger, epsilon=COST, id=identity)
        except (BudgetExceeded, LedgerError):
            continue
        values = [each.values.tolist() for each in measured]
        os.write(log, (json.dumps([identity, values]) + "\n").encode())


def prepare(folder: Path, kills: int) -> None:
    """The table, and a ledger that affords three quarters of the ids."""
    a, b = np.indices(EXACT.shape)
    columns = {
        "a": pa.array(np.repeat(a.ravel(), EXACT.ravel()).astype(np.int8)),
        "b": pa.array(np.repeat(b.ravel(), EXACT.ravel()).astype(np.int8)),
    }
    pq.write_table(pa.table(columns), folder / "town.parquet")
    total = budget(epsilon=f"{COST * AFFORDABLE_PER_KILL * kills:.2f}")
    Ledger.create(folder / "town.ledger", dataset="town", total=total)


def start(folder: Path, ids: int, seed: int):
    process = multiprocessing.get_context("fork").Process(target=measure_all, args=(folder, ids, seed), daemon=True)
    process.start()
    return process


def logged(folder: Path) -> dict[str, list[list[list[float]]]]:
    """Every outcome that any process saw, by id; a line cut by a kill is not an outcome."""
    outcomes: dict[str, list[list[list[float]]]] = {}
    if not (folder / "log").exists():
        return outcomes
    for line in (folder / "log").read_text().splitlines():
        identity, values = json.loads(line)
        outcomes.setdefault(identity, []).append(values)
    return outcomes


def survive(folder: Path, kills: int) -> None:
    open_table(str(folder / "town.parquet"), DOMAIN).exact_counts([("a", "b")])
    rng = random.Random(0)
    ids = IDS_PER_KILL * kills
    running = [start(folder, ids, seed) for seed in range(4)]
    ledger = Ledger.open(folder / "town.ledger")
    killed = 0
    for attempt in range(10 * kills):
        time.sleep(rng.uniform(0, 0.05))
        victim = rng.randrange(4)
        killed += running[victim].is_alive()
        running[victim].kill()
        running[victim].join()
        assert ledger.spent <= ledger.total.amount
        running[victim] = start(folder, ids, 1000 + attempt)
        if killed == kills:
            break
    assert killed == kills
    for process in running:
        process.join(3600)  # how long it takes decides nothing
        assert process.exitcode == 0


def check_outcomes(folder: Path, kills: int) -> None:
    ledger = Ledger.open(folder / "town.ledger")
    spent, entries = ledger.spent, {entry.id: entry for entry in ledger.entries()}
    outcomes = logged(folder)
    assert spent <= ledger.total.amount
    assert len(entries) == AFFORDABLE_PER_KILL * kills
    assert spent == sum(entry.cost for entry in entries.values())
    assert set(outcomes) <= set(entries), "a reservation was lost"
    source = open_table(str(folder / "town.parquet"), DOMAIN)
    for identity in entries:
        again = measure(source, request(identity), ledger=ledger, epsilon=COST, id=identity)
        for seen in outcomes.get(identity, []):
            assert seen == [each.values.tolist() for each in again], "one id gave two outcomes"
    assert ledger.spent == spent
    with pytest.raises(BudgetExceeded):
        measure(source, Flat(), ledger=ledger, epsilon=COST, id="one too many")
    identity = next(iter(entries))
    with pytest.raises(LedgerError, match="release-"):
        measure(source, Marginals(["b"]), ledger=ledger, epsilon=COST, id=identity)


def flat(payload: str) -> set[int]:
    """All numbers of a recorded payload."""
    return {int(number) for number in re.findall(r"-?\d+", payload)}


def check_no_secret_on_disk(folder: Path, kills: int) -> None:
    """No file but the data holds an exact count or a noise value: not as text and not as 8 binary bytes."""
    exact = {int(count) for count in [*EXACT.ravel(), *EXACT.sum(0), *EXACT.sum(1), EXACT.sum()] if count}
    with sqlite3.connect(folder / "town.ledger") as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        cells = [cell for table in tables for row in connection.execute(f"SELECT * FROM {table}") for cell in row]
    numbers = [int(token) for cell in cells for token in re.findall(r"(?<![\w.])-?\d+(?![\w.])", str(cell))]
    # One noisy value in about 400 meets its exact count by chance; a stored count would be there for every entry.
    assert sum(number in exact for number in numbers) <= 5 + kills // 4
    noise = {int(number) - min(exact, key=lambda count: abs(count - number)) for number in numbers if number > 20_000}
    with sqlite3.connect(folder / "town.ledger") as connection:
        payloads = connection.execute("SELECT payload FROM steps WHERE step >= 0")  # without checksums of whole results
        recorded = {value for (payload,) in payloads for value in flat(payload)}
    assert recorded
    assert not recorded & noise, "the ledger holds noise"
    for path in folder.iterdir():
        if path.name == "town.parquet":
            continue
        content = path.read_bytes()
        for count in exact:
            assert struct.pack("<q", count) not in content
            assert struct.pack("<d", count) not in content


@pytest.mark.parametrize("kills", [16, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_and_concurrent_measuring_keeps_the_books(tmp_path: Path, kills: int) -> None:
    prepare(tmp_path, kills)
    survive(tmp_path, kills)
    check_outcomes(tmp_path, kills)
    check_no_secret_on_disk(tmp_path, kills)
