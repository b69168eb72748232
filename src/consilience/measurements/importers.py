"""Long tables of noisy counts, as OpenDP, SmartNoise and Tumult hand them out: key columns and one noisy number.

Such a table does not say how it was made. What is missing is asked for, because every guess would be wrong somewhere:
the noise law, the neighbour relation, whether negative values were set to 0, and whether absent keys mean anything.
"""

import datetime
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute, Numeric
from consilience.domain.declarations import format_number, guarded, label_text, suggestion
from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.domain.sensitivity import Neighbours
from consilience.errors import DeclarationError, FileFormatError, MeasurementError, TooLarge
from consilience.measurements.measurement import Measurement
from consilience.measurements.measurement_set import MeasurementSet
from consilience.measurements.noise_laws import NoiseLaw
from consilience.measurements.parquet_sizes import read_bounded
from consilience.measurements.privacy_statement import PrivacyStatement

if TYPE_CHECKING:
    import pyarrow as pa

Released = Literal["all", "above-threshold"]

LARGEST_TABLE = 10**8
"""Cells of the largest dense table that is made of a long one."""

SHOWN_KEYS = 5

_WHY_ASKED = {
    "noise": "the law and scale the noise was drawn with, such as DiscreteLaplace(2.0): they decide how much each "
    "number is trusted",
    "neighbours": "'add-remove' or 'replace-one': the relation for which the publisher's promise holds",
    "clipped": "True if the publisher set negative numbers to 0, else False: clipped numbers are biased upwards",
    "released": "'all' if every key was published, 'above-threshold' if keys with small noisy numbers were left out: "
    "absence then says that the number was small",
}


def from_long_table(
    frame: Any,
    domain: Domain,
    *,
    keys: Sequence[str],
    value: str,
    noise: NoiseLaw | None = None,
    neighbours: Neighbours | None = None,
    clipped: bool | None = None,
    released: Released | None = None,
    threshold: float | None = None,
    spent: Mapping[str, Any] | None = None,
    unit: str = "row",
    private: bool = True,
    column_of: Mapping[str, str] | None = None,
    id: str = "",  # noqa: A002  (the word that users and files share)
    ledger: str | None = None,
) -> MeasurementSet:
    """The set with one measurement: the marginal by `keys`, dense on the domain.

    `frame` is a pandas, polars or pyarrow table, or the path of a CSV or Parquet file. `keys` names attributes of the
    domain and `value` the column of noisy numbers; `column_of` maps attributes to columns of another name. Labels match
    by their text, whole numbers by their digits; an empty key is the attribute's declared missing value. `noise`,
    `neighbours`, `clipped` and `released` must be given. With released="all" each cell must be there exactly once; with
    "above-threshold" the absent ones are marked censored below `threshold`.
    """
    if noise is None or neighbours is None or clipped is None or released is None:
        _ask_for_what_is_missing(noise=noise, neighbours=neighbours, clipped=clipped, released=released)
    _check_threshold(released, threshold)
    names = _checked_keys(domain, keys)
    columns = {name: (column_of or {}).get(name, name) for name in names}
    _refuse_unknown_names(column_of or {}, names)
    table = _as_arrow(frame, text_columns=list(columns.values()), value=value)
    codes = [_codes(domain[name], _column(table, columns[name])) for name in names]
    numbers = _numbers(_column(table, value), value)
    values, present = _dense(domain, names, codes, numbers)
    if released == "all":
        _refuse_absent(domain, names, present)
    measurement = Measurement(
        Query.marginal(*names),
        values,
        noise,
        id=id,
        clipped=clipped,
        censored=None if released == "all" else ~present,
        threshold=threshold,
    )
    provenance = {"tool": "long table"} | ({} if ledger is None else {"ledger": ledger})
    return MeasurementSet(domain, (measurement,), PrivacyStatement(neighbours, unit, spent), provenance, private)


def _ask_for_what_is_missing(**given: object) -> NoReturn:
    missing = [name for name, value in given.items() if value is None]
    listed = "; ".join(f"{name} = {_WHY_ASKED[name]}" for name in missing)
    raise DeclarationError(f"a long table does not say how it was made; give {listed}")


