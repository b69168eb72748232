"""`Table` and `estimate`: consistent, non-negative, honest about how the fit went, and careful with memory."""

import numpy as np
import pytest
from numpy.typing import ArrayLike

from consilience.domain import Attribute, Domain, Query
from consilience.errors import ConsilienceError, DeclarationError, MeasurementError, TooLarge
from consilience.estimators import Table, choose
from consilience.estimators import estimate as estimate_by
from consilience.estimators.base import SavedModel
from consilience.estimators.choose import restore
from consilience.estimators.measured_table import MeasuredOperator
from consilience.kernels.rng import generator
from consilience.measurements import Gaussian, Laplace, MeasurementSet
from consilience.publication.intervals.refits import estimator_of
from consilience.solvers.fit import Status

DOMAIN = Domain.from_sizes({"a": 3, "b": 2, "c": 4}, name="tiny")
RNG = np.random.default_rng(1)
TRUTH = RNG.poisson(20, DOMAIN.shape).astype(float)


def estimate(measured: MeasurementSet, *, method: Table | str = "auto"):
    """The estimate, to a tolerance at which it can be compared with numbers worked out by hand, however they fit."""
    chosen = Table(tolerance=1e-10) if method == "auto" else method
    return estimate_by(measured, method=chosen, allow_misfit=True)


def measured(scale: float = 3.0, domain: Domain = DOMAIN) -> MeasurementSet:
    rng = np.random.default_rng(2)
    marginals: dict[str | tuple[str, ...], ArrayLike] = {
        ("a", "b"): TRUTH.sum(2) + rng.laplace(0, scale, (3, 2)),
        ("b", "c"): TRUTH.sum(0) + rng.laplace(0, scale, (2, 4)),
        ("c", "a"): TRUTH.sum(1).T + rng.laplace(0, scale, (4, 3)),
    }
    return MeasurementSet.from_marginals(domain, marginals, noise=Laplace(scale))


def test_margins_agree_and_nothing_is_negative() -> None:
    fitted = estimate(measured())
    assert fitted.status is Status.CONVERGED
    assert fitted.marginal("a", "b").sum(1) == pytest.approx(fitted.marginal("a"))
    assert fitted.marginal("b", "a") == pytest.approx(fitted.marginal("a", "b").T)
    assert fitted.marginal("c", "a").sum(0) == pytest.approx(fitted.marginal("a"))
    assert fitted.marginal("a", "b", "c").min() >= 0
    assert fitted.total == pytest.approx(fitted.answer("total").item())


def test_precise_measurements_win_over_noisy_ones() -> None:
    noisy = MeasurementSet.from_marginals(DOMAIN, {"a": [100.0, 0.0, 0.0]}, noise=Gaussian(100.0))
    sharp = MeasurementSet.from_marginals(DOMAIN, {"a": [10.0, 20.0, 30.0]}, noise=Gaussian(0.1))
    both = MeasurementSet(DOMAIN, (*noisy, *sharp), sharp.privacy, {}, private=True)
    assert estimate(both).marginal("a") == pytest.approx([10, 20, 30], abs=0.1)


def test_a_public_total_is_kept_exactly() -> None:
    domain = Domain.from_declaration(DOMAIN.to_declaration() | {"public": {"total": 500}})
    assert estimate(measured(domain=domain)).total == pytest.approx(500, rel=1e-12)
    assert estimate(measured().with_public(total=321)).total == pytest.approx(321, rel=1e-12)


def test_contradictory_public_totals_are_refused() -> None:
    domain = Domain.from_declaration(DOMAIN.to_declaration() | {"public": {"total": 500}})
    with pytest.raises(MeasurementError, match=r"must agree|contradict"):
        estimate(measured(domain=domain).with_public(total=600))


def test_impossible_cells_stay_empty() -> None:
    rule = [{"a": ["0"], "b": ["1"]}, {"c": ["3"]}]
    domain = Domain.from_declaration(DOMAIN.to_declaration() | {"impossible": rule})
    fitted = estimate(measured(domain=domain))
    assert fitted.marginal("a", "b")[0, 1] == 0
    assert fitted.marginal("c")[3] == 0
    assert fitted.marginal("c")[0] > 0


def test_too_large_a_table_is_refused_with_its_predicted_memory() -> None:
    domain = Domain.from_sizes({f"x{i}": 10 for i in range(9)})
    big = MeasurementSet.from_marginals(domain, {"x0": np.zeros(10)}, noise=Laplace(1.0))
    with pytest.raises(TooLarge, match=r"1,000,000,000 cells .*GB"):
        estimate(big)
    huge = Domain.from_sizes({f"x{i}": 10 for i in range(300)})
    with pytest.raises(TooLarge):
        estimate(MeasurementSet.from_marginals(huge, {"x0": np.zeros(10)}, noise=Laplace(1.0)))


def test_auto_says_what_it_chose_and_why() -> None:
    choice = choose(measured())
    assert choice.estimator.name == "graphical"
    assert "24 cells" in choice.reason
    fitted = estimate_by(measured())
    assert fitted.method["chosen"] == "auto"
    assert fitted.method["reason"] == choice.reason


def test_unknown_methods_and_empty_sets_are_refused() -> None:
    with pytest.raises(DeclarationError, match="did you mean 'table'"):
        estimate(measured(), method="tabel")
    nothing = MeasurementSet(DOMAIN, (), measured().privacy, {}, private=True)
    with pytest.raises(ConsilienceError, match="no noisy measurement"):
        estimate(nothing)


