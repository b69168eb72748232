"""What a source is, wherever its records are counted: the only ways to them, and what tells it apart."""

import glob
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Continuous
from consilience.domain.domains import Domain
from consilience.errors import DeclarationError, TooLarge

# ----------------------------------------------------------------------------------------------------------------------
# What a source is, so that a ledger tells it from every other: never anything of its rows, and no credentials.
#
# Files are told apart by where they really are, however they were spelled: a symbolic link, a pattern and a roundabout
# path come to the same files. A ledger keeps their paths as seen from its own directory, so that data and ledger may be
# moved together. A frame in memory has no place; the name that its curator gives is all there is to tell it by.


@dataclass(frozen=True)
class SourceIdentity:
    """The files that a source really is, the table or the query in them, and the names that people gave it."""

    files: tuple[Path, ...] = ()
    """Resolved, in the order of their paths; none for data in memory."""
    table: str | None = None
    query: str | None = None
    name: str | None = None
    given: str | None = None
    """The path or pattern as it was spelled."""
    engine: str | None = None
    """What holds the table, where that is not this process."""
    address: str | None = None
    """Where the engine is, without who asks."""

    @staticmethod
    def of_files(
        files: Sequence[Path], given: str, *, table: str | None, query: str | None, name: str | None
    ) -> "SourceIdentity":
        """The identity of these files, links resolved."""
        resolved = sorted({Path(os.path.realpath(file)) for file in files})
        return SourceIdentity(tuple(resolved), table, query, name, given)

    def seen_from(self, directory: Path) -> dict[str, Any]:
        """The identity as a ledger in this directory keeps it, `directory` being where the paths begin."""
        if self.engine is not None:
            where = {"engine": self.engine, "address": self.address, "table": self.table}
            return {"kind": "engine", **where, "name": self.name}
        if not self.files:
            return {"kind": "memory", "name": self.name}
        place = os.path.realpath(directory)
        files = [_relative(file, place) for file in self.files]
        return {"kind": "files", "files": files, "table": self.table, "query": self.query, "directory": place}

    @property
    def ledger_path(self) -> Path | None:
        """Beside the data: its file's name with `.ledger`, for several files what their names have in common."""
        if not self.files:
            return None
        if len(self.files) == 1:
            return self.files[0].with_name(self.files[0].name + ".ledger")
        directory = Path(os.path.commonpath([file.parent for file in self.files]))
        names = ["-".join(file.relative_to(directory).parts) for file in self.files]
        beginning = _common_beginning(names)
        end = _common_beginning([name[len(beginning) :][::-1] for name in names])[::-1]
        return directory / f"{beginning}_{end}.ledger"

    @property
    def spelled_ledger_path(self) -> Path | None:
        """Where earlier versions looked: beside the path as it was spelled, links and patterns not resolved."""
        if self.given is None:
            return None
        path = Path(self.given).absolute()
        if os.path.exists(self.given) or not glob.has_magic(self.given):
            return path.with_name(path.name + ".ledger")
        parts = path.parts
        plain = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        pattern = "-".join(parts[plain:])
        return Path(*parts[:plain], "".join("_" if sign in "*?[]" else sign for sign in pattern) + ".ledger")


