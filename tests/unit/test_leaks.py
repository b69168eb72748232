"""No canary leaves: planted strings, numbers and a planted row count go through success, every failure, and a kill."""

import gzip
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from consilience.cli.main import run

CANARIES = ["CANARY-9f3e", "Zebra Street 77", "918273645", "canary@secret.example", "0.123987456"]
ROWS = 48_619
"""The planted row count, which must never be printed."""

DOMAIN = """
name = "people"
[attributes.age]
kind = "numeric"
edges = [0, 18, 65, 100]
unlisted = "drop"
[attributes.sex]
kind = "categorical"
values = ["F", "M"]
missing = "Unknown"
unlisted = "drop"
[attributes.town]
kind = "categorical"
values = ["Aton", "Beton"]
unlisted = "Beton"
"""


def columns() -> dict[str, list[str]]:
    """A table in which every column holds canaries among ordinary values."""
    repeat = ROWS // 6 + 1
    return {
        "age": (["17", "30", "918273645", "70", "CANARY-9f3e", "0.123987456"] * repeat)[:ROWS],
        "sex": (["F", "M", "CANARY-9f3e", "", "canary@secret.example", "F"] * repeat)[:ROWS],
        "town": (["Aton", "Zebra Street 77", "Beton", "918273645", "Aton", "CANARY-9f3e"] * repeat)[:ROWS],
        "notes": (CANARIES * (ROWS // 5 + 1))[:ROWS],
    }


@pytest.fixture(scope="module")
def table() -> dict[str, list[str]]:
    return columns()


@pytest.fixture
def place(tmp_path: Path, table: dict[str, list[str]]) -> Path:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "data").mkdir()
    names = list(table)
    lines = [",".join(names), *(",".join(row) for row in zip(*table.values(), strict=True))]
    (tmp_path / "data/people.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "people.domain.toml").write_text(DOMAIN)
    return tmp_path


def start(place: Path, *words: str) -> subprocess.Popen[str]:
    environment = os.environ | {"TMPDIR": str(place / "temporary"), "HOME": str(place)}
    command = [sys.executable, "-X", "dev", "-m", "consilience.cli.main", *words]
    return subprocess.Popen(
        command, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def call_beside(place: Path, *words: str) -> tuple[int, str]:
    """Exit code and everything printed by a process of its own."""
    process = start(place, *words)
    out, err = process.communicate(timeout=120)
    return process.returncode, out + err


def call(place: Path, *words: str) -> tuple[int, str]:
    """Exit code and everything printed by the command in this process, what libraries print themselves included."""
    kept, code = [os.dup(1), os.dup(2)], 0
    with tempfile.TemporaryFile("w+", dir=place.parent) as printed, pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("TMPDIR", str(place / "temporary"))
        patch.setenv("HOME", str(place))
        patch.setattr(tempfile, "tempdir", None)
        patch.setattr(sys, "argv", ["consilience", *words])
        try:
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            with redirect_stdout(printed), redirect_stderr(printed):
                run()
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            for stream, descriptor in enumerate(kept, start=1):
                os.dup2(descriptor, stream)
                os.close(descriptor)
        printed.seek(0)
        return code, printed.read()


def secrets_in(text: str) -> list[str]:
    shapes = [str(ROWS), f"{ROWS:,}", str(ROWS + 1), f"{ROWS + 1:,}"]
    return [secret for secret in [*CANARIES, *shapes] if secret in text]


def check_nothing_leaked(place: Path, printed: str) -> None:
    """Neither what was printed nor any file but the data itself holds a canary; temporary files are gone."""
    assert secrets_in(printed) == []
    for path in place.rglob("*"):
        if path.is_file() and (path.parent.name != "data" or path.suffix == ".ledger"):
            content = path.read_bytes().decode("latin-1")
            assert [canary for canary in CANARIES if canary in content] == [], path
    assert list((place / "temporary").iterdir()) == []


RELEASE = ["release", "data/people.csv", "--domain", "people.domain.toml", "--epsilon", "0.1", "--out", "release"]


def test_nothing_leaks_from_a_release(place: Path) -> None:
    code, printed = call_beside(place, *RELEASE)
    assert code == 0, printed
    for words in (["answer", "release", "by sex"], ["check", "release"], ["ledger", "show", "data/people.csv"]):
        code, more = call(place, *words)
        assert code == 0, more
        printed += more
    check_nothing_leaked(place, printed)


def broken(place: Path, kind: str) -> list[str]:
    """The release command over a source that is broken in one way."""
    data = place / "data"
    words = list(RELEASE)
    people = (data / "people.csv").read_bytes()
    if kind == "truncated gzip":
        (data / "people.csv.gz").write_bytes(gzip.compress(people)[:-2000])
        words[1] = "data/people.csv.gz"
    elif kind == "not gzip":
        (data / "people.csv.gz").write_bytes(people)
        words[1] = "data/people.csv.gz"
    elif kind == "missing column":
        (data / "people.csv").write_bytes(people.replace(b"age,sex", b"CANARY-9f3e,sex", 1))
    elif kind == "no header":
        (data / "people.csv").write_bytes(people.split(b"\n", 1)[1])
    elif kind == "truncated Parquet":
        pq.write_table(pa.table(columns()), data / "people.parquet")
        whole = (data / "people.parquet").read_bytes()
        (data / "people.parquet").write_bytes(whole[: len(whole) // 2])
        words[1] = "data/people.parquet"
    elif kind == "damaged Parquet":
        pq.write_table(pa.table(columns()), data / "people.parquet", compression="none")
        whole = bytearray((data / "people.parquet").read_bytes())
        whole[2000:6000] = b"\xff" * 4000
        (data / "people.parquet").write_bytes(bytes(whole))
        words[1] = "data/people.parquet"
    elif kind == "no such table":
        with sqlite3.connect(data / "people.db") as connection:
            connection.execute("CREATE TABLE secret (age TEXT, sex TEXT, town TEXT)")
            connection.executemany("INSERT INTO secret VALUES (?, ?, ?)", [("CANARY-9f3e", "F", "Aton")])
        words[1] = "data/people.db"
        words += ["--table", "people"]
    elif kind == "wrong SQL":
        pq.write_table(pa.table(columns()), data / "people.parquet")
        with sqlite3.connect(data / "people.db") as connection:
            connection.execute("CREATE TABLE people (age TEXT, sex TEXT, town TEXT)")
            connection.executemany("INSERT INTO people VALUES (?, ?, ?)", [("CANARY-9f3e", "F", "Aton")])
        words[1] = "data/people.db"
        words += ["--sql", "SELECT CAST(age AS INTEGER) / 0, nothing FROM people"]
    elif kind == "binary":
        (data / "people.csv").write_bytes(os.urandom(5000) + b"CANARY-9f3e")
    elif kind == "unreadable":
        (data / "people.csv").unlink()
        (data / "people.csv").mkdir()
    return words


FAILURES = [
    "truncated gzip", "not gzip", "missing column", "no header", "truncated Parquet", "damaged Parquet",
    "no such table", "wrong SQL", "binary", "unreadable",
]  # fmt: skip


@pytest.mark.parametrize("kind", FAILURES, ids=lambda kind: kind.replace(" ", "-"))
def test_nothing_leaks_from_a_broken_source(place: Path, kind: str) -> None:
    code, printed = call(place, *broken(place, kind))
    assert code == 1, printed
    assert "\nconsilience: " in printed
    assert "Traceback" not in printed
    assert "internal error" not in printed
    check_nothing_leaked(place, printed)


@pytest.mark.parametrize("kind", ["bad rows", "bad bytes", "endless line", "nul bytes"])
def test_a_record_never_raises(place: Path, kind: str) -> None:
    file = place / "data/people.csv"
    rows = {
        "bad rows": b'CANARY-9f3e\n1,2,3,4,5,6,CANARY-9f3e\n"unclosed,CANARY-9f3e\n',
        "bad bytes": b"17,\xff\xfe\xfa,CANARY-9f3e,x\n",
        "endless line": b"17," + b"CANARY-9f3e" * 300_000 + b"\n",
        "nul bytes": b"17,F\x00,CANARY-9f3e\x00,x\n",
    }
    file.write_bytes(file.read_bytes() + rows[kind])
    code, printed = call(place, *RELEASE)
    assert code == 0, printed
    check_nothing_leaked(place, printed)


def test_nothing_leaks_from_wrong_requests(place: Path) -> None:
    printed = ""
    for change in (["--epsilon", "5"], ["--plan", "marginals agee"], ["--neighbours", "x"], ["--unit", "notes"]):
        words = [*RELEASE, "--budget", "1"] if change[0] == "--epsilon" else list(RELEASE)
        code, more = call(place, *words, *change)
        assert code == 1, more
        printed += more
    call(place, *RELEASE)
    code, more = call(place, *RELEASE[:-1], "second", "--id", "other")
    assert code == 1
    check_nothing_leaked(place, printed + more)


@pytest.mark.parametrize("delay", [0.4, 0.8, 1.2, 1.6])
def test_nothing_leaks_from_a_killed_release(place: Path, delay: float) -> None:
    process = start(place, *RELEASE)
    time.sleep(delay)
    process.kill()
    out, err = process.communicate()
    check_nothing_leaked(place, out + err)
