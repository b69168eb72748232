"""`domain check --against` is for the curator; a first spend suggests it, whatever the data says."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from consilience.cli.main import app

DOMAIN = """
name = "people"

[attributes.sex]
kind = "categorical"
values = ["Mujer", "Hombre"]
"""
MEASURE = ["measure", "people.csv", "--domain", "d.toml", "--epsilon", "0.1", "--budget", "1", "--plan", "flat"]
SUGGESTED = "`consilience domain check d.toml --against people.csv`"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.toml").write_text(DOMAIN, encoding="utf-8")
    (tmp_path / "people.csv").write_text("sex\n" + "1\n2\n2\n" * 20, encoding="utf-8")
    return tmp_path


def say(*words: str, code: int = 0) -> str:
    """What a command prints, on both channels."""
    outcome = CliRunner().invoke(app, list(words))
    assert outcome.exit_code == code, outcome.output
    return outcome.output


def measure(*words: str) -> str:
    return say(*MEASURE, "--out", f"{len(list(Path().iterdir()))}.parquet", *words)


def test_the_check_is_marked_and_says_what_to_write() -> None:
    told = say("domain", "check", "d.toml", "--against", "people.csv")
    assert told.startswith("NOT PRIVATE, for the curator's eyes only")
    assert 'values = ["1", "2"]' in told
    assert "reviewed = false" in told
    document = json.loads(say("domain", "check", "d.toml", "--against", "people.csv", "--json"))
    assert (document["private"], document["counted"], document["would_count"]) == (False, 0, 60)


def test_the_first_spend_of_a_ledger_suggests_it_and_later_ones_do_not() -> None:
    assert SUGGESTED in measure()
    assert "domain check" not in measure("--id", "second")


def test_the_suggestion_is_the_same_for_all_data() -> None:
    notes = []
    for rows in ("1\n2\n", "Mujer\nHombre\n", "\xff\n" * 500):
        for path in Path().glob("people.csv*"):
            path.unlink()
        Path("people.csv").write_text("sex\n" + rows, encoding="latin-1")
        notes.append(re.search(r"this is the first spend.*\n", measure()))
    assert notes[0] is not None
    assert len({note and note[0] for note in notes}) == 1


def test_a_flag_silences_it() -> None:
    assert "domain check" not in measure("--checked")


def test_the_check_itself_silences_it_and_leaves_a_fingerprint_and_a_date() -> None:
    say("domain", "check", "d.toml", "--against", "people.csv")
    noted = json.loads(Path("people.csv.ledger.checks").read_text(encoding="utf-8"))
    assert list(noted) == ["checked"]
    assert [re.fullmatch(r"[0-9a-f]{64}", each) is not None for each in noted["checked"]] == [True]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for date in noted["checked"].values())
    assert "domain check" not in measure()


def test_an_edited_domain_is_another_one() -> None:
    say("domain", "check", "d.toml", "--against", "people.csv")
    Path("d.toml").write_text(DOMAIN.replace('"Mujer", "Hombre"', "1, 2"), encoding="utf-8")
    assert SUGGESTED in measure()


def test_a_reviewed_draft_need_not_be_checked_again() -> None:
    Path("d.toml").write_text(DOMAIN + "reviewed = false\n", encoding="utf-8")
    say("domain", "check", "d.toml", "--against", "people.csv")
    Path("d.toml").write_text(DOMAIN, encoding="utf-8")
    assert "domain check" not in measure()


def test_how_the_source_is_written_goes_with_the_suggestion() -> None:
    options = ["--encoding", "latin-1", "--missing-tokens", "NA", "--ledger", "other.ledger"]
    told = measure(*options)
    found = re.search(r"`consilience (domain check [^`]+)`", told)
    assert found is not None
    Path("other.ledger").unlink()
    say(*found[1].split())
    assert "domain check" not in measure(*options)


def test_the_same_request_in_another_encoding_is_another_request() -> None:
    assert "nothing was spent" not in measure()
    assert "nothing was spent" in measure("--encoding", "UTF8")
    assert "nothing was spent" not in measure("--encoding", "latin-1")


def test_a_simulation_suggests_nothing() -> None:
    assert "domain check" not in say(*MEASURE[:6], "--plan", "flat", "--simulate", "1", "--out", "s.parquet")


def test_options_say_how_the_data_is_written() -> None:
    Path("people.csv").write_bytes("sex;n\nMujer;1,5\nseñora;2,5\n".encode("latin-1"))
    Path("d.toml").write_text(DOMAIN.replace("Hombre", "señora"), encoding="utf-8")
    assert "1 of 2 rows are counted" in say("domain", "check", "d.toml", "--against", "people.csv")
    told = say("domain", "check", "d.toml", "--against", "people.csv", "--encoding", "latin-1")
    assert "2 of 2 rows are counted" in told
    assert 'encoding = "latin-1"' in say("domain", "draft", "people.csv")
    drafted = say("domain", "draft", "people.csv", "--encoding", "latin-1", "--decimal", ",")
    assert "señora" in drafted
    assert '[source]\nencoding = "latin-1"\ndecimal = ","' in drafted
