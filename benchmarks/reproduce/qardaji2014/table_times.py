"""Qardaji, Yang and Li (2014), the table of §4.6: seconds to publish a synopsis, and to reconstruct a marginal.

P is everything from a Parquet file of the records to the synopsis: counting all views, noise, consistency, Ripple and
consistency; the best of three tries. Q6 and Q8 are one marginal of 6 or 8 attributes by greatest entropy, the mean over
some, on one core. Kernels are compiled beforehand. The paper's numbers are of a Python implementation on one 2.3 GHz
processor.
"""

import math
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.problems.flags import FlagRecords, aol_sized, kosarak_sized
from benchmarks.reproduce.figures import Claim, Picture, brief, publish
from benchmarks.reproduce.qardaji2014.asked import Rows, random_sets
from benchmarks.reproduce.qardaji2014.priview import THETA, Blocks, PriView, design
from benchmarks.speed.timing import best_time
from consilience.domain import Domain
from consilience.marginals.consistency import ViewConsistency
from consilience.marginals.margins import ViewReader
from consilience.marginals.nonnegativity import nonnegative_views
from consilience.marginals.reconstruction import reconstruct
from consilience.marginals.table_stacks import TableStack
from consilience.source import open_table

parquet: Any = pyarrow.parquet

NAME = "qardaji2014-table-times"
PICTURE = Picture(
    "Seconds to publish views and to reconstruct a marginal (Qardaji et al. 2014, table of §4.6)",
    "quantity",
    "",
    "panel",
    y="seconds",
    y_title="seconds",
    bars=True,
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


def run(quick: bool) -> bool:
    """All records, and 40 marginals of each size; a tenth of the records and 5 marginals if quick."""
    rows: Rows = []
    for records in (kosarak_sized(), aol_sized()):
        columns = records.written_out()
        columns = columns[:, : columns.shape[1] // 10] if quick else columns
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "records.parquet"
            write(path, columns)
            for strength in (2, 3):
                rows += compare(records, path, strength, 5 if quick else 40)
    return publish(NAME, rows, PICTURE, claims(rows), quick=quick)


def write(path: Path, columns: np.ndarray) -> None:
    """The records as a file, a column for each flag."""
    names = [f"a{flag:02}" for flag in range(len(columns))]
    parquet.write_table(pa.Table.from_arrays([pa.array(column) for column in columns], names=names), path)


def compare(records: FlagRecords, path: Path, strength: int, marginals: int) -> Rows:
    blocks = design(records.flags, 8, strength)
    publishing, views = best_time(lambda: publish_views(path, records.flags, blocks), patience=0.0, least=3)
    each = PriView(records, strength, blocks)
    seconds = {"P": publishing}
    for quantity, k in (("Q6", 6), ("Q8", 8)):
        seconds[quantity] = seconds_of_one(each, views, random_sets(records.flags, k, marginals))
    name, *printed = PRINTED[records.flags, strength]
    panel = f"d = {records.flags}, {each.name}" + (f" (paper: {name})" if name != each.name else "")
    place = {"panel": panel, "d": records.flags, "t": strength, "views": each.views, "records": records.total}
    rows: Rows = []
    for quantity, theirs in zip(QUANTITIES, printed, strict=True):
        ratio = theirs / seconds[quantity]
        rows.append(place | {"quantity": quantity, "method": PAPER, "seconds": theirs, "ratio": 1.0})
        rows.append(place | {"quantity": quantity, "method": OWN, "seconds": seconds[quantity], "ratio": ratio})
        print(f"  {panel}, {quantity}: {seconds[quantity]:.3g} s ({brief(ratio)} times as fast)", flush=True)
    return rows


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
    """The mean time of a marginal, the better of two tries each."""
    total = float(each.stack.table(views, each.stack.scopes[0]).sum())

    def seconds(scope: tuple[int, ...]) -> float:
        call = partial(reconstruct, ViewReader(each.stack, views), [scope], method="entropy", total=total, threads=1)
        return best_time(call, patience=0.0, least=2)[0]

    return float(np.mean([seconds(scope) for scope in sets]))


def claims(rows: Rows) -> list[Claim]:
    """How the times compare; the paper itself only prints them."""
    own = {(int(row["d"]), int(row["t"]), row["quantity"]): row for row in rows if row["method"] == OWN}
    verdicts = []
    for (d, t), (name, *printed) in PRINTED.items():
        found = {quantity: own[d, t, quantity] for quantity in QUANTITIES}
        told = ", ".join(
            f"{quantity} {row['seconds']:.3g} s instead of {theirs:g} s, {brief(row['ratio'])} times"
            for (quantity, row), theirs in zip(found.items(), printed, strict=True)
        )
        publishing, marginal = TARGETS.get((d, t), (1, 1))
        goal = [f"P at least {publishing} times as fast"] if publishing > 1 else []
        goal += [f"Q8 at least {marginal} times"] if marginal > 1 else []
        verdicts.append(
            Claim(
                f"beyond the paper: {name}, d = {d}: {' and '.join(goal) or 'faster'}",
                found["P"]["ratio"] >= publishing
                and found["Q8"]["ratio"] >= marginal
                and math.isfinite(found["Q6"]["ratio"]),
                f"{found['P']['views']:g} views here: {told}",
            )
        )
    return verdicts
