"""A mechanism that is killed between two steps goes on from its ledger: same budget, same steps, a valid release."""

import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.domain import Attribute, Domain, Workload
from consilience.estimators import estimate, regress
from consilience.measuring import measure
from consilience.plans import Aim, DualQuery, Forest, Mst, MwemModels, PrivBayes, PrivGene
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.privacy.reservations import Reservation
from consilience.publication import open_release, write_bundle
from consilience.source import open_table

DOMAIN = Domain.from_sizes({"a": 2, "b": 3, "c": 2, "d": 2}, name="town")
PAIRS = Workload.marginals(DOMAIN, ways=2)
PLANS = {
    "aim": Aim(PAIRS, rounds=6),
    "dual-query": DualQuery(PAIRS, rounds=5, draws=3),
    "forest": Forest(PAIRS),
    "mst": Mst(),
    "mwem": MwemModels(PAIRS, rounds=4),
    "privbayes": PrivBayes(usefulness=0.5),
}
POINTS = Domain("town", tuple(Attribute.continuous(name, (0, 2)) for name in "abcd"))
PRIVGENE = PrivGene(label="c", attributes=("a", "b"), candidates=30, survivors=3, generations=4)


def prepare(folder: Path) -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 2, 4000)
    columns = {"a": first, "b": rng.integers(0, 3, 4000), "c": (first + (rng.random(4000) < 0.1)) % 2}
    columns["d"] = rng.integers(0, 2, 4000)
    pq.write_table(
        pa.table({name: pa.array(codes.astype(np.int8)) for name, codes in columns.items()}), folder / "t.parquet"
    )
    Ledger.create(folder / "t.ledger", dataset="town", total=budget(epsilon=1))


def run(folder: Path, plan: str):
    mechanism = PRIVGENE if plan == "privgene" else PLANS[plan]
    source = open_table(str(folder / "t.parquet"), POINTS if plan == "privgene" else DOMAIN)
    return measure(source, mechanism, ledger=Ledger.open(folder / "t.ledger"), epsilon=1.0, id="once")


def run_and_die(folder: Path, plan: str, steps: int) -> None:
    """Run until so many steps are recorded, then be killed as by the system: no handler, no clean-up."""
    record, done = Reservation.record, 0

    def record_and_count(self: Reservation, step: int, *, fingerprint: str, payload: str) -> None:
        nonlocal done
        record(self, step, fingerprint=fingerprint, payload=payload)
        done += 1
        if done == steps:
            os.kill(os.getpid(), signal.SIGKILL)

    Reservation.record = record_and_count  # type: ignore[method-assign]
    run(folder, plan)


def killed(folder: Path, plan: str, steps: int) -> None:
    process = multiprocessing.get_context("fork").Process(target=run_and_die, args=(folder, plan, steps), daemon=True)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("plan", PLANS)
def test_a_run_killed_twice_ends_with_its_budget_and_a_valid_release(plan: str, tmp_path: Path) -> None:
    prepare(tmp_path)
    killed(tmp_path, plan, 1)
    killed(tmp_path, plan, 2)
    ledger = Ledger.open(tmp_path / "t.ledger")
    assert ledger.spent == 1
    measured = run(tmp_path, plan)
    assert ledger.spent == 1
    again = run(tmp_path, plan)
    assert again.provenance["replayed"]
    assert [each.values.tolist() for each in again] == [each.values.tolist() for each in measured]
    method = "dual-query" if plan == "dual-query" else "auto"
    write_bundle(estimate(measured, method=method), tmp_path / "bundle")
    assert open_release(tmp_path / "bundle").estimate.total == pytest.approx(4000, rel=0.2)


def test_a_genetic_algorithm_killed_between_selections_goes_on_to_the_same_model(tmp_path: Path) -> None:
    prepare(tmp_path)
    killed(tmp_path, "privgene", 2)
    killed(tmp_path, "privgene", 7)
    ledger = Ledger.open(tmp_path / "t.ledger")
    assert ledger.spent == 1
    measured = run(tmp_path, "privgene")
    assert ledger.spent == 1
    again = run(tmp_path, "privgene")
    assert again.provenance["replayed"]
    assert [each.extra for each in again] == [each.extra for each in measured]
    assert regress(measured).coefficients[0] > 0
