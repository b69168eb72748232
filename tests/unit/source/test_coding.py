"""Every type of column is coded by the texts and numbers of its values, and no value raises."""

import datetime as dt
import decimal
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute
from consilience.source import coding
from consilience.source.coding import BoundsCoder, coder_of, unsuitable
from consilience.source.values import array_of_values, numbers_of, plain, texts_of

UTC_PLUS_TWO = dt.timezone(dt.timedelta(hours=2))


def labels_of(array, labels, **rules):
    """What a categorical attribute with these labels makes of an array; None where it drops the record."""
    attribute = Attribute.categorical("x", labels, **rules)
    coder = coder_of(attribute)
    return [None if code == coder.size else attribute.labels[code] for code in coder.codes(array)]


@pytest.mark.parametrize(
    ("values", "kind", "texts"),
    [
        ([1, -2, None], pa.int8(), ["1", "-2", None]),
        ([2**64 - 1], pa.uint64(), [str(2**64 - 1)]),
        ([-(2**63)], pa.int64(), [str(-(2**63))]),
        ([1.0, -0.0, 2.5, 1e-7, 1e16, math.inf], pa.float64(), ["1", "0", "2.5", "1e-07", "1e+16", "inf"]),
        ([math.nan, None], pa.float64(), [None, None]),
        ([0.1, 3.0], pa.float32(), ["0.1", "3"]),
        ([dt.date(2020, 1, 31), None], pa.date32(), ["2020-01-31", None]),
        ([dt.datetime(2020, 1, 31)], pa.timestamp("ns"), ["2020-01-31"]),
        ([dt.datetime(9, 2, 3, 9)], pa.timestamp("us"), ["0009-02-03T09:00:00"]),
        ([dt.datetime(2020, 1, 31, 9, 0, 0, 500_000)], pa.timestamp("us"), ["2020-01-31T09:00:00.5"]),
        ([dt.datetime(2020, 1, 31, 2, tzinfo=UTC_PLUS_TWO)], pa.timestamp("s", "+02:00"), ["2020-01-31"]),
        ([dt.time(12, 30)], pa.time64("us"), ["12:30:00"]),
        ([decimal.Decimal("1.50"), decimal.Decimal("20.00")], pa.decimal128(6, 2), ["1.5", "20"]),
        ([decimal.Decimal(10**37)], pa.decimal128(38, 0), [str(10**37)]),
        (["é", "", None], pa.string(), ["é", "", None]),
        (["a" * 20, "b"], pa.string_view(), ["a" * 20, "b"]),
        ([b"ab"], pa.binary(2), ["ab"]),
        (["a", None, "b"], pa.dictionary(pa.int8(), pa.string()), ["a", None, "b"]),
    ],
)  # fmt: skip
def test_a_value_is_matched_to_the_label_that_is_its_text(values, kind, texts):
    array = pa.array(values, kind)
    listed = [text for text in texts if text is not None] or ["other"]
    expected = ["missing" if text is None else text for text in texts]
    assert labels_of(array, listed, missing="missing") == expected
    assert labels_of(array, ["never"], unlisted="drop") == [None] * len(array)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["true", "false"], ["true", "false", "missing"]),
        (["True", "False"], ["True", "False", "missing"]),
        (["0", "1"], ["1", "0", "missing"]),
        (["true", "1", "0"], ["true", "other", "missing"]),
        (["yes", "no"], ["other", "other", "missing"]),
    ],
)
def test_truth_values_take_the_labels_that_are_declared_for_them(labels, expected):
    values = [True, False, None]
    for array in (pa.array(values), array_of_values(values), array_of_values([*values, "text"])[:3]):
        assert labels_of(array, labels, missing="missing", unlisted="other") == expected


def test_a_text_that_only_resembles_a_label_is_unlisted():
    texts = pa.array(["Male", "male", " Male", "Male ", "007", "7.0"])
    assert labels_of(texts, ["Male", "7"]) == ["Male", None, None, None, None, None]


def test_an_inner_node_of_a_hierarchy_is_unlisted():
    attribute = Attribute.hierarchy("home", {"Leith": "City", "Skye": "Isles"}, unlisted="elsewhere")
    codes = coder_of(attribute).codes(pa.array(["Skye", "Isles", "Leith", "City"]))
    assert [attribute.labels[code] for code in codes] == ["Skye", "elsewhere", "Leith", "elsewhere"]


