"""The public methods that ranges are compared with, against slow twins."""

import numpy as np
import pytest

from benchmarks.accuracy.ranges import (
    held_out,
    noisy_tree,
    published_branching,
    root_mean_square,
    row,
    steps,
    tuning,
)


def test_the_error_over_all_ranges_is_that_of_every_range() -> None:
    errors = np.random.default_rng(0).normal(size=9)
    every = [errors[i : j + 1].sum() ** 2 for i in range(9) for j in range(i, 9)]
    assert root_mean_square(errors, "ranges") ** 2 == pytest.approx(np.mean(every))
    prefixes = [errors[: j + 1].sum() ** 2 for j in range(9)]
    assert root_mean_square(errors, "prefixes") ** 2 == pytest.approx(np.mean(prefixes))


class Fixed:
    """Draws that are known: the same numbers one after the other, scaled."""

    def __init__(self) -> None:
        self.drawn: list[np.ndarray] = []

    def laplace(self, _: float, scale: float, size: int) -> np.ndarray:
        self.drawn.append(scale * np.cos(np.arange(size) + len(self.drawn)))
        return self.drawn[-1]


@pytest.mark.parametrize("shares", [[0.2, 0.3, 0.5], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]])
def test_a_noisy_tree_is_fitted_by_least_squares(shares) -> None:
    counts, rng = np.arange(7.0), Fixed()
    found = noisy_tree(counts, 3, shares, 2.0, rng)  # type: ignore[arg-type]
    rows, values = [], []
    drawn = iter(rng.drawn)
    for width, share in zip((1, 3, 9), reversed(shares), strict=True):
        if share:
            nodes = np.array([(np.arange(7) // width == node) * 1.0 for node in range(-(-7 // width))])
            rows.append(nodes * share)
            values.append((nodes @ counts + next(drawn)) * share)
    expected = np.linalg.lstsq(np.concatenate(rows), np.concatenate(values), rcond=None)[0]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_the_published_branching_is_the_printed_one() -> None:
    assert published_branching(4096) == 16
    assert published_branching(10) == 10


def test_the_halves_share_no_histogram_and_a_row_says_whether_it_is_met() -> None:
    names = [each.name for each in (*tuning(), *held_out())]
    assert len(set(names)) == len(names)
    assert all(each.counts.size <= 2**15 for each in (*tuning(), *held_out()))
    for asked in ("ranges", "prefixes"):
        found = row(steps("small", 1100, 50_000, pieces=5, seed=0), 1.0, asked, 1)
        ratios = [found[f"{name} / best"] for name in ("HB", "DAWA", "uniform")]
        assert min(ratios) == 1.0
        assert found["met"] == ("yes" if found["default / best"] <= 1.2 else "no")
