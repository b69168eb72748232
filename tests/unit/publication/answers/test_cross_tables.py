"""Cross-tables: totals are sums of what is shown, error bars and flags stay with their numbers."""

import csv
import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Domain, Query
from consilience.domain.factors import Buckets
from consilience.domain.questions import Question
from consilience.errors import DeclarationError
from consilience.estimators import Estimate, estimate
from consilience.measurements import Laplace, MeasurementSet
from consilience.publication import answer_table, cross_table, in_whole_numbers, margin_queries, whole_answers
from consilience.publication.answers.cross_tables import share_of
from consilience.publication.intervals import Interval
from consilience.publication.questions import as_question

DOMAIN = Domain.from_sizes({"a": 3, "b": 2, "c": 4})


def fit(seed: int) -> Estimate:
    rng = np.random.default_rng(seed)
    tables = {("a", "b"): rng.normal(20, 15, (3, 2)), ("b", "c"): rng.normal(15, 15, (2, 4))}
    return estimate(MeasurementSet.from_marginals(DOMAIN, tables, noise=Laplace(3.0)), allow_misfit=True)


@pytest.fixture(scope="module")
def fitted() -> Estimate:
    return fit(0)


def with_bars(fitted: Estimate, query: Query | Question | str, below: float = 3.0, above: float = 3.0):
    asked = as_question(query).query
    found = fitted.answer(asked).ravel()
    return answer_table(
        fitted, asked, Interval(Question(asked), 0.95, found, found - below, found + above, "measured", "refits", 9, ())
    )


def numbers(table) -> np.ndarray:
    return np.array([[cell.estimate for cell in row] for row in table.cells])


def test_the_last_attribute_goes_across_and_totals_surround_the_cells(fitted) -> None:
    table = cross_table(answer_table(fitted, "by a, b"))
    assert (table.down, table.across) == (("a",), ("b",))
    assert table.header == (("0", "1", "Total"),)
    assert table.row_labels == (("0",), ("1",), ("2",), ("Total",))
    assert numbers(table)[:3, :2] == pytest.approx(fitted.marginal("a", "b"))
    assert numbers(table)[:3, 2] == pytest.approx(fitted.marginal("a"))
    assert numbers(table)[3, :2] == pytest.approx(fitted.marginal("b"))
    assert numbers(table)[3, 2] == pytest.approx(fitted.total)


def test_several_attributes_may_go_down_or_across_in_any_order(fitted) -> None:
    down = cross_table(answer_table(fitted, "by a, b, c"))
    assert (down.down, len(down.row_labels), down.row_labels[-1]) == (("a", "b"), 7, ("Total", ""))
    table = cross_table(answer_table(fitted, "by a, b, c"), columns=["c", "a"])
    assert table.across == ("c", "a")
    assert table.header[0][:4] == ("0", "0", "0", "1")
    assert table.header[1][:4] == ("0", "1", "2", "0")
    assert table.header[0][-1] == "Total"
    inner = numbers(table)[:2, :-1].reshape(2, 4, 3)
    assert inner == pytest.approx(fitted.marginal("b", "c", "a"))


def test_conditions_stay_in_the_title_and_totals_are_within_them(fitted) -> None:
    table = cross_table(answer_table(fitted, "b=1 by a, c"))
    assert "b=1" in table.title
    assert table.down == ("a",)
    assert numbers(table)[-1, -1] == pytest.approx(fitted.marginal("b")[1])
    single = cross_table(answer_table(fitted, "b=1 by a"))
    assert (single.header, single.across) == ((("count",),), ())
    assert numbers(single).shape == (4, 1)
    assert numbers(cross_table(answer_table(fitted, "total"))).shape == (1, 1)


@pytest.mark.parametrize("query", ["by prefix(a), b", "by a, ranges(c)"])
def test_rows_that_overlap_have_no_totals(fitted, query: str) -> None:
    table = cross_table(answer_table(fitted, query))
    assert not table.total_row
    assert not table.total_column
    assert margin_queries(answer_table(fitted, query)) == ()


def test_groups_have_totals_only_where_they_cover_all_values(fitted) -> None:
    query = Query.of({"a": Buckets.of({"low": ["0"], "high": ["1", "2"]}), "b": Query.marginal("b").factors[0][1]})
    assert cross_table(answer_table(fitted, query)).total_row
    query = Query.of({"a": Buckets.of({"low": ["0"], "mid": ["1"]}), "b": Query.marginal("b").factors[0][1]})
    assert not cross_table(answer_table(fitted, query)).total_row


