"""How texts that are dates are written, and by what they are counted."""

from datetime import date, timedelta

import pytest

from consilience.curation.cells import is_time_of_day, periods, written_as
from consilience.domain.dates import Date

FORMATS = [None, "%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%Y/%m/%d", "%d-%b-%Y", "%b %d, %Y", "%d.%m.%y", "%m/%d/%Y %H:%M"]


def days(count: int, first: date = date(2019, 1, 30)) -> list[date]:
    return [first + timedelta(days=i) for i in range(count)]


@pytest.mark.parametrize("form", FORMATS)
def test_a_format_is_found_and_reads_all_its_texts(form: str | None) -> None:
    texts = [f"{day:{form or '%Y-%m-%d'}}" for day in days(300)]
    found = written_as(texts, exact=1)
    assert found is not None
    assert (found.format, found.first, found.last) == (form, days(300)[0], days(300)[-1])
    assert not found.ambiguous
    attribute = found.attribute("seen", None)
    assert isinstance(attribute, Date)
    assert attribute.labels[0] == "2019-01"
    assert len(attribute.labels) == 12


@pytest.mark.parametrize(
    ("count", "by"), [(20, "day"), (40, "month"), (700, "month"), (1500, "quarter"), (9000, "year")]
)
def test_the_unit_leaves_few_cells(count: int, by: str) -> None:
    found = written_as([f"{day}" for day in days(count)], exact=1)
    assert found is not None
    assert found.by == by


def test_what_day_and_month_are_is_said_to_be_open() -> None:
    found = written_as([f"0{i}/0{j}/2020" for i in range(1, 9) for j in range(1, 9)], exact=1)
    assert found is not None
    assert found.ambiguous


def test_a_few_mistyped_dates_are_strays() -> None:
    found = written_as([*(f"{day}" for day in days(200)), "31.2."], exact=0.98)
    assert found is not None
    assert found.strays
    assert written_as([*(f"{day}" for day in days(20)), "31.2."], exact=0.98) is None


@pytest.mark.parametrize("texts", [["20230000", "20231999"], ["12", "13"], ["a-b"], ["10009999", "99990101"]])
def test_other_numbers_and_texts_are_no_dates(texts: list[str]) -> None:
    assert written_as(texts, exact=1) is None


def test_months_quarters_and_times() -> None:
    found = written_as(["2022-03", "2022-11"], exact=1)
    assert found is not None
    assert (found.finest, found.by) == ("month", "month")
    assert periods(["2020Q4", "2020Q1", "2019Q2"]) == ("quarters", ["2019Q2", "2020Q1", "2020Q4"])
    assert periods(["KW 12/2021", "KW 02/2021", "KW 50/2020"]) == ("weeks", ["KW 50/2020", "KW 02/2021", "KW 12/2021"])
    assert periods(["2020W54", "2020W01"]) is None
    assert periods(["2020Q1", "2020W01"]) is None
    assert [is_time_of_day(text) for text in ("14:30", "2:05 pm", "24:10", "12")] == [True, True, False, False]
