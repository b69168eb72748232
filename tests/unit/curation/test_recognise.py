"""What columns are taken for, on tables made the way agencies make theirs, against what they truly are."""

import sqlite3
import sys
import tomllib
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import agency_tables
import unseen_tables

from consilience.curation import draft_domain
from consilience.curation.columns import Thresholds, marks_of
from consilience.curation.draft import Draft
from consilience.curation.fit_lines import toml_key
from consilience.curation.vocabulary import words_of
from consilience.domain import Domain
from consilience.domain.domains import QUOTES_DATA
from consilience.errors import DeclarationError, SourceError
from consilience.measuring import measure
from consilience.plans import Marginals
from consilience.source import open_table

RNG = np.random.default_rng(7)


def drafted(columns: dict[str, list[str]], folder: Path, *, sign: str = ",", encoding: str = "utf-8") -> Draft:
    lines = [sign.join(columns), *(sign.join(row) for row in zip(*columns.values(), strict=True))]
    (folder / "made.csv").write_text("\n".join(lines) + "\n", encoding=encoding)
    return draft_domain(folder / "made.csv")


def numbers(rows: int = 300) -> list[str]:
    return [str(x) for x in RNG.gamma(2, 40, rows).round(2)]


def judged(make, folder: Path) -> tuple[Counter[bool], list[str], list[str]]:
    """Whether each column was taken for what it is; those taken for something else, and those kept that must not be."""
    case = make(folder)
    if case is None:
        pytest.skip("the public table is not there")
    found = draft_domain(case.path, table=case.table).findings
    assert found.keys() == case.kinds.keys()
    right: Counter[bool] = Counter()
    wrong, kept = [], []
    for name, truth in case.kinds.items():
        kind = found[name].kind
        good = kind in truth.split("|") or {kind, truth} <= agency_tables.LEFT_OUT
        right[good] += 1
        wrong += [] if good else [f"{name}: {truth}, taken for {kind}"]
        kept += [name] if truth in agency_tables.LEFT_OUT and found[name].attribute is not None else []
    return right, wrong, kept


TABLES = (*agency_tables.TUNED, *agency_tables.JUDGED, *unseen_tables.UNSEEN)


@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_columns_are_taken_for_what_they_are(make, tmp_path: Path) -> None:
    right, wrong, kept = judged(make, tmp_path)
    assert right[True] >= 0.95 * right.total(), wrong
    assert kept == []


@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_a_reviewed_draft_counts_every_row_of_its_table(make, tmp_path: Path) -> None:
    case = make(tmp_path)
    if case is None:
        pytest.skip("the public table is not there")
    drafted = draft_domain(case.path, table=case.table)
    assert Domain.from_declaration(tomllib.loads(drafted.to_toml())) == drafted.domain
    declared = drafted.domain.to_declaration() | {"draft": False}
    for attribute in declared["attributes"].values():
        attribute["reviewed"] = True
    source = open_table(case.path, Domain.from_declaration(declared), table=case.table)
    counts = source.exact_counts([(name,) for name in drafted.domain.names])
    assert {int(each.sum()) for each in counts} == {drafted.rows}


def test_what_is_found_does_not_depend_on_the_order_of_rows_nor_on_batches(tmp_path: Path) -> None:
    table = {
        "long": [f"text {i % 900} of many" for i in range(6000)],
        "number": [str(x) for x in RNG.lognormal(3, 1, 6000).round(3)],
        "code": [f"{i % 400:04d}" for i in range(6000)],
    }
    small = Thresholds(texts=200)
    shuffled = RNG.permutation(6000)
    frame = pa.table(table)
    batched = pa.Table.from_batches(frame.take(shuffled).to_batches(max_chunksize=97))
    one = draft_domain(frame, name="d", thresholds=small)
    two = draft_domain(batched, name="d", thresholds=small)
    assert one.to_toml() == two.to_toml()


