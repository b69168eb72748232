"""The estimator behind MWEM: order, totals, iterates and what it says of itself."""

import numpy as np
import pytest

from consilience.domain import Domain, Query, factors
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.public_facts import PublicFacts
from consilience.errors import DeclarationError, MeasurementError, TooLarge
from consilience.estimators.published.multiplicative_weights import MultiplicativeWeights, table_total
from consilience.measurements import Laplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.solvers.fit import Status

DOMAIN = Domain.from_sizes({"a": 4, "b": 2}, name="small")


def measured(*pairs, domain: Domain = DOMAIN, scale: float = 1.0, rounds=None) -> MeasurementSet:
    found = [
        Measurement(query, np.atleast_1d(values), noise=Laplace(scale), round=None if rounds is None else rounds[i])
        for i, (query, values) in enumerate(pairs)
    ]
    return MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False)


FIRST = Query.of({"a": factors.Value("0")})
LATTER = Query.of({"a": factors.Range("2", "3"), "b": factors.Value("1")})


def test_consistent_answers_are_met_and_the_rest_is_uniform() -> None:
    fitted = MultiplicativeWeights().fit(measured((Query(()), 80.0), (FIRST, 50.0), scale=0.1))
    assert fitted.marginal("a") == pytest.approx(np.array([50.0, 10.0, 10.0, 10.0]), abs=1e-3)
    assert fitted.status is Status.CONVERGED
    assert fitted.stats["classes"] == 2


def test_too_few_sweeps_are_told() -> None:
    fitted = MultiplicativeWeights(sweeps=1).fit(measured((Query(()), 80.0), (FIRST, 50.0), scale=0.1))
    assert fitted.status is Status.STEP_LIMIT
    assert float(fitted.stats["gap"]) > 1


def test_the_order_of_rounds_is_the_order_of_learning() -> None:
    one = measured((Query(()), 40.0), (FIRST, 30.0), (LATTER, 25.0))
    two = measured((Query(()), 40.0), (LATTER, 25.0), (FIRST, 30.0))
    fit = MultiplicativeWeights(sweeps=2).fit
    assert not np.allclose(fit(one).counts, fit(two).counts)
    stamped = measured((Query(()), 40.0), (LATTER, 25.0), (FIRST, 30.0), rounds=[0, 2, 1])
    assert np.array_equal(fit(one).counts, fit(stamped).counts)


def test_the_average_is_that_of_the_tables_that_rounds_began_with() -> None:
    whole = ((Query(()), 40.0), (FIRST, 30.0), (LATTER, 8.0))
    average = MultiplicativeWeights(iterate="average").fit(measured(*whole)).counts
    last = MultiplicativeWeights().fit
    assert average == pytest.approx((np.full((4, 2), 5.0) + last(measured(*whole[:2])).counts) / 2)


def test_totals_come_from_the_domain_then_a_measurement_then_the_answers() -> None:
    public = Domain("small", DOMAIN.attributes, public=PublicFacts(total=7))
    assert table_total(measured((Query(()), 80.0), (FIRST, 5.0), domain=public)) == 7
    assert table_total(measured((Query(()), 80.0), (FIRST, 5.0))) == 80
    assert table_total(measured((Query(()), -3.0), (FIRST, 5.0))) == 1
    assert table_total(measured((FIRST, 5.0)).with_public(total=12)) == 12
    # Two sums, of 4 and of 2 answers: variances 4 to 2.
    implied = measured((Query.marginal("a"), [10.0, 10.0, 10.0, 10.0]), (Query.marginal("b"), [11.0, 12.0]))
    assert table_total(implied) == pytest.approx((40 / 4 + 23 / 2) / (1 / 4 + 1 / 2))
    prefixes = measured((Query.of({"a": factors.Prefix()}), [1.0, 2.0, 3.0, 9.0]))
    assert table_total(prefixes) == pytest.approx(9.0)
    with pytest.raises(MeasurementError, match="total"):
        table_total(measured((FIRST, 5.0)))


def test_impossible_cells_stay_empty_and_public_totals_are_kept() -> None:
    domain = Domain(
        "small",
        DOMAIN.attributes,
        impossible=(ImpossibleCells((("a", (0,)), ("b", (1,)))),),
        public=PublicFacts(total=30),
    )
    fitted = MultiplicativeWeights().fit(measured((Query.marginal("a"), [20.0, 5.0, 5.0, 0.0]), domain=domain))
    assert fitted.counts[0, 1] == 0
    assert fitted.total == pytest.approx(30.0)
    assert fitted.marginal("a") == pytest.approx(np.array([20.0, 5.0, 5.0, 0.0]), abs=0.6)


def test_permuted_attributes_and_signed_rows_are_followed() -> None:
    query = Query.of({"b": factors.Matrix.of([[1.0, -1.0]]), "a": factors.Value("1")})
    fitted = MultiplicativeWeights(sweeps=2000).fit(measured((Query(()), 40.0), (query, 4.0), scale=0.1))
    assert fitted.counts[1, 0] - fitted.counts[1, 1] == pytest.approx(4.0, abs=0.01)


def test_refusals() -> None:
    with pytest.raises(DeclarationError):
        MultiplicativeWeights(sweeps=0)
    with pytest.raises(DeclarationError):
        MultiplicativeWeights(iterate="first")  # type: ignore[arg-type]
    huge = Domain.from_sizes({"a": 20_000}, name="huge")
    found = measured((Query.marginal("a"), np.ones(20_000)), domain=huge)
    assert not MultiplicativeWeights().suitability(found).possible
    with pytest.raises(TooLarge):
        MultiplicativeWeights().fit(found)
