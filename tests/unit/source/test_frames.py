"""Data frames as programs make them: columns in pieces, and values that refuse to be compared."""

from decimal import Decimal

import pandas as pd
import pytest

from consilience.domain import Attribute, Domain
from consilience.source import open_table

DOMAIN = Domain("d", (Attribute.categorical("a", ["x", "y"], missing="none", unlisted="other"),))


@pytest.mark.parametrize("kind", ["str", "string", "string[pyarrow]", "category", object])
def test_a_pandas_column_put_together_from_pieces_is_read(kind):
    pieces = [pd.DataFrame({"a": pd.Series(values, dtype=kind)}) for values in (["x", "y"], ["x", None], ["z"])]
    assert open_table(pd.concat(pieces), DOMAIN).exact_counts([("a",)])[0].tolist() == [2, 1, 1, 1]


def test_signalling_numbers_among_objects_are_missing_values():
    values = ["x", Decimal("sNaN"), Decimal("NaN"), None, pd.NaT, pd.NA, float("nan"), Decimal("Infinity"), [1]]
    frame = pd.DataFrame({"a": pd.Series(values, dtype=object)})
    assert open_table(frame, DOMAIN).exact_counts([("a",)])[0].tolist() == [1, 0, 6, 2]
