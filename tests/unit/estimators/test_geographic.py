"""Geographic: tables of all places, the facts they keep, their standard errors and intervals."""

import itertools

import numpy as np
import pytest

import consilience as cs
from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.place_facts import PlaceFacts
from consilience.domain.public_facts import PublicFacts, PublicMargin
from consilience.errors import ConsilienceError
from consilience.estimators.choose import PoorFit, choose, estimate, judged
from consilience.estimators.geographic import Geographic, GeographicEstimate
from consilience.kernels.rng import generator
from consilience.measurements import Exact, Gaussian, Laplace, Measurement, MeasurementSet, NoiseLaw, PrivacyStatement
from consilience.publication.intervals import interval
from consilience.publication.intervals.refits import refit, simulated
from consilience.solvers.fit import Infeasible

PARENTS = {f"c{s}{c}": f"s{s}" for s in range(3) for c in range(2)}
PARENTS |= {f"b{s}{c}{b}": f"c{s}{c}" for s, c, b in itertools.product(range(3), range(2), range(4)) if s < 2 or c < 1}
PLACE = Attribute.hierarchy("place", PARENTS, levels=["State", "County", "Block"], geography=True)
SEX, AGE = Attribute.categorical("sex", ["F", "M"]), Attribute.categorical("age", ["0", "1", "2"])
DOMAIN = Domain("places", (SEX, PLACE, AGE))
SIZES = np.random.default_rng(1).lognormal(1.5, 1.5, (1, PLACE.size, 1))
TRUTH = np.random.default_rng(2).poisson(np.broadcast_to(SIZES, DOMAIN.shape)).astype(float)

QUERIES = ["by State, sex, age", "by County, sex, age", "by place, sex, age", "by County", "total"]


def measured(
    queries: list[str | Query],
    *,
    noise: NoiseLaw = Gaussian(3.0),  # noqa: B008 - a frozen value
    seed: int = 3,
    domain: Domain = DOMAIN,
    exact: tuple[str, ...] = (),
) -> MeasurementSet:
    rng, found = np.random.default_rng(seed), []
    for text in queries:
        query = Query.parse(text) if isinstance(text, str) else text
        answers = query.bind(domain).answer_full(TRUTH).ravel()
        found.append(Measurement(query.over(domain), answers + noise.simulate(answers.size, rng), noise))
    for text in exact:
        query = Query.parse(text).over(domain)
        found.append(Measurement(query, query.bind(domain).answer_full(TRUTH).ravel(), Exact()))
    return MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False)


def fitted(measured: MeasurementSet, **settings) -> GeographicEstimate:
    return Geographic(**settings).fit(measured)


def test_auto_takes_it_where_the_domain_marks_a_geography() -> None:
    assert choose(measured(QUERIES)).estimator == Geographic()
    plain = Domain("plain", (SEX, Attribute.hierarchy("place", PARENTS, levels=PLACE.levels), AGE))
    assert choose(measured(QUERIES, domain=plain)).estimator.name != "geographic"


@pytest.mark.parametrize("integers", [False, True])
def test_places_add_up_and_no_count_is_negative(integers: bool) -> None:
    account = fitted(measured(QUERIES), integers=integers)
    assert account.counts.min() >= 0
    for coarse, fine in (("State", "County"), ("County", "Block")):
        fine_counts = dict(zip(PLACE.groups(fine), account.answer(f"by {fine}"), strict=True))
        for place, count in zip(PLACE.groups(coarse), account.answer(f"by {coarse}"), strict=True):
            below = [n for name, n in fine_counts.items() if place in PLACE.path(name)]
            assert sum(below) == pytest.approx(count, abs=1e-7)
    if integers:
        assert np.array_equal(account.counts, np.round(account.counts))


def test_the_signed_fit_and_its_standard_errors_are_those_of_dense_least_squares() -> None:
    found = measured([*QUERIES, Query.of({"place": factors.Value("c01"), "sex": factors.Identity()})])
    account = fitted(found, nonnegative=False)
    rows = np.concatenate([each.query.bind(DOMAIN).written_out() / 3.0 for each in found])
    values = np.concatenate([each.values / 3.0 for each in found])
    inverse = np.linalg.pinv(rows)
    assert account.counts.ravel() == pytest.approx(inverse @ values, abs=1e-9)
    for text in ("by County, age", "by sex, State", "place=b000", "place=s1 by County, sex, age", "total"):
        asked = Query.parse(text).over(DOMAIN).bind(DOMAIN).written_out()
        errors = np.sqrt(np.einsum("ij,jk,ik->i", asked, inverse @ inverse.T, asked))
        assert account.standard_errors(text).ravel() == pytest.approx(errors, rel=1e-9)
    one, other = (Query.parse(f"place={name} by sex").bind(DOMAIN).written_out()[0] for name in ("c00", "b110"))
    expected = np.sqrt((one - other) @ inverse @ inverse.T @ (one - other))
    assert account.difference_error("c00", "b110", "sex") == pytest.approx(expected, rel=1e-9)


