"""Processes killed with SIGKILL at random moments, four at once against one ledger: nothing is lost or overspent."""

import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest

from consilience.errors import BudgetExceeded, LedgerError
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.privacy.reservations import Reservation

STEPS = 3
COST = "0.01"
NEW_IDS_PER_WAVE = 16

# What a measuring process does: reserve, draw, record, show (here: print), complete. One line is one atomic write.
WORKER = f"""
import itertools, json, os, random, sys, time
from consilience.privacy.ledger import BudgetExceeded, Ledger, LedgerError, budget

def tell(*words):
    os.write(1, (json.dumps(words) + "\\n").encode())

path, seed, ids, how = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
random.Random(seed).shuffle(ids)
ledger = Ledger.open(path)
cost = budget(epsilon="{COST}")
tell("ready")
for id in itertools.cycle(ids) if how == "until killed" else ids:
    try:
        with ledger.reserve(id, fingerprint="plan of " + id, cost=cost, description="killed?") as held:
            tell("reserved", id)
            for step in range({STEPS}):
                known = held.recorded(step)
                if known is None:
                    payload = json.dumps([random.SystemRandom().randrange(10**6) for _ in range(200)])
                    held.record(step, fingerprint="query %d" % step, payload=payload)
                else:
                    payload = known[1]
                tell("shown", id, step, payload)
                if how == "and wait within":
                    time.sleep(60)
            held.complete()
            tell("completed", id)
    except BudgetExceeded:
        tell("refused", id)
    except LedgerError as error:
        tell("in progress" if "in progress by another process" in str(error) else "failed", id, str(error))
"""

CREATOR = """
import itertools, os, sys
from consilience.privacy.ledger import Ledger, budget
os.write(1, b'"ready"\\n')
for number in itertools.count():
    Ledger.create(os.path.join(sys.argv[1], f"{number}.ledger"), dataset="adult", total=budget(epsilon=1))
"""


class Worker:
    """A running process whose words go to a file, where they outlive it."""

    def __init__(self, script: str, *arguments: str) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `words`)
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments], stdout=self._output, stderr=subprocess.PIPE
        )

    def wait_until_ready(self, said: bytes = b"ready") -> None:
        deadline = time.monotonic() + 30
        while said not in os.pread(self._output.fileno(), 1_000, 0):
            assert self.process.poll() is None, f"the worker ended before it was {said.decode()}"
            assert time.monotonic() < deadline, f"the worker was not {said.decode()}"
            time.sleep(0.001)

    def words(self) -> tuple[list[list[object]], str]:
        """Every line it wrote to its end, and what it complained about, once it has ended.

        A worker that is killed while it writes may leave the beginning of a line, which has told nobody anything.
        """
        _, errors = self.process.communicate(timeout=60)
        self._output.seek(0)
        lines = [json.loads(line) for line in self._output.read().splitlines(keepends=True) if line.endswith(b"\n")]
        self._output.close()
        return lines, errors.decode()


def measuring(path: Path, seed: int, ids: list[str], how: str = "once") -> Worker:
    return Worker(WORKER, str(path), str(seed), json.dumps(ids), how)


