"""Counting on Spark: this package's own coder and kernels run on the executors, and only counts and sums leave them.

    records     Arrow batches that Spark hands to Python, or row groups of Parquet files that executors read themselves
    of a unit   with a unit: codes and units' texts, brought together by a shuffle, `source.unit_rows` among them
    vectors     each task adds up whole numbers: the cells of all marginals, or the sums, end to end
    total       the vectors of all tasks, added up by the driver where they are few, by a shuffle of blocks where not

Whole numbers are added, so that neither the order nor the number of the tasks matters, nor whether one was run twice:
the counts are those of `LocalSource`, which does the counting within a task. The driver holds vectors, never records.

What executors raise and log is this package's own text. Spark itself tells, in its pages and event logs, how
many rows a task read; a query of the user's that fails there may quote a value, as it does without this package.
"""

import os
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import version
from math import prod
from typing import Any
from urllib.parse import unquote, urlsplit
from weakref import WeakSet

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute
from consilience.domain.domains import Domain
from consilience.errors import DeclarationError, SourceError
from consilience.source.base import RecordSum, Source, SourceIdentity, SparkTable, Unit
from consilience.source.engines.executors import (
    BLOCK,
    CANNOT_COUNT,
    COUNTED,
    PAIRS,
    PARTS,
    ROWS,
    SHOWN,
    Records,
    Vector,
    VectorOf,
    add_up,
    add_up_blocks,
    add_up_units,
    add_up_values,
    count_values_of_units,
    counts_of,
    send_rows,
    send_values,
    sums_of,
    tell_version,
)
from consilience.source.local import MOST_VALUES
from consilience.source.readers import attempt, attempt_each, check_columns, check_types
from consilience.source.records import RecordCoder

MOST_GATHERED = 2**27
"""Vectors of together so many bytes are added up by the driver; more are added up by a shuffle of their blocks."""

MOST_FILES = 10_000
"""Of more Parquet files than these the driver does not read the footers."""


# ----------------------------------------------------------------------------------------------------------------------
# The source.


