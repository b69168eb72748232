"""Synthetic records: margins of the model, labels and types of the original, files whole or not at all."""

import csv
import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain
from consilience.domain.attributes import Numeric
from consilience.domain.domains import ImpossibleCells
from consilience.errors import ConsilienceError, DeclarationError, FileFormatError, TooLarge
from consilience.estimators import Estimate, estimate
from consilience.kernels.rng import generator
from consilience.measurements import Laplace, MeasurementSet
from consilience.publication import synthesize, synthetic, write_synthetic
from consilience.publication.synthetic import nearest_shares, numbers_in_bins, settle_margins
from consilience.source import open_table
from consilience.source.coding import coder_of

AGE = Attribute.numeric("age", [0, 18, 65, 100], missing="Unknown")
WEIGHT = Attribute.numeric("weight", [0.5, 1.25, 40.0, 300.0], integer=False, missing="None", unlisted="Elsewhere")
INCOME = Attribute.numeric("income", [0, 10, 1000], unlisted="Secret")
SEX = Attribute.categorical("sex", ["F", "M"], missing="Unknown", unlisted="Other")
COLOUR = Attribute.categorical("colour", ["red", "blue"], missing="red", unlisted="Other")
TOWN = Attribute.hierarchy("town", {"Aton": "North", "Beton": "North", "Ceton": "South"})
EVERYTHING = (AGE, WEIGHT, INCOME, SEX, COLOUR, TOWN)
SPREADS = ("even", "midpoint", "lower")


def fit(domain: Domain, seed: int, *, private: bool = True, method: str = "auto") -> Estimate:
    """An estimate from neighbouring pairs of attributes."""
    rng = np.random.default_rng(seed)
    names = domain.counted_names
    pairs = list(itertools.pairwise(names)) or [(names[0],)]
    tables = {pair: rng.gamma(0.5, 30.0, domain.sizes(pair)) for pair in pairs}
    found = MeasurementSet.from_marginals(domain, tables, noise=Laplace(2.0), private=private)
    return estimate(found, method=method, allow_misfit=True)  # whatever the domain declares impossible


@pytest.fixture(scope="module")
def fitted() -> Estimate:
    return fit(Domain("people", EVERYTHING), 0)


def codes_of(table: pa.Table, domain: Domain) -> np.ndarray:
    """The rows read again under the domain's own rules."""
    columns = [
        np.concatenate([coder_of(domain[name]).codes(chunk) for chunk in table.column(name).chunks] or [np.zeros(0)])
        for name in domain.counted_names
    ]
    return np.stack(columns, axis=1).astype(np.int64)


@given(st.integers(0, 2**32), st.sampled_from([None, 0, 1, 7, 1000]), st.sampled_from(SPREADS))
@settings(max_examples=4, deadline=None)
def test_margins_of_the_rows_are_the_models_rounded(seed: int, rows: int | None, spread) -> None:
    fitted = fit(Domain("people", EVERYTHING), seed)
    table = synthesize(fitted, rows, seed=seed % 97, spread=spread)
    assert table.num_rows == (round(fitted.total) if rows is None else rows)
    codes = codes_of(table, fitted.domain)
    for place, name in enumerate(fitted.domain.counted_names):
        share = fitted.marginal(name) / fitted.total * table.num_rows
        found = np.bincount(codes[:, place], minlength=share.size)
        assert found.size == share.size, "a row is outside the domain"
        assert np.abs(found - share).max() < 1.0 + 1e-6


@pytest.mark.parametrize("method", ["residual", "views", "table", "bayesian-network", "uniform"])
def test_margins_are_the_models_whatever_the_method(method: str) -> None:
    fitted = fit(Domain("people", (AGE, SEX, TOWN)), 6, method=method)
    codes = codes_of(synthesize(fitted, 777, seed=1), fitted.domain)
    for place, name in enumerate(fitted.domain.counted_names):
        model = fitted.marginal(name)
        found = np.bincount(codes[:, place], minlength=model.size)
        assert np.abs(found - model / model.sum() * 777).max() < 1.0 + 1e-6


