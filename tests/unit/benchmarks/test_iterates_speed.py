"""The benchmark of chains: its problems are rounds of k-means of the sizes it says."""

import numpy as np
import pytest

from benchmarks.problems.clusterings import nearest
from benchmarks.speed import iterates
from consilience.iterates.problems import cluster_problem


def test_rounds_are_noisy_counts_and_sums_of_the_points() -> None:
    points = np.random.default_rng(0).uniform(-0.3, 0.3, (500, 3))
    found = iterates.noisy_rounds(points, "box", rounds=2, clusters=4, dimensions=3)
    assert found.thetas.shape == found.sums.shape == (2, 4, 3)
    for theta, counts, sums in zip(found.thetas, found.counts, found.sums, strict=True):
        labels = nearest(points, theta)
        exact = np.stack([points[labels == k].sum(axis=0) for k in range(4)])
        reach = 20 * found.count_scales[0]
        assert np.abs(counts - np.bincount(labels, minlength=4)).max() < reach
        assert np.abs(sums - exact).max() < reach


@pytest.mark.slow
def test_seconds_are_measured_and_judged(monkeypatch) -> None:
    monkeypatch.setattr(iterates, "STEPS", 300)
    points = np.random.default_rng(0).uniform(-0.3, 0.3, (500, 2))
    rounds = iterates.noisy_rounds(points, "box", rounds=2, clusters=3, dimensions=2)
    assert iterates.chain_seconds(cluster_problem(rounds), size=100) > 0
    assert iterates.judged("small", rounds)["met"] == "yes"