ADULT = factors.Buckets.of({"child": ["0"], "adult": ["1", "2"]})
OLD = factors.Range("1", None)
RECODED = [
    Query.of({"place": factors.Level("State"), "sex": factors.Identity(), "age": ADULT}),
    Query.of({"place": factors.Level("County"), "age": ADULT}),
    Query.of({"place": factors.Identity(), "age": OLD}),
    Query.of({"place": factors.Level("County"), "age": factors.Value("2")}),
]


def test_groups_of_values_are_measured_beside_the_values() -> None:
    """Voting age beside single years: as dense least squares, for groups that are nested or cross."""
    found = measured([*QUERIES, *RECODED])
    account = fitted(found, nonnegative=False)
    rows = np.concatenate([each.query.bind(DOMAIN).written_out() / 3.0 for each in found])
    inverse = np.linalg.pinv(rows)
    expected = inverse @ np.concatenate([each.values / 3.0 for each in found])
    assert account.counts.ravel() == pytest.approx(expected, abs=1e-9)
    for query in (*RECODED, *(Query.parse(text) for text in ("by County, age", "place=s0 by sex", "age=1 by place"))):
        asked = query.over(DOMAIN).bind(DOMAIN).written_out()
        errors = np.sqrt(np.einsum("ij,jk,ik->i", asked, inverse @ inverse.T, asked))
        assert account.standard_errors(query).ravel() == pytest.approx(errors, rel=1e-9)


@pytest.mark.parametrize("integers", [False, True])
def test_groups_of_values_add_up_and_their_facts_are_kept(integers: bool) -> None:
    found = measured([*QUERIES, *RECODED])
    truth = RECODED[0].bind(DOMAIN).answer_full(TRUTH).ravel()
    known = Measurement(RECODED[0], truth, Exact())
    account = fitted(MeasurementSet(DOMAIN, (*found, known), found.privacy, {}, private=False), integers=integers)
    assert account.answer(RECODED[0]).ravel() == pytest.approx(truth, abs=1e-6)
    assert account.counts.min() >= 0
    if integers:
        assert np.array_equal(account.counts, np.round(account.counts))


def test_attributes_that_nobody_measured_are_spread_evenly() -> None:
    account = fitted(measured(["by County, sex", "by place"]))
    by_age = account.answer("by age")
    assert by_age == pytest.approx(np.full(3, account.total / 3))


@pytest.mark.parametrize("exact", [("by State",), ("by State", "total", "by place"), ("by County, sex", "by County")])
def test_facts_of_places_are_kept(exact: tuple[str, ...]) -> None:
    for integers in (False, True):
        account = fitted(measured(QUERIES, exact=exact), integers=integers)
        for text in exact:
            truth = Query.parse(text).over(DOMAIN).bind(DOMAIN).answer_full(TRUTH)
            assert account.answer(text) == pytest.approx(truth, abs=1e-7)


def test_public_totals_and_margins_are_facts_too() -> None:
    by_sex = TRUTH.sum((1, 2))
    public = PublicFacts(float(TRUTH.sum()), (PublicMargin(("sex",), tuple(by_sex.tolist())),))
    domain = Domain("places", (SEX, PLACE, AGE), public=public)
    account = fitted(measured(QUERIES, domain=domain))
    assert account.answer("by sex") == pytest.approx(by_sex, abs=1e-7)


def test_facts_that_contradict_each_other_name_the_place() -> None:
    found = measured(QUERIES, exact=("by State", "by County"))
    *rest, county = found.measurements
    wrong = county.values.copy()
    wrong[2] += 5
    broken = MeasurementSet(
        DOMAIN, (*rest, Measurement(county.query, wrong, Exact())), found.privacy, {}, private=False
    )
    state = PLACE.path(list(PLACE.groups("County"))[2])[1]
    with pytest.raises(Infeasible, match=f"place={state}.*differs by 5 at least"):
        fitted(broken)


def with_facts(*facts: PlaceFacts) -> MeasurementSet:
    return measured(QUERIES, domain=Domain("places", (SEX, PLACE, AGE), public=PublicFacts(places=facts)))


