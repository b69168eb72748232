"""What `release` chooses by itself beside our plans by name, on tables that tuned it and on tables that did not.

A cell is a table (`benchmarks.problems.league_tables`), a workload (all pairs, all triples, or all pairs cumulated
along their numeric attributes) and ε, with δ = 10⁻⁹. The error is the mean over the workload's queries of
‖Wμ − Wμ̂‖₁ / 2‖Wμ‖₁, the median of three seeds, each run in a process of its own. *Regret* is by how much the choice's
error exceeds that of the best plan by name; a cell is *won* where that is at most 5 %, and *lost* where it is above
10 %. A plan that fails, or takes longer than its patience, has no error, and the note says why; a choice that fails is
lost.

`python -m benchmarks league` runs everything, for hours; `league:NAME` one table, whose rows take the place of earlier
ones. Of workloads with more than 300 queries 300 are judged, the same for all.
"""

import random
import statistics
from typing import Any

from benchmarks.accuracy.mechanism_runs import in_a_process, measured_and_judged
from benchmarks.problems.league_tables import HELD_OUT, TUNING, league_table

Row = dict[str, Any]

EPSILONS = (0.1, 1.0, 10.0)
WORKLOADS = ("pairs", "triples", "prefixes")
CHOICE = "release's choice"
PLANS = ("the tables themselves", "AIM", "AIM on residual", "MST", "forest", "independent")
SEEDS = 3
PATIENCE = 300.0
"""Seconds after which a run is ended."""
JUDGED = 300
MOST_TABLES = 1_000
"""Workloads of more queries are left out."""
WON, LOST = 1.05, 1.10


def run(quick: bool, only: str | None = None) -> list[Row]:
    """A row for each cell; if quick, pairs of two generated tables at ε = 1 with one seed."""
    names = [only] if only else ["spins 10", "salaries"] if quick else [*TUNING, *HELD_OUT]
    rows: list[Row] = []
    for name in names:
        for workload in ("pairs",) if quick else WORKLOADS:
            for epsilon in (1.0,) if quick else EPSILONS:
                found = cell(name, workload, epsilon, seeds=1 if quick else SEEDS)
                if found is not None:
                    rows.append(found)
                    print(f"  {name}, {workload}, ε = {epsilon:g}: {found['regret'] or found['note']}", flush=True)
    print(told(rows))
    return rows


def cell(name: str, workload: str, epsilon: float, *, seeds: int) -> Row | None:
    """The errors of one cell; None where the workload is none of this table's."""
    table = league_table(name).declared()
    size = len(_workload(table.domain, workload))
    if size == 0 or size > MOST_TABLES or (workload == "prefixes" and not league_table(name).numeric):
        return None
    errors: dict[str, list[float]] = {}
    notes: dict[str, str] = {}
    seconds = megabytes = 0.0
    chosen = ""
    for mechanism in (CHOICE, *PLANS):
        for seed in range(seeds):
            arguments = [name, workload, epsilon, mechanism, seed]
            found = in_a_process(__name__, arguments, mechanism, timeout=PATIENCE)
            if "error" not in found:
                notes[mechanism] = found["note"]
                errors.pop(mechanism, None)
                break
            errors.setdefault(mechanism, []).append(found["workload_error"])
            if mechanism == CHOICE:
                seconds, megabytes = max(seconds, found["seconds"]), max(megabytes, found["megabytes"])
                chosen = f"{found['plan']}, {found['estimator']}"
    medians = {mechanism: statistics.median(found) for mechanism, found in errors.items()}
    best = min((each for each in PLANS if each in medians), key=medians.__getitem__, default=None)
    ours, others = errors.get(CHOICE, []), medians.get(best or "")
    return {
        "problem": name,
        "half": "tuning" if name in TUNING else "held out",
        "workload": workload,
        "epsilon": epsilon,
        "chosen": chosen,
        "error": medians.get(CHOICE),
        "least": min(ours, default=None),
        "greatest": max(ours, default=None),
        "best plan": best,
        "its error": others,
        "regret": None if not ours or others is None else medians[CHOICE] / others - 1.0,
        "seconds": round(seconds, 1),
        "peak MB": round(megabytes),
        "errors": {mechanism: round(error, 5) for mechanism, error in medians.items()},
        "note": "; ".join(f"{mechanism}: {note}" for mechanism, note in notes.items()),
        "seeds": seeds,
    }


def run_once(name: str, workload: str, epsilon: float, mechanism: str, seed: int) -> Row:
    """One run: the mechanism is told the whole workload, and judged on some of it where it is large."""
    from consilience.domain import Workload

    table = league_table(name).declared()
    wanted = _workload(table.domain, workload)
    queries = list(wanted.queries)
    asked = wanted if len(queries) <= JUDGED else Workload.of(random.Random(0).sample(queries, JUDGED))
    return measured_and_judged(table, mechanism, wanted, asked, epsilon, seed)


def _workload(domain: Any, workload: str) -> Any:
    from consilience.domain import Workload

    if workload == "prefixes":
        return Workload.prefixes(domain, ways=2)
    return Workload.marginals(domain, ways={"pairs": 2, "triples": 3}[workload])


def told(rows: list[Row]) -> str:
    """In how many cells of each half the choice won, and lost."""
    lines = []
    for half in ("tuning", "held out"):
        cells = [row for row in rows if row["half"] == half]
        won = sum(row["regret"] is not None and row["regret"] <= WON - 1.0 for row in cells)
        lost = sum(row["regret"] is None or row["regret"] > LOST - 1.0 for row in cells)
        if cells:
            lines.append(f"  {half}: won {won} of {len(cells)} ({won / len(cells):.0%}), lost {lost}")
    return "\n".join(lines)
