"""Questions: medians, quantiles, differences and ratios of answers, against slow twins, and how often they hold."""

import itertools
import json

import numpy as np
import pytest

import consilience as cs
from consilience.domain import Attribute, Domain, Query
from consilience.domain.questions import Question
from consilience.errors import DeclarationError
from consilience.measurements import Measurement, MeasurementSet, PrivacyStatement
from consilience.publication import answer_table, interval
from consilience.publication.intervals import intervals
from consilience.publication.questions import BoundQuestion
from consilience.publication.release import answers

AGE = Attribute.numeric("age", [0, 10, 20, 40, 100], missing="Unknown", unlisted="drop")
PAY = Attribute.numeric("pay", [0.0, 1.0, 2.5, 10.0])
DOMAIN = Domain("people", (AGE, Attribute.categorical("sex", ["F", "M"]), PAY))
TRUTH = np.random.default_rng(5).integers(20, 400, DOMAIN.shape).astype(float)


ALMOST_NONE = cs.Gaussian(1e-6)


def measured(*names: tuple[str, ...], law=ALMOST_NONE, seed: int = 0, truth=TRUTH) -> MeasurementSet:
    """Tables of the truth, with noise, or nearly none."""
    rng, found = np.random.default_rng(seed), []
    for each in names:
        exact = Query.marginal(*each).bind(DOMAIN).answer_full(truth).ravel()
        found.append(Measurement(Query.marginal(*each), exact + law.simulate(exact.size, rng), law))
    return MeasurementSet(DOMAIN, tuple(found), PrivacyStatement(), {}, private=False)


@pytest.fixture(scope="module")
def known() -> cs.Estimate:
    return cs.estimate(measured(DOMAIN.names))


@pytest.fixture(scope="module")
def noisy() -> cs.Estimate:
    return cs.estimate(measured(("age", "sex"), ("pay", "sex"), law=cs.Laplace(4.0)))


def quantile_of_records(counts: np.ndarray, edges: np.ndarray, share: float) -> float:
    """The slow twin: the share of very many records that lie evenly in their bins."""
    records = [np.linspace(low, high, 200 * int(n) + 1) for n, low, high in zip(counts, edges, edges[1:], strict=False)]
    return float(np.quantile(np.concatenate(records), share))


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5, 0.9])
def test_a_quantile_is_that_of_records_that_lie_evenly_in_their_bins(known, share) -> None:
    table = answer_table(known, f"quantile(age, {share}) by sex")
    edges = np.array([-0.5, 9.5, 19.5, 39.5, 99.5])  # whole numbers: half below the first, half above the last
    wanted = [quantile_of_records(TRUTH[:4, sex].sum(axis=-1), edges, share) for sex in range(2)]
    np.testing.assert_allclose(table.estimates, wanted, atol=0.05)


def test_several_quantiles_stand_beside_each_other_in_the_order_of_the_query(known) -> None:
    together = answer_table(known, "by sex, quantile(pay, 0.25, 0.5)")
    assert together.labels[:2] == (("F", "0.25 quantile of pay"), ("F", "median of pay"))
    alone = [answer_table(known, f"quantile(pay, {share}) by sex").numbers for share in (0.25, 0.5)]
    np.testing.assert_array_equal(together.numbers, np.stack(alone, axis=1).ravel())


def test_where_no_record_is_for_a_while_the_quantile_lies_in_the_middle_and_of_nobody_there_is_none() -> None:
    asked = BoundQuestion(Question.parse("median(age) by sex"), DOMAIN)
    counts = np.array([[7.0, 0.0], [0.0, 0.0], [0.0, 0.0], [7.0, 0.0], [5.0, 5.0]])  # the last are Unknown
    found = asked.made([counts.ravel()])
    assert found[0] == pytest.approx((9.5 + 39.5) / 2)
    assert np.isnan(found[1])