WHOLE = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize(
    "attribute",
    [
        Attribute.categorical("x", ["3", "-7", "200", "70000"], unlisted="other"),
        Attribute.categorical("x", ["a", "007"]),
        Attribute.categorical("x", ["5", str(2**63), str(-(2**70))]),
        Attribute.numeric("x", [-5, 3, 300], unlisted="drop"),
        Attribute.numeric("x", [1000.5, 2000.25], unlisted="clip"),
        Attribute.numeric("x", [-(2.0**60), 0.0, 2.0**60], unlisted="outside"),
    ],
)
def test_codes_of_whole_numbers_by_table_equal_those_of_their_texts(kind, attribute):
    low, high = int(np.iinfo(kind.to_pandas_dtype()).min), int(np.iinfo(kind.to_pandas_dtype()).max)
    near = [n for n in (low, high, 3, -7, 200, -5, 300, 1000, 2000, 70_000) if low <= n <= high]
    drawn = np.random.default_rng(3).integers(low, high, 200, dtype=kind.to_pandas_dtype(), endpoint=True).tolist()
    values = [None, *near, *drawn, *(n + 1 for n in near if n < high), *(n - 1 for n in near if n > low)]
    coder = coder_of(attribute)
    as_texts = pa.array([None if value is None else str(value) for value in values], pa.string())
    assert coder.codes(pa.array(values, kind)).tolist() == coder.codes(as_texts).tolist()


def test_bins_are_half_open_and_the_last_real_one_is_closed():
    real = coder_of(Attribute.numeric("x", [0.0, 0.5, 1.0], unlisted="drop"))
    whole = coder_of(Attribute.numeric("x", [0, 5, 10], unlisted="drop"))
    assert real.codes(pa.array([-0.1, 0.0, 0.5, 1.0, 1.1])).tolist() == [2, 0, 1, 1, 2]
    assert whole.codes(pa.array([-1, 0, 5, 10])).tolist() == [2, 0, 1, 2]
    assert whole.codes(pa.array([4.9, 9.9, 10.0])).tolist() == [0, 1, 2]


def test_out_of_range_clips_to_the_end_bins_infinities_included():
    coder = coder_of(Attribute.numeric("x", [0, 5, 10], unlisted="clip", missing="none"))
    values = pa.array([-math.inf, -1.0, 10.0, math.inf, math.nan, None])
    assert coder.codes(values).tolist() == [0, 0, 1, 1, 2, 2]


@given(st.lists(st.one_of(st.floats(), st.integers()).map(repr), max_size=10))
@settings(max_examples=60, deadline=None)
def test_the_text_of_a_number_is_that_number(texts):
    found = numbers_of(pa.array(texts, pa.string()))
    assert np.array_equal(found, np.array([float(text) for text in texts]), equal_nan=True)


@pytest.mark.parametrize("text", ["", "x", "1_000", "0x10", "nan", "NaN", "1 2", " 1", "1,5", "--1", "1e", "٣", "."])
def test_a_text_that_is_no_number_is_missing(text):
    assert np.isnan(numbers_of(pa.array([text])))[0]


@pytest.mark.parametrize(
    ("text", "number"),
    [("+5", 5), ("5.", 5), (".5", 0.5), ("1E3", 1000), ("-Inf", -math.inf), ("1e999", math.inf)],
)
def test_numbers_may_be_written_in_these_ways(text, number):
    assert numbers_of(pa.array([text, "7"])).tolist() == [number, 7]


class Opaque:
    def __repr__(self) -> str:
        raise RuntimeError("nobody may ask an unknown object what it is")

    __str__ = __hash__ = __eq__ = __repr__  # type: ignore[assignment]


