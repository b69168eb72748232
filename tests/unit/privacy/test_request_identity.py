"""A request is what is asked, of which source; one source has one ledger, whatever it is called."""

import json
import os
import shutil
import sqlite3
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest

from consilience.domain import Domain
from consilience.errors import LedgerError
from consilience.measuring import measure
from consilience.plans import Flat
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.privacy.measure import ledger_place
from consilience.source import open_table

GOLDEN = Path(__file__).parents[2] / "golden"
DOMAIN = Domain.from_sizes({"a": 2}, name="town")
QUERY = "SELECT a FROM north WHERE a < {}"


def write_csv(path: Path, ones: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a\n" + "0\n" * 50 + "1\n" * ones)
    return path


@pytest.fixture
def database(tmp_path: Path) -> str:
    connection = sqlite3.connect(tmp_path / "regions.db")
    for table, size in (("north", 1000), ("south", 9000)):
        connection.execute(f"CREATE TABLE {table} (a INTEGER)")
        connection.executemany(f"INSERT INTO {table} VALUES (?)", [(0,)] * size)
    connection.commit()
    connection.close()
    return str(tmp_path / "regions.db")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "books.ledger", dataset="town", total=budget(epsilon=4))


def counted(source, ledger: Ledger, **more) -> float:
    return float(measure(source, Flat(), ledger=ledger, epsilon=1, **more).measurements[0].values[0])


# --- tables, queries, files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [{"table": "{}"}, {"query": "SELECT * FROM {}"}], ids=["table", "query"])
def test_asking_for_south_never_returns_what_was_recorded_for_north(database: str, ledger: Ledger, asked):
    north, south = (
        open_table(database, DOMAIN, **{name: text.format(region) for name, text in asked.items()})
        for region in ("north", "south")
    )
    assert abs(counted(north, ledger) - 1000) < 100
    assert abs(counted(south, ledger) - 9000) < 100
    assert ledger.spent == 2
    assert abs(counted(north, ledger) - 1000) < 100
    assert ledger.spent == 2


def test_an_id_is_bound_to_its_source(database: str, ledger: Ledger):
    counted(open_table(database, DOMAIN, table="north"), ledger, id="release")
    with pytest.raises(LedgerError, match="source"):
        counted(open_table(database, DOMAIN, table="south"), ledger, id="release")
    assert ledger.spent == 1


def test_files_are_told_apart_by_where_they_really_are(tmp_path: Path, ledger: Ledger, monkeypatch):
    north, south = write_csv(tmp_path / "north" / "town.csv"), write_csv(tmp_path / "south" / "town.csv")
    first = counted(open_table(north, DOMAIN), ledger)
    counted(open_table(south, DOMAIN), ledger)
    assert ledger.spent == 2
    (tmp_path / "link.csv").symlink_to(north)
    monkeypatch.chdir(tmp_path / "south")
    for spelled in ("../north/town.csv", "../link.csv", "../north/tow?.csv", f"{tmp_path}/south/../north/town.csv"):
        assert counted(open_table(spelled, DOMAIN), ledger) == first
    assert ledger.spent == 2


def test_frames_are_told_apart_by_the_names_that_they_are_given(ledger: Ledger):
    frame = pd.DataFrame({"a": [0, 1, 1]})
    for name in (None, "north", "south", "north"):
        counted(open_table(frame, DOMAIN, name=name), ledger)
    assert ledger.spent == 3


def test_data_and_ledger_may_be_moved_together(tmp_path: Path):
    data = write_csv(tmp_path / "before" / "town.csv")
    ledger = Ledger.open(tmp_path / "before" / "town.csv.ledger", epsilon=2)
    first = counted(open_table(data, DOMAIN), ledger)
    (tmp_path / "before").rename(tmp_path / "after")
    moved = Ledger.open(tmp_path / "after" / "town.csv.ledger")
    assert counted(open_table(tmp_path / "after" / "town.csv", DOMAIN), moved) == first
    assert moved.spent == 1


# --- what the ledger keeps, and what is published ------------------------------------------------------------


def test_the_ledger_keeps_the_source_in_full_and_publishes_a_salted_digest(database: str, tmp_path: Path):
    identities = []
    for number in range(2):
        ledger = Ledger.create(tmp_path / f"{number}.ledger", dataset="town", total=budget(epsilon=4))
        source = open_table(database, DOMAIN, query=QUERY.format(1), name="the north")
        measured = measure(source, Flat(), ledger=ledger, epsilon=1)
        (entry,) = ledger.entries()
        assert entry.source is not None
        assert (entry.source["query"], entry.source["files"]) == (QUERY.format(1), ["regions.db"])
        assert entry.source["directory"] == os.path.realpath(tmp_path)
        published = json.dumps([dict(measured.provenance), [each.id for each in measured]])
        assert all(secret not in published for secret in ("regions", "SELECT", str(tmp_path)))
        assert measured.provenance["source"]["name"] == "the north"
        identities.append((measured.provenance["source"]["digest"], measured.provenance["release"]))
    (one, first), (other, second) = identities
    assert one != other  # the same source under two secrets: nobody can try out queries
    assert first != second


def test_simulations_name_their_source_and_nothing_more(database: str):
    source = open_table(database, DOMAIN, table="north")
    measured = measure(source, Flat(), epsilon=1, simulate=1)
    assert measured.provenance["source"] == {"name": "town", "counted": "in this process"}