def test_edges_are_round_and_near_quantiles_and_long_tails_are_open(tmp_path: Path) -> None:
    fares = [f"{x:.4f}" for x in RNG.lognormal(2.7, 1, 2000)]
    found = drafted({"fare": fares, "id": [str(i) for i in range(2000)]}, tmp_path).domain["fare"]
    edges = found.to_declaration()["edges"]
    counts = np.histogram(np.clip(np.array(fares, float), edges[0], edges[-1]), edges)[0]
    assert all(len(f"{edge:g}".rstrip("0").replace(".", "").lstrip("0")) <= 2 for edge in edges)
    assert counts.max() < 0.25 * len(fares)
    assert list(found.wording.by_value.values()) == [f"{edges[-2]:g} or more"]


@pytest.mark.parametrize("token", ["NA", "N", "-9", ".", "?", ""])
def test_tokens_for_missing_values_are_told_from_values(token: str, tmp_path: Path) -> None:
    texts = [token if i % 10 == 0 else str(x) for i, x in enumerate(RNG.integers(0, 300, 400))]
    one = drafted({"amount": texts, "other": ["a", "b"] * 200}, tmp_path)
    assert one.domain["amount"].missing == "Unknown"
    assert one.domain.source_format.notation_of("amount").missing_tokens == ((token,) if token else ())


def test_what_may_be_a_value_is_no_token(tmp_path: Path) -> None:
    countries = ["NA", "DE", "US", "FR", "ZA", "AO", "BW", "ZM", "GB", "IT", "ES", "PT"]
    one = drafted(
        {
            "country": [countries[i % 12] for i in range(360)],
            "cold": [str(i % 40 - 20) for i in range(360)],
            "ages": [str(i % 100) for i in range(360)],
        },
        tmp_path,
    ).domain
    assert "NA" in one["country"].labels
    assert one["cold"].missing is None
    assert one["ages"].missing is None


@pytest.mark.parametrize(
    ("texts", "marks"),
    [
        (["1.234,5", "12"], (",", ".")),
        (["1,234.5", "12"], (".", ",")),
        (["12,5", "3,75"], (",", None)),
        (["1,234", "12,500", "950"], (".", ",")),
        (["1.234.567", "12"], (",", ".")),
        (["1 234,5", "7"], (",", " ")),
        (["0.5", "12.25"], (".", None)),
        (["12", "7"], None),
    ],
)
def test_marks_of_numbers(texts: list[str], marks: tuple[str, str | None] | None) -> None:
    assert marks_of(Counter(texts)) == marks


def test_thousands_that_a_column_leaves_open_are_as_in_the_others(tmp_path: Path) -> None:
    columns = {
        "people": [f"{i}.{i * 37 % 1000:03d}" for i in range(1, 301)],
        "price": [f"{i},5" for i in range(300)],
    }
    one = drafted(columns, tmp_path, sign=";").domain
    assert one.source_format.notation.decimal == ","
    assert one.source_format.notation_of("people").thousands == "."
    assert one["people"].to_declaration()["edges"][-1] > 100_000
    apart = drafted({"ratio": columns["people"], "price": numbers()}, tmp_path).domain
    assert apart["ratio"].to_declaration()["edges"][-1] < 1000


@pytest.mark.parametrize(
    ("values", "order"),
    [
        (["medium", "low", "high"], ["low", "medium", "high"]),
        (["Often", "Never", "Always", "Sometimes"], ["Never", "Sometimes", "Often", "Always"]),
        (["Agree", "Strongly disagree", "Don't know"], ["Strongly disagree", "Agree", "Don't know"]),
        (["65+", "18-24", "<18", "25-64"], ["<18", "18-24", "25-64", "65+"]),
        (["10 to 19", "Under 10 years", "20 and over"], ["Under 10 years", "10 to 19", "20 and over"]),
        (["2 - so so", "1 - bad", "3 - fine"], ["1 - bad", "2 - so so", "3 - fine"]),
        (["Dec", "Jan", "Mar"], ["Jan", "Mar", "Dec"]),
        (["élevé", "faible", "moyen"], ["faible", "moyen", "élevé"]),
    ],
)  # fmt: skip
def test_scales_are_in_their_order(values: list[str], order: list[str], tmp_path: Path) -> None:
    one = drafted({"answer": values * 40, "number": numbers(40 * len(values))}, tmp_path)
    assert one.findings["answer"].kind == "scale"
    assert list(one.domain["answer"].ordinary_labels) == order