def test_ratios_have_no_totals_and_more_decimals(fitted) -> None:
    shares = cross_table(answer_table(fitted, "by a, b", per="total"))
    assert not shares.total_row
    assert shares.texts()[0][0] == f"{fitted.marginal('a', 'b')[0, 0] / fitted.total:,.4f}"


def test_totals_take_error_bars_from_the_margins(fitted) -> None:
    table = with_bars(fitted, "by a, b")
    margins = [with_bars(fitted, query, 5.0, 5.0) for query in margin_queries(table)]
    assert [each.query.attributes for each in margins] == [("a",), ("b",), ()]
    crossed = cross_table(table, margins=margins)
    assert crossed.cells[0][0].high == pytest.approx(crossed.cells[0][0].estimate + 3)
    for cell in (*crossed.cells[-1], *(row[-1] for row in crossed.cells)):
        assert (cell.low, cell.high) == pytest.approx((cell.estimate - 5, cell.estimate + 5))
    bare = cross_table(table)
    assert bare.cells[-1][0].low is None


def test_cells_read_as_people_write_them(fitted) -> None:
    value = fitted.marginal("a", "b")[0, 0]
    even = cross_table(with_bars(fitted, "by a, b"))
    assert even.texts()[0][0] == f"{value:,.1f} ± 3.0"
    skewed = cross_table(with_bars(fitted, "by a, b", 1.0, 4.0))
    assert skewed.texts()[0][0] == f"{value:,.1f} ({value - 1:,.1f}–{value + 4:,.1f})"
    below_zero = cross_table(with_bars(fitted, "by a, b", 1e3, 4.0)).texts()[0][0]
    assert " to " in below_zero
    assert below_zero.endswith("*")


def test_flags_are_kept_in_every_form(fitted) -> None:
    table = cross_table(with_bars(fitted, "by a, b", 10.0, 10.0))
    flags = [[cell.wide for cell in row[:2]] for row in table.cells[:3]]
    assert flags == (fitted.marginal("a", "b") < 20.0).tolist()
    document = json.loads(table.to_json())
    assert [[cell["wide"] for cell in row[:2]] for row in document["cells"][:3]] == flags
    rows = list(csv.reader(io.StringIO(table.to_csv())))[1:4]
    assert [[text.endswith("*") for text in row[1:3]] for row in rows] == flags


def test_comma_separated_numbers_are_in_full_and_names_stand_over_labels(fitted) -> None:
    table = answer_table(fitted, "by a, b, c")
    rows = list(csv.reader(io.StringIO(cross_table(table, columns=["b", "c"]).to_csv())))
    assert rows[0][:3] == ["", "0", "0"]
    assert rows[1][:3] == ["a", "0", "1"]
    assert rows[2][1] == f"~{table.estimates[0]}"
    two = answer_table(fitted, "by a, b")
    rows = list(csv.reader(io.StringIO(cross_table(two).to_csv())))
    assert float(rows[1][1]) == two.estimates[0]