# --- requests recorded by earlier versions -------------------------------------------------------------------


def test_a_request_of_a_table_recorded_without_it_is_not_replayed(tmp_path: Path, database: str):
    path = Path(shutil.copy(GOLDEN / "ledgers" / "epsilon.ledger", tmp_path))
    ledger, domain = Ledger.open(path), Domain.load(GOLDEN / "domains" / "town.toml")
    frame = pd.read_csv(GOLDEN / "data" / "town.csv")
    connection = sqlite3.connect(tmp_path / "town.db")
    frame.to_sql("people", connection)
    connection.close()
    source = open_table(str(tmp_path / "town.db"), domain, table="people")
    with pytest.raises(LedgerError, match="did not note the table or query"):
        measure(source, Flat(), ledger=ledger, epsilon=0.25, id="second")
    assert ledger.spent == Decimal("0.75")
    replayed = measure(
        open_table(GOLDEN / "data" / "town.csv", domain), Flat(), ledger=ledger, epsilon=0.25, id="second"
    )
    assert replayed.provenance["replayed"]


# --- one file, several names ---------------------------------------------------------------------------------


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    return write_csv(tmp_path / "town.csv")


def names_of(town: Path) -> list[str]:
    (town.parent / "link.csv").symlink_to(town)
    (town.parent / "elsewhere" / "town.csv").symlink_to("../town.csv")
    (town.parent / "elsewhere" / "folder").symlink_to("..")
    return [
        "town.csv", "tow?.csv", "./elsewhere/../town.csv", "link.csv", "l*k.csv", "elsewhere/town.csv",
        "elsewhere/folder/town.csv", str(town),
    ]  # fmt: skip


def test_one_file_has_one_ledger_under_all_its_names(town: Path):
    assert {open_table(name, DOMAIN).default_ledger_path for name in names_of(town)} == {Path(f"{town}.ledger")}


def test_several_files_have_the_ledger_of_what_they_are(tmp_path: Path):
    for name in ("part-1.csv", "part-2.csv", "deep/part-3.csv"):
        write_csv(tmp_path / name)
    two = {open_table(f"{tmp_path}/{name}", DOMAIN).default_ledger_path for name in ("part-*.csv", "p*-[12].csv")}
    assert two == {tmp_path / "part-_.csv.ledger"}
    assert open_table(f"{tmp_path}/**/*.csv", DOMAIN).default_ledger_path == tmp_path / "_.csv.ledger"


@pytest.mark.parametrize("name", ["link.csv", "tow?.csv"])
def test_a_ledger_beside_the_name_that_was_given_is_still_found(town: Path, name: str):
    names_of(town)
    earlier = Path(f"{town.parent}/{name.replace('?', '_')}.ledger")
    Ledger.create(earlier, dataset="town", total=budget(epsilon=1))
    assert ledger_place(open_table(name, DOMAIN)) == earlier
    Ledger.create(f"{town}.ledger", dataset="town", total=budget(epsilon=1))
    with pytest.raises(LedgerError, match="ledger="):
        ledger_place(open_table(name, DOMAIN))


def test_a_ledger_of_the_same_dataset_beside_the_data_is_named_instead_of_making_another(town: Path):
    Ledger.create(town.parent / "books.ledger", dataset="town", total=budget(epsilon=1))
    with pytest.raises(LedgerError, match=r"books\.ledger is for the same data .*ledger="):
        ledger_place(open_table(town, DOMAIN))
    village = Domain.from_sizes({"a": 2}, name="village")
    assert ledger_place(open_table(town, village)) == Path(f"{town}.ledger")


def test_a_ledger_that_charged_the_same_file_beside_it_is_named(town: Path):
    village = Domain.from_sizes({"a": 2}, name="village")
    ledger = Ledger.open(town.parent / "books.ledger", epsilon=1)
    measure(open_table(town, village), Flat(), ledger=ledger, epsilon=0.1)
    os.link(town, town.parent / "twin.csv")
    for name in ("town.csv", "twin.csv"):
        with pytest.raises(LedgerError, match=r"books\.ledger is for the same data"):
            ledger_place(open_table(name, DOMAIN))


def test_one_part_and_all_parts_are_not_charged_apart(tmp_path: Path):
    for name in ("part-1.csv", "part-2.csv"):
        write_csv(tmp_path / name)
    Ledger.create(tmp_path / "part-1.csv.ledger", dataset="one part", total=budget(epsilon=1))
    with pytest.raises(LedgerError, match=r"part-1\.csv\.ledger is for the same data"):
        ledger_place(open_table(f"{tmp_path}/part-*.csv", DOMAIN))


def test_somebody_elses_file_called_ledger_is_left_alone(town: Path):
    (town.parent / "accounts.ledger").write_text("2024/01/01 Bakery  3.20")
    assert ledger_place(open_table(town, DOMAIN)) == Path(f"{town}.ledger")


def test_measuring_without_a_ledger_charges_the_one_of_the_file(town: Path):
    Ledger.create(f"{town}.ledger", dataset="town", total=budget(epsilon=1))
    for name in names_of(town):
        measure(open_table(name, DOMAIN), Flat(), epsilon=0.5)
    assert Ledger.open(f"{town}.ledger").spent == Decimal("0.5")
    assert [path.name for path in town.parent.rglob("*.ledger")] == ["town.csv.ledger"]