@pytest.mark.parametrize("integers", [False, True])
def test_bounds_on_places_are_kept_at_every_level(integers: bool) -> None:
    empty, full = PLACE.labels[0], PLACE.labels[3]
    state = float(TRUTH[:, list(PLACE.codes("s1"))].sum())
    facts = PlaceFacts((), ((empty,), (full,), ("c10",), ("s1",)), (0, 50, 0, state), (0, 60, 7, state))
    account = fitted(with_facts(facts), integers=integers)
    found = {place: float(account.answer(f"place={place}").item()) for place in (empty, full, "c10", "s1")}
    assert found[empty] == pytest.approx(0, abs=1e-7)
    assert 50 - 1e-7 <= found[full] <= 60 + 1e-7
    assert found["c10"] <= 7 + 1e-7
    assert found["s1"] == pytest.approx(state, abs=1e-6)
    assert "bounds on the number of records of 4 places" in account.measurements.privacy.describe()


def test_facts_by_other_attributes_are_kept_where_they_are_named() -> None:
    facts = PlaceFacts(("sex",), (("c00", "F"), ("c01", "M")), (3, 0), (3, 5))
    account = fitted(with_facts(facts))
    assert account.answer("place=c00 by sex").ravel()[0] == pytest.approx(3, abs=1e-7)
    assert account.answer("place=c01 by sex").ravel()[1] <= 5 + 1e-7


def test_bounds_that_cannot_be_met_name_the_place_and_the_least_violation() -> None:
    with pytest.raises(Infeasible, match=r"place=s0: .*differs by 2 at least") as caught:
        fitted(with_facts(PlaceFacts((), (("c00",), ("c01",), ("s0",)), (6, 6, 0), (9, 9, 10))))
    assert caught.value.violation == pytest.approx(2)


def test_facts_about_places_are_left_to_the_estimator_that_keeps_them() -> None:
    found = with_facts(PlaceFacts((), (("s0",),), (9,), (9,)))
    with pytest.raises(ConsilienceError, match="which Geographic alone keeps"):
        cs.estimate(found, method="table")
    with pytest.raises(ConsilienceError, match="leave out nonnegative=False"):
        fitted(with_facts(PlaceFacts((), (("s0",),), (9,), (10,))), nonnegative=False)
    with pytest.raises(ConsilienceError, match="hold fractions"):
        fitted(with_facts(PlaceFacts((), (("s0",),), (9.5,), (9.5,))), integers=True)


@pytest.mark.parametrize(
    ("queries", "exact", "words"),
    [
        (["by place, age"], ("by State", "by sex"), "facts about one"),
        ([Query.of({"place": factors.Subset(("b000", "b100"))})], (), "not about places"),
        (["by place, age"], ("by State", "age=1 by State"), "groups of values that overlap, or leave values out"),
    ],
)
def test_what_it_cannot_fit_is_said(queries: list[str | Query], exact: tuple[str, ...], words: str) -> None:
    found = measured(queries, exact=exact)
    assert words in Geographic().suitability(found).reason
    with pytest.raises(ConsilienceError, match=words):
        fitted(found)


def test_a_geography_needs_named_levels_and_is_one_of_a_domain() -> None:
    with pytest.raises(ConsilienceError, match="without named levels"):
        Attribute.hierarchy("place", {"a": "b"}, geography=True)
    other = Attribute.hierarchy("school", {"a": "b"}, levels=["District", "School"], geography=True)
    with pytest.raises(ConsilienceError, match="mark one"):
        Domain("two", (PLACE, other))
    read = Domain.from_declaration(DOMAIN.to_declaration())
    assert read == DOMAIN
    assert read["place"].geography  # type: ignore[attr-defined]


def test_leading_zeros_and_many_leaves_are_kept() -> None:
    parents = {f"{county:05d}": f"{county // 100:02d}" for county in range(10_000)}
    place = Attribute.hierarchy("fips", parents, levels=["State", "County"], geography=True)
    domain = Domain("many", (place,))
    rng = np.random.default_rng(1)
    truth = rng.poisson(20, 10_000).astype(float)
    found = MeasurementSet.from_marginals(domain, {"fips": truth + rng.normal(0, 1, 10_000)}, noise=Gaussian(1.0))
    account = cs.estimate(found)
    assert account.method["method"] == "geographic"
    assert account.answer("fips=07 by County") == pytest.approx(truth[700:800], abs=6)


def test_draws_around_the_path_are_as_spread_as_refits_of_everything() -> None:
    account = fitted(measured(QUERIES))
    asked = ["place=s0 by County, sex", "by age", "place=c11", "age=1..2 by State"]
    queries = [Query.parse(text).over(DOMAIN) for text in asked]
    quick = account.redrawn(queries, 1500, 1)
    assert quick is not None
    truths = [query.bind(DOMAIN).answer_full(account.counts).ravel() for query in queries]
    rng = generator(2)
    exact = [each.query.bind(DOMAIN).answer_full(account.counts).ravel() for each in account.measurements]
    slow = [refit(account, simulated(account.measurements, exact, rng)) for _ in range(400)]
    for query, truth, (held, drawn) in zip(queries, truths, quick, strict=True):
        assert held == pytest.approx(truth)
        full = np.array([np.ravel(each.answer(query)) for each in slow]) - truth
        part = drawn - held
        spread = full.std(axis=0)
        assert part.std(axis=0) == pytest.approx(spread, rel=0.2)
        assert np.all(np.abs(part.mean(axis=0) - full.mean(axis=0)) <= 5 * spread / np.sqrt(400) + 0.02)


