"""What grows on one machine, and how fast: draws of noise, rows, marginals, cells and attributes.

Every row is measured in a process of its own, after a small run of the same kind, so that imports and compiled kernels
are not part of it: `cpu` is processor time of all threads in seconds, `peak MB` the most memory that the process held.
`exponent` says how processor time grows from the row before it of the same work: 1 is in proportion.

*noise*: draws of each law by `SecureNoise`, and by OpenDP, which fewer values are drawn by; `ratio` is the time of a
draw of the latter in units of ours. *rows*: the table of `counting`, 32 binary columns in Parquet, twenty eight-way
marginals or all 496 pairs, against one query of DuckDB with GROUPING SETS and one lazy query of polars with a group-by
for each; the counts must be equal. *cells*: a table of two attributes, measured with ε = 1, estimated, and asked.
*attributes*: `release` as it is by default, of 20,000 records with 2 to 10 values in a column, dependent.
"""

import itertools
import math
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.counting import DOMAIN, chosen_marginals, count_with_consilience, write_table
from benchmarks.speed.timing import in_own_process, peak_megabytes
from consilience.domain import Domain

Row = dict[str, Any]

RECORDS = 20_000
SIZES = (2, 3, 4, 5, 6, 8, 10, 2, 2, 3)
"""How many values attributes have, over and over."""

PROGRAM = """
import json, sys
from benchmarks.speed import scale
print(json.dumps(getattr(scale, sys.argv[1])(*json.loads(sys.argv[2]))))
"""


def run(quick: bool) -> list[Row]:
    """The rows of all parts; if quick, of small sizes."""
    return [*noise(quick), *counting(quick), *cells(quick), *attributes(quick)]


def _measured(part: str, what: str, size: int, function: str, *arguments: Any) -> Row:
    found = in_own_process(PROGRAM.replace("sys.argv[1]", repr(function)).replace("argv[2]", "argv[1]"), *arguments)
    return {"part": part, "what": what, "size": size} | found


def _with_exponents(rows: list[Row]) -> list[Row]:
    """The rows of one work by growing size, each with the exponent of its growth from the row before it."""
    for before, row in itertools.pairwise(rows):
        row["exponent"] = math.log(row["cpu"] / before["cpu"]) / math.log(row["size"] / before["size"])
    return rows


# ----------------------------------------------------------------------------------------------------------------------
# Noise.


def noise(quick: bool) -> list[Row]:
    """Microseconds of processor time for a draw of each law, ours and OpenDP's."""
    rows = []
    for law, scale in itertools.product(("laplace", "gaussian"), (2.0, 100.3, 1e6)):
        own, other = (
            _measured("noise", f"{law}, scale {scale:g}, {who}", draws, "draw_noise", law, scale, draws)
            for who, draws in (("ours", 200_000 if quick else 4_000_000), ("OpenDP", 16_384))
        )
        for row in (own, other):
            row["µs a draw"] = 1e6 * row["cpu"] / row["size"]
            row["draws a second"] = row["size"] / row.pop("seconds")
        own["ratio"] = other["µs a draw"] / own["µs a draw"]
        rows += [own, other]
    return rows


def draw_noise(law: str, scale: float, draws: int) -> Row:
    """What so many draws take, on all processors."""
    from consilience.privacy.noise import SecureNoise

    draw = getattr(SecureNoise(), law)
    draw(np.zeros(min(draws, 20_000), dtype=np.int64), scale)
    exact = np.zeros(draws, dtype=np.int64)
    began, wall = time.process_time(), time.perf_counter()
    draw(exact, scale)
    return {"cpu": time.process_time() - began, "seconds": time.perf_counter() - wall, "peak MB": peak_megabytes()}


# ----------------------------------------------------------------------------------------------------------------------
# Rows and marginals.


def counting(quick: bool) -> list[Row]:
    """Counting by growing rows, and as DuckDB and polars do it; all pairs of these with the fewest rows alone."""
    rows: list[Row] = []
    sizes = (100_000, 1_000_000) if quick else (1_000_000, 10_000_000)
    with tempfile.TemporaryDirectory() as folder:
        paths = {size: Path(folder) / f"{size}.parquet" for size in sizes}
        for size, path in paths.items():
            write_table(path, size)
        for ways, who in itertools.product((8, 2), ("consilience", "duckdb", "polars")):
            what = f"{who}, {'20 eight-way marginals' if ways == 8 else 'all 496 pairs'}"
            taken = sizes if who == "consilience" or ways == 8 else sizes[:1]
            files = [(size, str(paths[size]), str(paths[sizes[0]])) for size in taken]
            own = [_measured("rows", what, size, "count", who, path, first, ways) for size, path, first in files]
            rows += _with_exponents(own)
    for ways in (8, 2):
        same = [row for row in rows if ("eight" in row["what"]) == (ways == 8)]
        for row in same:
            own = next(each for each in same if each["size"] == row["size"])
            row["ratio"] = row["cpu"] / own["cpu"]
            if row["checksum"] != own["checksum"]:
                raise SystemExit(f"the counts of {row['what']} differ from ours")
    for row in rows:
        del row["checksum"]
    return rows


def count(who: str, path: str, first: str, ways: int) -> Row:
    """What the counts of a file take once those of a first one were made, and a checksum of them all."""
    asked = chosen_marginals() if ways == 8 else list(itertools.combinations(DOMAIN.names, 2))
    counters = {"consilience": count_with_consilience, "duckdb": _count_with_duckdb, "polars": _count_with_polars}
    counters[who](first, asked)
    began = time.process_time()
    counts = counters[who](path, asked)
    cpu = time.process_time() - began
    places = [np.arange(1, each.size + 1) for each in counts]
    checksum = sum(number * int(own @ each) for number, (own, each) in enumerate(zip(places, counts, strict=True), 1))
    return {"cpu": cpu, "peak MB": peak_megabytes(), "checksum": checksum}


