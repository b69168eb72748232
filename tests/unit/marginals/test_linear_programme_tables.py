"""Tables by linear programmes: as near as can be to margins that may contradict each other."""

import itertools

import numpy as np
import pytest
import scipy.optimize

from consilience.errors import TooLarge
from consilience.marginals.margins import Margin
from consilience.marginals.reconstruction import linear_programme_table


def margin(table: np.ndarray, axes: tuple[int, ...]) -> Margin:
    return axes, table.sum(axis=tuple(axis for axis in range(table.ndim) if axis not in axes))


def least_violation(shape: tuple[int, ...], margins: list[Margin]) -> float:
    """The least largest difference, from the programme as the paper writes it, a row for each cell of each margin."""
    cells = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    rows = np.array([np.concatenate([margin(cell, axes)[1].ravel() for axes, _ in margins]) for cell in cells]).T
    right = np.concatenate([values.ravel() for _, values in margins])
    ones = -np.ones((len(rows), 1))
    answer = scipy.optimize.linprog(
        np.r_[np.zeros(rows.shape[1]), 1.0],
        A_ub=np.block([[rows, ones], [-rows, ones]]),
        b_ub=np.r_[right, -right],
        bounds=(0, None),
    )
    return float(answer.fun)


@pytest.mark.parametrize("seed", range(12))
def test_no_table_is_nearer_to_noisy_margins(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = ((2, 2, 2, 2), (2, 3, 4), (2,) * 5)[seed % 3]
    table = rng.gamma(0.5, 100.0, shape)
    scopes = [*itertools.combinations(range(len(shape)), 2), (0, 1), (0,), (0, 1)]
    margins = [(axes, values + rng.normal(0, 10, values.shape)) for axes, values in (margin(table, s) for s in scopes)]
    found = linear_programme_table(shape, margins)
    assert found.table.min() >= 0
    assert found.violation == pytest.approx(least_violation(shape, margins), rel=1e-6)
    assert found.violation == pytest.approx(
        max(float(np.abs(margin(found.table, axes)[1] - values).max()) for axes, values in margins)
    )
    assert found.relaxed
    assert np.array_equal(found.table, linear_programme_table(shape, margins).table)


def test_compatible_margins_are_met() -> None:
    table = np.random.default_rng(0).gamma(0.5, 1e6, (3, 2, 4))
    margins = [margin(table, axes) for axes in ((0, 1), (1, 2), (0, 2))]
    found = linear_programme_table(table.shape, margins, total=1.0)
    assert found.violation <= 1e-8 * table.sum()
    assert not found.relaxed


def test_attributes_in_no_margin_are_even_and_no_margin_is_even_altogether() -> None:
    one = np.array([3.0, 5.0])
    assert np.allclose(linear_programme_table((2, 4), [((0,), one)]).table, one[:, None] / 4)
    assert np.allclose(linear_programme_table((2, 4), [], total=16.0).table, 2.0)
    assert not linear_programme_table((2, 4), []).table.any()
    assert float(linear_programme_table((), [], total=3.0).table) == 3.0


def test_too_many_entries_are_refused_before_they_are_written() -> None:
    many = [(axes, np.ones((2, 2))) for axes in itertools.combinations(range(20), 2)]
    with pytest.raises(TooLarge, match="greatest entropy"):
        linear_programme_table((2,) * 20, many)