def test_a_district_of_blocks_has_the_errors_of_their_sum() -> None:
    """Places across the hierarchy: the spread of the draws is that of dense least squares, covariances and all."""
    found = measured([*QUERIES, *RECODED])
    account = fitted(found, nonnegative=False)
    district = Query.of({"place": factors.Subset(("b000", "b001", "b012", "b100")), "sex": factors.Identity()})
    drawn = account.redrawn([district], 4000, 1)
    assert drawn is not None
    inverse = np.linalg.pinv(np.concatenate([each.query.bind(DOMAIN).written_out() / 3.0 for each in found]))
    asked = district.bind(DOMAIN).written_out()
    errors = np.sqrt(np.einsum("ij,jk,ik->i", asked, inverse @ inverse.T, asked))
    ((truth, answers),) = drawn
    assert truth == pytest.approx(np.ravel(account.answer(district)))
    assert answers.std(axis=0) == pytest.approx(errors, rel=0.06)
    assert np.all(interval(account, district, refits=50).high > truth)


def test_queries_that_are_no_sums_over_places_are_refitted() -> None:
    account = fitted(measured(QUERIES))
    assert account.redrawn([Query.of({"place": factors.Nominal()})], 20, 1) is None
    assert interval(account, "place=s0 by County", refits=20).high.shape == (2,)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [Gaussian(3.0), Laplace(2.0)])
def test_intervals_hold_the_truth_at_every_level(noise: NoiseLaw) -> None:
    held: dict[str, list[float]] = {}
    for seed in range(40):
        account = fitted(measured(QUERIES, noise=noise, seed=100 + seed))
        for text in ("by State", "by County, sex", "by place", "by place, sex, age"):
            found = interval(account, text, refits=100, seed=seed)
            truth = Query.parse(text).over(DOMAIN).bind(DOMAIN).answer_full(TRUTH).ravel()
            held.setdefault(text, []).append(float(((found.low <= truth) & (truth <= found.high)).mean()))
    for coverage in held.values():
        assert 0.92 <= np.mean(coverage) <= 1.0


SPARSE = Domain(
    "sparse",
    (
        Attribute.categorical("age", list("012345")),
        Attribute.categorical("sex", ["F", "M"]),
        Attribute.categorical("group", list("abc")),
        Attribute.hierarchy(
            "place",
            {f"b{state}{block}": f"s{state}" for state in range(3) for block in range(100)},
            levels=["State", "Block"],
            geography=True,
        ),
    ),
)


def sparse_places(queries: list[str]) -> MeasurementSet:
    """Many blocks with next to nobody in most cells, so that sums of their noisy cells say little of a state."""
    rng, law = np.random.default_rng(5), Gaussian(3.0)
    cells, places = rng.dirichlet(np.full(36, 0.3)).reshape(6, 2, 3, 1), rng.dirichlet(np.full(300, 0.5))
    truth, found = rng.poisson(20_000 * cells * places).astype(float), []
    for text in queries:
        query = Query.parse(text).over(SPARSE)
        exact = query.bind(SPARSE).answer_full(truth).ravel()
        found.append(Measurement(query, exact + law.simulate(exact.size, rng), law))
    return MeasurementSet(SPARSE, tuple(found), PrivacyStatement(), {}, private=False)


@pytest.mark.parametrize("integers", [False, True])
def test_cells_that_are_set_to_0_do_not_move_what_was_measured_of_large_places(integers: bool) -> None:
    nested = sparse_places(["by State, age, sex", "by State, age", "by place, age, sex, group", "by place"])
    account = fitted(nested, integers=integers)
    for each in nested.measurements[:2]:
        assert np.mean((account.answer(each.query).ravel() - each.values) ** 2) < 2.0 * 3.0**2
    assert judged(account).status is account.status


def test_a_table_that_is_missed_is_named_although_all_others_are_met() -> None:
    overlapping = ["by State, age, sex", "by State, group", "by State"]
    overlapping += ["by place, age, sex", "by place, group", "by place"]
    with pytest.raises(PoorFit, match=r"one table, State\(place\), age, sex, .* measure that one, too"):
        estimate(sparse_places(overlapping), method="geographic")