class SparkSource(Source):
    """A table that stays on Spark: executors count it, and counts and sums alone come here."""

    __slots__ = ("_files", "_frame", "_may_shuffle", "_required", "_session")

    gives_points = False

    def __init__(
        self, data: Any, domain: Domain, *, unit: Unit | None, name: str | None, allow_cluster_disk: bool
    ) -> None:
        identity = SourceIdentity(name=name, engine="Spark")
        if isinstance(data, SparkTable):
            identity = SourceIdentity(table=data.name, name=name, engine="Spark", address=address_of(data))
            data = frame_of(data)
        self._session = data.sparkSession
        encrypted = str(self._setting("spark.io.encryption.enabled")).lower() == "true"
        self._may_shuffle = encrypted or allow_cluster_disk
        place = "on Spark" + ("" if encrypted or not allow_cluster_disk else ", with shuffles on unencrypted disks")
        super().__init__(domain, unit=unit, identity=identity, place=place)
        if unit is not None:
            self._refuse_open_disk("the rows of a unit")
        required: dict[str, Attribute | None] = {each.name: each for each in domain.attributes}
        if domain.weight is not None and domain.weight.column not in domain:
            weight = Attribute.continuous(domain.weight.column, domain.weight.bounds)
            required[domain.weight.column] = weight
        if unit is not None:
            required = {unit.column: None, **required}
        self._required = required
        check_columns(SHOWN, attempt(lambda: list(data.columns), CANNOT_DESCRIBE), required)
        self._frame = attempt(lambda: data.select(*[_quoted(each) for each in required]), CANNOT_DESCRIBE)
        schema = attempt(lambda: _arrow_schema(self._frame), CANNOT_DESCRIBE)
        check_types(SHOWN, {each: schema.field(each).type for each in required}, required)
        self._files = row_groups(data, schema)
        _check_executors(self._session)

    @property
    def runs_code(self) -> bool:
        return True

    @property
    def reads_files(self) -> bool:
        """Whether executors read Parquet files themselves, without the way through Spark's rows."""
        return bool(self._files)

    def exact_counts(self, marginals: Sequence[tuple[str, ...]], *, amount: str | None = None) -> list[Vector]:
        self.check_size(marginals)
        if not marginals:
            return []
        columns = list(dict.fromkeys(name for names in marginals for name in names))
        coder = RecordCoder(self._domain, columns, amounts=() if amount is None else (amount,))
        shapes = [self._domain.sizes(names) for names in marginals]
        told = f"counts of {len(marginals)} marginals: " + "; ".join(", ".join(names) for names in marginals[:5])
        return self._total(partial(counts_of, tuple(marginals), amount), shapes, coder.names, told)

    def exact_sums(self, names: Sequence[str], sums: Sequence[RecordSum]) -> list[Vector]:
        self.check_points(names)
        shapes = [each(np.empty((0, len(names)))).shape for each in sums]
        coder = RecordCoder(self._domain, [], names)
        return self._total(
            partial(sums_of, tuple(names), tuple(sums)), shapes, coder.names, f"sums over {', '.join(names)}"
        )

    def exact_points(self, names: Sequence[str]) -> NDArray[np.float64] | None:
        self.check_points(names)

    def exact_value_counts(self, name: str) -> Generator[dict[str, int]]:
        self._domain[name]
        self._refuse_open_disk("the values that nobody declared")
        return attempt_each(self._value_counts(name), CANNOT_COUNT)

    def _total(
        self, vector_of: VectorOf, shapes: Sequence[tuple[int, ...]], names: Sequence[str], told: str
    ) -> list[Vector]:
        """The vectors of all tasks, added up, as tables of these shapes."""
        ends = np.cumsum([0, *(prod(shape) for shape in shapes)])
        total = np.zeros(ends[-1], dtype=np.int64)

        def count() -> None:
            with _described(self._session, told):
                for block, part in self._parts(vector_of, len(total), names or self._domain.names[:1]):
                    total[block * BLOCK : (block + 1) * BLOCK] += np.frombuffer(part, dtype=np.int64)

        attempt(count, CANNOT_COUNT)
        return [total[begin:end].reshape(shape) for begin, end, shape in zip(ends[:-1], ends[1:], shapes, strict=True)]

    def _parts(self, vector_of: VectorOf, size: int, names: Sequence[str]) -> Iterable[tuple[int, bytes]]:
        """The blocks of the vectors, of each task its own or added up on the cluster.

        Vectors are few enough for the driver where few tasks count. Tasks are joined for that, unless they are too few
        to keep the cluster busy and a shuffle may add up the vectors of many.
        """
        most, cores = max(1, MOST_GATHERED // (8 * size)), self._cores
        if self._unit is None:
            few = most < cores and self._may_shuffle
            frame, records = self._records(names, 4 * cores if few else min(most, 4 * cores))
            if not self._files and not few:
                frame = frame.coalesce(most)
            parts = frame.mapInArrow(partial(add_up, records, vector_of), PARTS)
        else:
            frame, records = self._records(tuple(self._required), 4 * cores)
            rows = frame.mapInArrow(partial(send_rows, records, self._unit), ROWS)
            shares = self._shares
            # A number of partitions that is named is kept: no optimiser divides a unit between two of them.
            parts = rows.repartition(shares, "unit").mapInArrow(
                partial(add_up_units, self._domain, self._unit, vector_of), PARTS
            )
            few = most < shares
        if not few:
            return ((row.block, row.part) for row in parts.collect())
        added = parts.repartition(min(self._shares, -(-size // BLOCK)), "block").mapInArrow(add_up_blocks, PARTS)
        return ((row.block, row.part) for row in added.toLocalIterator())

    def _records(self, names: Sequence[str], tasks: int) -> tuple[Any, Records]:
        """A frame with a partition for each task, and what a task takes its records from."""
        required = {name: self._required[name] for name in dict.fromkeys(names)}
        if not self._files:
            return self._frame.select(*[_quoted(name) for name in required]), Records(self._domain, required)
        groups = sorted(self._files, key=lambda each: each[2])
        tasks = min(tasks, len(groups))
        files = tuple(tuple(group[:2] for group in groups[task::tasks]) for task in range(tasks))
        return self._session.range(0, tasks, 1, tasks), Records(self._domain, required, files)

    def _value_counts(self, name: str) -> Generator[dict[str, int]]:
        unit = self._unit
        frame, records = self._records([name] if unit is None else [name, unit.column], 4 * self._cores)
        found = frame.mapInArrow(partial(send_values, records, name, unit), COUNTED if unit is None else PAIRS)
        if unit is not None:
            counting = partial(count_values_of_units, unit.max_rows)
            found = found.repartition(self._shares, "unit").mapInArrow(counting, COUNTED)
        total = found.repartition(self._shares, "value").mapInArrow(add_up_values, COUNTED)
        counts: dict[str, int] = {}
        with _described(self._session, f"values of {name}"):
            for row in total.toLocalIterator():
                counts[bytes(row.value).decode()] = row.n
                if len(counts) == MOST_VALUES:
                    yield counts
                    counts = {}
        yield counts

    def _refuse_open_disk(self, what: str) -> None:
        if not self._may_shuffle:
            raise DeclarationError(
                f"{what} are brought together by a shuffle, which writes them to disks of the cluster, and Spark does "
                "not encrypt these: set spark.io.encryption.enabled to true, or allow it with allow_cluster_disk=True"
            )

    def _setting(self, name: str) -> str | None:
        return attempt(lambda: self._session.conf.get(name, None), CANNOT_DESCRIBE)

    @property
    def _shares(self) -> int:
        """Among how many tasks units are divided."""
        found = self._setting("spark.sql.shuffle.partitions") or ""
        return int(found) if found.isdecimal() else 200

    @property
    def _cores(self) -> int:
        """How many tasks run at a time; a Connect server does not tell."""
        return _context(self._session).defaultParallelism if _is_classic(self._session) else self._shares


CANNOT_DESCRIBE = f"{SHOWN} cannot be described; check that it exists and that you may read it"


def _is_classic(session: Any) -> bool:
    return not type(session).__module__.startswith("pyspark.sql.connect")


def _context(session: Any) -> Any:
    return session.sparkContext


@contextmanager
def _described(session: Any, told: str) -> Generator[None]:
    """Spark's pages name what is counted, by declared names alone."""
    if not _is_classic(session):
        yield
        return
    context = _context(session)
    context.setJobDescription(f"consilience: {told}")
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", None)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _arrow_schema(frame: Any) -> Any:
    """The columns' types as executors will get them: a timestamp is a moment in UTC, whatever the session's zone."""
    types: Any = import_module("pyspark.sql.pandas.types")
    return pa.schema(
        [
            (each.name, pa.timestamp("us", "UTC") if kind == "timestamp" else types.to_arrow_type(each.dataType))
            for each in frame.schema
            for kind in [each.dataType.typeName()]
        ]
    )


_CHECKED: "WeakSet[Any]" = WeakSet()
"""The sessions whose executors have this package."""


def _check_executors(session: Any) -> None:
    """Refuse executors without this package, or with another version of it, before anything is read or paid."""
    if session in _CHECKED:
        return
    refusal = (
        f"the executors have no consilience {version('consilience')} with the libraries that it needs; install it "
        "there, or send an environment with --archives (see the page 'Run it where the data is')"
    )
    probe = session.range(0, 1, 1, 1).mapInArrow(tell_version, "version string")
    found = {row.version for row in attempt(probe.collect, refusal)}
    if found != {version("consilience")}:
        raise SourceError(f"{refusal}; they have {', '.join(sorted(found))}")
    _CHECKED.add(session)


# ----------------------------------------------------------------------------------------------------------------------
# Parquet files that executors may read themselves: only where that is what Spark would have done.


RELATION = "org.apache.spark.sql.execution.datasources"
SAME_ELSEWHERE = (
    pa.types.is_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_boolean, pa.types.is_string,
    pa.types.is_date32, pa.types.is_decimal,
)  # fmt: skip


def row_groups(frame: Any, schema: Any) -> tuple[tuple[str, int, int], ...]:
    """The row groups of the files that a frame is, each with its file and its rows.

    None where the frame is anything but whole Parquet files that every machine sees by the same path, with columns
    of these names and types and nothing that Spark reads in a way of its own. Its plan is asked for, which a Connect
    server does not tell.
    """
    try:
        paths = _files_of_plan(frame)
        found = [
            (path, group, footer.row_group(group).num_rows)
            for path in paths
            for footer in [_footer(path, schema)]
            for group in range(footer.num_row_groups)
        ]
    except Exception:  # whatever is not as expected, Spark reads
        return ()
    return tuple(found)


class _Otherwise(Exception):
    """Spark reads this in a way of its own."""


def _files_of_plan(frame: Any) -> list[str]:
    plan = frame._jdf.queryExecution().analyzed()
    while plan.getClass().getSimpleName() in ("SubqueryAlias", "View"):
        plan = plan.child()
    relation = plan.relation()
    kinds = [each.getClass().getName() for each in (plan, relation, relation.fileFormat(), relation.location())]
    indexes = (f"{RELATION}.InMemoryFileIndex", f"{RELATION}.CatalogFileIndex")
    expected = [f"{RELATION}.LogicalRelation", f"{RELATION}.HadoopFsRelation", f"{RELATION}.parquet.ParquetFileFormat"]
    if kinds[:3] != expected or kinds[3] not in indexes or relation.partitionSchema().length():
        raise _Otherwise
    files = [urlsplit(file) for file in relation.location().inputFiles()]
    if len(files) > MOST_FILES or any(file.scheme != "file" or file.netloc for file in files):
        raise _Otherwise
    return [unquote(file.path) for file in files]


def _footer(path: str, schema: Any) -> Any:
    """What a file says of itself; refused where a column is not what Spark takes it for."""
    parquet: Any = pyarrow.parquet
    with parquet.ParquetFile(path) as file:
        own, footer = file.schema_arrow, file.metadata
    for field in schema:
        if own.names.count(field.name) != 1 or own.field(field.name).type != field.type:
            raise _Otherwise
        if not any(holds(field.type) for holds in SAME_ELSEWHERE):
            raise _Otherwise
    if any(b"legacy" in key for key in footer.metadata or {}):
        raise _Otherwise
    return footer


# ----------------------------------------------------------------------------------------------------------------------
# A table of a Spark catalogue, by its name.


def address_of(table: SparkTable) -> str | None:
    """Where the cluster is, without who asks: what follows /; in the address of a Connect server is left out.

    >>> address_of(SparkTable("db.people", remote="sc://me@host:15002/;token=secret"))
    'sc://host:15002'
    """
    given = table.master or table.remote
    if given is None or "://" not in given:
        return given
    parts = urlsplit(given.partition("/;")[0])
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def frame_of(table: SparkTable) -> Any:
    """The table, in the session that there is or in a new one; executors run this Python unless told otherwise."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        sql: Any = import_module("pyspark.sql")
    except ImportError:
        raise DeclarationError(
            "a table on Spark needs the library pyspark; install it with: pip install 'consilience[spark]'"
        ) from None
    builder = sql.SparkSession.builder
    if table.master is not None:
        quiet = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
        builder = builder.appName("consilience").master(table.master).config(map=quiet)
    if table.remote is not None:
        builder = builder.remote(table.remote)
    session = attempt(builder.getOrCreate, "no Spark session could be started; check the address of the cluster")
    refusal = f"Spark has no table {table.name!r} that you may read; name it as catalog.schema.table"
    return attempt(lambda: session.table(table.name), refusal)
