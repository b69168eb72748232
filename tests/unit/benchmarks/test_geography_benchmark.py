"""The benchmark of geographies: its country is what it says, and its baseline is a fit of the same measurements."""

import numpy as np
import pytest

from benchmarks.accuracy import geography


def test_half_of_all_blocks_are_below_thirty_people_and_places_add_up() -> None:
    land = geography.country(2_000)
    sizes = land.tables[-1].sum(1)
    assert 0.4 < (sizes < 30).mean() < 0.6
    assert [len(tables) for tables in land.tables] == [1, 2, 40, 2_000]
    for tables, below, above in zip(land.tables[:-1], land.tables[1:], land.above, strict=True):
        assert np.array_equal(geography.summed(below, above), tables)
    counted = land.domain["block"].groups("County")
    assert len(counted) == 40


def test_tables_of_a_set_are_those_of_the_country_with_the_noise_that_is_told() -> None:
    land = geography.country(600)
    for each in geography.measured(land, 1):
        exact = each.query.bind(land.domain).answer_full(land.tables[-1].reshape(land.domain.shape)).ravel()
        off = each.values - exact
        if off.size > 30:
            assert off.std() == pytest.approx(each.noise.variance**0.5, rel=0.4 if off.size < 100 else 0.2)


def test_a_row_says_how_far_the_scale_goes() -> None:
    row = geography.scale(60, (2, 3))
    assert row["unmet"] <= 1e-9
    assert row["seconds"] >= row["least squares"] > 0


def test_a_country_is_estimated_from_files_region_by_region() -> None:
    row = geography.streamed(200, 4, (2, 3))
    assert row["places"] >= 200 + 4 + 1
    assert row["microseconds per place"] > 0