@dataclass
class Told:
    """Everything the workers said before they died."""

    kills: int = 0
    interrupted: int = 0
    """How many reservations stood open after their wave of workers had been killed, over all waves."""
    reserved: set[str] = field(default_factory=set)
    shown: dict[tuple[str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    completed: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    def hear(self, worker: Worker) -> None:
        lines, errors = worker.words()
        self.kills += worker.process.returncode == -9
        self.failures += [errors] if errors else []
        for line in lines:
            match line:
                case ["reserved", str(name)]:
                    self.reserved.add(name)
                case ["shown", str(name), int(step), str(payload)]:
                    self.shown[name, step].add(payload)
                case ["completed", str(name)]:
                    self.completed.add(name)
                case ["refused", str(name)]:
                    self.refused.add(name)
                case ["failed", str(name), str(message)]:
                    self.failures.append(f"{name}: {message}")
                case _:
                    pass


def kill_in_waves(path: Path, *, waves: int, rng: random.Random) -> Told:
    """What was told by four workers per wave, each killed at a random moment of its work.

    On a fast machine such a moment can come after all work is done: one more worker dies within a reservation for sure.
    """
    told = Told()
    waiting = measuring(path, 0, ["surely interrupted"], "and wait within")
    waiting.wait_until_ready(b"shown")
    waiting.process.kill()
    told.hear(waiting)
    told.interrupted += sum(entry.state == "reserved" for entry in Ledger.open(path).entries())
    previous: list[str] = []
    for wave in range(waves):
        new = [f"release {wave}-{number}" for number in range(NEW_IDS_PER_WAVE)]
        workers = [measuring(path, rng.randrange(10**9), previous + new, "until killed") for _ in range(4)]
        for worker in workers:
            worker.wait_until_ready()
        began = time.monotonic()
        moments = sorted((rng.uniform(0, 0.2), number) for number in range(4))
        for moment, number in moments:
            time.sleep(max(0.0, began + moment - time.monotonic()))
            workers[number].process.kill()
        for worker in workers:
            told.hear(worker)
        told.interrupted += sum(entry.state == "reserved" for entry in Ledger.open(path).entries())
        previous = new
    return told


def replay(ledger: Ledger, name: str) -> Reservation:
    return ledger.reserve(name, fingerprint=f"plan of {name}", cost=budget(epsilon=COST), description="")


def soak(path: Path, *, kills: int, seed: int) -> None:
    waves = -(-kills // 4)
    total = Decimal(COST) * (1 + NEW_IDS_PER_WAVE * waves * 3 // 4)  # the last waves may find too little left
    ledger = Ledger.create(path, dataset="adult", total=budget(epsilon=total))
    told = kill_in_waves(path, waves=waves, rng=random.Random(seed))
    assert told.failures == []
    assert told.kills == 4 * waves + 1 > kills

    entries = {entry.id: entry for entry in ledger.entries()}
    spent = ledger.spent
    assert spent == len(entries) * Decimal(COST) <= total
    assert told.reserved <= set(entries)
    assert all(entries[name].state == "committed" for name in told.completed)
    assert told.interrupted > 0

    finisher = measuring(path, seed, sorted(entries))
    told.hear(finisher)
    assert told.failures == []
    assert finisher.process.returncode == 0
    assert {entry.state for entry in ledger.entries()} == {"committed"}
    assert ledger.spent == spent

    for name in entries:
        replayed = replay(ledger, name)
        assert replayed.replayed
        for step in range(STEPS):
            (payload,) = told.shown[name, step]  # whoever showed a step, showed the same values
            assert replayed.recorded(step) == (f"query {step}", payload)
    assert ledger.spent == spent
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_killed_processes_lose_no_reservation_and_overspend_nothing(tmp_path: Path):
    soak(tmp_path / "adult.ledger", kills=25, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_two_thousand_kills_lose_no_reservation_and_overspend_nothing(tmp_path: Path, seed: int):
    soak(tmp_path / "adult.ledger", kills=200, seed=seed)


# --- races ---------------------------------------------------------------------------------------------------

RACERS = 8
AFFORDED = 5


def race_through(folder: Path, racer: int, races: int, start) -> None:
    """In each race, all racers want one id that they share and one of their own; the budget is for five of the nine."""
    for number in range(races):
        ledger = Ledger(folder / f"{number}.ledger")
        start.wait(60)
        for name in ("shared", f"own-{racer}") if racer % 2 else (f"own-{racer}", "shared"):
            try:
                with replay(ledger, name) as held:
                    if held.recorded(0) is None:
                        held.record(0, fingerprint="q", payload=json.dumps([racer]))
                    held.complete()
            except (BudgetExceeded, LedgerError):
                continue


def race(folder: Path, races: int) -> None:
    for number in range(races):
        total = budget(epsilon=AFFORDED * Decimal(COST))
        Ledger.create(folder / f"{number}.ledger", dataset="adult", total=total)
    fork = multiprocessing.get_context("fork")
    start = fork.Barrier(RACERS)
    racers = [fork.Process(target=race_through, args=(folder, racer, races, start)) for racer in range(RACERS)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
        assert racer.exitcode == 0
    for number in range(races):
        ledger = Ledger.open(folder / f"{number}.ledger")
        entries = ledger.entries()
        assert ledger.spent == ledger.total.amount
        assert [entry.state for entry in entries] == ["committed"] * AFFORDED
        for entry in entries:
            recorded = replay(ledger, entry.id).recorded(0)
            assert recorded is not None
            assert entry.id == "shared" or recorded[1] == f"[{entry.id.removeprefix('own-')}]"
        assert ledger.spent == ledger.total.amount


def test_eight_processes_that_race_for_a_budget_spend_it_once(tmp_path: Path):
    race(tmp_path, races=4)


@pytest.mark.slow
def test_two_hundred_races_of_eight_processes_spend_each_budget_once(tmp_path: Path):
    race(tmp_path, races=200)


def test_four_processes_spend_a_budget_to_the_last_unit_and_no_further(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "adult.ledger", dataset="adult", total=budget(epsilon="0.2"))
    told = Told()
    workers = [measuring(ledger.path, seed, [f"{seed}-{number}" for number in range(8)]) for seed in range(4)]
    for worker in workers:
        told.hear(worker)
    assert told.failures == []
    assert (len(told.completed), len(told.refused)) == (20, 12)
    assert ledger.remaining == 0


def test_a_killed_creation_leaves_a_sound_ledger_or_none(tmp_path: Path):
    rng = random.Random(3)
    for run in range(6):
        directory = tmp_path / str(run)
        directory.mkdir()
        creator = Worker(CREATOR, str(directory))
        creator.wait_until_ready()
        time.sleep(rng.uniform(0.01, 0.05))
        creator.process.kill()
        _, errors = creator.words()
        assert (creator.process.returncode, errors) == (-9, "")
        made = sorted(directory.glob("[0-9]*.ledger"))
        assert all(Ledger.open(path).remaining == 1 for path in made)
