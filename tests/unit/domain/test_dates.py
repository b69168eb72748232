"""Dates against the standard library's calendar, and queries by the levels of dates and hierarchies against sums."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.domain import Attribute, Date, Domain, Query, factors
from consilience.domain.dates import COARSER, UNITS, first_day, label_of, periods_of, span_of
from consilience.errors import DeclarationError
from consilience.source.coding import coder_of

EPOCH = dt.date(1970, 1, 1)
DAYS = st.dates(dt.date(2, 1, 1), dt.date(9990, 12, 31))


def label_by_the_calendar(day: dt.date, unit: str) -> str:
    year, week, _ = day.isocalendar()
    return {
        "day": day.isoformat(),
        "week": f"{year:04}-W{week:02}",
        "month": f"{day.year:04}-{day.month:02}",
        "quarter": f"{day.year:04}-Q{(day.month + 2) // 3}",
        "year": f"{day.year:04}",
    }[unit]


@given(DAYS, st.sampled_from(UNITS))
def test_a_day_lies_in_the_period_that_the_calendar_says(day: dt.date, unit: str) -> None:
    number = (day - EPOCH).days
    period = int(periods_of(np.array([number]), unit)[0])
    assert label_of(unit, period) == label_by_the_calendar(day, unit)
    assert first_day(unit, period) <= number < first_day(unit, period + 1)
    assert span_of(label_of(unit, period)) == (unit, first_day(unit, period), first_day(unit, period + 1))


@given(DAYS, st.sampled_from([(fine, coarse) for fine in UNITS for coarse in COARSER[fine]]))
def test_coarser_periods_are_whole_numbers_of_finer_ones(day: dt.date, units: tuple[str, str]) -> None:
    fine, coarse = units
    period = int(periods_of(np.array([(day - EPOCH).days]), fine)[0])
    ends = np.array([first_day(fine, period), first_day(fine, period + 1) - 1])
    assert len(set(periods_of(ends, coarse).tolist())) == 1


@pytest.mark.parametrize(
    "text", ["2019-13", "2019-02-30", "2019-Q5", "2019-W54", "19-01", "2019-1", "0000", "9999", ""]
)
def test_what_is_no_period_has_no_span(text: str) -> None:
    assert span_of(text) is None


MONTHS = Date.between("seen", "2019-03-15", "2019-12", "month", missing="Unknown")


def test_the_cells_are_the_periods_from_the_first_to_the_last() -> None:
    assert MONTHS.labels == (*(f"2019-{month:02}" for month in range(3, 13)), "Unknown")
    assert MONTHS.levels == ("year", "quarter", "month")
    assert MONTHS.groups("quarter") == {
        "2019-Q1": (0,), "2019-Q2": (1, 2, 3), "2019-Q3": (4, 5, 6), "2019-Q4": (7, 8, 9), "Unknown": (10,),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "codes"),
    [
        ("2019-04", "2019-06", range(1, 4)),
        ("2019-Q2", "2019-07", range(1, 5)),
        ("2019", "2019", range(10)),
        (None, "2019-Q1", range(1)),
        ("2019-10-01", "2019-11-30", range(7, 9)),
    ],
)
def test_a_range_runs_from_the_first_day_of_one_period_to_the_last_of_another(low, high, codes) -> None:
    assert MONTHS.codes_between(low, high) == tuple(codes)


@pytest.mark.parametrize(
    ("build", "fragments"),
    [
        (lambda: MONTHS.codes("2020"), ["'seen'", "2019-03 to 2019-12", "2020 lies outside"]),
        (lambda: MONTHS.codes("2019-05-02"), ["each month", "2019-05-02 cuts through 2019-05"]),
        (lambda: MONTHS.codes_between("2019-06", "2019-05"), ["runs backwards"]),
        (lambda: MONTHS.codes_between("June", None), ["'June' is none"]),
        (lambda: MONTHS.groups("week"), ["no level 'week'", "year, quarter, month"]),
        (lambda: Date.between("seen", "2019", "2018", "day"), ["'to' must not be before 'from'"]),
        (lambda: Date.between("seen", "1.1.2019", "2018", "day"), ["'1.1.2019' is no date"]),
        (lambda: Date.between("seen", "2019", "2020", "decade"), ["'by' is 'decade'", "day, week"]),
        (lambda: Date.between("seen", "1000", "2000", "day"), ["at most 100,000", "coarser"]),
        (lambda: Date.between("seen", "2019", "2020", "day", format="%m/%Y"), ["each day", "only the month"]),
        (lambda: Date.between("seen", "2019", "2020", "day", format="%d.%Y"), ["tells no date"]),
        (lambda: Date.between("seen", "2019", "2020", "day", format="%d.%q.%Y"), ["has %q"]),
        (lambda: Date.between("seen", "2019", "2020", "day", format="%d.%d.%m.%Y"), ["names a part twice"]),
    ],
)
def test_mistakes_are_explained(build, fragments: list[str]) -> None:
    with pytest.raises(DeclarationError) as caught:
        build()
    for fragment in fragments:
        assert fragment in str(caught.value)


FORMATS = ["%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d-%b-%y", "%Y-%m-%d %H:%M:%S", "%d%m%Y", None]


@given(st.dates(dt.date(1970, 1, 1), dt.date(2068, 12, 31)), st.sampled_from(FORMATS), st.sampled_from(UNITS))
def test_texts_dates_and_timestamps_have_the_code_of_their_day(day: dt.date, form: str | None, unit: str) -> None:
    attribute = Date.between("seen", "2000", "2030", unit, format=form, unlisted="Other")
    expected = label_by_the_calendar(day, unit)
    if expected not in attribute.ordinary_labels:
        expected = "Other"
    text = dt.datetime.combine(day, dt.time(23, 59, 58)).strftime(form or "%Y-%m-%dT%H:%M:%S")
    moment = dt.datetime.combine(day, dt.time(23, 59, 59))
    for array in (
        pa.array([text, None]),
        pa.array([text, None]).dictionary_encode(),
        pa.array([day, None]),
        pa.array([day, None], pa.date64()),
        *(pa.array([moment, None], pa.timestamp(each)) for each in ("s", "ms", "us")),
    ):
        codes = coder_of(attribute).codes(array)
        assert [attribute.labels[code] for code in codes] == [expected, "Other"]


def test_what_is_no_date_is_missing_and_what_lies_outside_follows_its_rule() -> None:
    texts = pa.array(["2019-02-30", "", "soon", "1969-12-31", "2019-05-02", "2019-05", "Unknown"])
    kept = Date.between("seen", "2019", "2019", "month", missing="Unknown", unlisted="clip")
    found = [kept.labels[code] for code in coder_of(kept).codes(texts)]
    assert found == ["Unknown", "Unknown", "Unknown", "2019-01", "2019-05", "2019-05", "Unknown"]
    dropped = coder_of(Date.between("seen", "2019", "2019", "month"))
    assert dropped.codes(texts).tolist() == [12, 12, 12, 12, 4, 4, 12]


PLACE = Attribute.hierarchy(
    "place",
    {"Bern": "BE", "Thun": "BE", "Chur": "GR", "BE": "CH", "GR": "CH", "Lyon": "Rhone", "Rhone": "FR", "Monaco": "MC"},
    levels=["country", "canton", "town"],
)
DOMAIN = Domain("people", (MONTHS, PLACE, Attribute.categorical("sex", ["F", "M"])))
COUNTS = np.arange(11 * 5 * 2, dtype=np.float64).reshape(11, 5, 2)


@pytest.mark.parametrize(
    ("text", "rows", "same"),
    [
        ("by country", ["CH", "FR", "MC"], ["place=CH", "place=FR", "place=MC"]),
        ("by canton", ["BE", "GR", "Rhone", "Monaco"], ["place=BE", "place=GR", "place=Rhone", "place=Monaco"]),
        ("country=CH by canton", ["BE", "GR"], ["place=BE", "place=GR"]),
        ("country=CH by town", ["Bern", "Thun", "Chur"], ["place=Bern", "place=Thun", "place=Chur"]),
        ("canton=GR", ["GR"], ["place=Chur"]),
        ("by town", ["Bern", "Thun", "Chur", "Lyon", "Monaco"], [f"place={each}" for each in PLACE.labels]),
        (
            "quarter(seen) where seen=2019-Q2..2019-Q3",
            ["2019-Q2", "2019-Q3"],
            ["seen=2019-Q2", "seen=2019-07..2019-09"],
        ),
        ("by year", ["2019", "Unknown"], ["seen=2019", "seen=Unknown"]),
        ("seen=2019-04..2019-05 by month", ["2019-04", "2019-05"], ["seen=2019-04", "seen=2019-05"]),
        ("place=CH by place", ["Bern", "Thun", "Chur"], ["place=Bern", "place=Thun", "place=Chur"]),
    ],
)
def test_levels_add_up_what_lies_in_their_groups(text: str, rows: list[str], same: list[str]) -> None:
    bound = Query.parse(text).bind(DOMAIN)
    assert list(bound.row_labels[0]) == rows
    each = [float(Query.parse(one).bind(DOMAIN).answer_full(COUNTS)[0]) for one in same]
    assert bound.answer_full(COUNTS).tolist() == each
    assert Query.parse(bound.query.describe()).over(DOMAIN) == bound.query
    assert Query.from_json(bound.query.to_json()) == bound.query


def test_two_attributes_with_a_level_of_one_name_need_the_attribute() -> None:
    left = Date.between("left", "2019", "2019", "month")
    domain = Domain("stays", (MONTHS, left))
    with pytest.raises(DeclarationError, match=r"a level of 2 attributes; write quarter\(seen\) or quarter\(left\)"):
        Query.parse("by quarter").bind(domain)
    assert Query.parse("quarter(seen), year(left)").bind(domain).shape == (5, 1)


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("canton=CH", ["'CH' is no canton of 'place'", "BE, GR"]),
        ("seen=2019-04 by quarter", ["cuts through '2019-Q2'", "finer level"]),
        ("by fortnight", ["no attribute 'fortnight'", "quarter"]),
        ("prefix(canton)", ["asks for a level of 'place'", "prefix(place)"]),
        ("by week(seen)", ["no level of 'seen'"]),
    ],
)
def test_mistakes_about_levels_are_explained(text: str, fragments: list[str]) -> None:
    with pytest.raises(DeclarationError) as caught:
        Query.parse(text).bind(DOMAIN)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_level_names_must_fit_the_tree_and_the_domain() -> None:
    with pytest.raises(DeclarationError, match="names 1 levels, state, and its values stand on 2"):
        Attribute.hierarchy("place", {"Bern": "CH"}, levels=["state"])
    with pytest.raises(DeclarationError, match="level 'state' twice"):
        Attribute.hierarchy("place", {"Bern": "CH"}, levels=["state", "state"])
    odd = Attribute.hierarchy("town", {"Bern": "CH"}, levels=["mean", "town"])
    with pytest.raises(DeclarationError, match="the level 'mean' of 'town' is a function"):
        Domain("people", (odd,))
    town = Attribute.hierarchy("town", {"Bern": "CH"}, levels=["sex", "town"])
    with pytest.raises(DeclarationError, match="'sex' is an attribute, and a level of 'town'"):
        Domain("people", (town, Attribute.categorical("sex", ["F", "M"])))
    assert Query.parse("by town").bind(Domain("people", (town,))).query == Query.marginal("town")


def test_domain_files_hold_dates_and_levels() -> None:
    assert Domain.from_declaration(DOMAIN.to_declaration()) == DOMAIN
    declared = {"kind": "date", "from": dt.date(2019, 3, 15), "to": 2019, "by": "month", "missing": "Unknown"}
    domain = Domain.from_declaration({"name": "people", "attributes": {"seen": declared}})
    assert domain["seen"] == MONTHS
    with pytest.raises(DeclarationError, match=r"'from' must be a date.*found \[1\]"):
        Domain.from_declaration({"name": "x", "attributes": {"seen": declared | {"from": [1]}}})


def test_a_level_is_measured_as_what_it_is() -> None:
    assert factors.Level("canton").bind(PLACE).dense().sum(axis=0).tolist() == [1.0] * 5


DOMAIN_WITH_FILE = """
name = "people"