def _common_beginning(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    differing = (place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return first[: next(differing, len(first))]


def _relative(file: Path, directory: str) -> str:
    try:
        return Path(os.path.relpath(file, directory)).as_posix()
    except ValueError:  # another drive
        return file.as_posix()


ON_SPARK = "spark:"
"""How the name of a table of Spark's catalogue begins, where a path could stand."""


@dataclass(frozen=True)
class SparkTable:
    """A table or view of Spark's catalogue, and how to reach the cluster: by the session that is active by default."""

    name: str
    master: str | None = None
    remote: str | None = None

    def __post_init__(self) -> None:
        if self.master is not None and self.remote is not None:
            raise DeclarationError("a Spark table is reached by spark_master= or by spark_remote=; give one of them")


# ----------------------------------------------------------------------------------------------------------------------
# A source: the ways to its records.


LARGEST_COUNTS = 2 * 2**30
"""The most bytes that the counts of one call may take."""


class Unit(NamedTuple):
    """What is protected: a value of this column, with at most this many rows."""

    column: str
    max_rows: int


RecordSum = Callable[[NDArray[np.float64]], NDArray[np.int64]]
"""A sum over points, a row each: of some of them and of the others it adds up to that of all."""


def declared_unit(unit: str | None, max_rows: int | None) -> Unit | None:
    """The unit of these two declarations, which belong together; None where each row is one."""
    if unit is None and max_rows is None:
        return None
    if unit is None:
        raise DeclarationError("max_rows_per_unit= was given without unit=; name the column of the units")
    if not isinstance(max_rows, int) or isinstance(max_rows, bool) or max_rows < 1:
        raise DeclarationError(
            f"unit={unit!r} needs max_rows_per_unit=, a whole number from 1 up; {max_rows!r} was given"
        )
    return Unit(unit, max_rows)


class Source(ABC):
    """A confidential table with its public declaration. What it shows of itself is public.

    `exact_counts`, `exact_sums`, `exact_points` and `exact_value_counts` are the only ways to its records, and their
    results are confidential. Where the records are counted is the source's matter: who asks does not know. What a
    source cannot do there, it refuses; no source brings records elsewhere in silence.
    """

    __slots__ = ("_domain", "_identity", "_unit", "place")

    gives_points: ClassVar[bool]
    """Whether `exact_points` may bring points here, where what is no sum over records can be computed of them."""

    def __init__(self, domain: Domain, *, unit: Unit | None, identity: SourceIdentity, place: str) -> None:
        self.place = place
        """Where records are counted, in words that may be published: "in this process", "on Spark"."""
        self._domain = domain
        self._unit = unit
        self._identity = identity

    def __repr__(self) -> str:
        unit = "" if self._unit is None else f", unit={self.unit!r}, max_rows_per_unit={self.max_rows_per_unit}"
        return f"Source({self.name!r}{unit}, counted {self.place})"

    @property
    def domain(self) -> Domain:
        return self._domain

    @property
    def name(self) -> str:
        """The dataset's name, as its domain declares it."""
        return self._domain.name

    @property
    def unit(self) -> str | None:
        """The column whose values are protected, or None where each row is."""
        return None if self._unit is None else self._unit.column

    @property
    def max_rows_per_unit(self) -> int:
        """How many rows one protected unit has at most: the factor on every sensitivity."""
        return 1 if self._unit is None else self._unit.max_rows

    @property
    def default_ledger_path(self) -> Path | None:
        """Where the ledger lies unless told otherwise: beside the data; None for data in memory."""
        return self._identity.ledger_path

    @property
    def identity(self) -> SourceIdentity:
        """Which files, table or query this is; for the ledger, which tells sources apart by it."""
        return self._identity

    @property
    @abstractmethod
    def runs_code(self) -> bool:
        """Whether reading runs a query, a view or a lazy plan, so that even a failure may tell something."""

    def statements(self, marginals: Sequence[tuple[str, ...]]) -> list[str]:
        """The queries that would count these marginals, where a SQL engine counts."""
        raise DeclarationError(
            f"the records of this source are counted {self.place}, by no SQL; SQL counts a table that a connection or "
            "a URL such as postgresql://... leads to"
        )

    @property
    def reads_once(self) -> bool:
        """Whether the records are gone once they have been read, so that no plan can read them a second time."""
        return False

    def check_size(self, marginals: Sequence[tuple[str, ...]], *, amount: str | None = None) -> None:
        """Refuse counts, or sums of an amount, that would take too much memory, or that cannot be had where the
        records are; declarations alone decide."""
        _check_marginals(self._domain, marginals)
        _check_memory(self._domain, marginals)

    @abstractmethod
    def exact_counts(
        self, marginals: Sequence[tuple[str, ...]], *, amount: str | None = None
    ) -> list[NDArray[np.int64]]:
        """The number of records in each cell of each marginal, its axes in the order named. Confidential.

        Of a domain with weights it is the sum of weights, and with `amount` that of the attribute's amounts: in whole
        steps of `Domain.summand`. All marginals are counted in one pass over the data. Memory is bounded by the counts
        and a few batches; counts that would take too much are refused before the data is touched.
        """

    @abstractmethod
    def exact_sums(self, names: Sequence[str], sums: Sequence[RecordSum]) -> list[NDArray[np.int64]]:
        """These sums over the records as points over continuous attributes, in one pass. Confidential."""

    @abstractmethod
    def exact_points(self, names: Sequence[str]) -> NDArray[np.float64] | None:
        """The records as points over continuous attributes, one row for each record kept. Confidential.

        None where they would take more than LARGEST_POINTS bytes, or are not to leave where they are.
        """

    @abstractmethod
    def exact_value_counts(self, name: str) -> Generator[dict[str, int]]:
        """How many units have each value of an attribute, declared or not, in parts of the values. Confidential.

        A unit counts for as many values as it may have rows; the attribute's own rules have no part in it. Where the
        values do not fit in the memory meant for them, the source is read again for each half, quarter and so on of
        them: however many there are, nothing is refused.
        """

    def check_points(self, names: Sequence[str]) -> None:
        """Refuse points over anything but continuous attributes."""
        for name in self._domain.ordered(names):
            if not isinstance(self._domain[name], Continuous):
                raise DeclarationError(
                    f"attribute {name!r} is {self._domain[name].kind}; only continuous attributes give points"
                )
        if not names:
            raise DeclarationError("points need at least one continuous attribute; name one")


def _check_marginals(domain: Domain, marginals: Sequence[tuple[str, ...]]) -> None:
    for names in marginals:
        if isinstance(names, str):
            raise DeclarationError(f"a marginal is a tuple of attribute names; {names!r} is one text")
        domain.sizes(domain.ordered(names))


def _check_memory(domain: Domain, marginals: Sequence[tuple[str, ...]]) -> None:
    """Refuse counts that would take more than LARGEST_COUNTS bytes: 8 for each cell."""
    cells = [prod(domain.sizes(names)) for names in marginals]
    needed = 8 * sum(cells)
    if needed > LARGEST_COUNTS:
        largest = max(range(len(cells)), key=cells.__getitem__)
        raise TooLarge(
            f"the counts of {len(cells)} marginals would take {needed / 1e9:,.1f} GB, of which "
            f"{8 * cells[largest] / 1e9:,.1f} GB for ({', '.join(marginals[largest])}); the limit is "
            f"{LARGEST_COUNTS / 1e9:,.1f} GB: ask for fewer or smaller marginals, or declare coarser attributes"
        )
