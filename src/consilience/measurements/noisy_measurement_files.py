"""Noisy measurement files, as the 2020 Census of the United States publishes them: Parquet files of each level.

A row is one query of one place: `geocode`, `query_name`, `value` (the noisy answers, a list), `variance` (of the noise
of each of them). Codes of a level have one length, and a place is part of the one whose code begins its own. What a
query asks is not in the file: names of attributes joined by ` * ` are marginals, `total` is the total, and all others
are to be said. Files are read region by region and become a folder that `estimate_regions` takes; reading is quick
where rows are sorted by code.
"""

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.declarations import suggestion
from consilience.domain.domains import Domain
from consilience.domain.files import shown_path
from consilience.domain.queries import Query
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError, FileFormatError
from consilience.measurements.privacy_statement import PrivacyStatement
from consilience.measurements.regional import RegionalMeasurements, in_domain_order, variance_of
from consilience.measurements.regions import PlaceRows

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("geocode", "query_name", "value", "variance")
DETAILED = "detailed"
"""The name of the query of all attributes."""

Array = NDArray[np.float64]


def from_noisy_measurement_files(
    files: Mapping[str, str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    domain: Domain,
    *,
    regions: str,
    neighbours: Neighbours,
    queries: Mapping[str, Query | str | None] | None = None,
    columns: Mapping[str, str] | None = None,
    spent: Mapping[str, Any] | None = None,
    private: bool = True,
) -> RegionalMeasurements:
    """The measurements of such files as a folder with a file for each place of the level `regions`.

    `files` names the Parquet file, or the folder of files, of each level from the largest places down. `domain` has the
    attributes, in any order. `queries` says what a name of the files asks, its answers in the order of the query's
    attributes; None leaves it out. `columns` says what the files call geocode, query_name, value and variance. Variance
    0 stands for an exact number.
    """
    levels, paths = list(files), {level: Path(path) for level, path in files.items()}
    if regions not in levels:
        raise DeclarationError(f"regions are of a level that no file is of: {regions!r}; {suggestion(regions, levels)}")
    called = {name: (columns or {}).get(name, name) for name in COLUMNS}
    reader = _Reader(domain, levels, paths, called, dict(queries or {}))
    at = levels.index(regions)
    writer = RegionalMeasurements.writer(
        folder,
        domain,
        "geocode",
        {name: in_domain_order(domain, query.factors)[0] for name, query in reader.asked.items()},
        privacy=PrivacyStatement(neighbours, spent=None if spent is None else {k: str(v) for k, v in spent.items()}),
        private=private,
        provenance={"files": {level: path.name for level, path in paths.items()}},
    )
    names = reader.codes(regions)
    with writer:
        for region in names:
            writer.add_region(region, reader.places(levels[at:], region))
        writer.finish(reader.places(levels[:at], None, names))
    return RegionalMeasurements.open(folder)


class _Reader:
    """Rows of places from the files of levels."""

    def __init__(
        self,
        domain: Domain,
        levels: list[str],
        paths: Mapping[str, Path],
        called: Mapping[str, str],
        queries: dict[str, Query | str | None],
    ) -> None:
        import pyarrow.compute as pc

        self.domain, self.levels, self.paths, self.called = domain, levels, paths, called
        found: set[str] = set()
        for level in levels:
            found |= set(pc.call_function("unique", [self._read(level, [called["query_name"]]).column(0)]).to_pylist())
        if unknown := sorted(set(queries) - found):
            raise DeclarationError(f"no file has a query {unknown[0]!r}; {suggestion(unknown[0], sorted(found))}")
        self.asked: dict[str, Query] = {}
        for name in sorted(found):
            said = queries[name] if name in queries else self._named(name)
            if said is not None:
                self.asked[name] = (Query.parse(said) if isinstance(said, str) else said).over(domain)

    def _named(self, name: str) -> Query:
        """What the name of a query says by itself."""
        if name in ("total", DETAILED):
            return Query.marginal(*(() if name == "total" else self.domain.counted_names))
        parts = [part.strip() for part in name.split("*")]
        if not all(part in self.domain for part in parts):
            raise DeclarationError(
                f"the files have the query {name!r}, which is no product of attributes of the domain; say what it asks "
                f'with queries={{"{name}": Query.of(...)}}, or leave it out with None'
            )
        return Query.marginal(*parts)

    def codes(self, level: str) -> list[str]:
        """The codes of all places of a level, in order."""
        import pyarrow.compute as pc

        column = self._read(level, [self.called["geocode"]]).column(0)
        return sorted(map(str, pc.call_function("unique", [column]).to_pylist()))

    def places(self, levels: list[str], region: str | None, last: list[str] | None = None) -> PlaceRows:
        """The places of some levels within a region, and what was measured of them; `last` are places without more."""
        import pyarrow as pa

        tables = [self._read(level, list(self.called.values()), region) for level in levels]
        found = [np.unique(np.array(table.column(self.called["geocode"]).to_pylist(), dtype=str)) for table in tables]
        names = [*found, *([] if last is None else [np.array(last, dtype=str)])]
        starts = np.concatenate([[0], np.cumsum([len(each) for each in names])])
        parent = [np.full(len(names[0]), -1, dtype=np.int64)]
        for above, (upper, lower) in enumerate(itertools.pairwise(names)):
            parent.append(starts[above] + _within(upper, lower))
        measured: dict[str, list[tuple[NDArray[np.intp], Array, Array]]] = {name: [] for name in self.asked}
        for start, codes, table in zip(starts, found, tables, strict=False):
            for name, (rows, values, variances) in self._answers(table).items():
                measured[name].append((start + np.searchsorted(codes, rows), values, variances))
        columns: dict[str, tuple[NDArray[np.intp], Array]] = {}
        for name, parts in measured.items():
            if parts:
                at, values, variances = (np.concatenate(each) for each in zip(*parts, strict=True))
                order = np.argsort(at, kind="stable")
                if np.any(np.diff(at[order]) == 0):
                    raise FileFormatError(f"a place has the query {name!r} twice; give each once")
                columns |= {name: (at[order], values[order]), variance_of(name): (at[order], variances[order])}
        return PlaceRows(pa.array(np.concatenate(names).tolist(), pa.string()), np.concatenate(parent), columns)

    def _answers(self, table: "pa.Table") -> dict[str, tuple[NDArray[Any], Array, Array]]:
        """For each query the codes that have it, the answers in the order of the domain, and the variances."""
        import pyarrow as pa
        import pyarrow.compute as pc

        found = {}
        for name, query in self.asked.items():
            mask = pc.call_function("equal", [table.column(self.called["query_name"]), pa.scalar(name)])
            rows = table.filter(mask)
            if not rows.num_rows:
                continue
            shape, order = query.bind(self.domain).shape, in_domain_order(self.domain, query.factors)[1]
            column = rows.column(self.called["value"]).combine_chunks()
            lists = isinstance(column, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray)
            values = np.asarray(column.flatten() if lists else column, dtype=np.float64)
            size, wrong = int(np.prod(shape)), bool(column.null_count)
            if lists and not wrong:
                wrong = bool(np.any(np.asarray(pc.call_function("list_value_length", [column])) != size))
            if wrong or values.size != rows.num_rows * size:
                raise FileFormatError(f"the query {name!r} has {size} answers by the domain; some rows have others")
            variances = np.asarray(rows.column(self.called["variance"]).combine_chunks(), dtype=np.float64)[:, None]
            if not np.all(variances >= 0.0):
                raise FileFormatError(f"the query {name!r} has a variance that is no number of 0 or more")
            values = values.reshape(rows.num_rows, *shape).transpose([0, *(1 + axis for axis in order)])
            codes = np.array(rows.column(self.called["geocode"]).to_pylist(), dtype=str)
            found[name] = (codes, values.reshape(rows.num_rows, -1), variances)
        return found

    def _read(self, level: str, columns: list[str], region: str | None = None) -> "pa.Table":
        import pyarrow as pa
        import pyarrow.parquet as pq

        code, filters = self.called["geocode"], None
        if region is not None:
            filters = [(code, ">=", region), (code, "<", region[:-1] + chr(ord(region[-1]) + 1))]
        try:
            return pq.read_table(self.paths[level], columns=columns, filters=filters)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise FileFormatError(
                f"{shown_path(self.paths[level])} cannot be read as a file with the columns "
                f"{', '.join(self.called.values())}: {type(error).__name__}"
            ) from None


def _within(upper: NDArray[Any], lower: NDArray[Any]) -> NDArray[np.int64]:
    """The place of `upper` that each code of `lower` begins with; one place alone holds all of them."""
    if len(upper) == 1:
        return np.zeros(len(lower), dtype=np.int64)
    lengths = {len(code) for code in upper.tolist()}
    if len(lengths) > 1:
        raise FileFormatError(f"codes of one level have {len(lengths)} lengths, such as {upper[0]!s}; give them one")
    begun = np.array([code[: min(lengths)] for code in lower.tolist()], dtype=str)
    found = np.minimum(np.searchsorted(upper, begun), len(upper) - 1)
    if len(lower) and np.any(missed := upper[found] != begun):
        raise FileFormatError(f"no place of the level above begins the code {lower[missed][0]!s}; is a file missing?")
    return found.astype(np.int64)