@given(st.integers(0, 2**32), st.sampled_from(SPREADS))
@settings(max_examples=2, deadline=None)
def test_rows_read_again_have_the_codes_they_were_made_from(seed: int, spread) -> None:
    fitted = fit(Domain("people", EVERYTHING), seed)
    made = synthetic.prepare(fitted, 200, seed=seed % 89, spread=spread)
    rng = generator(seed % 89)
    codes = made._codes(rng)
    order = rng.permutation(200)
    table = pa.Table.from_batches(list(made.batches()), schema=made.schema)
    assert np.array_equal(codes_of(table, fitted.domain), codes[order])


EDGES = st.lists(st.floats(-1e300, 1e300) | st.floats(-3, 3), min_size=2, max_size=6, unique=True).map(sorted)
WHOLE_EDGES = st.lists(st.integers(-(2**60), 2**60) | st.integers(-9, 9), min_size=2, max_size=6, unique=True)


@given(EDGES | WHOLE_EDGES.map(sorted), st.sampled_from(SPREADS), st.integers(0, 99), st.booleans())
@settings(max_examples=60, deadline=None)
def test_numbers_lie_inside_their_bins_whatever_the_edges(edges, spread, seed: int, elsewhere: bool) -> None:
    if len({float(edge) for edge in edges}) < len(edges):
        return
    attribute = Attribute.numeric("x", edges, missing="None", unlisted="Elsewhere" if elsewhere else "clip")
    assert isinstance(attribute, Numeric)
    codes = np.repeat(np.arange(len(attribute.bins) + elsewhere * 2), 5)
    codes = codes[codes != attribute.missing_code]
    found = numbers_in_bins(attribute, codes, spread, generator(seed))
    assert np.array_equal(coder_of(attribute).codes(pa.array(found)), codes)
    if attribute.integer:
        assert np.array_equal(found, np.floor(found))


def test_types_and_labels_are_the_originals(fitted) -> None:
    table = synthesize(fitted, 500)
    kinds = {field.name: field.type for field in table.schema}
    assert kinds["age"] == kinds["income"] == pa.int64()
    assert kinds["weight"] == pa.float64()
    assert kinds["town"].value_type == pa.string()
    assert set(table.column("town").to_pylist()) == {"Aton", "Beton", "Ceton"}
    assert set(table.column("sex").to_pylist()) == {"F", "M", None, "Other"}
    assert None not in table.column("colour").to_pylist()  # its missing values are red, which is a value
    assert None in table.column("age").to_pylist()
    assert None in table.column("income").to_pylist()  # nothing else is known of what is neither missing nor listed
    assert max(each for each in table.column("weight").to_pylist() if each is not None) == np.nextafter(300.0, np.inf)


@pytest.mark.parametrize(
    ("spread", "ages"), [("lower", {0, 18, 65, None}), ("midpoint", {8, 41, 82, None}), ("even", None)]
)
def test_numbers_follow_the_stated_rule(fitted, spread, ages) -> None:
    found = set(synthesize(fitted, 2_000, spread=spread).column("age").to_pylist())
    if ages is None:
        assert len(found) > 60
        assert {each for each in found if each is not None} <= set(range(100))
    else:
        assert found == ages


def test_even_spread_is_even_over_whole_numbers() -> None:
    codes = np.full(60_000, 1)
    found = numbers_in_bins(Attribute.numeric("x", [-5, -3, 3]), codes, "even", generator(1))
    counts = np.bincount((found + 3).astype(int), minlength=6)
    assert counts.size == 6
    assert np.abs(counts - 10_000).max() < 500


def test_a_seed_gives_the_same_rows_and_another_seed_others(fitted) -> None:
    one, again, other = (synthesize(fitted, 300, seed=seed) for seed in (4, 4, 5))
    assert one.equals(again)
    assert not one.equals(other)