@pytest.mark.parametrize("pair", ["no yes", "N Y", "false true", "nein ja", "non oui", "No Sí", "0 1", "F T"])
def test_yes_and_no_in_any_spelling(pair: str, tmp_path: Path) -> None:
    one = drafted({"answer": pair.split()[::-1] * 40, "number": numbers(80)}, tmp_path)
    assert one.findings["answer"].kind == "yes/no"
    assert list(one.domain["answer"].ordinary_labels) == pair.split()


def test_rare_values_of_long_lists_are_not_quoted(tmp_path: Path) -> None:
    towns = [f"Town {i % 20:02d}" for i in range(600)] + ["Mrs Jones's house"]
    one = drafted({"town": towns, "number": numbers(601)}, tmp_path)
    assert one.domain["town"].unlisted == "Other"
    assert "Jones" not in one.to_toml()


def test_what_is_left_out_is_said_with_its_reason_and_without_its_values(tmp_path: Path) -> None:
    one = drafted(
        {"id": [str(i) for i in range(300)], "name": [f"Zoe Q{i}" for i in range(300)], "x": numbers()}, tmp_path
    )
    assert one.left_out == ("id", "name")
    text = one.to_toml()
    assert "# NOT PRIVATE: left out, id: it holds whole numbers that count the rows" in text
    assert "Zoe" not in text


def test_a_draft_says_what_was_seen_and_what_to_decide_of_every_attribute(tmp_path: Path) -> None:
    case = agency_tables.encuesta(tmp_path)
    drafted = draft_domain(case.path)
    text = drafted.to_toml()
    assert text.startswith("# DRAFT, read off the data, which is not private.")
    assert drafted.domain.draft
    assert drafted.domain.unreviewed == drafted.domain.names
    for name in drafted.domain.names:
        before = text.split(f"[attributes.{toml_key(name)}]")[0].rsplit("\n\n", 1)[-1]
        assert before.startswith(f"{QUOTES_DATA} {drafted.findings[name].kind}: ")


@pytest.mark.parametrize("kind", ["csv", "gz", "parquet", "duckdb", "sqlite", "pandas", "polars", "arrow"])
def test_the_same_is_found_in_every_source(kind: str, tmp_path: Path) -> None:
    columns = {
        "sex": ["F", "M", "M", None] * 100,
        "age": [i % 97 for i in range(400)],
        "income": [round(x, 2) for x in RNG.lognormal(8, 1, 400)],
        "zone": [f"{i % 30:03d}" for i in range(400)],
        "key": [f"k{i}" for i in range(400)],
    }
    frame = pa.table(columns)
    table = None
    if kind in ("csv", "gz"):
        data = tmp_path / ("d.csv" if kind == "csv" else "d.csv.gz")
        frame.to_pandas().to_csv(data, index=False)
    elif kind == "parquet":
        data = tmp_path / "d.parquet"
        pq.write_table(frame, data)
    elif kind == "duckdb":
        import duckdb

        data, table = tmp_path / "d.duckdb", "people"
        with duckdb.connect(str(data)) as connection:
            connection.register("frame", frame)
            connection.execute("CREATE TABLE people AS SELECT * FROM frame")
    elif kind == "sqlite":
        data, table = tmp_path / "d.sqlite", "people"
        with sqlite3.connect(data) as connection:
            frame.to_pandas().to_sql("people", connection, index=False)
    else:
        data = {"pandas": frame.to_pandas, "polars": lambda: pl.from_arrow(frame), "arrow": lambda: frame}[kind]()
    one = draft_domain(data, name="d", table=table)
    assert {name: found.kind for name, found in one.findings.items()} == {
        "sex": "category",
        "age": "number",
        "income": "number",
        "zone": "code",
        "key": "identifier",
    }
    assert one.domain["age"].to_declaration()["edges"] == [0, 15, 25, 35, 45, 55, 65, 75, 85, 100]
    assert one.domain["sex"].missing == "Unknown"


