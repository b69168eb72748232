"""What every estimator must do, on every kind of measurement set. A new estimator joins by one line in ESTIMATORS."""

import numpy as np
import pytest

from consilience.domain import Attribute, Domain, Query, factors
from consilience.estimators import Table
from consilience.estimators.base import Estimate, Estimator
from consilience.estimators.choose import ESTIMATES
from consilience.estimators.choose import ESTIMATORS as NAMED
from consilience.measurements import DiscreteLaplace, Gaussian, Laplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.numerics.fit import Status
from consilience.numerics.rng import generator

ESTIMATORS: dict[str, Estimator] = {"table": Table()}

DOMAIN = Domain.from_sizes({"a": 2, "b": 3, "c": 4, "d": 2}, name="contract")
TRUTH = np.random.default_rng(0).poisson(5, DOMAIN.shape).astype(float)

CLIQUES = {
    "a chain": [("a", "b"), ("b", "c"), ("c", "d")],
    "a cycle": [("a", "b"), ("b", "c"), ("c", "a")],
    "an attribute never measured": [("a", "b"), ("b", "c")],
    "the full table": [("a", "b", "c", "d")],
    "singletons": [("a",), ("b",), ("c",), ("d",)],
    "permuted attributes": [("d", "a"), ("c", "b", "a")],
    "nested and repeated": [("a", "b"), ("a",), ("a", "b"), ()],
    "the total alone": [()],
}


def measured(cliques: list[tuple[str, ...]], *, scale: float = 2.0, factor: float = 1.0, law=Laplace) -> MeasurementSet:
    rng = np.random.default_rng(1)
    found = []
    for names in cliques:
        query = Query.marginal(*names)
        exact = factor * query.bind(DOMAIN).answer_full(TRUTH)
        found.append(
            Measurement(query=query, values=exact.ravel() + rng.laplace(0, scale, exact.size), noise=law(scale))
        )
    return MeasurementSet(DOMAIN, tuple(found), PrivacyStatement(), {}, private=False)


CASES = {name: measured(cliques) for name, cliques in CLIQUES.items()} | {
    "all zero": measured([("a", "b"), ("c",)], factor=0.0, scale=1e-9),
    "huge counts": measured([("a", "b"), ("c", "d")], factor=1e11, scale=1e4),
    "extreme noise": measured([("a", "b"), ("b", "c")], scale=1e6),
    "discrete noise near one": measured([("a", "b"), ("b", "c")], scale=0.8, law=DiscreteLaplace),
    "Gaussian noise": measured([("a", "b"), ("b", "c")], law=Gaussian),
    "a public total": measured([("a", "b"), ("b", "c")]).with_public(total=100),
}


@pytest.fixture(params=[(method, case) for method in ESTIMATORS for case in CASES], ids=lambda pair: "-".join(pair))
def fitted(request: pytest.FixtureRequest) -> Estimate:
    method, case = request.param
    return ESTIMATORS[method].fit(CASES[case])


def test_every_named_estimator_is_tested_here() -> None:
    assert set(ESTIMATORS) == set(NAMED) == set(ESTIMATES)


def test_the_account_is_consistent_and_not_negative(fitted: Estimate) -> None:
    full = fitted.marginal("a", "b", "c", "d")
    scale = max(1.0, fitted.total)
    assert full.min() >= 0
    for names in (("a",), ("b", "d"), ("c", "a", "b"), ()):
        letters = [DOMAIN.names.index(name) for name in names]
        assert np.allclose(fitted.marginal(*names), np.einsum(full, range(4), letters), atol=1e-9 * scale)
    assert fitted.total == pytest.approx(full.sum())


def test_the_account_explains_itself(fitted: Estimate) -> None:
    assert fitted.status is Status.CONVERGED
    assert fitted.status.explanation
    assert fitted.method["method"] in NAMED
    assert float(fitted.stats["gap"]) >= 0
    assert fitted.domain == DOMAIN
    assert fitted.private is False


def test_answers_are_those_of_the_marginals(fitted: Estimate) -> None:
    prefix = fitted.answer(Query.of({"c": factors.Prefix(), "a": factors.Value("1")}))
    assert np.allclose(prefix[:, 0], np.cumsum(fitted.marginal("c", "a")[:, 1]), rtol=1e-9, atol=1e-9)


def test_synthetic_rows_follow_the_account_and_their_seed(fitted: Estimate) -> None:
    rows = fitted.sample(500, generator(3))
    assert np.array_equal(rows, fitted.sample(500, generator(3)))
    assert rows.shape == (500, 4)
    counts = np.bincount(rows[:, 2], minlength=4)
    expected = fitted.marginal("c") / fitted.total * 500 if fitted.total > 0 else np.full(4, 125)
    assert np.abs(counts - expected).max() <= 4 * 12 + 1


def test_a_saved_account_is_restored(fitted: Estimate) -> None:
    from consilience.estimators import restore
    from consilience.estimators.base import SavedModel

    saved = SavedModel(fitted.method, fitted.status, fitted.stats, fitted.arrays())
    again = restore(saved, fitted.measurements)
    assert np.array_equal(again.marginal("b", "c"), fitted.marginal("b", "c"))


@pytest.mark.parametrize("method", ESTIMATORS)
def test_a_permuted_domain_gives_the_permuted_account(method: str) -> None:
    names = ("c", "a", "d", "b")
    permuted = Domain("contract", tuple(DOMAIN[name] for name in names))
    one = CASES["a cycle"]
    two = MeasurementSet(permuted, one.measurements, one.privacy, {}, private=False)
    left, right = ESTIMATORS[method].fit(one), ESTIMATORS[method].fit(two)
    for names in (("a", "b"), ("b", "c"), ("c", "a")):
        assert np.allclose(left.marginal(*names), right.marginal(*names), atol=0.05)


@pytest.mark.parametrize("method", ESTIMATORS)
def test_one_cell_and_one_value_attributes_are_fitted(method: str) -> None:
    domain = Domain("one", (Attribute.categorical("only", ["x"]), Attribute.categorical("b", ["0", "1"])))
    found = MeasurementSet.from_marginals(domain, {"only": [5.0], "b": [3.0, 2.0]}, noise=Laplace(0.1), private=False)
    assert ESTIMATORS[method].fit(found).marginal("only", "b") == pytest.approx(np.array([[3.0, 2.0]]), abs=0.01)
