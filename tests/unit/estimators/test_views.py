"""The `Views` estimator: answers near the truth, variants as published, batches, saved models, and what is refused."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from consilience.coverings.designs import covering
from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.domains import ImpossibleCells
from consilience.errors import ConsilienceError, DeclarationError, TooLarge
from consilience.estimators import Residual, Views, choose, estimate, restore
from consilience.estimators.base import SavedModel
from consilience.kernels.rng import generator
from consilience.measurements import Laplace, Measurement, MeasurementSet, PrivacyStatement

FLAGS = 16
DOMAIN = Domain.from_sizes({f"f{place}": 2 for place in range(FLAGS)})
NAMES = DOMAIN.counted_names
PUBLISHED = Views(nonnegativity="ripple", rounds=1, joint_cells=0)


def records(rows: int = 20_000, seed: int = 0) -> np.ndarray:
    """Flags of hidden groups."""
    rng = np.random.default_rng(seed)
    shares = rng.beta(0.3, 1.0, (4, FLAGS))
    return (rng.random((rows, FLAGS)) < shares[rng.integers(0, 4, rows)]).astype(int)


RECORDS = records()


def counts(places: tuple[int, ...], rows: np.ndarray = RECORDS) -> np.ndarray:
    found = np.zeros((2,) * len(places))
    np.add.at(found, tuple(rows[:, place] for place in places), 1)
    return found


def measured(scale: float = 20.0, seed: int = 1, views=None) -> MeasurementSet:
    rng = np.random.default_rng(seed)
    found = []
    for view in views or covering(FLAGS, 6, 2):
        exact = counts(view).ravel()
        query = Query.marginal(*(NAMES[place] for place in view))
        noisy = exact + rng.laplace(0.0, scale, exact.size) if scale else exact
        found.append(Measurement(query=query, values=noisy, noise=Laplace(scale or 1e-6)))
    return MeasurementSet(DOMAIN, tuple(found), PrivacyStatement(), {}, private=False)


def errors(fitted, sets) -> float:
    found = [fitted.marginal(*(NAMES[place] for place in each)) - counts(each) for each in sets]
    return float(np.mean([np.linalg.norm(each) for each in found])) / len(RECORDS)


QUADRUPLES = [tuple(sorted(np.random.default_rng(k).choice(FLAGS, 4, replace=False).tolist())) for k in range(20)]


def test_covered_marginals_without_noise_are_exact() -> None:
    fitted = Views().fit(measured(scale=0.0))
    for pair in itertools.combinations(range(FLAGS), 2):
        assert fitted.marginal(*(NAMES[place] for place in pair)) == pytest.approx(counts(pair), abs=1e-3)


@pytest.mark.slow
def test_the_nearest_views_beat_ripple_and_ripple_beats_cutting_off() -> None:
    noisy = [measured(seed=seed, scale=60.0) for seed in range(4)]
    found = {
        name: float(np.mean([errors(way.fit(each), QUADRUPLES) for each in noisy]))
        for name, way in {
            "nearest": Views(joint_cells=0),
            "ripple": PUBLISHED,
            "simple": Views(nonnegativity="simple", rounds=1, joint_cells=0),
        }.items()
    }
    assert found["nearest"] < found["ripple"] < found["simple"]


def test_views_agree_and_no_count_is_negative() -> None:
    fitted = Views().fit(measured(scale=200.0))
    assert fitted.nonnegative
    assert min(float(fitted.marginal(*(NAMES[p] for p in each)).min()) for each in QUADRUPLES) >= 0
    assert float(fitted.stats["disagreement"]) <= 1e-6
    first, second = fitted.scopes[0], fitted.scopes[1]
    common = [place for place in first if place in second]
    one = fitted.marginal(*(NAMES[place] for place in common))
    whole = fitted.marginal(*(NAMES[place] for place in second))
    away = tuple(axis for axis, place in enumerate(second) if place not in common)
    two = whole.sum(axis=away).transpose(np.argsort(np.argsort([second.index(place) for place in common])))
    assert np.allclose(one, two, atol=1e-6 * len(RECORDS))


@pytest.mark.parametrize(
    "way",
    [
        Views(reconstruction="least-squares", joint_cells=0),
        Views(reconstruction="linear-programme", joint_cells=0),
        Views(nonnegativity="none", joint_cells=0),
        Views(nonnegativity="global", rounds=2, joint_cells=0),
        Views(consistent=False, nonnegativity="none", reconstruction="linear-programme", joint_cells=0),
        PUBLISHED,
    ],
)
def test_every_variant_of_the_paper_comes_near_the_truth(way: Views) -> None:
    fitted = way.fit(measured(scale=2.0))
    uniform = float(np.mean([np.linalg.norm(len(RECORDS) / 16 - counts(each)) for each in QUADRUPLES])) / len(RECORDS)
    assert errors(fitted, QUADRUPLES[:6]) < 0.4 * uniform


def test_many_questions_at_once_get_the_same_answers() -> None:
    fitted = Views(joint_cells=0).fit(measured())
    asked = [Query.marginal(*(NAMES[place] for place in each)) for each in QUADRUPLES] + [Query.parse("f3=1 by f9")]
    together = fitted.answers(asked)
    for query, table in zip(asked, together, strict=True):
        assert np.array_equal(table, fitted.answer(query))


def test_least_squares_agree_with_residual() -> None:
    one = Views(nonnegativity="none", joint_cells=0).fit(measured())
    two = Residual(nonnegative=False).fit(measured())
    for pair in [(0, 1), (3, 12), (5, 15)]:
        names = [NAMES[place] for place in pair]
        assert np.allclose(one.marginal(*names), two.marginal(*names), atol=1e-6)


def test_parts_that_do_not_fit_together_are_reported() -> None:
    """A = B, B = C, and A ≠ C: every pair of views agrees, and no table has all three."""
    domain = Domain.from_sizes({"a": 2, "b": 2, "c": 2})
    same, different = [50.0, 0.0, 0.0, 50.0], [0.0, 50.0, 50.0, 0.0]
    views = {("a", "b"): same, ("b", "c"): same, ("a", "c"): different}
    found = MeasurementSet.from_marginals(domain, views, noise=Laplace(1.0), private=False)
    fitted = Views(joint_cells=0).fit(found)
    joint = fitted.reconstruction("a", "b", "c")
    assert joint.relaxed
    assert joint.violation == pytest.approx(50 / 3, rel=0.01)
    assert joint.table.sum() == pytest.approx(100)
    assert not fitted.reconstruction("a", "b").relaxed
    assert float(Views().fit(found).stats["violation"]) == pytest.approx(50 / 3, rel=0.01)


def test_attributes_in_no_view_are_even() -> None:
    fitted = Views().fit(measured(views=[(0, 1, 2)]))
    table = fitted.marginal("f0", "f9")
    assert table[:, 0] == pytest.approx(table[:, 1])


def test_categorical_views_of_unequal_noise_are_weighted() -> None:
    domain = Domain.from_sizes({"a": 5, "b": 3, "c": 4})
    rng = np.random.default_rng(0)
    truth = rng.poisson(50, (5, 3, 4)).astype(float)
    found = []
    for names, axis, scale in ((("a", "b"), 2, 0.01), (("b", "c"), 0, 500.0)):
        exact = truth.sum(axis=axis)
        noisy = exact.ravel() + rng.laplace(0.0, scale, exact.size)
        found.append(Measurement(query=Query.marginal(*names), values=noisy, noise=Laplace(scale)))
    fitted = Views().fit(MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False))
    assert fitted.marginal("b") == pytest.approx(truth.sum(axis=(0, 2)), abs=0.2)


def test_a_saved_account_answers_alike() -> None:
    fitted = Views(reconstruction="least-squares", joint_cells=0).fit(measured())
    saved = SavedModel(fitted.method, fitted.status, fitted.stats, fitted.arrays())
    again = restore(saved, fitted.measurements)
    names = [NAMES[place] for place in QUADRUPLES[3]]
    assert np.array_equal(again.marginal(*names), fitted.marginal(*names))
    assert np.array_equal(again.sample(50, generator(1)), fitted.sample(50, generator(1)))


def test_other_queries_and_impossible_cells_are_left_to_other_methods() -> None:
    found = measured()
    prefix = Measurement(query=Query.of({"f0": factors.Prefix()}), values=np.array([1.0, 2.0]), noise=Laplace(1.0))
    more = replace(found, measurements=(*found.measurements, prefix))
    assert "no marginal" in Views().suitability(more).reason
    with pytest.raises(TooLarge, match="cannot fit"):
        Views().fit(more)
    ruled = replace(DOMAIN, impossible=(ImpossibleCells((("f0", (0,)), ("f1", (1,)))),))
    assert not Views().suitability(replace(found, domain=ruled)).possible
    assert "limit" in Views(memory_limit=1000).suitability(found).reason


@pytest.mark.parametrize(
    "options",
    [
        {"nonnegativity": "clip"},
        {"reconstruction": "guess"},
        {"theta": 0.0},
        {"theta": float("nan")},
        {"rounds": -1, "nonnegativity": "ripple"},
        {"rounds": 2},
        {"consistent": False},
    ],
)
def test_wrong_settings_are_refused(options: dict) -> None:
    with pytest.raises(DeclarationError):
        Views(**options)


def test_unknown_and_repeated_attributes_are_refused() -> None:
    fitted = Views().fit(measured())
    for names in (("nobody",), ("f0", "f0")):
        with pytest.raises(ConsilienceError):
            fitted.marginal(*names)
    wide = Domain("wide", tuple(Attribute.categorical(f"a{i}", [str(v) for v in range(99)]) for i in range(5)))
    one = Views().fit(MeasurementSet.from_marginals(wide, {"a0": np.ones(99)}, noise=Laplace(1.0), private=False))
    with pytest.raises(TooLarge, match="allowed"):
        one.marginal(*wide.counted_names)


def test_the_method_is_known_by_its_name() -> None:
    assert estimate(measured(), method="views").method["method"] == "views"


def test_views_are_chosen_for_large_marginals_that_no_model_takes() -> None:
    wide = Domain.from_sizes({f"f{place}": 2 for place in range(40)})
    names = wide.counted_names
    large = {tuple(names[place] for place in view): np.full(2**8, 10.0) for view in covering(40, 8, 2)}
    found = choose(MeasurementSet.from_marginals(wide, large, noise=Laplace(1.0), private=False))
    assert found.estimator.name == "views"
    pairs = {pair: np.full(4, 640.0) for pair in itertools.combinations(names, 2)}
    found = choose(MeasurementSet.from_marginals(wide, pairs, noise=Laplace(1.0), private=False))
    assert found.estimator.name == "residual"
