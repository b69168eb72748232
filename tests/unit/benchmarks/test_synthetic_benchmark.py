"""The benchmark of synthetic records: its classifier learns, and a row is judged by what it has to keep."""

import numpy as np
import pytest

from benchmarks.accuracy import synthetic
from benchmarks.accuracy.label_classifier import area_under_curve, train
from benchmarks.problems.records import stand_in


def test_the_area_is_the_share_of_pairs_in_order() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 5, 60).astype(float), rng.integers(0, 2, 60)
    above, below = scores[labels == 1][:, None], scores[labels == 0][None, :]
    assert area_under_curve(scores, labels) == pytest.approx(((above > below) + 0.5 * (above == below)).mean())


def test_the_classifier_learns_what_there_is_to_learn() -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 3, (4_000, 2))
    labels = (rng.random(4_000) < np.array([0.1, 0.5, 0.9])[codes[:, 0]]).astype(np.int64)
    found = train(codes[:3_000], labels[:3_000], (3, 3)).skill(codes[3_000:], labels[3_000:])
    assert 0.7 < found.accuracy < 0.9
    assert 0.75 < found.area < 0.95
    shuffled = train(codes[:3_000], rng.permutation(labels[:3_000]), (3, 3)).skill(codes[3_000:], labels[3_000:])
    assert abs(shuffled.area - 0.5) < 0.1


def test_records_are_released_made_and_judged() -> None:
    records = stand_in("small", rows=3_000, sizes=(4, 3, 5, 2), seed=4)
    problem = synthetic.split(records, ("a", "b", "c", "label"))
    assert problem.released.rows == 2_400
    name, workload = next(iter(synthetic.workloads(problem.released.domain).items()))
    row = synthetic.judged(problem, name, workload, seeds=1)
    assert row["off by"] < 1
    assert row["met"] is (min(row["kept, accuracy"], row["kept, AUC"]) >= synthetic.LEAST_KEPT)