def test_rows_are_in_random_order(fitted) -> None:
    codes = codes_of(synthesize(fitted, 2_000), fitted.domain)
    halves = [np.bincount(part[:, 0], minlength=4) for part in np.split(codes, 2)]
    assert np.abs(halves[0] - halves[1]).max() < 6 * np.sqrt(2_000 / 4)


def test_batches_give_the_same_law_as_one_table(fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "ROWS_AT_ONCE", 64)
    seen: list[tuple[int, int]] = []
    table = synthesize(fitted, 300, spread="lower", progress=lambda _, done, total: seen.append((done, total)))
    assert table.column("age").num_chunks == 5
    assert seen[-1] == (300, 300)
    monkeypatch.setattr(synthetic, "ROWS_AT_ONCE", 2**16)
    assert synthesize(fitted, 300, spread="lower").to_pylist() == table.to_pylist()


def test_impossible_records_are_not_made() -> None:
    rule = ImpossibleCells((("age", (0,)), ("town", (0, 1))))
    domain = Domain("people", (AGE, SEX, TOWN), impossible=(rule,))
    codes = codes_of(synthesize(fit(domain, 2), 999), domain)
    assert not ((codes[:, 0] == 0) & (codes[:, 2] < 2)).any()


def test_settling_moves_as_few_records_as_it_can() -> None:
    rng = np.random.default_rng(0)
    domain = Domain.from_sizes({"a": 4, "b": 3})
    codes = np.stack([rng.integers(0, 4, 500), rng.integers(0, 3, 500)], axis=1)
    before = codes.copy()
    margins = [np.array([130.0, 120.5, 119.5, 130.0]), np.array([200.0, 150.0, 150.0])]
    settle_margins(codes, margins, domain, generator(0))
    for column, margin in enumerate(margins):
        assert np.abs(np.bincount(codes[:, column], minlength=margin.size) - margin).max() < 1
        present = np.bincount(before[:, column], minlength=margin.size)
        moved = np.maximum(present - nearest_shares(present, margin), 0).sum()
        assert (codes[:, column] != before[:, column]).sum() == moved


def test_a_changed_record_becomes_one_such_as_there_are() -> None:
    pairs = np.repeat([[0, 0], [1, 1], [2, 2]], [40, 30, 30], axis=0)
    pairs = np.concatenate([pairs, [[0, 1]]])
    settle_margins(
        pairs, [np.array([40.0, 31, 30]), np.array([40.0, 31, 30])], Domain.from_sizes({"a": 3, "b": 3}), generator(0)
    )
    assert pairs[-1].tolist() == [1, 1]
    assert np.array_equal(pairs[:-1, 0], pairs[:-1, 1])


@given(st.lists(st.floats(0, 50), min_size=1, max_size=8), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_nearest_shares_are_rounded_shares_of_the_same_sum(weights, seed: int) -> None:
    if sum(weights) <= 1e-6:
        return
    present = np.random.default_rng(seed).multinomial(137, np.full(len(weights), 1 / len(weights)))
    shares = np.array(weights) / sum(weights) * 137
    found = nearest_shares(present, shares)
    assert found.sum() == 137
    assert np.abs(found - shares).max() < 1.0 + 1e-6


def counts_of(path: Path, domain: Domain) -> np.ndarray:
    return open_table(str(path), domain).exact_counts([domain.counted_names])[0]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".CSV"])
def test_files_hold_the_records_of_the_table(fitted, tmp_path: Path, suffix: str) -> None:
    path = write_synthetic(fitted, tmp_path / f"rows{suffix}", 400, seed=3)
    codes = codes_of(synthesize(fitted, 400, seed=3), fitted.domain)
    expected = np.bincount(np.ravel_multi_index(tuple(codes.T), fitted.domain.shape), minlength=fitted.domain.cells)
    assert np.array_equal(counts_of(path, fitted.domain).ravel(), expected)
    assert {each.name for each in tmp_path.iterdir()} == {path.name, f"{path.name}.croissant.json"}


