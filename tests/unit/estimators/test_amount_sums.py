"""Sums of amounts: parts add to wholes, counts bound them, and the nearest such sums are found."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize

from consilience.domain import Attribute, Domain, Query
from consilience.estimators import estimate
from consilience.estimators.amount_sums import measured_sums, with_sums
from consilience.measurements import Gaussian, Measurement, MeasurementSet

EDGES, AMOUNT = [0.0, 10.0, 50.0, 200.0], (-5.0, 150.0)
DOMAIN = Domain(
    "people",
    (
        Attribute.categorical("sex", ["F", "M"]),
        Attribute.categorical("place", ["a", "b", "c"]),
        Attribute.numeric("pay", EDGES, missing="unknown", amount=AMOUNT),
    ),
)
SUMS = (("sex", "place"), ("place",), ())


def measured(seed: int, *, counts: tuple[tuple[str, ...], ...], stddev: float = 400.0) -> MeasurementSet:
    """Counts with little noise, and sums with much of it: groups of a few records, one of them empty."""
    rng = np.random.default_rng(seed)
    table = rng.poisson(4.0, DOMAIN.shape).astype(float)
    table[1, 2] = 0.0
    low, high = DOMAIN.amount("pay")[1].ends()
    exact = (table * (low + rng.random(table.shape) * (high - low))).sum(axis=2)
    linear = [
        Measurement(Query.marginal(*names), table_of(table, names) + 0.1 * rng.normal(), Gaussian(0.1), id=str(names))
        for names in counts
    ]
    told = {"amount": {"attribute": "pay", "bounds": list(DOMAIN.summand("pay").range)}}
    sums = []
    for place, names in enumerate(SUMS):
        values = table_of(exact, names)
        noisy = values + (place + 1) * stddev * rng.normal(size=values.shape)
        law = Gaussian((place + 1) * stddev)
        sums.append(Measurement(Query.marginal(*names), noisy, law, id=f"sums {names}", kind="amount-sums", extra=told))
    return MeasurementSet(DOMAIN, (*linear, *sums), private=False)


def table_of(table: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    every = ("sex", "place", "pay")[: table.ndim]
    return table.sum(axis=tuple(axis for axis, name in enumerate(every) if name not in names))


def bounds_of(account, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    counts = account.marginal(*names, "pay")
    low, high = DOMAIN.amount("pay")[1].ends()
    return counts @ low, counts @ high


def answers(account, names: tuple[str, ...]) -> np.ndarray:
    by = f" by {', '.join(names)}" if names else ""
    (found,) = with_sums(account, [Query.parse(f"sum(pay){by}")])
    return found.reshape(DOMAIN.sizes(names))


@pytest.mark.parametrize("seed", range(3))
def test_sums_add_up_and_lie_between_what_the_counts_allow(seed: int) -> None:
    account = estimate(measured(seed, counts=(("sex", "place", "pay"),)))
    by_both = answers(account, ("sex", "place"))
    for names in (("place",), ("sex",), ()):
        np.testing.assert_allclose(answers(account, names), table_of(by_both, names), atol=1e-6)
    for place, names in enumerate(SUMS):
        low, high = bounds_of(account, names)
        off = 2e-3 * (place + 1) * 400.0
        assert np.all(low - off <= answers(account, names))
        assert np.all(answers(account, names) <= high + off)
    unbiased = measured_sums(account, Query.parse("sum(pay) by sex, place")).unbiased
    assert np.any((unbiased.marginal("sex", "place") < bounds_of(account, SUMS[0])[0]) | (by_both[1, 2] < 1e-3))


@pytest.mark.parametrize("seed", range(3))
def test_they_are_the_nearest_of_all_that_do(seed: int) -> None:
    """The slow twin writes every group out, and minimises squares under linear constraints."""
    given = measured(seed, counts=(("sex", "place", "pay"),))
    account = estimate(given)
    cells = list(product(range(2), range(3)))
    rows, values, weights = [], [], []
    for each in given.sums:
        names = each.query.attributes
        for label in product(*(range(size) for size in DOMAIN.sizes(names))):
            of = dict(zip(names, label, strict=True))
            rows.append([float(of.get("sex", s) == s and of.get("place", p) == p) for s, p in cells])
        values += each.values.tolist()
        weights += [1.0 / each.noise.stddev_of_noise] * each.values.size
    matrix, wanted, weight = np.array(rows), np.array(values), np.array(weights)
    low, high = (
        np.concatenate(each) for each in zip(*(map(np.ravel, bounds_of(account, n)) for n in SUMS), strict=True)
    )
    best = minimize(
        lambda x: float((((matrix @ x - wanted) * weight) ** 2).sum()),
        (low + high)[:6] / 2,
        jac=lambda x: 2 * matrix.T @ ((matrix @ x - wanted) * weight**2),
        constraints=[LinearConstraint(matrix, low, high)],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    np.testing.assert_allclose(answers(account, ("sex", "place")).ravel(), best.x, atol=0.02 * 400.0)


def test_modelled_counts_bind_nothing_and_the_bounds_of_the_amount_do() -> None:
    account = estimate(measured(0, counts=(("sex", "place"), ("pay",)), stddev=2_000.0))
    found, counts = answers(account, ("sex", "place")), account.marginal("sex", "place")
    assert np.all(found >= AMOUNT[0] * counts - 5.0)
    assert np.all(found <= AMOUNT[1] * counts + 5.0)
    low, high = bounds_of(account, ("sex", "place"))
    assert np.any((found < low - 5.0) | (found > high + 5.0))


def test_what_was_not_measured_is_made_of_bins() -> None:
    given = measured(0, counts=(("sex", "place", "pay"),))
    account = estimate(replace(given, sums=given.sums[1:]))
    by_place, by_sex = Query.parse("sum(pay) by place"), Query.parse("sum(pay) by sex")
    assert measured_sums(account, by_place) is not None
    assert measured_sums(account, by_sex) is None
    np.testing.assert_allclose(with_sums(account, [by_sex])[0], np.ravel(account.answer(by_sex)))
    assert measured_sums(account, Query.parse("by place")) is None


def test_a_bin_that_takes_in_what_is_no_number_may_add_nothing() -> None:
    attribute = Attribute.numeric("pay", [10.0, 20.0, 30.0], missing="[20, 30]", unlisted="drop", amount=True)
    low, high = attribute.ends()
    assert low.tolist() == [10.0, 0.0]
    assert high.tolist() == [20.0, 30.0]
