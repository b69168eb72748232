"""A table for every place of a geography of millions, in files: a folder with one Parquet file for each region.

A *region* is a place of some level with all below it, a state say. The folder has a file of the places above the
regions and a file for each region, and no step needs more than one of them in memory. A file has a row for each place:

    place     its name
    parent    the row of the place that it is part of, −1 for the first ones
    …         for each table a list of numbers, or nothing where the place has none

The region itself is the first row of its file, and a row without children of the file above. `manifest.json` says what
the tables are, and names every file with its SHA-256. A folder is written beside its place and renamed, so that it is
there whole or not at all.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from consilience.domain.declarations import suggestion
from consilience.domain.files import refuse_to_write, shown_path
from consilience.errors import FileFormatError, MeasurementError

if TYPE_CHECKING:
    import pyarrow as pa

Array = NDArray[np.float64]

VERSION = 1
MANIFEST, ABOVE, INDEX = "manifest.json", "above.parquet", "places.parquet"
ROWS_PER_GROUP = 20_000
"""Places that a reader must take together."""


@dataclass(frozen=True, eq=False)
class PlaceRows:
    """Some places, parents before their children, and tables of them."""

    names: "pa.Array"
    parent: NDArray[np.int64]
    tables: Mapping[str, tuple[NDArray[np.intp], Array]]
    """For each table the rows that have one, and its numbers, a row for each."""

    def __post_init__(self) -> None:
        places = len(self.names)
        if self.parent.shape != (places,) or np.any(self.parent >= np.arange(places)) or np.any(self.parent < -1):
            raise MeasurementError(f"each of {places:,} places needs the row of the one above it before it, or −1")
        for name, (rows, numbers) in self.tables.items():
            inside = rows.size == 0 or (rows[0] >= 0 and rows[-1] < places and bool(np.all(np.diff(rows) > 0)))
            if numbers.ndim != 2 or len(rows) != len(numbers) or not inside:
                raise MeasurementError(
                    f"table {name!r} names places that are not there, or not in order; name each once"
                )
            if not np.isfinite(numbers).all():
                raise MeasurementError(f"table {name!r} has numbers that are not finite")


class RegionWriter:
    """Writes a folder region by region; nothing is there before all of it is, and nothing is left of a failure."""

    def __init__(self, folder: str | os.PathLike[str], *, kind: str, about: Mapping[str, Any]) -> None:
        self.folder, self.kind, self.about = Path(folder), kind, dict(about)
        if self.folder.exists():
            raise FileFormatError(f"{shown_path(folder)} is already there; choose another folder, or remove it")
        self._staged = self.folder.with_name(f".{self.folder.name}.{os.getpid()}.partial")
        self._files: dict[str, dict[str, Any]] = {}
        self._names: list[tuple[Any, int]] = []

    def __enter__(self) -> Self:
        try:
            self._staged.mkdir(parents=True)
        except OSError as error:
            refuse_to_write(self.folder, error)
        return self

    @property
    def regions(self) -> list[str]:
        return [each["region"] for each in self._files.values()]

    def add_region(self, region: str, rows: PlaceRows) -> None:
        """The places of a region, itself the first."""
        if not len(rows.names) or rows.names[0].as_py() != region or np.any(rows.parent[1:] < 0):
            raise MeasurementError(
                f"the first place of region {region!r} is the region itself, and the others are in it"
            )
        if any(each["region"] == region for each in self._files.values()):
            raise MeasurementError(f"region {region!r} is written twice; write each once")
        number = len(self._files)
        name = f"region-{number:05d}.parquet"
        self._names.append((rows.names, number))
        self._files[name] = {"region": region} | self._write(name, rows)

    def add_beside(self, name: str, columns: Mapping[str, Array]) -> None:
        """More numbers about the region that was written last, as a file of its own."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        arrays = {key: _lists(numbers.reshape(len(numbers), -1)) for key, numbers in columns.items()}
        pq.write_table(pa.table(arrays), self._staged / name, compression="zstd")
        self._files[list(self._files)[-1]].setdefault("beside", {})[name] = _digest(self._staged / name)

    def finish(self, above: PlaceRows) -> None:
        """The places above the regions; the folder is there after that."""
        regions = [each["region"] for each in self._files.values()]
        if missing := sorted(set(regions) - set(above.names.to_pylist())):
            raise MeasurementError(f"region {missing[0]!r} is not among the places above the regions; name it there")
        self._names.append((above.names, -1))
        manifest = {
            "format": self.kind,
            "version": VERSION,
            **self.about,
            "above": {"file": ABOVE} | self._write(ABOVE, above),
            "regions": [{"file": name} | each for name, each in self._files.items()],
            "index": {"file": INDEX} | self._write_index(),
        }
        (self._staged / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False), encoding="utf-8")
        self._staged.rename(self.folder)

    def _write(self, name: str, rows: PlaceRows) -> dict[str, Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns: dict[str, Any] = {"place": rows.names, "parent": pa.array(rows.parent, pa.int32())}
        for table, (chosen, numbers) in rows.tables.items():
            columns[table] = _lists(numbers, chosen, len(rows.names))
        path = self._staged / name
        pq.write_table(pa.table(columns), path, compression="zstd", row_group_size=ROWS_PER_GROUP)
        return {"places": len(rows.names), "sha256": _digest(path)}

    def _write_index(self) -> dict[str, Any]:
        """Which file has each place; regions are in their own. Refuses a name that two places have."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        names = pa.chunked_array([each.cast(pa.string()) for each, _ in self._names])
        parts = pa.chunked_array([pa.array(np.full(len(each), number, dtype=np.int32)) for each, number in self._names])
        table = pa.table({"place": names, "part": parts}).sort_by([("place", "ascending"), ("part", "descending")])
        names, parts = (table.column(name).combine_chunks() for name in ("place", "part"))
        same = pc.call_function("equal", [names[1:], names[:-1]])
        regions = {each["region"] for each in self._files.values()}
        for at in np.flatnonzero(np.asarray(same)).tolist():
            if names[at].as_py() not in regions or parts[at + 1].as_py() != -1:
                raise MeasurementError(f"two places are called {names[at].as_py()!r}; give each a name of its own")
        kept = pa.concat_arrays([pa.array([True]), pc.call_function("invert", [same])])
        table = table.filter(kept)
        pq.write_table(table, self._staged / INDEX, compression="zstd", row_group_size=ROWS_PER_GROUP)
        return {"places": table.num_rows, "sha256": _digest(self._staged / INDEX)}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._staged, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class RegionFolder:
    """A folder that `RegionWriter` wrote; files are read one at a time, and each is compared with its digest."""

    folder: Path
    manifest: Mapping[str, Any]

    @staticmethod
    def open(folder: str | os.PathLike[str], *, kind: str) -> "RegionFolder":
        path = Path(folder)
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FileFormatError(
                f"{shown_path(folder)} has no {MANIFEST} that can be read: {type(error).__name__}"
            ) from None
        found = (manifest.get("format"), manifest.get("version")) if isinstance(manifest, dict) else (None, None)
        if found != (kind, VERSION):
            raise FileFormatError(
                f"{shown_path(folder)} is {found[0]} of version {found[1]}; expected {kind} of {VERSION}"
            )
        return RegionFolder(path, manifest)

    @property
    def regions(self) -> list[str]:
        return [each["region"] for each in self.manifest["regions"]]

    @property
    def places(self) -> int:
        """How many places there are, of all levels."""
        return int(self.manifest["index"]["places"])

    def above(self) -> PlaceRows:
        """The places above the regions, and the regions."""
        return self._read(self.manifest["above"])

    def region(self, region: str) -> PlaceRows:
        """The places of one region."""
        return self._read(self._entry(region))

    def beside(self, region: str) -> Iterator[tuple[str, dict[str, Array]]]:
        """The further files of a region."""
        import pyarrow.parquet as pq

        for name, digest in self._entry(region).get("beside", {}).items():
            table = pq.read_table(self._checked(name, digest))
            yield name, {key: _numbers(table.column(key).combine_chunks()) for key in table.column_names}

    def region_of(self, place: str) -> str | None:
        """The region that a place is in; None for places above the regions."""
        import pyarrow.parquet as pq

        index = self.manifest["index"]
        found = pq.read_table(self.folder / index["file"], filters=[("place", "==", place)])
        if not found.num_rows:
            raise MeasurementError(f"there is no place {place!r}; {suggestion(place, self.regions)}")
        part = found.column("part")[0].as_py()
        return None if part < 0 else self.regions[part]

    def _entry(self, region: str) -> Mapping[str, Any]:
        for each in self.manifest["regions"]:
            if each["region"] == region:
                return each
        raise MeasurementError(f"there is no region {region!r}; {suggestion(region, self.regions)}")

    def _checked(self, name: str, digest: str) -> Path:
        path = self.folder / Path(name).name
        try:
            found = _digest(path)
        except OSError:
            raise FileFormatError(f"{shown_path(path)} cannot be read, and the manifest names it") from None
        if found != digest:
            raise FileFormatError(f"{shown_path(path)} is not the file that was written: its SHA-256 differs")
        return path

    def _read(self, entry: Mapping[str, Any]) -> PlaceRows:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(self._checked(entry["file"], entry["sha256"]))
            names, parent = table.column("place").combine_chunks(), table.column("parent").to_numpy().astype(np.int64)
            tables = {}
            for name in table.column_names[2:]:
                column = table.column(name).combine_chunks()
                rows = np.flatnonzero(np.asarray(column.is_valid()))
                tables[name] = (rows, _numbers(column.drop_null()))
                table = table.drop_columns([name])
        except (pa.ArrowException, KeyError) as error:
            raise FileFormatError(f"{entry.get('file')!r} is no file of places: {type(error).__name__}") from None
        return PlaceRows(names, parent, tables)


def _lists(numbers: NDArray[Any], rows: NDArray[np.intp] | None = None, length: int | None = None) -> "pa.Array":
    """A list of numbers for each row, whole ones as such; nothing for rows that are not named."""
    import pyarrow as pa

    width = numbers.shape[1]
    small = numbers.size > 0 and float(np.abs(numbers).max()) < 2**31 and bool(np.all(numbers == np.rint(numbers)))
    values = pa.array(numbers.astype(np.int32).reshape(-1) if small else numbers.reshape(-1))
    if rows is None or len(rows) == length:
        return pa.ListArray.from_arrays(np.arange(len(numbers) + 1, dtype=np.int32) * width, values)
    counts = np.zeros(length or 0, dtype=np.int64)
    counts[rows] = width
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, values, mask=pa.array(counts == 0))


def _numbers(column: "pa.Array") -> Array:
    """The lists of a column as rows of numbers; lists of different lengths are refused."""
    rows = len(column)
    values = np.asarray(column.flatten(), dtype=np.float64)
    width = values.size // rows if rows else 0
    if values.size != rows * width or (rows and np.any(np.diff(np.asarray(column.offsets)) != width)):
        raise FileFormatError("a table has rows of different lengths")
    return values.reshape(rows, width)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def rows_of(names: Sequence[str], parent: Sequence[int], tables: Mapping[str, tuple[Any, Any]]) -> PlaceRows:
    """Places from plain lists."""
    import pyarrow as pa

    return PlaceRows(
        pa.array(list(names), pa.string()),
        np.asarray(parent, dtype=np.int64),
        {
            key: (np.asarray(rows, dtype=np.intp), np.asarray(values, dtype=np.float64))
            for key, (rows, values) in tables.items()
        },
    )