def test_quantiles_in_open_ended_bins_have_no_number(known) -> None:
    table = answer_table(known, "quantile(pay, 0.001, 0.5, 0.999)")
    assert table.numbers[0] == -np.inf
    assert np.isfinite(table.numbers[1])
    assert table.numbers[2] == np.inf
    assert [table.style.text(each) for each in table.numbers[::2]] == ["under 1", "2.5+"]
    answers = json.loads(table.to_json())["answers"]
    assert [row["estimate"] is None for row in answers] == [True, False, True]
    assert answers[2]["note"] == "in the bin [2.5, 10], which is open-ended"
    assert "open-ended" in " ".join(table.notes)


def test_quantiles_stand_on_the_worst_bin_of_their_group(noisy) -> None:
    assert answer_table(noisy, "median(age) by sex").basis.worst == "measured"
    assert answer_table(noisy, "median(age) by sex, pay").basis.worst == "modelled"
    of_sexes = cs.estimate(measured(("sex",)))
    assert answer_table(of_sexes, "median(age)").basis.worst == "not measured"
    assert np.isnan(interval(of_sexes, "median(age)", refits=20).high).all()


SEEN = cs.Date.between("seen", "2019-11", "2020-04", "month", missing="Unknown")
VISITS = Domain("visits", (SEEN, Attribute.categorical("sex", ["F", "M"])))


@pytest.fixture(scope="module")
def visits() -> cs.Estimate:
    counts = np.array([[30, 0], [31, 0], [31, 10], [29, 40], [31, 10], [30, 0], [500, 500]], dtype=float)
    noisy = {("seen", "sex"): counts}
    return cs.estimate(MeasurementSet.from_marginals(VISITS, noisy, noise=ALMOST_NONE, private=False))


def test_a_median_of_dates_is_a_date(visits) -> None:
    """With as many records as days in each month, the k-th record is of the k-th day; the twin counts days."""
    days = np.arange(np.datetime64("2019-11-01"), np.datetime64("2020-05-01"))
    table = answer_table(visits, "quantile(seen, 0.1, 0.5, 0.999) where sex=F")
    wanted = [str(days[min(int(share * len(days)), len(days) - 1)]) for share in (0.1, 0.5, 0.999)]
    assert [row["estimate"] for row in table.rows()] == wanted
    assert table.remarks[1] == f"in the month {wanted[1][:7]}"
    found = answers(visits, ["median(seen) by sex"], interval=0.9, refits=20).tables[0]
    assert [[row[name] for name in ("low", "estimate", "high")] for row in found.rows()][1] == ["2020-02-15"] * 3
    assert not found.uncertain.any()
    assert "2020-02-15" in found.to_csv()
    crossed = answers(visits, ["median(seen) by sex"], interval=0.9, refits=20, cross=True).tables[0]
    assert "2020-02-15 (2020-02-15 to 2020-02-15)" in crossed.to_csv()
    assert json.loads(crossed.to_json())["cells"][0][1]["low"] == "2020-02-15"


def test_dates_beyond_the_last_have_no_day() -> None:
    clipped = Domain("visits", (cs.Date.between("seen", "2019-11", "2020-01", "month", unlisted="clip"),))
    noisy = {"seen": [1.0, 2.0, 9.0]}
    table = answer_table(cs.estimate(MeasurementSet.from_marginals(clipped, noisy, noise=ALMOST_NONE)), "median(seen)")
    assert [table.style.text(row["estimate"]) for row in table.rows()] == ["from 2020-01-01"]
    assert "open-ended" in table.remarks[0]


def test_two_dates_are_some_days_apart(visits) -> None:
    apart = answer_table(visits, "median(seen) where sex=M minus median(seen) where sex=F")
    medians = answer_table(visits, "median(seen) by sex").numbers
    assert apart.numbers[0] == pytest.approx(medians[1] - medians[0])
    assert isinstance(next(apart.rows())["estimate"], float)
    (changed,) = cs.compare(visits, series_of_visits(), ["median(seen) where sex=M"], refits=20)
    row = next(changed.rows())
    assert (row["before"], row["after"]) == ("2020-02-15", "2020-03-16")
    assert row["estimate"] == pytest.approx(30, abs=0.1)


