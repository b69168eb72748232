"""Qardaji, Yang and Li (2014), the table of §4.6: seconds to publish a synopsis, and to reconstruct a marginal.

P is everything from a Parquet file of the records to the synopsis: counting all views, noise, consistency, Ripple and
consistency. Q6 and Q8 are one marginal of 6 or 8 attributes by greatest entropy, the mean over
some, on one core. Kernels are compiled beforehand. The paper's numbers are of a Python implementation on one 2.3 GHz
processor.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.problems.flags import FlagRecords, aol_sized, kosarak_sized
from benchmarks.reproduce.figures import About, Extent, Rows
from benchmarks.reproduce.per_run import by
from benchmarks.reproduce.pictures import Picture
from benchmarks.reproduce.qardaji2014.asked import random_sets
from benchmarks.reproduce.qardaji2014.differs import DATA, DESIGNS
from benchmarks.reproduce.qardaji2014.priview import THETA, Blocks, PriView, design
from benchmarks.reproduce.verdicts import Claim, Threshold, brief
from benchmarks.speed.timing import best_time
from consilience.domain import Domain
from consilience.marginals.consistency import ViewConsistency
from consilience.marginals.margins import ViewReader
from consilience.marginals.nonnegativity import nonnegative_views
from consilience.marginals.reconstruction import reconstruct
from consilience.marginals.table_stacks import TableStack
from consilience.source import open_table

parquet: Any = pyarrow.parquet

ABOUT = About(
    "Qardaji, Yang and Li (2014), the table of §4.6: seconds to publish views and to reconstruct a marginal",
    (
        DATA,
        DESIGNS,
        "Machine and code: compiled kernels on a processor of today; the paper's are of Python on one of 2.3 GHz. "
        "It only prints them: what is judged is what this project sets out to reach.",
    ),
    runs="Three tries of everything.",
    timed=True,
)
PICTURE = Picture(
    "Seconds to publish views and to reconstruct a marginal (Qardaji et al. 2014, table of §4.6)",
    "quantity",
    "",
    "panel",
    y="seconds",
    y_title="seconds",
    bars=True,
    across=2,
    width=300,
)
PRINTED = {
    (32, 2): ("C2(8,20)", 8.78, 0.16, 2.79),
    (32, 3): ("C3(8,106)", 90.81, 1.78, 35.96),
    (45, 2): ("C2(8,42)", 47.42, 2.71, 20.76),
    (45, 3): ("C3(8,326)", 593.27, 11.79, 77.54),
}
"""For each d and t the paper's design, its P, Q6 and Q8 in seconds."""
QUANTITIES = ("P", "Q6", "Q8")
OWN, PAPER = "Consilience", "the paper"
TARGETS = {(32, 2): (10, 100), (32, 3): (1, 100), (45, 2): (10, 100)}
"""How many times as fast P and Q8 have to be."""
EPSILON = 1.0


def run(extent: Extent) -> Rows:
    """All records, and 40 marginals of each size; a tenth of the records and 5 marginals if quick."""
    rows: Rows = []
    for records in (kosarak_sized(), aol_sized()):
        columns = records.written_out()
        columns = columns[:, : columns.shape[1] // 10] if extent.quick else columns
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "records.parquet"
            write(path, columns)
            for strength in (2, 3):
                rows += compare(records, path, strength, 5 if extent.quick else 40)
    return rows


TRIES = 3


def write(path: Path, columns: np.ndarray) -> None:
    """The records as a file, a column for each flag."""
    names = [f"a{flag:02}" for flag in range(len(columns))]
    parquet.write_table(pa.Table.from_arrays([pa.array(column) for column in columns], names=names), path)


def compare(records: FlagRecords, path: Path, strength: int, marginals: int) -> Rows:
    blocks = design(records.flags, 8, strength)
    views = publish_views(path, records.flags, blocks)
    each = PriView(records, strength, blocks)
    seconds = {"P": [timed(lambda: publish_views(path, records.flags, blocks)) for _ in range(TRIES)]}
    for quantity, k in (("Q6", 6), ("Q8", 8)):
        asked = random_sets(records.flags, k, marginals)
        seconds_of_one(each, views, asked[:2])
        seconds[quantity] = [seconds_of_one(each, views, asked) for _ in range(TRIES)]
    name, *printed = PRINTED[records.flags, strength]
    panel = f"d = {records.flags}, {each.name}" + (f" (paper: {name})" if name != each.name else "")
    place = {"panel": panel, "d": records.flags, "t": strength, "views": each.views, "records": records.total}
    rows: Rows = []
    for quantity, theirs in zip(QUANTITIES, printed, strict=True):
        found = seconds[quantity]
        rows.append(place | {"quantity": quantity, "method": PAPER, "seconds": theirs, "values": [theirs]})
        rows.append(place | {"quantity": quantity, "method": OWN, "seconds": min(found), "values": found})
    print(f"  {panel}: done", flush=True)
    return rows


def timed(call: Callable[[], Any]) -> float:
    """Seconds on the clock, for several cores may work."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def publish_views(path: Path, flags: int, blocks: Blocks) -> np.ndarray:
    """From the file to the synopsis."""
    domain = Domain.from_sizes({f"a{flag:02}": 2 for flag in range(flags)}, name="flags")
    stack = TableStack((2,) * flags, blocks)
    names = [tuple(domain.names[flag] for flag in scope) for scope in stack.scopes]
    exact = np.concatenate([table.ravel() for table in open_table(path, domain).exact_counts(names)])
    noisy = exact + np.random.default_rng(7).laplace(scale=len(blocks) / EPSILON, size=exact.size)
    consistency = ViewConsistency(stack, np.ones(len(blocks)))
    return nonnegative_views(consistency, noisy, method="ripple", rounds=1, theta=THETA * len(blocks) / EPSILON).flat


def seconds_of_one(each: PriView, views: np.ndarray, sets: list[tuple[int, ...]]) -> float:
    """The mean processor time of a marginal, the better of two tries each."""
    total = float(each.stack.table(views, each.stack.scopes[0]).sum())

    def seconds(scope: tuple[int, ...]) -> float:
        call = partial(reconstruct, ViewReader(each.stack, views), [scope], method="entropy", total=total, threads=1)
        return best_time(call, patience=0.0, least=2, clock=time.process_time)[0]

    return float(np.mean([seconds(scope) for scope in sets]))


def claims(rows: Rows) -> list[Claim]:
    """How the times compare; the paper itself only prints them."""
    own = by([row for row in rows if row["method"] == OWN], "d", "t", "quantity")
    told: list[Claim] = []
    for quantity, place in (("P", 0), ("Q8", 1)):
        goals = {(d, t): TARGETS.get((d, t), (1, 1))[place] for d, t in PRINTED}
        for goal in sorted(set(goals.values())):
            places = {at: PRINTED[at] for at, wanted in goals.items() if wanted == goal}
            said = f"at least {goal} times as fast" if goal > 1 else "faster"
            told.append(
                Claim(
                    f"{quantity} {said} for {', '.join(name for name, *_ in places.values())}",
                    "the paper's seconds in units of ours",
                    Threshold(low=goal),
                    {
                        name: [printed[QUANTITIES.index(quantity)] / each for each in own[d, t, quantity]]
                        for (d, t), (name, *printed) in places.items()
                    },
                    paper=", ".join(f"{printed[QUANTITIES.index(quantity)]:g} s" for _, *printed in places.values()),
                    more="Ours: " + ", ".join(f"{brief(min(own[d, t, quantity]))} s" for d, t in places) + ".",
                    ours=True,
                )
            )
    return told
