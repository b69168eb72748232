"""Where the tables of a model lie."""

import numpy as np
import pytest

from consilience.errors import DeclarationError
from consilience.models.tables import TableLayout


def test_packing_and_unpacking_gives_the_tables_back_in_their_own_order() -> None:
    rng = np.random.default_rng(0)
    layout = TableLayout([4, 2, 3, 2], [(0, 2, 1), (3, 1), (2,), ()])
    tables = [rng.normal(size=layout.shape(k)) for k in range(4)]
    for table, again in zip(tables, layout.unpack(layout.pack(tables)), strict=True):
        np.testing.assert_array_equal(table, again)


def test_tables_are_stored_by_ascending_size_and_then_number() -> None:
    layout = TableLayout([4, 2, 3, 2], [(0, 3, 2, 1)])
    table = np.arange(48.0).reshape(layout.shape(0))
    assert layout.axes == ((1, 3, 2, 0),)
    np.testing.assert_array_equal(layout.view(layout.pack([table]), 0), table.transpose(3, 1, 2, 0))


def test_tables_may_be_given_flat() -> None:
    layout = TableLayout([3, 2], [(0, 1)])
    np.testing.assert_array_equal(layout.pack([np.arange(6)]), layout.pack([np.arange(6).reshape(3, 2)]))


def test_a_view_is_the_vector_itself() -> None:
    layout = TableLayout([3, 2], [(0,), (0, 1)])
    flat = np.zeros(layout.size)
    layout.view(flat, 1)[...] = 1.0
    np.testing.assert_array_equal(flat, [0] * 3 + [1] * 6)


@pytest.mark.parametrize(
    ("sizes", "scopes", "words"),
    [
        ([2, 0], [(0,)], "attribute 1 has size 0"),
        ([2, 2], [(0, 2)], "names attribute 2"),
        ([2, 2], [(0, -1)], "names attribute -1"),
        ([2, 2], [(0, 1), (0, 0)], "scope 1 is .* repeats"),
        ([2, 2], [(0, 1), (0,), (1, 0)], "scopes 0 and 2 .* same attributes"),
    ],
)
def test_scopes_that_make_no_sense_are_refused(sizes, scopes, words) -> None:
    with pytest.raises(DeclarationError, match=words):
        TableLayout(sizes, scopes)


def test_tables_of_another_shape_are_refused() -> None:
    layout = TableLayout([3, 2], [(0, 1)])
    with pytest.raises(DeclarationError, match=r"shape \(2, 3\)"):
        layout.pack([np.zeros((2, 3))])
    with pytest.raises(DeclarationError, match="0 tables for 1 scopes"):
        layout.pack([])