def test_answers_follow_labels() -> None:
    age = Attribute.numeric("age", [0, 18, 65, 100])
    sex = Attribute.categorical("sex", ["F", "M"])
    domain = Domain("people", (age, sex))
    table = np.array([[10.0, 20.0], [30.0, 40.0], [5.0, 6.0]])
    fitted = estimate(MeasurementSet.from_marginals(domain, {("age", "sex"): table}, noise=Laplace(0.1)))
    assert fitted.answer("age=18..64 by sex").ravel() == pytest.approx([30, 40], abs=1e-4)
    assert fitted.answer("sex=F").item() == pytest.approx(45, abs=1e-4)
    assert fitted.answer(Query.parse("by prefix(age)")).ravel() == pytest.approx([30, 100, 111], abs=1e-3)
    with pytest.raises(DeclarationError, match="twice"):
        fitted.marginal("age", "age")
    with pytest.raises(DeclarationError, match="did you mean 'age'"):
        fitted.marginal("agee")


def test_synthetic_records_follow_the_table() -> None:
    fitted = estimate(measured())
    rows = fitted.sample(1000, generator(0))
    assert rows.shape == (1000, 3)
    counts = np.zeros(DOMAIN.shape)
    np.add.at(counts, tuple(rows.T), 1)
    shares = fitted.marginal("a", "b", "c") / fitted.total * 1000
    assert np.abs(counts - shares).max() <= 1 + 1e-9
    assert np.array_equal(rows, fitted.sample(1000, generator(0)))
    assert fitted.sample(0, generator(0)).shape == (0, 3)
    with pytest.raises(DeclarationError, match="-1"):
        fitted.sample(-1, generator(0))


@pytest.mark.parametrize(
    ("values", "scale"),
    [([0.0, 0.0, 0.0], 1.0), ([1e12, 2e12, 3e12], 1e3), ([-50.0, -1.0, -3.0], 1.0), ([1.0, 1e6, 0.0], 1e-2)],
    ids=["all zero", "huge", "all negative", "sharp"],
)
def test_extreme_inputs(values: list[float], scale: float) -> None:
    found = MeasurementSet.from_marginals(DOMAIN, {"a": values}, noise=Laplace(scale))
    fitted = estimate(found)
    expected = np.maximum(values, 0.0)
    assert fitted.marginal("a") == pytest.approx(expected, rel=1e-6, abs=0.3 * scale)
    assert fitted.marginal("a", "b", "c").min() >= 0


def test_one_cell_is_a_table_too() -> None:
    domain = Domain.from_sizes({"only": 1})
    fitted = estimate(MeasurementSet.from_marginals(domain, {"only": [7.0]}, noise=Laplace(1.0)))
    assert fitted.total == pytest.approx(7.0, rel=1e-6)


def sparse(seed: int) -> MeasurementSet:
    """The three pairs of a table that holds ten people: most cells are noise alone."""
    rng = np.random.default_rng(seed)
    truth = np.zeros(DOMAIN.shape)
    truth[0, 0, 0] = 10.0
    marginals: dict[str | tuple[str, ...], ArrayLike] = {
        names: truth.sum(axis) + rng.laplace(0, 3, truth.sum(axis).shape)
        for names, axis in ((("a", "b"), 2), (("b", "c"), 0), (("a", "c"), 1))
    }
    return MeasurementSet.from_marginals(DOMAIN, marginals, noise=Laplace(3.0))


def test_the_total_is_the_unbiased_one_that_all_queries_tell() -> None:
    for seed in range(5):
        one = sparse(seed)
        sums = [(each.values.sum(), each.values.size) for each in one]
        told = sum(total / cells for total, cells in sums) / sum(1 / cells for _, cells in sums)
        assert Table().fit(one).total == pytest.approx(max(told, 0.0), abs=1e-6)
        assert Table(integers=True).fit(one).total == round(max(told, 0.0))
        assert Table(hold_total=False).fit(one).total > told + 1


def test_a_total_below_nothing_leaves_an_empty_table() -> None:
    measured = MeasurementSet.from_marginals(DOMAIN, {"a": [-9.0, 2.0, 3.0]}, noise=Laplace(3.0))
    fitted = Table().fit(measured)
    assert fitted.total == 0.0
    assert fitted.status is Status.CONVERGED


def test_refits_and_saved_tables_know_whether_the_total_was_held() -> None:
    fitted = Table(hold_total=False).fit(sparse(1))
    assert estimator_of(fitted) == Table(hold_total=False)
    before = {name: setting for name, setting in fitted.method.items() if name != "hold_total"}
    saved = SavedModel(before, fitted.status, fitted.stats, fitted.arrays())
    assert estimator_of(restore(saved, fitted.measurements)) == Table(hold_total=False)


# ----------------------------------------------------------------------------------------------------------------------
# Measured queries as an operator: written out it is what it does to every single cell.


def test_the_written_matrix_is_the_operator_on_every_cell():
    domain = Domain.from_sizes({"a": 3, "b": 2, "c": 4})
    texts = ("total", "by c, a", "b=1 by a", "prefix(c) by b", "ranges(a)", "by b, c, a")
    queries = [Query.parse(text).bind(domain) for text in texts]
    rng = np.random.default_rng(0)
    operator = MeasuredOperator(domain, queries, [rng.uniform(0.0, 2.0, query.size) for query in queries])
    units = np.eye(domain.cells).reshape(-1, *domain.shape)
    np.testing.assert_allclose(operator.matrix(), np.stack([operator.apply(unit) for unit in units], axis=1))