@pytest.mark.parametrize(("columns", "message"), [(["x"], "'x' cannot go across"), (["b", "b"], "twice")])
def test_columns_that_are_not_there_are_refused(fitted, columns, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        cross_table(answer_table(fitted, "by a, b"), columns=columns)


@given(st.integers(0, 2**32), st.sampled_from([None, ["a"], ["a", "c"], ["c", "b"]]))
@settings(max_examples=12, deadline=None)
def test_printed_totals_are_sums_and_whole_ones_are_next_to_their_estimates(seed: int, columns) -> None:
    fitted = fit(seed)
    plain = cross_table(answer_table(fitted, "by a, b, c"), columns=columns)
    whole = whole_answers(fitted, ["by a, b, c"], columns=columns)
    rounded = cross_table(in_whole_numbers(answer_table(fitted, "by a, b, c"), whole.answers[0]), columns=columns)
    for table in (plain, rounded):
        cells = numbers(table)
        assert cells[:-1].sum(axis=0) == pytest.approx(cells[-1])
        assert cells[:, :-1].sum(axis=1) == pytest.approx(cells[:, -1])
    assert np.array_equal(numbers(rounded), np.rint(numbers(rounded)))
    assert np.abs(numbers(rounded) - numbers(plain)).max() < 1.0 + 1e-6


@pytest.fixture(scope="module")
def in_parts() -> Estimate:
    """b links a with c; d was measured by itself alone, and e not at all."""
    domain = Domain.from_sizes({"a": 2, "b": 2, "c": 2, "d": 2, "e": 2})
    tables = {("a", "b"): [[10.0, 20], [30, 40]], ("b", "c"): [[10.0, 30], [20, 40]], "d": [60.0, 40.0]}
    return estimate(MeasurementSet.from_marginals(domain, tables, noise=Laplace(1.0)))


def crossed(fitted: Estimate, query: str, *, guess: bool = False, **options):
    table = answer_table(fitted, query, guess=guess)
    return cross_table(
        table, margins=[answer_table(fitted, each) for each in margin_queries(table, **options)], **options
    )


def test_totals_have_a_basis_of_their_own(in_parts) -> None:
    table = crossed(in_parts, "by a, c")
    assert [[cell.basis for cell in row] for row in table.cells] == [["modelled"] * 2 + ["measured"]] * 2 + [
        ["measured"] * 3
    ]
    assert table.texts()[0][0].startswith("~")
    assert not table.texts()[0][2].startswith("~")
    table = crossed(in_parts, "by a, d")
    assert table.texts()[0][:2] == ("–", "–")
    assert table.cells[0][2].estimate == pytest.approx(in_parts.marginal("a")[0])
    assert table.cells[2][2].estimate == pytest.approx(in_parts.total)
    assert cross_table(answer_table(in_parts, "by a, d")).texts()[0][2] == "–"


def test_cells_without_a_basis_are_dashes_and_guesses_are_marked_in_every_form(in_parts) -> None:
    table = crossed(in_parts, "by a, e")
    assert {text for row in table.texts() for text in row[:2]} == {"–"}
    document = json.loads(table.to_json())
    assert document["cells"][0][0] == {"estimate": None, "basis": "not measured"}
    assert document["next_time"] == ["by a, e"]
    assert list(csv.reader(io.StringIO(table.to_csv())))[1][1:3] == ["–", "–"]
    table = crossed(in_parts, "by a, e", guess=True)
    number = in_parts.marginal("a", "e")[0, 0]
    assert table.texts()[0][0] == f"guess {number:,.1f}"
    assert json.loads(table.to_json())["cells"][0][0]["guess"] == pytest.approx(number)
    assert list(csv.reader(io.StringIO(table.to_csv())))[1][1].startswith("guess ")
    whole = in_whole_numbers(answer_table(in_parts, "by a, e"), np.array([1, 2, 3, 4]))
    assert list(csv.reader(io.StringIO(cross_table(whole).to_csv())))[1][1:3] == ["–", "–"]


def test_margins_follow_the_order_of_the_columns(fitted) -> None:
    table = with_bars(fitted, "by a, b, c")
    margins = [with_bars(fitted, query, 5.0, 5.0) for query in margin_queries(table, columns=["c", "a"])]
    for cell in cross_table(table, columns=["c", "a"], margins=margins).cells[-1]:
        assert (cell.low, cell.high) == pytest.approx((cell.estimate - 5, cell.estimate + 5))


@pytest.mark.parametrize("percent", ["row", "column", "total"])
def test_percentages_are_shares_of_what_they_say_and_so_are_their_totals(fitted, percent) -> None:
    counts = fitted.answer("by a, b")
    below = {"row": counts.sum(1, keepdims=True), "column": counts.sum(0, keepdims=True), "total": counts.sum()}
    plain = answer_table(fitted, "by a, b")
    asked = share_of(plain, percent)
    table = answer_table(fitted, asked, percent=True)
    margins = [answer_table(fitted, each, percent=True) for each in margin_queries(table)]
    crossed = cross_table(table, margins=margins)
    np.testing.assert_allclose(numbers(crossed)[:3, :2], counts / below[percent])
    whole = np.pad(counts, ((0, 1), (0, 1)))
    whole[3, :2], whole[:3, 2], whole[3, 2] = counts.sum(0), counts.sum(1), counts.sum()
    totals = {"row": whole[:, 2:], "column": whole[3:], "total": counts.sum()}
    np.testing.assert_allclose(numbers(crossed), whole / totals[percent])
    assert all(text.endswith(" %") for row in crossed.texts() for text in row)
    assert crossed.texts()[3][2] == "100.0 %"


def test_percentages_of_rows_need_something_across_and_only_counts_have_them(fitted) -> None:
    with pytest.raises(DeclarationError, match="take percent of the column"):
        share_of(answer_table(fitted, "by a"), "row")
    with pytest.raises(DeclarationError, match="no table of counts"):
        share_of(answer_table(fitted, "by a", per="total"), "total")