def series_of_visits() -> cs.Estimate:
    counts = np.array([[30, 0], [31, 0], [31, 0], [29, 10], [31, 40], [30, 10], [500, 500]], dtype=float)
    return cs.estimate(MeasurementSet.from_marginals(VISITS, {("seen", "sex"): counts}, noise=ALMOST_NONE))


@pytest.mark.parametrize(
    "text",
    ["median(seen) per total", "median(seen) minus total", "median(seen) per median(seen)"],
)
def test_dates_are_compared_with_dates_alone(visits, text) -> None:
    with pytest.raises(DeclarationError, match="compares a date with a number or divides by one"):
        answer_table(visits, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("median(sex)", "categorical: its values have no order on a line of numbers"),
        ("by age per by pay", "'age' has 5 answers and 'pay' has 3"),
        ("mean(age) per mean(pay) minus total", "ask for each ratio by itself"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_both_sides(known, text, message) -> None:
    with pytest.raises(DeclarationError, match=message):
        answer_table(known, text)


def slow(known: cs.Estimate, text: str) -> np.ndarray:
    return answer_table(known, text).numbers


def test_differences_and_ratios_are_those_of_the_answers_with_the_same_labels(known) -> None:
    ages = slow(known, "by age, sex").reshape(5, 2)
    np.testing.assert_allclose(slow(known, "sex=F by age minus sex=M by age"), ages[:, 0] - ages[:, 1])
    np.testing.assert_allclose(slow(known, "by sex, age per by sex").reshape(2, 5), ages.T / ages.sum(0)[:, None])
    means = slow(known, "mean(age) by sex")
    np.testing.assert_allclose(slow(known, "mean(age) by sex minus mean(age)"), means - slow(known, "mean(age)"))
    np.testing.assert_allclose(slow(known, "mean(age) where sex=F per mean(age) where sex=M"), [means[0] / means[1]])
    shares = ages[2] / ages.sum(axis=0)
    text = "age=20..39 and sex=F per sex=F minus age=20..39 and sex=M per sex=M"
    np.testing.assert_allclose(slow(known, text), [shares[0] - shares[1]])


def test_labels_of_a_difference_say_both_sides(known) -> None:
    assert answer_table(known, "sex=F by age minus sex=M by age").labels[0] == ("F − M", "0..9")
    assert answer_table(known, "median(age) where sex=F minus median(age)").labels[0] == ("median of age", "F − all")


def test_a_difference_is_surer_than_its_sides_where_they_share_the_noise(noisy) -> None:
    """Nothing is left of an answer less itself; and of groups apart variances add up, not widths."""
    itself, first, second, apart = intervals(
        noisy,
        ["by age minus by age", "sex=F by age", "sex=M by age", "sex=F by age minus sex=M by age"],
        refits=100,
    )
    np.testing.assert_allclose(itself.high - itself.low, 0.0, atol=1e-9)
    widths = [each.high - each.low for each in (first, second, apart)]
    assert np.median(widths[2] / np.hypot(widths[0], widths[1])) == pytest.approx(1.0, abs=0.2)
    assert apart.low.min() < 0.0


def test_the_interval_of_a_quantile_holds_the_places_whose_surplus_may_be_nothing(noisy) -> None:
    """Against the same for the shares below each edge: an edge lies in the interval if its share may be one half."""
    found = interval(noisy, "median(age) where sex=F", 0.9, refits=60)
    edges, table = [9.5, 19.5, 39.5], AGE.bins
    for place, edge in enumerate(edges, start=1):
        below = "|".join(f'"{each}"' for each in table[:place])
        rows = np.array([[1.0 if code < place else 0.0 for code in range(5)], [1.0, 1.0, 1.0, 1.0, 0.0]])
        surplus = cs.factors.Matrix.of(rows[0] - 0.5 * rows[1])
        query = Query((("age", surplus), ("sex", cs.factors.Value("F"))))
        nothing = interval(noisy, query, 0.9, refits=60)
        assert (found.low[0] <= edge <= found.high[0]) == (nothing.low[0] <= 0.0 <= nothing.high[0]), below
    assert found.low[0] < answer_table(noisy, "median(age) where sex=F").numbers[0] < found.high[0]


def test_twice_the_noise_makes_intervals_of_quantiles_twice_as_wide() -> None:
    widths = []
    for scale in (2.0, 4.0):
        estimate = cs.estimate(measured(("age", "sex"), law=cs.Laplace(scale)), method="table")
        texts = ["median(age) by sex", "median(age) where sex=F minus median(age) where sex=M"]
        found = intervals(estimate, texts, refits=60)
        widths.append([np.median(each.high - each.low) for each in found])
    np.testing.assert_allclose(np.divide(*widths[::-1]), 2.0, rtol=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["table", "graphical"])
def test_intervals_of_quantiles_and_differences_hold_the_truth_and_half_of_them_do_not(method) -> None:
    texts = ["median(age) by sex", "quantile(age, 0.1, 0.9) by sex", "median(pay)"]
    texts += ["median(age) where sex=F minus median(age) where sex=M", "mean(age) where sex=F minus mean(age)"]
    bound = [BoundQuestion(Question.parse(text), DOMAIN) for text in texts]
    truths = [each.made([query.bind(DOMAIN).answer_full(TRUTH).ravel() for query in each.parts]) for each in bound]
    held, half = [], []
    for seed in range(120):
        estimate = cs.estimate(measured(("age", "sex"), ("pay", "sex"), law=cs.Laplace(30.0), seed=seed), method=method)
        for found, truth in zip(intervals(estimate, texts, refits=39, seed=seed), truths, strict=True):
            middle, width = (found.low + found.high) / 2, (found.high - found.low) / 2
            held.append(np.abs(middle - truth) <= width + 1e-9)
            half.append(np.abs(middle - truth) <= width / 2)
    rate, by_half = (np.mean(list(itertools.chain(*each))) for each in (held, half))
    assert 0.92 < rate < 0.98
    assert by_half < 0.85


def test_the_largest_are_in_order_and_their_order_is_as_sure_as_the_draws_say(noisy) -> None:
    table = cs.answer(noisy, "top 2 of age", refits=60)
    counts = noisy.answer("by age")
    assert [row["age"] for row in table.rows()] == [AGE.labels[place] for place in np.argsort(-counts)[:2]]
    draws = interval(noisy, "top 2 of age", refits=60).might_be
    first, second = np.argsort(-counts)[:2]
    by_hand = np.mean([np.argsort(-draw)[0] == first for draw in draws])
    assert table.order.places[0] == pytest.approx(by_hand)
    assert table.order.together == pytest.approx(
        np.mean([set(np.argsort(-draw)[:2]) == {first, second} for draw in draws])
    )
    assert "largest, in whatever order" in table.notes[-1]
    assert {"low", "high", "sure", "among"} <= set(table.header)


def test_a_tie_is_open_and_a_clear_lead_is_as_good_as_certain() -> None:
    close = np.zeros(DOMAIN.shape)
    close[:5, 0, 0] = [500.0, 500.0, 400.0, 10.0, 0.0]
    table = cs.answer(cs.estimate(measured(("age",), law=cs.Laplace(5.0), truth=close)), "top 3 of age", refits=200)
    assert 0.3 < table.order.places[0] < 0.99
    assert table.order.places[2] > 0.99
    assert table.order.together > 0.99


@pytest.mark.slow
def test_orders_are_right_as_often_as_they_say() -> None:
    said, right = [], []
    for seed in range(150):
        truth = np.zeros(DOMAIN.shape)
        truth[:5, 0, 0] = np.random.default_rng(10_000 + seed).integers(100, 160, 5)
        fitted = cs.estimate(measured(("age",), law=cs.Laplace(8.0), truth=truth, seed=seed), method="table")
        table = cs.answer(fitted, "top 3 of age", refits=60, seed=seed)
        said.append(table.order.places)
        wanted = np.argsort(-truth[:, 0, 0])[:3]
        right.append([row["age"] == AGE.labels[place] for row, place in zip(table.rows(), wanted, strict=True)])
    assert np.mean(said) == pytest.approx(np.mean(right), abs=0.07)
    surely = np.ravel(said) > 0.9
    assert np.ravel(right)[surely].mean() > 0.85
    assert np.ravel(right)[np.ravel(said) < 0.5].mean() < 0.65


def series(*growth: float, seed: int = 0, scale: float = 5.0) -> list[cs.Estimate]:
    return [
        cs.estimate(measured(("age", "sex"), law=cs.Laplace(scale), truth=TRUTH * each, seed=seed + 50 * place))
        for place, each in enumerate(growth)
    ]


def test_changes_are_told_apart_from_noise() -> None:
    (same,) = cs.compare(*series(1.0, 1.0), ["sex=F by age"], refits=60)
    assert not any(row["note"] in ("rose", "fell") for row in same.rows())
    (fell,) = cs.compare(*series(1.0, 0.5), ["sex=F by age"], refits=60, names=("2023", "2024"))
    assert [row["note"] for row in fell.rows()] == ["fell"] * 5
    assert fell.title == "sex=F by age: 2024 minus 2023"
    first = next(fell.rows())
    assert first["estimate"] == pytest.approx(first["after"] - first["before"])
    document = json.loads(fell.to_json())
    assert (document["before"], document["after"]) == ("2023", "2024")


def test_a_change_between_independent_releases_has_the_widths_added_in_squares() -> None:
    pair = series(1.0, 1.0)
    (table,) = cs.compare(*pair, ["by age"], refits=60)
    was, now = (interval(each, "by age", refits=60) for each in pair)
    np.testing.assert_allclose(
        table.interval.high - table.estimates, np.hypot(now.high - now.estimates, was.estimates - was.low)
    )


def test_what_is_no_series_is_not_compared() -> None:
    one, two = series(1.0, 1.0)
    with pytest.raises(DeclarationError, match="hold the same noisy values"):
        cs.compare(one, one, ["by age"])
    with pytest.raises(DeclarationError, match="within one release"):
        cs.compare(one, two, ["top 2 of age"])
    other = cs.MeasurementSet.from_marginals(Domain.from_sizes({"age": 2}), {"age": [4.0, 5.0]}, noise=cs.Laplace(1.0))
    with pytest.raises(DeclarationError, match="the same in both"):
        cs.compare(one, cs.estimate(other), ["by age"])


@pytest.mark.slow
def test_intervals_of_changes_hold_them() -> None:
    held = []
    for seed in range(100):
        tables = cs.compare(*series(1.0, 0.9, seed=seed, scale=20.0), ["by age", "median(age) by sex"], refits=39)
        for table, text in zip(tables, ["by age", "median(age) by sex"], strict=True):
            asked = BoundQuestion(Question.parse(text), DOMAIN)
            query = asked.parts[0].bind(DOMAIN)
            before, after = (asked.made([query.answer_full(TRUTH * each).ravel()]) for each in (1.0, 0.9))
            held += ((table.interval.low <= after - before) & (after - before <= table.interval.high)).tolist()
    assert 0.92 < np.mean(held) < 0.98


def test_ratios_and_quantiles_of_nobody_say_why_they_have_no_number() -> None:
    empty = cs.estimate(measured(("age",), law=cs.Laplace(5.0), truth=np.zeros(TRUTH.shape)).with_public(total=0))
    for query in ("by age per total", "median(age)"):
        table = cs.answer(empty, query)
        assert np.isnan(table.numbers).all()
        assert "no records" in table.notes[0]
    assert not cs.answer(empty, "by age").notes