def _count_with_duckdb(path: str, asked: list[tuple[str, ...]]) -> list[np.ndarray[Any, Any]]:
    """One query: a grouping set for each marginal."""
    import duckdb

    sets = ", ".join(f"({', '.join(names)})" for names in asked)
    chosen = ", ".join(DOMAIN.names)
    query = f"SELECT {chosen}, grouping({chosen}) AS mark, count(*) AS n FROM '{path}' GROUP BY GROUPING SETS ({sets})"
    connection = duckdb.connect()
    connection.execute("SET enable_progress_bar = false")
    found = connection.execute(query).fetchnumpy()
    place = {name: place for place, name in enumerate(DOMAIN.names)}
    every, marks, counts = 2 ** len(place) - 1, np.asarray(found["mark"]), []
    for names in asked:
        mark = every - sum(2 ** (len(place) - 1 - place[name]) for name in names)
        own = marks == mark
        counts.append(_dense([np.asarray(found[name])[own] for name in names], np.asarray(found["n"])[own]))
    return counts


def _count_with_polars(path: str, asked: list[tuple[str, ...]]) -> list[np.ndarray[Any, Any]]:
    """One lazy query for each marginal, all collected together."""
    import polars as pl

    frame = pl.scan_parquet(path)
    tables = pl.collect_all([frame.group_by(list(names)).len() for names in asked])
    return [
        _dense([table[name].to_numpy() for name in names], table["len"].to_numpy())
        for names, table in zip(asked, tables, strict=True)
    ]


def _dense(codes: list[np.ndarray[Any, Any]], counts: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    found = np.zeros((2,) * len(codes), dtype=np.int64)
    found[tuple(np.asarray(each, dtype=np.intp) for each in codes)] = counts
    return found.ravel()


def _timed(found: Row, step: str, action: Callable[[], Any]) -> Any:
    """What the action gives; its time, and the peak until its end, are put down as those of a step."""
    began = time.process_time()
    result = action()
    found[step] = {"cpu": time.process_time() - began, "peak MB": peak_megabytes()}
    return result


def _by_step(part: str, found: list[Row]) -> list[Row]:
    """What was measured of growing sizes, step by step, with the exponents of growth."""
    steps = [key for key in found[0] if isinstance(found[0][key], dict)]
    return [
        row
        for step in steps
        for row in _with_exponents([{"part": part, "what": step, "size": each["size"]} | each[step] for each in found])
    ]


# ----------------------------------------------------------------------------------------------------------------------
# Cells.


def cells(quick: bool) -> list[Row]:
    """Measuring, estimating and asking a flat table of growing size."""
    sizes = (100, 316) if quick else (316, 1000)
    found = [_measured("cells", "", side * side, "flat_table", side) for side in sizes]
    return _by_step("cells", found)


def flat_table(side: int) -> Row:
    """The steps of a table of two attributes, each with its time and the peak until its end."""
    _flat_steps(30)
    return _flat_steps(side)


def _flat_steps(side: int) -> Row:
    import pyarrow as pa

    import consilience as cs

    rng = np.random.default_rng(0)
    values = {name: np.minimum(rng.geometric(5 / side, RECORDS) - 1, side - 1).astype(str) for name in "ab"}
    source = cs.open_table(pa.table(values), Domain.from_sizes({"a": side, "b": side}, name="flat"))
    found: Row = {}
    timed = partial(_timed, found)
    with tempfile.TemporaryDirectory() as folder:
        ledger = cs.Ledger.open(Path(folder) / "ledger", epsilon=1)
        measured = timed("measure", lambda: cs.measure(source, cs.plans.Direct(ways=2), ledger=ledger, epsilon=1))
        fitted = timed("estimate", lambda: cs.estimate(measured))
        timed("answer", lambda: fitted.answer("by a"))
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Attributes.


def attributes(quick: bool) -> list[Row]:
    """`release` by default of tables of growing width."""
    sizes = (25, 50) if quick else (50, 100, 200)
    found = [_measured("attributes", "", size, "wide_release", size) for size in sizes]
    return _by_step("attributes", found)


def wide_release(size: int) -> Row:
    """A dry run, a release and a question, each with its time and the peak until its end."""
    _wide_steps(12)
    return _wide_steps(size)


def _wide_steps(size: int) -> Row:
    import pyarrow as pa
    import pyarrow.parquet

    import consilience as cs

    rng = np.random.default_rng(1)
    common = rng.integers(0, 4, RECORDS)
    sizes = {f"a{place}": SIZES[place % len(SIZES)] for place in range(size)}
    columns = {
        name: np.where(rng.random(RECORDS) < 0.5, common * (place + 1) % values, rng.integers(0, values, RECORDS))
        for place, (name, values) in enumerate(sizes.items())
    }
    domain = Domain.from_sizes(sizes, name="wide")
    found: Row = {}
    timed = partial(_timed, found)
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "wide.parquet", Path(folder) / "release"
        parquet: Any = pyarrow.parquet
        parquet.write_table(pa.table({name: codes.astype(str) for name, codes in columns.items()}), data)
        release = timed("release", lambda: cs.release(data, domain, out=out, epsilon=1.0))
        timed("open the bundle", lambda: cs.open_release(out))
        timed("answer", lambda: release.answer("by a0, a1"))
        found["release"]["files"] = sum(each.is_file() for each in out.rglob("*"))
    return found
