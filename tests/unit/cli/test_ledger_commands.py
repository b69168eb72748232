"""The command line and the ledger: what it protects, which source was charged, and which ledger is meant."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from consilience.cli.main import run

GOLDEN = Path(__file__).parents[2] / "golden"
DOMAIN = """
name = "people"

[attributes.sex]
kind = "categorical"
values = ["F", "M"]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.domain.toml").write_text(DOMAIN)
    (tmp_path / "people.csv").write_text("sex,person\nF,1\nM,2\nM,2\n")
    connection = sqlite3.connect(tmp_path / "people.db")
    for table in ("north", "south"):
        connection.execute(f"CREATE TABLE {table} AS SELECT 'F' AS sex, 1 AS person")
    connection.commit()
    connection.close()
    return tmp_path


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["consilience", *words])
        with pytest.raises(SystemExit) as ended:
            run()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return call


def measuring(data: str, out: str, *more: str) -> list[str]:
    asked = ["--domain", "people.domain.toml", "--epsilon", "0.5", "--plan", "flat", "--budget", "3"]
    return ["measure", data, *asked, "--out", out, *more]


def test_what_a_ledger_protects_is_set_shown_and_converted(place: Path, command):
    created = command(
        "ledger", "create", "people.csv.ledger", "--dataset", "people", "--epsilon", "3", "--neighbours", "replace-one"
    )
    assert created[0] == 0
    assert "to protect one row, replace-one" in created[1]
    code, _, err = command(*measuring("people.csv", "a.parquet"))
    assert code == 1
    assert "would cost epsilon 1, 2 times as much" in err
    code, _, err = command(*measuring("people.csv", "a.parquet", "--convert"))
    assert code == 0, err
    assert "spent epsilon 0.5, charged as epsilon 1; epsilon 2 remains" in err
    shown = json.loads(command("ledger", "show", "people.csv", "--json")[1])
    assert shown["protection"] == {"unit": None, "max_rows_per_unit": 1, "neighbours": "replace-one"}
    (entry,) = shown["entries"]
    assert (entry["cost"], entry["budget"], entry["protection"]["neighbours"]) == (
        "1",
        {"epsilon": "0.5"},
        "add-remove",
    )
    assert entry["source"]["files"] == ["people.csv"]
    text = command("ledger", "show", "people.csv")[1]
    assert "protects one row, replace-one" in text
    assert "one row, add-remove" in text


def test_an_unbound_ledger_says_that_its_first_request_will_bind_it(place: Path, command):
    command("ledger", "create", "people.csv.ledger", "--dataset", "people", "--epsilon", "3")
    assert "protects what its first request will" in command("ledger", "show", "people.csv")[1]
    assert command("ledger", "create", "b.ledger", "--dataset", "people", "--epsilon", "3", "--unit", "person")[0] == 1
    bound = ["--unit", "person", "--max-rows-per-unit", "3"]
    created = command("ledger", "create", "c.ledger", "--dataset", "people", "--epsilon", "3", *bound)
    assert "one value of 'person' (at most 3 rows), add-remove" in created[1]


def test_another_table_is_measured_anew_and_the_command_says_so_before(place: Path, command):
    assert command(*measuring("people.db", "a.parquet", "--table", "north", "--name", "the north"))[0] == 0
    code, _, err = command(*measuring("people.db", "b.parquet", "--table", "south"))
    assert code == 0, err
    assert "holds this request for another source" in err
    assert "'north'" in err
    assert "replayed" not in err
    code, _, err = command(*measuring("people.db", "c.parquet", "--table", "south"))
    assert "nothing was spent" in err
    assert "another source" not in err
    assert json.loads(command("ledger", "show", "people.db", "--json")[1])["spent"] == "1"


def test_a_link_is_charged_to_the_ledger_of_its_file(place: Path, command):
    (place / "link.csv").symlink_to("people.csv")
    assert command(*measuring("people.csv", "a.parquet"))[0] == 0
    code, _, err = command(*measuring("link.csv", "b.parquet"))
    assert code == 0, err
    assert "nothing was spent" in err
    assert [path.name for path in place.glob("*.ledger")] == ["people.csv.ledger"]
    assert json.loads(command("ledger", "show", "link.csv", "--json")[1])["spent"] == "0.5"


def test_a_second_ledger_for_a_dataset_is_made_on_demand_only(place: Path, command):
    assert command(*measuring("people.csv", "a.parquet", "--ledger", "books.ledger"))[0] == 0
    code, _, err = command(*measuring("people.csv", "b.parquet"))
    assert code == 1
    assert "books.ledger" in err
    assert "--ledger" in err
    assert command(*measuring("people.csv", "b.parquet", "--ledger", "people.csv.ledger"))[0] == 0


def test_charges_of_an_earlier_version_are_shown_as_mixed(place: Path, command):
    shutil.copy(GOLDEN / "ledgers" / "mixed-protection.ledger", place / "old.ledger")
    text = command("ledger", "show", "old.ledger")[1]
    assert "3 of these were charged by an earlier version" in text
    assert "not recorded" in text


def test_a_failing_query_says_that_its_charge_stays(place: Path, command):
    query = "SELECT CASE WHEN sex = 'F' THEN abs(-9223372036854775808) END AS sex FROM north"
    code, _, err = command(*measuring("people.db", "a.parquet", "--sql", query))
    assert code == 1
    assert "The charge stays" in err
    assert "Repeat the same command" not in err
    shown = json.loads(command("ledger", "show", "people.db", "--json")[1])
    assert (shown["spent"], shown["entries"][0]["state"]) == ("0.5", "failed")
