"""Long tables become measurements only when everything they do not say has been said."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain
from consilience.errors import ConsilienceError, DeclarationError, FileFormatError, MeasurementError, TooLarge
from consilience.measurements import DiscreteLaplace, MeasurementSet, from_long_table

DOMAIN = Domain(
    "town",
    (
        Attribute.categorical("sex", ["F", "M"], missing="unknown"),
        Attribute.numeric("age", [0, 18, 65, 100]),
        Attribute.categorical("code", ["1", "2", "03"]),
    ),
)
ROWS = {"sex": ["M", "F", None], "count": [12.0, 9.5, -1.0]}
SAID: dict[str, Any] = {
    "noise": DiscreteLaplace(2.0),
    "neighbours": "add-remove",
    "clipped": False,
    "released": "all",
}


def by_sex(frame: Any, **options: Any) -> MeasurementSet:
    return from_long_table(frame, DOMAIN, **({"keys": ["sex"], "value": "count"} | SAID | options))


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "csv", "parquet"])
def test_every_kind_of_table_gives_the_same_measurement(kind: str, tmp_path: Path) -> None:
    table = pa.table(ROWS)
    path = tmp_path / f"noisy.{kind}"
    frames: dict[str, Any] = {"pandas": pd.DataFrame(ROWS), "polars": pl.DataFrame(ROWS), "pyarrow": table}
    if kind == "csv":
        path.write_text("sex,count\nM,12\nF,9.5\n,-1\n")
    if kind == "parquet":
        pq.write_table(table, path)
    found = by_sex(frames.get(kind, path), spent={"epsilon": "0.5"}, id="sex", ledger="L")
    (measurement,) = found
    np.testing.assert_array_equal(measurement.values, [9.5, 12.0, -1.0])
    assert measurement.query.attributes == ("sex",)
    assert (measurement.noise, measurement.clipped, measurement.censored) == (DiscreteLaplace(2.0), False, None)
    assert (found.privacy.spent, found.provenance["ledger"], measurement.id) == ({"epsilon": "0.5"}, "L", "sex")


@pytest.mark.parametrize("missing", ["noise", "neighbours", "clipped", "released"])
def test_what_a_long_table_does_not_say_is_asked_for(missing: str) -> None:
    with pytest.raises(DeclarationError, match=f"does not say how it was made; give {missing} = "):
        by_sex(pd.DataFrame(ROWS), **{missing: None})


def test_everything_missing_is_asked_for_at_once() -> None:
    with pytest.raises(DeclarationError, match=r"noise = .*neighbours = .*clipped = .*released = "):
        from_long_table(pd.DataFrame(ROWS), DOMAIN, keys=["sex"], value="count")


def test_rows_are_put_in_the_order_of_the_keys() -> None:
    cells = [(age, sex) for age in ("65..99", "0..17", "18..64") for sex in ("unknown", "F", "M")]
    frame = pd.DataFrame(cells, columns=["age", "gender"]).assign(n=range(9))
    found = from_long_table(frame, DOMAIN, keys=["age", "sex"], value="n", column_of={"sex": "gender"}, **SAID)
    expected = dict(zip(cells, range(9), strict=True))
    labels = list(found.measurements[0].bind(DOMAIN).label_rows())
    np.testing.assert_array_equal(found.measurements[0].values, [expected[age, sex] for age, sex in labels])


@pytest.mark.parametrize(
    "keys",
    [
        ["1", "2", "03"],
        ["1.0", "2", "03"],
        [1, 2, 3],
        [1.0, 2.0, 3.0],
        pd.Categorical(["1", "2", "03"]),
    ],
)
def test_labels_match_by_text_and_numbers_by_digits(keys: Any) -> None:
    domain = Domain("d", (Attribute.categorical("code", ["1", "2", "3" if not isinstance(keys[2], str) else "03"]),))
    frame = pd.DataFrame({"code": keys, "n": [10, 20, 30]})
    found = from_long_table(frame, domain, keys=["code"], value="n", **SAID)
    np.testing.assert_array_equal(found.measurements[0].values, [10, 20, 30])


def test_csv_keys_keep_their_leading_zeros(tmp_path: Path) -> None:
    path = tmp_path / "noisy.csv"
    path.write_text("code,n,comment\n03,30,x\n1,10,y\n2,20,z\n")
    found = from_long_table(path, DOMAIN, keys=["code"], value="n", **SAID)
    np.testing.assert_array_equal(found.measurements[0].values, [10, 20, 30])


def test_truth_values_dates_and_bins_of_one_number_match() -> None:
    domain = Domain(
        "d",
        (
            Attribute.categorical("flag", ["true", "false"]),
            Attribute.categorical("day", ["2024-01-01", "2024-01-02"]),
            Attribute.numeric("year", [2000, 2001, 2002]),
        ),
    )
    for key, labels in (
        ("flag", [False, True]),
        ("day", [datetime.date(2024, 1, 2), datetime.date(2024, 1, 1)]),
        ("year", [2001, 2000]),
    ):
        frame = pl.DataFrame({key: labels, "n": [2, 1]})
        (found,) = from_long_table(frame, domain, keys=[key], value="n", **SAID)
        np.testing.assert_array_equal(found.values, [1, 2])


def test_no_keys_is_the_total() -> None:
    (found,) = from_long_table(pd.DataFrame({"n": [7]}), DOMAIN, keys=[], value="n", **SAID)
    assert found.query.describe() == "total"
    np.testing.assert_array_equal(found.values, [7])
    with pytest.raises(MeasurementError, match="the total"):
        from_long_table(pd.DataFrame({"n": [7, 8]}), DOMAIN, keys=[], value="n", **SAID)


def test_absent_keys_are_refused_when_all_were_released() -> None:
    with pytest.raises(MeasurementError, match=r"2 of the 3 cells over sex are absent \(sex=F; sex=unknown\)"):
        by_sex(pd.DataFrame({"sex": ["M"], "count": [1]}))


def test_at_most_five_keys_are_named() -> None:
    domain = Domain.from_sizes({"a": 10})
    with pytest.raises(MeasurementError, match=r"9 of the 10 .*a=1; a=2; a=3; a=4; a=5; and 4 more\)"):
        from_long_table(pd.DataFrame({"a": [0], "n": [1]}), domain, keys=["a"], value="n", **SAID)


def test_absent_keys_are_censored_when_a_threshold_hid_them() -> None:
    frame = pd.DataFrame({"sex": ["M"], "count": [12]})
    (found,) = by_sex(frame, released="above-threshold", threshold=10)
    np.testing.assert_array_equal(found.censored, [True, False, True])
    np.testing.assert_array_equal(found.values, [np.nan, 12, np.nan])
    assert found.threshold == 10.0
    (full,) = by_sex(pd.DataFrame(ROWS).assign(count=[10, 11, 12]), released="above-threshold", threshold=10)
    assert (full.censored, full.threshold) == (None, 10.0)
    with pytest.raises(MeasurementError, match="released the value 12, below its threshold 20"):
        by_sex(frame, released="above-threshold", threshold=20)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"released": "above-threshold"}, "needs threshold"),
        ({"threshold": 5}, "released='all' says that every key was published, but threshold=5"),
        ({"released": "some"}, "'all' or 'above-threshold', found 'some'"),
        ({"neighbours": "swap"}, "'swap' is not known"),
        ({"keys": "sex"}, r"write keys=\['sex'\]"),
        ({"keys": ["sexe"]}, "did you mean 'sex'"),
        ({"keys": ["sex", "sex"]}, "named twice"),
        ({"column_of": {"age": "a"}}, "'age', which is not among the keys"),
        ({"column_of": {"sex": "gender"}}, "no column 'gender'"),
        ({"value": "counts"}, "no column 'counts'; did you mean 'count'"),
        ({"value": "sex"}, "'sex' must hold numbers"),
        ({"clipped": True}, "called clipped at 0 but has the value -1"),
    ],
)
def test_declarations_that_contradict_the_table_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConsilienceError, match=problem):
        by_sex(pd.DataFrame(ROWS), **options)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ({"sex": ["M", "F", "M"], "count": [1, 2, 3]}, r"1 keys appear more than once \(sex=M\)"),
        ({"sex": ["M", "F", "Mm"], "count": [1, 2, 3]}, "the key 'Mm' for 'sex'.*did you mean 'M'"),
        ({"sex": ["M", "F", None], "count": [1, 2, None]}, r"empty, NaN or infinite number \(sex=unknown\)"),
        ({"sex": ["M", "F", None], "count": [1, float("inf"), 3]}, r"infinite number \(sex=F\)"),
        ({"sex": [b"M", b"F", b"x"], "count": [1, 2, 3]}, "not a value of the domain"),
    ],
)
def test_rows_that_cannot_be_are_refused(rows: dict[str, Any], problem: str) -> None:
    with pytest.raises(MeasurementError, match=problem):
        by_sex(pa.table(rows))


def test_empty_keys_need_a_declared_missing_value() -> None:
    frame = pa.table({"code": ["1", "2", None], "n": [1, 2, 3]})
    with pytest.raises(MeasurementError, match="empty key for 'code', which declares no missing value"):
        from_long_table(frame, DOMAIN, keys=["code"], value="n", **SAID)


def test_a_number_inside_a_wide_bin_is_no_key() -> None:
    frame = pa.table({"age": [5, 18, 65], "n": [1, 2, 3]})
    with pytest.raises(MeasurementError, match="the key '5' for 'age'"):
        from_long_table(frame, DOMAIN, keys=["age"], value="n", **SAID)


@pytest.mark.parametrize("frame", [{"sex": ["M"]}, [1, 2], 5, None, pl.LazyFrame(ROWS)])
def test_what_is_no_table_is_refused(frame: object) -> None:
    with pytest.raises(DeclarationError, match="pandas, polars or pyarrow table or a path"):
        by_sex(frame)


def test_a_column_of_several_types_is_refused() -> None:
    with pytest.raises(MeasurementError, match="give each column one type"):
        by_sex(pd.DataFrame({"sex": ["M", 1, {}], "count": [1, 2, 3]}))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="there is no file"):
        by_sex(tmp_path / "absent.csv")
    with pytest.raises(FileFormatError, match="cannot be read"):
        by_sex(tmp_path)
    (tmp_path / "cut.parquet").write_bytes(b"PAR1....")
    with pytest.raises(FileFormatError, match="cannot be read"):
        by_sex(tmp_path / "cut.parquet")
    (tmp_path / "ragged.csv").write_text("sex,count\nM,1\nF,2,3\n")
    with pytest.raises(FileFormatError, match="cannot be read as CSV"):
        by_sex(tmp_path / "ragged.csv")
    (tmp_path / "text.csv").write_text("sex,count\nM,many\n")
    with pytest.raises(FileFormatError, match="many"):
        by_sex(tmp_path / "text.csv")
    with pytest.raises(FileFormatError, match="cannot be read"):
        by_sex("odd\0path.csv")


def test_tables_that_would_not_fit_are_refused_before_they_are_made() -> None:
    domain = Domain.from_sizes({f"a{i}": 100 for i in range(6)})
    frame = pd.DataFrame({name: ["0"] for name in domain.names} | {"n": [1]})
    with pytest.raises(TooLarge, match="1000000000000 cells"):
        from_long_table(frame, domain, keys=list(domain.names), value="n", **SAID)


def test_sets_of_one_ledger_merge_after_import() -> None:
    first = by_sex(pd.DataFrame(ROWS), spent={"epsilon": "0.1"}, ledger="L")
    second = from_long_table(
        pd.DataFrame({"code": ["1", "2", "03"], "n": [1, 2, 3]}),
        DOMAIN,
        keys=["code"],
        value="n",
        spent={"epsilon": "0.2"},
        ledger="L",
        **SAID,
    )
    both = first.merge(second)
    assert len(both) == 2
    assert both.privacy.spent == {"epsilon": "0.3"}


@given(st.permutations(range(6)), st.data())
def test_the_order_of_rows_never_matters(order: list[int], data: st.DataObject) -> None:
    domain = Domain.from_sizes({"a": 2, "b": 3})
    values = np.array(data.draw(st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=6)))
    cells = [(a, b) for a in range(2) for b in range(3)]
    frame = pl.DataFrame(
        {"a": [cells[i][0] for i in order], "b": [str(cells[i][1]) for i in order], "n": values[list(order)]}
    )
    (found,) = from_long_table(frame, domain, keys=["a", "b"], value="n", **SAID)
    np.testing.assert_array_equal(found.values, values)
