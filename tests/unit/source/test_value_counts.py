"""Values that nobody declared: counted once for each unit, whatever the order of rows and however many there are."""

import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from consilience.domain import Attribute, Domain
from consilience.source import local, open_table

JOBS = Attribute.categorical("job", ["?"], unlisted="drop")


def counted(data: object, *, domain: Domain | None = None, **options: object) -> dict[str, int]:
    """All parts together."""
    source = open_table(data, domain or Domain("people", (JOBS,)), **options)
    found: dict[str, int] = {}
    for part in source.exact_value_counts("job"):
        assert not found.keys() & part.keys()
        found |= part
    return found


def by_hand(pairs: list[tuple[str, str]], limit: int) -> Counter[str]:
    """The slow twin: of each unit the values with the smallest digests."""
    found: Counter[str] = Counter()
    for unit in {unit for unit, _ in pairs}:
        values = {value for other, value in pairs if other == unit}
        found.update(
            sorted(
                values,
                key=lambda value: hashlib.sha256(
                    b"consilience value 1\n" + f"{len(unit.encode())}\n{unit}{value}".encode()
                ).digest(),
            )[:limit]
        )
    return found


def drawn_pairs(rows: int, seed: int = 0) -> list[tuple[str, str]]:
    rng = np.random.default_rng(seed)
    return [(f"p{rng.integers(rows // 4)}", f"job {rng.zipf(1.5) % 50}") for _ in range(rows)]


def table_of(pairs: list[tuple[str, str]]) -> pa.Table:
    return pa.table({"person": [unit for unit, _ in pairs], "job": [value for _, value in pairs]})


def test_each_row_counts_where_there_are_no_units():
    pairs = drawn_pairs(500)
    assert counted(table_of(pairs)) == Counter(value for _, value in pairs)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_unit_counts_once_for_each_of_at_most_so_many_values(limit: int):
    pairs = drawn_pairs(600)
    options = {"unit": "person", "max_rows_per_unit": limit}
    found = counted(table_of(pairs), **options)
    assert found == by_hand(pairs, limit)
    assert counted(table_of(pairs[::-1] + pairs), **options) == found
    assert counted(table_of(pairs).to_pandas(), **options) == found


def test_one_unit_changes_no_more_counts_than_it_may_have_rows():
    pairs = drawn_pairs(300)
    options = {"unit": "person", "max_rows_per_unit": 3}
    before = counted(table_of(pairs), **options)
    more = [("newcomer", f"job {number}") for number in range(40)] * 3
    after = counted(table_of(more[:60] + pairs + more[60:]), **options)
    changes = {value: after.get(value, 0) - before.get(value, 0) for value in after | before}
    assert sorted(change for change in changes.values() if change) == [1, 1, 1]


@pytest.mark.parametrize("options", [{}, {"unit": "person", "max_rows_per_unit": 2}])
def test_what_does_not_fit_is_counted_in_parts(monkeypatch: pytest.MonkeyPatch, options: dict[str, object]):
    pairs = [(f"p{number % 60}", f"job {number % 97}") for number in range(400)]
    whole = counted(table_of(pairs), **options)
    monkeypatch.setattr(local, "MOST_VALUES", 20)
    source = open_table(table_of(pairs), Domain("people", (JOBS,)), **options)
    assert len(list(source.exact_value_counts("job"))) > 4
    assert counted(table_of(pairs), **options) == whole


def test_only_what_could_be_a_label_is_a_value():
    texts = ["ok", None, "", "  ", "bell\x07", "x" * 201, "x" * 200, "Zoë", "NA", "two\nlines"]
    domain = Domain("people", (JOBS,)).read_as(missing_tokens=["NA"])
    assert counted(pa.table({"job": texts}), domain=domain) == {"ok": 1, "x" * 200: 1, "Zoë": 1}
    odd = pa.table({"job": pa.array([b"fine", b"\xff\xfe", b"\xff0"], pa.binary())})
    assert set(counted(odd)) == {"fine", "false"}


def test_values_have_the_texts_by_which_a_domain_knows_them(tmp_path: Path):
    frames = {
        "floats": pd.DataFrame({"job": [1.0, 2.0, None, 2.0]}),
        "dictionary": pa.table({"job": pa.array(["1", "2", None, "2"]).dictionary_encode()}),
        "whole": pa.table({"job": pa.array([1, 2, None, 2])}),
    }
    for data in frames.values():
        assert counted(data) == {"1": 1, "2": 2}
        listed = Attribute.categorical("job", ["1", "2"], missing="none")
        source = open_table(data, Domain("people", (listed,)))
        assert source.exact_counts([("job",)])[0].tolist() == [1, 2, 1]
    assert counted(pa.table({"job": [True, False, True]})) == {"true": 2, "false": 1}
    assert counted(pa.table({"job": pa.nulls(3)})) == {}
    (tmp_path / "jobs.csv").write_text("job,person\nnurse,1\n nurse ,2\n,3\n", encoding="utf-8")
    assert counted(tmp_path / "jobs.csv") == {"nurse": 2}


def test_rows_without_a_unit_count_for_nothing():
    rows = pa.table({"person": ["a", None, "b"], "job": ["x", "y", None]})
    assert counted(rows, unit="person", max_rows_per_unit=1) == {"x": 1}
    assert counted(pa.table({"person": pa.nulls(2), "job": ["x", "y"]}), unit="person", max_rows_per_unit=1) == {}