def test_a_frame_needs_a_name() -> None:
    with pytest.raises(DeclarationError, match="no name of its own; give the dataset one with name="):
        draft_domain(pd.DataFrame({"a": [1, 2]}))


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16"])
def test_the_encoding_is_told_by_the_bytes(encoding: str, tmp_path: Path) -> None:
    euro = "Niño" if encoding != "cp1252" else "Niño €"
    one = drafted({"größe": ["Ávila", "León", euro] * 40, "x": numbers(120)}, tmp_path, encoding=encoding)
    assert one.domain.source_format.encoding == encoding
    assert one.domain["größe"].labels == tuple(sorted(["Ávila", "León", euro]))


def test_no_message_holds_a_value(tmp_path: Path) -> None:
    frame = pa.table({"secret": pa.array([b"\xe4tzend", b"abc"] * 50)})
    with pytest.raises(SourceError, match="the column 'secret' is no text in UTF-8") as refusal:
        draft_domain(frame, name="d")
    assert "tzend" not in str(refusal.value)
    (tmp_path / "all.csv").write_text("a\n" + "\n".join(f"only-{i}-names" for i in range(300)) + "\n")
    with pytest.raises(SourceError, match="no column looks like an attribute") as refusal:
        draft_domain(tmp_path / "all.csv")
    assert "only-" not in str(refusal.value)


def test_columns_that_cannot_be_attributes_are_named(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(",a,b,b\n" + "\n".join(f"{i},{'xy'[i % 2]},1,2" for i in range(60)) + "\n")
    one = draft_domain(tmp_path / "d.csv")
    assert one.domain.names == ("a",)
    assert {name: found.kind for name, found in one.findings.items()} == {
        "": "nameless",
        "a": "category",
        "b": "repeated",
    }


def test_names_that_mean_several_things_are_told_apart_by_their_numbers(tmp_path: Path) -> None:
    columns = {
        "id": [str(i // 10 + 1) for i in range(600)],
        "locationID": [str(i * i % 211 + 1) for i in range(600)],
        "weight": [str(x) for x in RNG.normal(2900, 600, 600).astype(int)],
        "survey_weight": [str(x) for x in RNG.normal(2900, 600, 600).astype(int)],
        "wt": [str(x) for x in RNG.lognormal(0, 0.2, 600).round(4)],
    }
    columns = {name: texts * 8 for name, texts in columns.items()}
    found = drafted(columns, tmp_path).findings
    kinds = {name: found[name].kind for name in columns}
    assert kinds == {
        "id": "identifier",
        "locationID": "code",
        "weight": "number",
        "survey_weight": "weight",
        "wt": "weight",
    }


def test_names_are_read_however_they_are_joined() -> None:
    assert words_of("fecha_nacimientoPaciente") == "fecha nacimiento paciente"


def test_a_draft_measures_nothing_until_its_comments_are_gone(tmp_path: Path) -> None:
    columns = {"sex": ["F", "M"] * 60, "age": [str(i % 90) for i in range(120)]}
    text = drafted(columns, tmp_path).to_toml()
    kept = text.replace("draft = true\n", "").replace("reviewed = false\n", "")
    (tmp_path / "kept.toml").write_text(kept)
    domain = Domain.load(tmp_path / "kept.toml")
    assert domain.left_to_review == f"{QUOTES_DATA!r} in its comments"
    with pytest.raises(DeclarationError, match="NOT PRIVATE"):
        measure(domain, Marginals([["sex"]]), epsilon=1.0, dry_run=True)
    with pytest.raises(DeclarationError, match="NOT PRIVATE"):
        open_table(tmp_path / "made.csv", domain.project(["sex"]))
    (tmp_path / "gone.toml").write_text(
        "\n".join(line for line in kept.splitlines() if not line.startswith(QUOTES_DATA))
    )
    assert Domain.load(tmp_path / "gone.toml").left_to_review == ""