BEYOND_UTC = dt.datetime.max.replace(tzinfo=dt.timezone(-dt.timedelta(hours=23)))
STRANGE = [
    [1], {"a": 1}, Opaque(), 10**5000, -(10**400), b"\xff\xfe", "\ud800", "\x00", float("inf"), complex(1, 2),
    decimal.Decimal("NaN"), decimal.Decimal("1E+400"), BEYOND_UTC, dt.timedelta(1), np.datetime64("2020-01-31"),
    np.float32(0.5), np.int8(3), np.bool_(True), pd.Timestamp("2020-01-31"), dt.date(1, 1, 1), range(3), object,
]  # fmt: skip


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "attribute",
    [
        Attribute.categorical("x", ["3", "0.5", "2020-01-31", "true"], unlisted="other"),
        Attribute.numeric("x", [0, 1, 10], missing="none"),
        Attribute.continuous("x", (0.0, 1.0)),
    ],
    ids=lambda attribute: attribute.kind,
)
def test_no_value_raises_or_changes_how_others_are_read(value, attribute):
    coder = coder_of(attribute)
    alone = coder.codes(array_of_values([value])).tolist()
    among = coder.codes(array_of_values(["3", value, 0.5, 1, None, True]))
    others = [coder.codes(array_of_values([other]))[0] for other in ("3", 0.5, 1, None, True)]
    assert among[1] == alone[0]
    assert among[[0, 2, 3, 4, 5]].tolist() == others


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1, 2], None]),
        pa.array([{"a": 1}, None]),
        pa.array([2**62, -(2**63)], pa.int64()).view(pa.timestamp("s")),
        pa.array([2**62, None], pa.int64()).view(pa.timestamp("ns", "Europe/Berlin")),
        pa.array([2**31 - 1, -(2**31)], pa.int32()).view(pa.date32()),
        pa.array([2**62, -(2**62)], pa.int64()).view(pa.date64()),
        pa.array([2**62, None], pa.int64()).view(pa.time64("us")),
        pa.array([2**62, None], pa.int64()).view(pa.duration("us")),
        pa.array([b"\xff", None]).cast(pa.large_binary()),
        pa.nulls(2),
        pa.array([np.float16(1.5), None], pa.float16()),
        pa.array([None, None], pa.dictionary(pa.int32(), pa.string())),
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])),
        pa.RunEndEncodedArray.from_arrays([2], pa.array(["a"])),
        pa.array([pa.scalar((1, 2, 3), pa.month_day_nano_interval()), None]),
        pa.array(["a", None], pa.string_view()),
    ],
    ids=lambda array: str(array.type),
)
def test_no_type_of_column_raises(array):
    for attribute in (
        Attribute.categorical("x", ["a"], unlisted="other"),
        Attribute.numeric("x", [0, 1], missing="none"),
        Attribute.continuous("x", (0.0, 1.0)),
    ):
        assert len(coder_of(attribute).codes(array)) == 2
    bounds = coder_of(Attribute.continuous("x", (0.0, 1.0)))
    assert isinstance(bounds, BoundsCoder)
    assert len(bounds.points(bounds.lattice(array))) == 2


def test_types_that_can_never_match_are_known_beforehand():
    numeric, label = Attribute.numeric("x", [0, 1]), Attribute.categorical("x", ["a"])
    assert unsuitable(numeric, pa.date32()) == "dates, times or durations"
    assert unsuitable(label, pa.date32()) is None
    assert unsuitable(label, pa.list_(pa.int8())) == "nested values"
    assert unsuitable(None, pa.dictionary(pa.int8(), pa.list_(pa.int8()))) == "nested values"
    assert unsuitable(numeric, pa.string()) is None


def test_many_labels_need_wider_codes():
    for size, kind in [(255, np.uint8), (256, np.uint16), (65_536, np.uint32)]:
        coder = coder_of(Attribute.categorical("x", [str(i) for i in range(size)]))
        codes = coder.codes(pa.array([0, size - 1, size]))
        assert codes.dtype == kind
        assert codes.tolist() == [0, size - 1, size]


def test_whole_numbers_far_apart_need_no_table(monkeypatch):
    monkeypatch.setattr(coding, "WIDEST_TABLE", 10)
    coder = coder_of(Attribute.categorical("x", ["1", "1000"], missing="none"))
    assert coder.codes(pa.array([1, 1000, 5, None])).tolist() == [0, 1, 3, 2]


def test_texts_of_a_plain_array_are_bytes():
    assert texts_of(plain(pa.array([True, None]))).to_pylist() == [b"\xff1", None]
    assert texts_of(plain(pa.array([2.0, math.nan]))).to_pylist() == [b"2", None]


@given(
    st.lists(st.one_of(st.floats(), st.floats(-3, 5), st.sampled_from([-0.0, -5e-324])), max_size=20),
    st.sampled_from([(-3.0, 5.0), (0.0, 1.0), (-1e308, 1e308), (0.0, 5e-324), (1e-300, 2e-300)]),
)
def test_points_are_clipped_and_lie_on_a_lattice_that_follows_from_the_bounds(numbers, bounds):
    coder = coder_of(Attribute.continuous("x", bounds))
    assert isinstance(coder, BoundsCoder)
    kept = np.array([number for number in numbers if number == number], dtype=np.float64)
    lattice = coder.lattice(pa.array(kept))
    points, clipped = coder.points(lattice), np.clip(kept, *bounds)
    step = float(coder.points(np.array([1]))[0])
    assert (points <= clipped + step * 2.0**-60).all()  # next to huge bounds the smallest numbers underflow to 0
    assert (clipped - points <= step).all()
    assert step <= max(abs(bounds[0]), abs(bounds[1])) * 2.0**-62 or step == 5e-324
    large = np.abs(clipped) >= max(abs(bounds[0]), abs(bounds[1])) / 512
    assert np.array_equal(points[large], clipped[large])
    assert not np.signbit(points[points == 0]).any()