def _check_threshold(released: str, threshold: float | None) -> None:
    if released not in ("all", "above-threshold"):
        raise DeclarationError(f"released must be 'all' or 'above-threshold', found {released!r}")
    if released == "above-threshold" and threshold is None:
        raise DeclarationError(
            "released='above-threshold' needs threshold=...: the number below which the publisher left keys out"
        )
    if released == "all" and threshold is not None:
        raise DeclarationError(
            f"released='all' says that every key was published, but threshold={threshold} was given; "
            "use released='above-threshold', or no threshold"
        )


def _checked_keys(domain: Domain, keys: Sequence[str]) -> tuple[str, ...]:
    if isinstance(keys, str):
        raise DeclarationError(f"keys is a list of attributes; write keys=[{keys!r}]")
    domain.ordered(keys)
    cells = math.prod(domain.sizes(keys))
    if cells > LARGEST_TABLE:
        raise TooLarge(
            f"the domain has {cells} cells over {', '.join(keys)}, which would take {cells * 8 / 1e9:.0f} GB; "
            f"bring a table with fewer keys (up to {LARGEST_TABLE} cells)"
        )
    return tuple(keys)


def _refuse_unknown_names(column_of: Mapping[str, str], names: Sequence[str]) -> None:
    for name in column_of:
        if name not in names:
            raise DeclarationError(f"column_of names {name!r}, which is not among the keys; {suggestion(name, names)}")


def _as_arrow(frame: Any, *, text_columns: list[str], value: str) -> "pa.Table":
    """The table as Arrow, whatever it came as."""
    if isinstance(frame, str | os.PathLike):
        return _read_table_file(Path(frame), text_columns, value)
    import narwhals as nw
    import pyarrow as pa

    try:
        return nw.from_native(frame, eager_only=True).to_arrow()
    except (pa.ArrowException, ValueError) as error:
        raise MeasurementError(f"the table cannot be read: {error}; give each column one type") from None
    except TypeError:
        raise DeclarationError(
            f"a long table is a pandas, polars or pyarrow table or a path, found {type(frame).__name__}; "
            "collect lazy tables first"
        ) from None


def _read_table_file(path: Path, text_columns: list[str], value: str) -> "pa.Table":
    import pyarrow as pa
    import pyarrow.csv as csv

    # One thread: a short program may end while Arrow's threads are still starting, which aborts it.
    try:
        with path.open("rb") as stream:
            if stream.read(4) == b"PAR1":
                return read_bounded(path.read_bytes(), where=str(path))
            stream.seek(0)
            types = dict.fromkeys(text_columns, pa.string()) | {value: pa.float64()}
            options = csv.ConvertOptions(column_types=types, strings_can_be_null=False)
            table = csv.read_csv(stream, csv.ReadOptions(use_threads=False), convert_options=options)
            return table.rename_columns(table.column_names)  # Arrow decodes names only when they are asked for
    except FileNotFoundError:
        raise FileFormatError(f"there is no file {path}; check the path") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileFormatError(f"{path} cannot be read as CSV with a header, nor as Parquet: {reason}") from None


def _column(table: "pa.Table", name: str) -> "pa.ChunkedArray":
    found = table.column_names.count(name)
    if found != 1:
        problem = "has no column" if not found else "has several columns"
        raise MeasurementError(
            f"the table {problem} {name!r}; {suggestion(name, table.column_names)} "
            "(column_of maps an attribute to a column of another name)"
        )
    return table.column(name)


def _codes(attribute: Attribute, column: "pa.ChunkedArray") -> NDArray[np.intp]:
    """The code of each key, found once for each distinct value."""
    import pyarrow as pa

    encoded = column.combine_chunks() if isinstance(column.type, pa.DictionaryType) else column.dictionary_encode()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    absent = encoded.is_null().to_numpy(zero_copy_only=False)
    labels = encoded.dictionary.to_pylist()
    found = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    used = set(np.unique(found[~absent]).tolist())
    codes = np.array([_code(attribute, label) if i in used else 0 for i, label in enumerate(labels)] or [0], np.intp)
    if absent.any():
        return np.where(absent, _code(attribute, None), codes[found])
    return codes[found]


