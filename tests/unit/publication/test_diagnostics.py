"""Diagnostics: contrasts hold noise alone, wrong scales and clipping are found, moves are told in units of noise."""

import itertools
from dataclasses import replace

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain, Query
from consilience.errors import DeclarationError
from consilience.estimators import estimate
from consilience.kernels.rng import generator
from consilience.measurements import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Measurement,
    MeasurementSet,
    noise_law,
)
from consilience.measuring import measure
from consilience.plans import Direct
from consilience.privacy.ledger import Ledger
from consilience.publication.diagnostics import LEVEL, check_noise, diagnose
from consilience.publication.noise_checks import _at_least_as_far, _of_queries, check_depth, check_zeros, contrasts
from consilience.source import open_table

SIZES = {"a": 3, "b": 4, "c": 5, "one": 1}
DOMAIN = Domain.from_sizes(SIZES)


def marginal(table: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    order = list(SIZES)
    away = tuple(i for i, name in enumerate(order) if name not in names)
    kept = [name for name in order if name in names]
    return table.sum(axis=away).transpose([kept.index(name) for name in names])


def noisy_pairs(law, *, seed: int, sizes=(18, 16, 14, 12, 11, 10)) -> MeasurementSet:
    """All 2-way margins of 2,000 records whose values are mostly small, so that most cells are empty, with noise."""
    rng = np.random.default_rng(seed)
    domain = Domain.from_sizes({f"x{i}": size for i, size in enumerate(sizes)})
    codes = [np.minimum(rng.geometric(0.6, 2_000) - 1, size - 1) for size in sizes]
    margins = {}
    for i, j in itertools.combinations(range(len(sizes)), 2):
        counts = np.zeros((sizes[i], sizes[j]))
        np.add.at(counts, (codes[i], codes[j]), 1.0)
        margins[f"x{i}", f"x{j}"] = counts + law.simulate(counts.shape, rng)
    return MeasurementSet.from_marginals(domain, margins, noise=law)


def redeclared(measured: MeasurementSet, factor: float) -> MeasurementSet:
    """The same values, whose scale is said to be `factor` times what it is."""

    def change(each: Measurement) -> Measurement:
        law = each.noise
        return replace(each, noise=noise_law(law.law, factor * law.scale_parameter, step=law.lattice_step))

    return replace(measured, measurements=tuple(map(change, measured)))


def clipped(measured: MeasurementSet) -> MeasurementSet:
    kept = [replace(each, values=np.maximum(each.values, 0)) for each in measured]
    return replace(measured, measurements=tuple(kept))


def shifted(measured: MeasurementSet) -> MeasurementSet:
    return replace(measured, measurements=tuple(replace(each, values=each.values + 1) for each in measured))


SCOPES = [("b", "a"), ("a", "c"), ("c", "b"), ("c",), (), ("one", "a"), ("a", "b", "c")]


@given(st.lists(st.sampled_from(SCOPES), min_size=2, max_size=5, unique=True), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_contrasts_forget_the_data_and_agree_with_the_null_space(scopes, seed) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 1000, tuple(SIZES.values())).astype(float)
    laws = {scope: Gaussian(float(rng.uniform(0.5, 5))) for scope in scopes}
    exact = MeasurementSet.from_marginals(DOMAIN, {s: marginal(table, s) for s in scopes}, noise=laws)
    found = contrasts(exact)
    twin = _of_queries(tuple(exact), DOMAIN)
    assert (0 if found is None else found.size) == twin.size
    if found is None:
        return
    assert np.abs(found.observed()).max() < 1e-6
    noise = [each.noise.simulate((1, each.values.size), rng) for each in exact]
    assert np.isclose((found.standardise(noise) ** 2).sum(), (twin.standardise(noise) ** 2).sum())


def test_contrasts_have_unit_variance_and_no_correlation() -> None:
    table = np.zeros(tuple(SIZES.values()))
    scopes = SCOPES[:5]
    measured = MeasurementSet.from_marginals(DOMAIN, {s: marginal(table, s) for s in scopes}, noise=Laplace(3.0))
    found = contrasts(measured)
    assert found is not None
    drawn = found.standardise([each.noise.simulate((40_000, each.values.size), generator(1)) for each in measured])
    assert np.allclose(np.cov(drawn.T), np.eye(found.size), atol=0.06)


def test_contrasts_with_public_facts_use_them_as_exact() -> None:
    rng = np.random.default_rng(2)
    counts = np.arange(12.0).reshape(3, 4)
    domain = Domain.from_sizes({"a": 3, "b": 4})
    noisy = counts + rng.laplace(0, 2, counts.shape)
    measured = MeasurementSet.from_marginals(domain, {("a", "b"): noisy}, noise=Laplace(2.0))
    found = contrasts(measured.with_public(total=66, margins={"a": counts.sum(axis=1)}))
    assert found is not None
    assert found.size == 3  # the total, and the two coordinates of a, are known exactly
    expected = (noisy.sum(axis=1) - counts.sum(axis=1)) / np.sqrt(4 * 8)
    assert np.isclose((found.observed() ** 2).sum(), (expected**2).sum())


def test_trees_and_ranges_have_contrasts_too() -> None:
    domain = Domain("ages", (Attribute.numeric("age", list(range(9))),))
    truth = np.arange(8.0)
    bound = Query.parse("prefix(age)").bind(domain)
    law = Gaussian(1.0)
    measured = MeasurementSet(
        domain,
        (Measurement(Query.marginal("age"), truth, law), Measurement(bound.query, bound.answer(truth), law)),
    )
    found = contrasts(measured)
    assert found is not None
    assert found.size == 8
    assert np.abs(found.observed()).max() < 1e-9


@pytest.mark.parametrize("law", [DiscreteLaplace(6.0), DiscreteGaussian(8.0), Laplace(6.0), Gaussian(8.0)], ids=str)
def test_right_noise_is_kept_and_wrong_noise_is_found(law) -> None:
    measured = noisy_pairs(law, seed=7)
    right = check_noise(measured, simulations=199)
    assert right.as_declared, right.verdict
    assert "as declared" in right.verdict
    for factor in (1.3, 1 / 1.3):
        wrong = check_noise(redeclared(measured, factor), simulations=199)
        assert not wrong.as_declared, (factor, wrong.verdict)
        spread = next(each for each in wrong.checks if each.name == "spread")
        assert spread.ratio == pytest.approx(1 / factor, rel=0.15)
        assert "do not fit together" in wrong.verdict
        assert ("too small" if factor < 1 else "too large") in wrong.next_step
        assert "Ask who made" in wrong.next_step


@pytest.mark.parametrize("law", [DiscreteLaplace(6.0), DiscreteGaussian(8.0), Laplace(6.0)], ids=str)
def test_clipping_that_was_not_declared_is_found_and_named(law) -> None:
    found = check_noise(clipped(noisy_pairs(law, seed=6)), simulations=99)
    assert not found.as_declared
    assert found.worst is not None
    assert found.worst.name == "zeros"
    assert "clipped" in found.next_step


def test_declared_clipping_is_left_alone() -> None:
    measured = clipped(noisy_pairs(DiscreteLaplace(6.0), seed=6))
    declared = replace(measured, measurements=tuple(replace(each, clipped=True) for each in measured))
    found = check_noise(declared)
    assert found.as_declared
    assert "could not be tested" in found.verdict


def test_one_table_alone_is_judged_by_what_lies_below_zero() -> None:
    domain = Domain.from_sizes({"x": 400})
    law = DiscreteLaplace(10.0)
    measured = MeasurementSet.from_marginals(domain, {"x": law.simulate(400, generator(3))}, noise=law)
    found = check_noise(measured)
    assert found.as_declared
    assert [each.name for each in found.checks] == ["zeros", "depth"]
    assert found.quantiles is not None
    assert not check_noise(redeclared(measured, 1.6)).as_declared
    assert not check_noise(redeclared(measured, 1 / 1.6)).as_declared


@pytest.mark.parametrize("truth", [0.0, 5.0, 40.0])
def test_depths_of_laplace_noise_do_not_depend_on_the_truth(truth: float) -> None:
    law = DiscreteLaplace(20.0)
    domain = Domain.from_sizes({"x": 3000})
    values = truth + law.simulate(3000, generator(4))
    found = check_depth(MeasurementSet.from_marginals(domain, {"x": values}, noise=law).measurements)
    assert found is not None
    assert found[0].ratio == pytest.approx(1.0, abs=0.15)


def test_gaussian_depths_only_tell_of_noise_that_is_too_large() -> None:
    domain = Domain.from_sizes({"x": 2000})
    values = 10.0 + Gaussian(10.0).simulate(2000, generator(4))
    measured = MeasurementSet.from_marginals(domain, {"x": values}, noise=Gaussian(10.0))
    check = check_depth(measured.measurements)
    assert check is not None
    assert check[0].p_value > 0.5  # the values lie higher than at 0, which says nothing


def test_rounded_continuous_values_are_not_taken_for_clipped() -> None:
    domain = Domain.from_sizes({"x": 500})
    values = np.round(Laplace(2.0).simulate(500, generator(0)))
    check = check_zeros(MeasurementSet.from_marginals(domain, {"x": values}, noise=Laplace(2.0)).measurements)
    assert check is not None
    assert check.p_value > 0.05


def test_moves_are_in_units_of_the_noise_and_say_where_counts_were_raised() -> None:
    domain = Domain.from_sizes({"x": 4})
    measured = MeasurementSet.from_marginals(domain, {"x": [-6.0, 50.0, 60.0, -1.0]}, noise=Gaussian(2.0))
    found = diagnose(estimate(measured, method="table"))
    (moved,) = found.moved
    assert (moved.negative, moved.raised) == (2, 2)
    assert moved.most_negative == pytest.approx(-3.0)
    assert moved.largest >= 3.0 - 1e-6
    fitted = estimate(measured, method="table").marginal("x")
    expected = np.sqrt(np.mean(((np.array([-6.0, 50, 60, -1]) - fitted) / 2.0) ** 2))
    assert moved.root_mean_square == pytest.approx(expected)


def test_censored_values_are_left_out_of_moves() -> None:
    domain = Domain.from_sizes({"x": 3})
    values = Measurement(
        Query.marginal("x"), [30.0, 0.0, 40.0], Laplace(1.0), censored=[False, True, False], threshold=10.0
    )
    found = diagnose(estimate(MeasurementSet(domain, (values,)), method="table"))
    assert found.moved[0].root_mean_square < 1.0


def test_the_same_seed_gives_the_same_verdict() -> None:
    measured = noisy_pairs(DiscreteLaplace(6.0), seed=9)
    assert check_noise(measured, seed=3).p_value == check_noise(measured, seed=3).p_value
    with pytest.raises(DeclarationError, match="simulations"):
        check_noise(measured, simulations=0)


SOURCE_DOMAIN = Domain("town", (Attribute.categorical("sex", ["F", "M"]), Attribute.numeric("age", list(range(12)))))


def measured_here(tmp_path, **settings) -> MeasurementSet:
    rows = pyarrow.table({"sex": ["F", "M"] * 60, "age": [number % 11 for number in range(120)]})
    ledger = Ledger.open(tmp_path / "town.ledger", epsilon=10)
    return measure(open_table(rows, SOURCE_DOMAIN), Direct(ways=2), ledger=ledger, epsilon=0.5, **settings)


def test_noise_drawn_here_is_asked_only_whether_it_was_changed(tmp_path) -> None:
    measured = measured_here(tmp_path)
    found = check_noise(measured)
    assert (found.as_drawn, found.as_declared, found.checks) == (True, True, ())
    assert "drawn here" in found.verdict
    measured.save(tmp_path / "m.parquet")
    loaded = MeasurementSet.load(tmp_path / "m.parquet")
    assert loaded.as_drawn
    with_facts = loaded.with_public(total=120)
    assert with_facts.as_drawn
    backwards = replace(loaded, measurements=loaded.measurements[::-1])
    assert backwards.as_drawn


def test_a_release_that_is_merged_with_another_of_its_ledger_is_still_as_drawn(tmp_path) -> None:
    both = measured_here(tmp_path, id="one").merge(measured_here(tmp_path, id="two"))
    assert both.as_drawn
    assert shifted(both).as_drawn is False
    assert replace(both, provenance={}).as_drawn is None


@pytest.mark.parametrize("change", [lambda m: redeclared(m, 1.3), shifted, lambda m: replace(m, measurements=())])
def test_measurements_that_were_changed_after_they_were_drawn_are_told_without_a_test(tmp_path, change) -> None:
    found = check_noise(change(measured_here(tmp_path)))
    assert found.as_drawn is False
    assert not found.as_declared
    assert "changed after they were drawn" in found.verdict
    assert "nothing is charged" in found.next_step


def test_noise_from_elsewhere_and_from_earlier_versions_has_no_checksum() -> None:
    assert noisy_pairs(DiscreteLaplace(6.0), seed=1).as_drawn is None


def test_a_tail_beyond_all_simulations_is_no_lighter_than_that_of_laplace_noise() -> None:
    drawn = np.abs(generator(1).laplace(size=999))
    for far in (12.0, 16.0):
        assert np.exp(-far) < _at_least_as_far(far, drawn) < np.exp(-far / 2)


@pytest.mark.parametrize("law", [DiscreteLaplace(0.5), DiscreteLaplace(3.0), DiscreteGaussian(0.5)], ids=str)
def test_depths_of_coarse_noise_are_not_doubted(law) -> None:
    rng = generator(5)
    domain = Domain.from_sizes({"x": 300})
    for _ in range(300):
        measured = MeasurementSet.from_marginals(domain, {"x": law.simulate(300, rng)}, noise=law)
        depth = check_depth(measured.measurements)
        assert depth is None or depth[0].p_value > LEVEL
