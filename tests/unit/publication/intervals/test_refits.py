"""Estimates fitted again to other noise."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import consilience as cs
from consilience.domain import Domain, Query
from consilience.errors import FileFormatError
from consilience.estimators import Graphical
from consilience.estimators.base import Estimate
from consilience.estimators.graphical_model import GraphicalEstimate
from consilience.file_checks import check
from consilience.kernels.rng import generator
from consilience.measurements import Gaussian, MeasurementSet
from consilience.publication import bundle, open_release, write_bundle
from consilience.publication.bundle import REFITS
from consilience.publication.intervals import refits
from consilience.publication.intervals.refits import KeptRefits, Refitting, noisy_answers, refit, replicates, simulated
from consilience.publication.release import Release
from consilience.solvers.fit import Status

DOMAIN = Domain.from_sizes({"a": 3, "b": 4, "c": 3})
SCOPES = (("a", "b"), ("b", "c"), ("a", "c"))


def fitted(scale: float) -> GraphicalEstimate:
    rng = generator(5)
    table = rng.gamma(0.1, size=DOMAIN.shape)
    table *= 2_000 / table.sum()
    axes = {"a": 0, "b": 1, "c": 2}
    tables: dict[str | tuple[str, ...], np.ndarray] = {}
    for scope in SCOPES:
        exact = table.sum(axis=tuple(axes[name] for name in axes if name not in scope))
        tables[scope] = exact + rng.normal(0.0, scale, exact.shape)
    measured = MeasurementSet.from_marginals(DOMAIN, tables, noise=Gaussian(scale), private=False)
    return Graphical(loss="l2").fit(measured)


QUERIES = [Query.marginal(*scope) for scope in SCOPES]


def answers(estimate: Estimate) -> np.ndarray:
    return flat(estimate.answers(QUERIES))


def flat(found: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ravel(each) for each in found])


@pytest.mark.parametrize(
    ("scale", "status", "allowed"), [(0.5, Status.CONVERGED, 0.05), (10.0, Status.LEAST_RISK, 0.6)]
)
def test_refits_move_with_the_noise_whether_a_fit_stopped_early_or_not(
    scale: float, status: Status, allowed: float
) -> None:
    """With little noise the search for the least risk gives way to the optimum: refits must go there too."""
    estimate = fitted(scale)
    assert estimate.status is status
    shared = Refitting.of(estimate)
    assert (shared.account is estimate) == (status is Status.CONVERGED)
    for seed in range(3):
        other = simulated(estimate.measurements, shared.exact, generator(seed))
        stop = "converged" if status is Status.CONVERGED else "least-risk"
        again, anew = shared.again(other), Graphical(loss="l2", stop=stop).fit(other)
        moved = np.linalg.norm(answers(anew) - answers(shared.account))
        assert np.linalg.norm(answers(again) - answers(anew)) < allowed * moved


def test_the_way_known_before_changes_refits_by_little() -> None:
    estimate = fitted(10.0)
    shared = Refitting.of(estimate)
    for seed in range(3):
        along = shared.draw(generator(seed))
        other = simulated(estimate.measurements, noisy_answers(shared.account), generator(seed))
        searched = refit(estimate, other)
        moved = np.linalg.norm(answers(searched) - answers(shared.account))
        assert np.linalg.norm(answers(along) - answers(searched)) < 0.3 * moved


def test_refits_that_are_kept_answer_as_those_that_were_drawn() -> None:
    """The slow, obvious way: fit again for every question, and keep nothing."""
    estimate = fitted(10.0)
    shared = Refitting.of(estimate)
    drawn = np.array([answers(shared.draw(generator(0, number))) for number in range(20)])
    for queries in (QUERIES, QUERIES[:1]):  # the second time from what was kept
        found = replicates(estimate, queries, refits=20, seed=0)
        wanted = drawn[:, : sum(each.truth.size for each in found)]
        moved = np.abs(wanted - wanted.mean(axis=0)).max()
        kept = np.concatenate([each.answers for each in found], axis=1)
        np.testing.assert_allclose(kept, wanted, atol=1e-5 * moved)


def test_more_refits_are_added_to_those_there_are_and_other_seeds_leave_them_alone() -> None:
    estimate = fitted(10.0)
    few = replicates(estimate, QUERIES, refits=20, seed=0)[0].answers
    kept = KeptRefits.of(estimate, 0)
    steps = [each.copy() for each in kept.steps]
    other = replicates(estimate, QUERIES, refits=20, seed=1)[0].answers
    many = replicates(estimate, QUERIES, refits=25, seed=0)[0].answers
    assert np.abs(other - few).max() > 0.1
    np.testing.assert_array_equal(many[:20], few)
    assert KeptRefits.of(estimate, 0) is kept
    assert len(kept.steps) == 25
    np.testing.assert_array_equal(kept.steps[:20], steps)


def test_refits_too_large_to_be_kept_are_drawn_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = replicates(fitted(10.0), QUERIES, refits=20, seed=0)
    monkeypatch.setattr(refits, "MOST_KEPT", 0)
    estimate = fitted(10.0)
    for _ in range(2):
        found = replicates(estimate, QUERIES, refits=20, seed=0)
        assert not KeptRefits.of(estimate, 0).steps
        for one, other in zip(found, kept, strict=True):
            np.testing.assert_allclose(one.answers, other.answers, atol=1e-4 * np.abs(other.answers).max())


# ----------------------------------------------------------------------------------------------------------------------
# Refits in a bundle.


def intervals_of(release: Release) -> np.ndarray:
    found = [release.interval(text, refits=20) for text in ("by a, b", "by a, c", "by a per total")]
    return flat([ends for each in found for ends in (each.low, each.high)])


@pytest.mark.parametrize("scale", [0.5, 10.0], ids=["refits", "least squares"])
def test_a_bundle_keeps_its_refits_at_the_first_need_and_fits_no_more(
    scale: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_bundle(fitted(scale), tmp_path / "release")
    assert not (path / REFITS).exists()
    first = intervals_of(open_release(path))
    assert set(json.loads((path / "release.json").read_text())["refits"]) >= {
        "estimate" if scale < 1 else "least squares"
    }
    monkeypatch.setattr(refits, "refit", None)
    monkeypatch.setattr(refits.Refitting, "of", None)
    np.testing.assert_array_equal(intervals_of(open_release(path)), first)
    assert check(path).private is False


def test_a_bundle_is_written_with_the_refits_of_its_tables_and_more_are_added(tmp_path: Path) -> None:
    path = write_bundle(fitted(0.5), tmp_path / "release", interval=0.9, refits=20)
    assert open_release(path).manifest["refits"] == {"estimate": {"refits": 20, "seed": 0}}
    open_release(path).answer("by a", interval=0.9, refits=30)
    assert open_release(path).manifest["refits"] == {"estimate": {"refits": 30, "seed": 0}}
    open_release(path).answer("by a", interval=0.9, refits=20, seed=4)
    assert open_release(path).manifest["refits"] == {"estimate": {"refits": 30, "seed": 0}}


def test_a_bundle_that_cannot_be_written_to_answers_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_bundle(fitted(0.5), tmp_path / "release")

    def refuse(*_: object, **__: object) -> None:
        raise FileFormatError("read only")

    monkeypatch.setattr(bundle, "add_to_bundle", refuse)
    assert np.isfinite(intervals_of(open_release(path))).all()
    assert not (path / REFITS).exists()


def test_refits_of_another_release_are_refused(tmp_path: Path) -> None:
    one = write_bundle(fitted(0.5), tmp_path / "one", interval=0.9, refits=20)
    other = write_bundle(fitted(0.6), tmp_path / "other", interval=0.9, refits=20)
    content = (one / REFITS).read_bytes()
    bundle.add_to_bundle(other, {REFITS: content}, about={}, in_place_of=(REFITS,))
    for use in (lambda: check(other), lambda: open_release(other).interval("by a")):
        with pytest.raises(FileFormatError, match="refits of other measurements"):
            use()


@pytest.mark.parametrize("harm", ["short", "not finite", "not Parquet"])
def test_damaged_refits_are_refused(harm: str, tmp_path: Path) -> None:
    path = write_bundle(fitted(0.5), tmp_path / "release", interval=0.9, refits=20)
    table = pq.read_table(path / REFITS)
    content = b"no Parquet"
    if harm != "not Parquet":
        steps = table.column("steps").to_pylist()
        steps[-1] = steps[-1][:-1] + [float("inf")] * (harm == "not finite")
        column = pa.array(steps, pa.list_(pa.float32()))
        pq.write_table(table.set_column(table.column_names.index("steps"), "steps", column), tmp_path / "harmed")
        content = (tmp_path / "harmed").read_bytes()
    bundle.add_to_bundle(path, {REFITS: content}, about={}, in_place_of=(REFITS,))
    with pytest.raises(FileFormatError):
        check(path)


@pytest.mark.parametrize("largest", [1e4, 1e10])
def test_error_bars_are_as_wide_as_the_noise_however_large_the_counts(largest: float) -> None:
    """Potentials that no answer depends on move so far that kept steps would round off by more than the noise."""
    domain, rng, law = Domain.from_sizes({"a": 3, "b": 4, "c": 2}), np.random.default_rng(0), cs.Laplace(10.0)
    truth = rng.integers(0, int(largest), domain.shape).astype(float)
    tables = {("a", "b"): truth.sum(2), ("b", "c"): truth.sum(0)}
    noisy = {names: table + law.simulate(table.shape, rng) for names, table in tables.items()}
    fitted = cs.estimate(MeasurementSet.from_marginals(domain, noisy, noise=law, private=False))
    bars = cs.interval(fitted, "by a, b", refits=20)
    assert np.median(bars.high - bars.low) < 2.0 * 2.0 * float(law.quantile(0.975))