def _code(attribute: Attribute, value: object) -> int:
    if _is_empty(value) and "" not in attribute.codes_by_label:
        if attribute.missing is None:
            raise MeasurementError(
                f"the table has an empty key for {attribute.name!r}, which declares no missing value; "
                "declare missing = ... in the domain, or remove those rows"
            )
        return attribute.codes_by_label[attribute.missing]
    for text in _texts_of(value):
        if text in attribute.codes_by_label:
            return attribute.codes_by_label[text]
        written = text.removeprefix("'")
        if text == guarded(written) and written in attribute.codes_by_label:
            return attribute.codes_by_label[written]
        if isinstance(attribute, Numeric):
            found = _bins(attribute, text)
            if len(found) == 1:
                return found[0]
    shown = str(value)
    raise MeasurementError(
        f"the table has the key {shown!r} for {attribute.name!r}, which is not a value of the domain; "
        f"{suggestion(shown, attribute.labels)}"
    )


def _is_empty(value: object) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _texts_of(value: object) -> list[str]:
    """The texts under which a key may be declared: its own, and for a number written 3.0 also 3."""
    if isinstance(value, datetime.date):
        return [str(value)]
    text = label_text(value)
    if text is None:
        return []
    texts = [text]
    try:
        number = float(text)
    except ValueError:
        return texts
    return [*texts, format_number(number)] if math.isfinite(number) else texts


def _bins(attribute: Numeric, text: str) -> tuple[int, ...]:
    """The bins that a text such as "25..34" or "25" stands for; none where it cuts through a bin."""
    try:
        return attribute.codes(text)
    except DeclarationError:
        return ()


def _numbers(column: "pa.ChunkedArray", name: str) -> NDArray[np.float64]:
    import pyarrow as pa

    try:
        numbers = column.cast(pa.float64())
    except pa.ArrowException:
        raise MeasurementError(f"the column {name!r} must hold numbers, found the type {column.type}") from None
    return numbers.to_numpy()


def _dense(
    domain: Domain, names: Sequence[str], codes: Sequence[NDArray[np.intp]], numbers: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The numbers in the cells of the marginal, and which cells were there; each at most once, all finite."""
    shape = domain.sizes(names)
    cells = math.prod(shape)
    places = np.ravel_multi_index(tuple(codes), shape) if names else np.zeros(len(numbers), dtype=np.intp)
    counts = np.bincount(places, minlength=cells)
    if np.any(counts > 1):
        repeated = np.flatnonzero(counts > 1)
        raise MeasurementError(
            f"{len(repeated)} keys appear more than once ({_shown(domain, names, repeated)}); "
            "a long table has one row for each key"
        )
    wrong = ~np.isfinite(numbers)
    if np.any(wrong):
        raise MeasurementError(
            f"{int(wrong.sum())} rows have an empty, NaN or infinite number ({_shown(domain, names, places[wrong])}); "
            "remove rows that were not released, and use released='above-threshold'"
        )
    values = np.full(cells, np.nan)
    values[places] = numbers
    return values, counts > 0


def _refuse_absent(domain: Domain, names: Sequence[str], present: NDArray[np.bool_]) -> None:
    absent = np.flatnonzero(~present)
    if absent.size:
        raise MeasurementError(
            f"released='all', but {absent.size} of the {present.size} cells over {', '.join(names) or 'no keys'} are "
            f"absent ({_shown(domain, names, absent)}); use released='above-threshold' if small numbers were left "
            "out, or declare the domain whose keys were published"
        )


def _shown(domain: Domain, names: Sequence[str], places: NDArray[np.intp]) -> str:
    """The first few keys, as a reader knows them."""
    shown = []
    for place in places[:SHOWN_KEYS].tolist():
        codes = np.unravel_index(place, domain.sizes(names)) if names else ()
        shown.append(", ".join(f"{n}={domain[n].labels[c]}" for n, c in zip(names, codes, strict=True)) or "the total")
    more = len(places) - SHOWN_KEYS
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")
