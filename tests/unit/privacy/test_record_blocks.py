"""Blocks of records: a record changes one block at most, and blocks are clustered as by the book."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.iterates.clustering import initial_centroids
from consilience.privacy.cluster_statistics import block_centroids, block_of_records

BITS = 10
START = initial_centroids(3, 2, "box", seed=0)

records = st.lists(st.tuples(st.integers(-1024, 1024), st.integers(-1024, 1024)), max_size=25)


def centroids_of(rows: list[tuple[int, int]], blocks: int, seed: int = 5) -> np.ndarray:
    units = np.array(rows, dtype=np.int32).reshape(-1, 2)
    return block_centroids(units, START, blocks=blocks, bits=BITS, seed=seed)


@settings(max_examples=40, deadline=None)
@given(records, st.tuples(st.integers(-1024, 1024), st.integers(-1024, 1024)), st.integers(0, 25), st.integers(1, 6))
def test_a_record_put_anywhere_changes_one_block_at_most(rows, new, place, blocks) -> None:
    more = [*rows[:place], new, *rows[place:]]
    before, after = centroids_of(rows, blocks), centroids_of(more, blocks)
    changed = np.flatnonzero((before != after).any(axis=(1, 2)))
    assert len(changed) <= 1
    assert set(changed) <= {int(block_of_records(np.array([new], dtype=np.int32), blocks=blocks, seed=5)[0])}


def test_blocks_are_clustered_by_lloyds_steps_from_the_start() -> None:
    rng = np.random.default_rng(2)
    units = rng.integers(-1024, 1025, (200, 2)).astype(np.int32)
    blocks = block_of_records(units, blocks=4, seed=9)
    found = block_centroids(units, START, blocks=4, bits=BITS, seed=9)
    for block in range(4):
        points = units[blocks == block] / 2.0**BITS
        centroids = START.copy()
        for _ in range(50):
            labels = np.argmin(((points[:, None] - centroids[None]) ** 2).sum(axis=2), axis=1)
            centroids = np.stack(
                [points[labels == k].mean(axis=0) if (labels == k).any() else centroids[k] for k in range(3)]
            )
        np.testing.assert_allclose(found[block], centroids, atol=1e-12)


def test_blocks_without_records_keep_the_start() -> None:
    found = centroids_of([(3, 4)], 7)
    kept = (found == START).all(axis=(1, 2))
    assert kept.sum() == 6
    assert (centroids_of([], 3) == START).all()


def test_blocks_are_of_about_equal_size_and_depend_on_the_seed() -> None:
    # Neighbouring lattice points, as in a grid of places: the hash must not keep their pattern.
    units = np.stack(np.meshgrid(np.arange(100), np.arange(100)), axis=2).reshape(-1, 2).astype(np.int32)
    labels = block_of_records(units, blocks=10, seed=0)
    counts = np.bincount(labels, minlength=10)
    assert ((counts - 1000) ** 2 / 1000).sum() < 27.9  # chi-squared of 9 degrees of freedom, one in a thousand
    other = block_of_records(units, blocks=10, seed=1)
    assert (labels == other).mean() == pytest.approx(0.1, abs=0.02)