def test_labels_that_need_quotes_come_back_from_comma_separated_text(tmp_path: Path) -> None:
    odd = Attribute.categorical('a "b", c', ["x,y", 'say "so"', "two\nlines", "plain"], missing="none")
    domain = Domain("odd", (odd, TOWN))
    path = write_synthetic(fit(domain, 1), tmp_path / "odd.csv", 300)
    assert counts_of(path, domain).sum() == 300
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.reader(stream))
    assert rows[0] == ['a "b", c', "town"]
    assert {row[0] for row in rows[1:]} == {"x,y", 'say "so"', "two\nlines", "plain", ""}


def test_missing_values_of_a_single_column_are_lines_too(tmp_path: Path) -> None:
    domain = Domain("one", (Attribute.categorical("x", ["a", "b"], missing="none"),))
    path = write_synthetic(fit(domain, 1), tmp_path / "one.csv", 100)
    with path.open(newline="", encoding="utf-8") as stream:
        assert len([row for row in csv.reader(stream) if row]) == 101


@pytest.mark.parametrize("private", [True, False])
def test_parquet_says_what_is_promised(tmp_path: Path, private: bool) -> None:
    fitted = fit(Domain("people", (AGE, SEX)), 0, private=private)
    path = write_synthetic(fitted, tmp_path / "rows.parquet", 10)
    metadata = {key.decode(): value.decode() for key, value in pq.read_schema(path).metadata.items()}
    assert json.loads(metadata["consilience.private"]) is private
    assert json.loads(metadata["consilience.privacy"]) == fitted.measurements.privacy.to_json()
    assert ("NOT PRIVATE" in metadata["consilience.statement"]) is not private
    assert metadata["consilience.format"] == "synthetic records"


def test_what_cannot_be_is_refused_before_any_work(fitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(fitted), "sample", lambda *_: pytest.fail("work began"))
    (tmp_path / "there.csv").write_text("mine")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DeclarationError, match=r"neither in \.csv nor in \.parquet"):
        write_synthetic(fitted, tmp_path / "rows.txt")
    with pytest.raises(DeclarationError, match="exists already"):
        write_synthetic(fitted, tmp_path / "there.csv")
    with pytest.raises(DeclarationError, match="is a folder"):
        write_synthetic(fitted, tmp_path / "folder.csv", overwrite=True)
    with pytest.raises(DeclarationError, match="there is no folder"):
        write_synthetic(fitted, tmp_path / "none" / "rows.csv")
    with pytest.raises(DeclarationError, match="-1 synthetic rows"):
        synthesize(fitted, -1)
    with pytest.raises(DeclarationError, match="even, midpoint, lower"):
        synthesize(fitted, 5, spread="odd")  # pyright: ignore[reportArgumentType]
    with pytest.raises(DeclarationError, match="seed"):
        synthesize(fitted, 5, seed=-1)
    with pytest.raises(TooLarge, match=r"1,000,000,000 rows of 6 attributes need 144 GB; the limit is 4 GB"):
        synthesize(fitted, 10**9)
    assert (tmp_path / "there.csv").read_text() == "mine"


def test_labels_that_no_file_can_hold_are_refused(tmp_path: Path) -> None:
    domain = Domain("odd", (Attribute.categorical("x", ["a\udc80", "b"]),))
    with pytest.raises(FileFormatError, match="not valid Unicode"):
        write_synthetic(fit(domain, 0), tmp_path / "rows.csv", 5)


def test_a_failure_leaves_the_old_file_and_nothing_else(fitted, tmp_path: Path, monkeypatch) -> None:
    path = write_synthetic(fitted, tmp_path / "rows.csv", 10)
    before, present = path.read_bytes(), set(tmp_path.iterdir())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("consilience.publication.record_files._write_csv", full)
    with pytest.raises(ConsilienceError, match="No space left"):
        write_synthetic(fitted, path, 20, overwrite=True)
    assert path.read_bytes() == before
    assert set(tmp_path.iterdir()) == present
    monkeypatch.undo()
    write_synthetic(fitted, path, 20, overwrite=True)
    assert len(path.read_text().splitlines()) == 21
