"""The total alone, spread evenly over what can occur."""

import numpy as np
import pytest

from consilience.domain import Domain, Query
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.factors import Value
from consilience.domain.public_facts import PublicFacts, PublicMargin
from consilience.errors import DeclarationError, FileFormatError, TooLarge
from consilience.estimators.base import SavedModel
from consilience.estimators.published.uniform import Uniform, UniformEstimate
from consilience.kernels.rng import generator
from consilience.measurements import Gaussian, Laplace, Measurement, MeasurementSet, PrivacyStatement

DOMAIN = Domain.from_sizes({"a": 2, "b": 3, "c": 4}, name="d")


def as_set(*found: Measurement, domain: Domain = DOMAIN) -> MeasurementSet:
    return MeasurementSet(domain, found, PrivacyStatement(), {}, private=False)


PAIR = Measurement(Query.marginal("a", "b"), [30.0, 0.0, 0.0, 0.0, 0.0, 30.0], noise=Gaussian(1.0))
TOTAL = Measurement(Query(()), [48.0], noise=Gaussian(3.0**0.5))


def test_every_cell_has_the_same_count() -> None:
    fitted = Uniform().fit(as_set(TOTAL))
    assert fitted.total == pytest.approx(48)
    assert np.allclose(fitted.marginal("c", "a"), np.full((4, 2), 6.0))
    assert np.allclose(fitted.marginal("a", "b", "c"), 2.0)
    assert fitted.marginal() == pytest.approx(48)


def test_the_total_is_the_mean_by_inverse_variance_of_what_measurements_imply() -> None:
    """The pair's six cells make a total with variance 6, beside one with variance 3."""
    fitted = Uniform().fit(as_set(PAIR, TOTAL))
    assert fitted.total == pytest.approx((60 / 6 + 48 / 3) / (1 / 6 + 1 / 3))


def test_a_public_total_is_kept_and_a_negative_one_is_none() -> None:
    public = Domain("d", DOMAIN.attributes, public=PublicFacts(total=240.0))
    assert Uniform().fit(as_set(PAIR, domain=public)).total == 240
    low = Measurement(Query(()), [-3.0], noise=Laplace(5.0))
    assert Uniform().fit(as_set(low)).total == 0


def test_impossible_cells_stay_empty() -> None:
    rule = ImpossibleCells((("a", (0,)), ("c", (1, 2))))
    domain = Domain("d", DOMAIN.attributes, impossible=(rule,))
    fitted = Uniform().fit(as_set(TOTAL, domain=domain))
    allowed = domain.allowed_cells()
    assert allowed is not None
    full = fitted.marginal("a", "b", "c")
    assert np.allclose(full, np.where(allowed, 48 / allowed.sum(), 0.0))
    assert np.allclose(fitted.marginal("c", "b"), np.einsum("abc->cb", full))
    assert np.allclose(fitted.marginal("b"), 16)
    rows = fitted.sample(720, generator(0))
    assert allowed[tuple(rows.T)].all()
    counts = np.bincount(np.ravel_multi_index(tuple(rows.T[[0, 2]]), (2, 4)), minlength=8).reshape(2, 4)
    assert np.allclose(counts, np.where(allowed[:, 0], 120, 0))


def test_any_number_of_attributes_is_taken() -> None:
    many = Domain.from_sizes({f"a{i}": 2 for i in range(200)}, name="many")
    fitted = Uniform().fit(as_set(Measurement(Query(()), [1024.0], noise=Laplace(1.0)), domain=many))
    assert np.allclose(fitted.marginal("a7", "a150", "a3"), 128.0)
    rows = fitted.sample(100, generator(1))
    assert rows.shape == (100, 200)
    assert (rows.sum(axis=0) == 50).all()
    with pytest.raises(TooLarge, match="fewer attributes"):
        fitted.marginal(*many.names[:40])


def test_a_saved_account_is_restored() -> None:
    fitted = Uniform().fit(as_set(PAIR))
    saved = SavedModel(fitted.method, fitted.status, fitted.stats, fitted.arrays())
    assert np.array_equal(UniformEstimate.restore(saved, fitted.measurements).marginal("b"), fitted.marginal("b"))
    with pytest.raises(FileFormatError):
        UniformEstimate.restore(SavedModel({}, fitted.status, {}, {"counts": np.zeros(2)}), fitted.measurements)


def test_what_an_even_table_cannot_keep_or_know_is_refused() -> None:
    margins = Domain("d", DOMAIN.attributes, public=PublicFacts(margins=(PublicMargin(("a",), (30.0, 30.0)),)))
    value = Measurement(Query.of({"a": Value("1")}), [5.0], noise=Laplace(1.0))
    clipped = Measurement(Query.marginal("a"), [0.0, 4.0], noise=Laplace(1.0), clipped=True)
    for measured in (as_set(PAIR, domain=margins), as_set(value), as_set(clipped)):
        assert not Uniform().suitability(measured).possible
        with pytest.raises(TooLarge, match="cannot fit"):
            Uniform().fit(measured)
    with pytest.raises(DeclarationError):
        Uniform().fit(as_set(PAIR)).marginal("a", "a")