[attributes.place]
kind = "hierarchy"
parents = "places.csv"
"""


def of_file(tmp_path, text: str) -> Domain:
    (tmp_path / "people.domain.toml").write_text(DOMAIN_WITH_FILE, encoding="utf-8")
    (tmp_path / "places.csv").write_text(text, encoding="utf-8-sig")
    return Domain.load(tmp_path / "people.domain.toml")


def test_parents_may_stand_in_a_file_by_levels_or_by_pairs(tmp_path) -> None:
    by_levels = of_file(
        tmp_path, "country,canton,town\nCH,BE,Bern\nCH,BE,Thun\nCH,GR,Chur\nFR,Rhone,Lyon\nMC,Monaco,\n"
    )
    expected = Attribute.hierarchy(
        "place", dict(PLACE.to_declaration()["parents"]), levels=["country", "canton", "town"]
    )
    assert set(by_levels["place"].labels) == set(expected.labels)
    assert Query.parse("country=CH by canton").bind(by_levels).row_labels[0] == ("BE", "GR")
    pairs = of_file(tmp_path, "value,parent\nBern,BE\nThun,BE\nBE,CH\nLyon,Rhone\nRhone,FR\n")
    assert pairs["place"].labels == ("Bern", "Thun", "Lyon")
    assert Domain.from_declaration(pairs.to_declaration()) == pairs


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("country,town\nCH,Bern\nFR,Bern\n", ["line 3", "'Bern' has the parent 'FR' there and 'CH' before"]),
        ("country,town\nCH,Bern,x\n", ["line 2", "3 fields, and its header 2"]),
        ("country,town\nCH,\n", ["'CH' alone"]),
        ("country\nCH\n", ["two columns or more"]),
    ],
)
def test_files_of_parents_that_are_no_trees_are_refused(tmp_path, text: str, fragments: list[str]) -> None:
    with pytest.raises(DeclarationError) as caught:
        of_file(tmp_path, text)
    for fragment in ["people.domain.toml.attributes.place", *fragments]:
        assert fragment in str(caught.value)


def test_a_file_of_parents_that_is_not_there_is_named(tmp_path) -> None:
    (tmp_path / "people.domain.toml").write_text(DOMAIN_WITH_FILE, encoding="utf-8")
    with pytest.raises(DeclarationError, match=r"'places\.csv' cannot be read"):
        Domain.load(tmp_path / "people.domain.toml")
    with pytest.raises(DeclarationError, match="which only a domain file can"):
        Domain.from_declaration({"name": "x", "attributes": {"place": {"kind": "hierarchy", "parents": "places.csv"}}})
