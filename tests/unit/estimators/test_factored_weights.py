"""Factored multiplicative weights: equal to those of the full table, and refused where a component is too large."""

import numpy as np
import pytest

from consilience.domain import Domain, Query
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.public_facts import PublicFacts, PublicMargin
from consilience.errors import FileFormatError, TooLarge
from consilience.estimators.base import SavedModel
from consilience.estimators.published.multiplicative_weights import (
    FactoredEstimate,
    FactoredWeights,
    MultiplicativeWeights,
    components,
)
from consilience.kernels.rng import generator
from consilience.measurements import Gaussian, Measurement, MeasurementSet, PrivacyStatement

SIZES = {"a": 2, "b": 3, "c": 2, "d": 4, "e": 2}
DOMAIN = Domain("d", Domain.from_sizes(SIZES).attributes, public=PublicFacts(total=100.0))
ASKED = [("a", "b"), ("c",), ("d", "c"), ("b",)]


def measured(domain: Domain = DOMAIN, asked=ASKED) -> MeasurementSet:
    rng = np.random.default_rng(0)
    found = []
    for names in asked:
        cells = int(np.prod(domain.sizes(names)))
        noisy = 100 * rng.dirichlet(np.ones(cells)) + rng.normal(0, 1, cells)
        found.append(Measurement(Query.marginal(*names), noisy, Gaussian(1.0)))
    return MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False)


def test_the_product_is_the_table_that_full_weights_reach_in_the_limit() -> None:
    factored = FactoredWeights(sweeps=3000).fit(measured())
    full = MultiplicativeWeights(sweeps=3000).fit(measured())
    for names in (("a", "b"), ("d", "c"), ("b", "d"), ("e", "a"), ("c", "b", "e")):
        assert factored.marginal(*names) == pytest.approx(full.marginal(*names), abs=0.02)


def test_one_component_is_exactly_the_full_table() -> None:
    few = Domain("d", Domain.from_sizes({"a": 2, "b": 3}).attributes, public=PublicFacts(total=100.0))
    same = measured(few, [("a", "b"), ("b",)])
    assert FactoredWeights(sweeps=7).fit(same).marginal("a", "b") == pytest.approx(
        MultiplicativeWeights(sweeps=7).fit(same).marginal("a", "b"), rel=1e-12
    )


def test_components_are_tied_by_measurements_and_by_impossible_cells() -> None:
    assert components(DOMAIN, ASKED) == (("a", "b"), ("c", "d"))
    ruled = Domain("d", DOMAIN.attributes, (ImpossibleCells((("b", (0,)), ("e", (1,)))),), DOMAIN.public)
    assert components(ruled, ASKED) == (("a", "b", "e"), ("c", "d"))
    assert FactoredWeights().fit(measured(ruled)).marginal("b", "e")[0, 1] == 0.0


def test_records_follow_the_tables() -> None:
    estimate = FactoredWeights().fit(measured())
    codes = estimate.sample(2000, generator(0))
    counts = np.zeros((2, 3))
    np.add.at(counts, (codes[:, 0], codes[:, 1]), 1)
    assert counts == pytest.approx(20 * estimate.marginal("a", "b"), abs=1.0)
    assert np.bincount(codes[:, 4]).tolist() == [1000, 1000]


def test_saved_tables_are_restored_and_others_refused() -> None:
    estimate = FactoredWeights().fit(measured())
    saved = SavedModel(estimate.method, estimate.status, estimate.stats, dict(estimate.arrays()))
    again = FactoredEstimate.restore(saved, measured())
    assert again.marginal("d", "a") == pytest.approx(estimate.marginal("d", "a"))
    broken = SavedModel(estimate.method, estimate.status, estimate.stats, {"total": np.ones(1)})
    with pytest.raises(FileFormatError, match="write the bundle"):
        FactoredEstimate.restore(broken, measured())
    contradictory = SavedModel(saved.method, saved.status, saved.stats, {**saved.arrays, "total": np.zeros(1)})
    with pytest.raises(FileFormatError, match=r"add up to .* total is 0"):
        FactoredEstimate.restore(contradictory, measured())


def test_components_that_grow_too_large_are_refused_with_their_size() -> None:
    wide = Domain("w", Domain.from_sizes({f"x{i}": 20 for i in range(9)}).attributes, public=PublicFacts(total=10.0))
    apart = measured(wide, [(f"x{i}", f"x{i + 1}") for i in range(0, 8, 2)])
    assert FactoredWeights().suitability(apart).possible
    chain = measured(wide, [(f"x{i}", f"x{i + 1}") for i in range(8)])
    with pytest.raises(TooLarge, match="x0, x1, x2"):
        FactoredWeights().fit(chain)


def test_exact_margins_are_refused() -> None:
    facts = PublicFacts(margins=(PublicMargin(("a",), (40.0, 60.0)),))
    with pytest.raises(TooLarge, match="exact counts by a"):
        FactoredWeights().fit(measured(Domain("d", DOMAIN.attributes, public=facts)))
