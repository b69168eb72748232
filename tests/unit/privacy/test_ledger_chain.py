"""No change of a ledger's file goes unseen, whoever or whatever made it; ledgers without a chain get one."""

import multiprocessing
import os
import random
import shutil
import sqlite3
import time
from decimal import Decimal
from pathlib import Path

import pytest

from consilience.errors import ConsilienceError, FileFormatError, LedgerError
from consilience.privacy import ledger_chain, ledger_file
from consilience.privacy.budgets import Protection, budget
from consilience.privacy.ledger import Ledger

GOLDEN = Path(__file__).parents[2] / "golden" / "ledgers"


def spend(ledger: Ledger, name: str, cost: str, payloads: list[str], *, complete: bool = True) -> None:
    """One request with its values; `complete=False` leaves the reservation to nobody."""
    arguments = {"fingerprint": "f", "cost": budget(epsilon=cost), "description": '{"plan": "flat"}'}
    with ledger.reserve(name, source={"files": ["town.csv"]}, **arguments) as held:
        for step, payload in enumerate(payloads):
            held.record(step, fingerprint=f"q{step}", payload=payload)
        if complete:
            held.complete()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Ledger.create(tmp_path_factory.mktemp("ledger") / "town.ledger", dataset="town", total=budget(epsilon=1))
    spend(made, "first", "0.25", ["[1, 2]", "[3]"])
    spend(made, "second", "0.5", ["[4]"], complete=False)
    return made.path


@pytest.fixture
def ledger(written: Path, tmp_path: Path) -> Ledger:
    return Ledger(Path(shutil.copy(written, tmp_path)))


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


# --- bit flips -----------------------------------------------------------------------------------------------


def flips_that_raise_what_remains(path: Path, flips: list[int]) -> tuple[list[int], int]:
    """Single bits of the file after whose flip more remains than did, or a value differs; and how many were refused."""
    ledger = Ledger(path)
    remaining, values = ledger.remaining, recorded_values(ledger)
    file = os.open(path, os.O_RDWR)
    content = os.pread(file, path.stat().st_size, 0)
    os.close(file)
    wrong, refused = [], 0
    for bit in flips:
        place, mask = bit // 8, 1 << bit % 8
        overwrite(path, place, content[place] ^ mask)
        try:
            found = Ledger.open(path)
            if found.remaining > remaining or recorded_values(found) != values:
                wrong.append(bit)
        except ConsilienceError:
            refused += 1
        overwrite(path, place, content[place])
    assert path.read_bytes() == content
    return wrong, refused


def bits_of_what_is_written(path: Path) -> list[int]:
    """The bits of all bytes but zeros, of which a page is full where nothing was written yet."""
    return [8 * place + bit for place, byte in enumerate(path.read_bytes()) if byte for bit in range(8)]


def overwrite(path: Path, place: int, byte: int) -> None:
    # Only while SQLite has the file closed: closing this handle would drop its locks.
    with path.open("r+b", buffering=0) as file:
        file.seek(place)
        file.write(bytes([byte]))


def recorded_values(ledger: Ledger) -> list[object]:
    with ledger_file.reading(ledger.path) as connection:
        return [ledger_chain.recorded_step(connection, "first", step, ledger.path) for step in range(3)]


def test_no_flipped_bit_raises_what_remains(ledger: Ledger):
    written = bits_of_what_is_written(ledger.path)
    wrong, refused = flips_that_raise_what_remains(ledger.path, random.Random(1).sample(written, 1500))
    assert wrong == []
    assert refused > 500  # else the flips met nothing that counts


@pytest.mark.slow
def test_of_a_hundred_thousand_flipped_bits_none_raises_what_remains(ledger: Ledger):
    written = bits_of_what_is_written(ledger.path)
    unwritten = sorted(set(range(8 * ledger.path.stat().st_size)) - set(written))
    flips = written + random.Random(2).sample(unwritten, 100_000 - len(written))
    wrong, refused = flips_that_raise_what_remains(ledger.path, flips)
    assert wrong == []
    assert refused > len(written) / 3


# --- edits ---------------------------------------------------------------------------------------------------

EDITS = {
    "a larger total": """UPDATE ledger SET total = '{"epsilon": "9"}'""",
    "a smaller cost": "UPDATE entries SET cost = '0.1' WHERE id = 'second'",
    "a smaller budget": """UPDATE entries SET cost = '0.1', budget = '{"epsilon": "0.1"}' WHERE id = 'second'""",
    "another dataset": "UPDATE ledger SET dataset = 'village'",
    "another unit of protection": """UPDATE ledger SET protection = NULL""",
    "a completed reservation": "UPDATE entries SET state = 'committed', completed = created WHERE id = 'second'",
    "a reopened entry": "UPDATE entries SET state = 'reserved', completed = NULL WHERE id = 'first'",
    "another source": """UPDATE entries SET source = '{"files": ["south.csv"]}' WHERE id = 'first'""",
    "a removed entry": "DELETE FROM entries WHERE id = 'second'",
    "a renamed entry": "UPDATE entries SET id = 'third' WHERE id = 'second'",
    "an added entry": "INSERT INTO entries SELECT 'x', fingerprint, description, budget, cost, state, created, "
    "completed, owner_token, owner_host, owner_process, owner_started, source, protection, failed, steps, digest"
    " FROM entries",
    "another noisy value": "UPDATE steps SET payload = '[1, 3]' WHERE entry = 'first' AND step = 0",
    "a removed value": "DELETE FROM steps WHERE entry = 'first' AND step = 1",
    "a removed digest": "UPDATE ledger SET digest = NULL",
    "an earlier format": "PRAGMA user_version = 1",
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_ledger_is_refused_with_the_way_to_restore_it(ledger: Ledger, edit: str):
    statement = EDITS[edit] + (" WHERE id = 'first'" if edit == "an added entry" else "")
    connection = sqlite3.connect(ledger.path)
    with connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(statement)
    connection.close()
    with pytest.raises(FileFormatError, match="backup"):
        Ledger.open(ledger.path)


@pytest.mark.parametrize("edit", ["a larger total", "a smaller cost", "a removed entry", "another unit of protection"])
def test_an_edited_ledger_that_is_open_neither_charges_nor_tells(ledger: Ledger, edit: str):
    change(ledger.path, EDITS[edit])
    with pytest.raises(FileFormatError, match="chain of digests"):
        ledger.reserve("third", fingerprint="f", cost=budget(epsilon="0.1"), description="")
    with pytest.raises(FileFormatError, match="chain of digests"):
        _ = ledger.remaining


def test_a_removed_value_is_not_drawn_again(ledger: Ledger):
    spend(ledger, "third", "0.1", ["[5]"], complete=False)
    change(ledger.path, "DELETE FROM steps WHERE entry = 'third'")
    with pytest.raises(FileFormatError, match="chain of digests"):
        ledger.reserve("third", fingerprint="f", cost=budget(epsilon="0.1"), description="")


def test_a_damaged_entry_is_not_sealed_by_its_own_owner(ledger: Ledger):
    with ledger.reserve("third", fingerprint="f", cost=budget(epsilon="0.1"), description="") as held:
        change(ledger.path, """UPDATE entries SET cost = '0.01', budget = '{"epsilon": "0.01"}' WHERE id = 'third'""")
        with pytest.raises(FileFormatError, match="chain of digests"):
            held.record(0, fingerprint="q", payload="[1]")
        with pytest.raises(FileFormatError, match="chain of digests"):
            held.complete()
        held._token = None  # so that leaving the block has nothing to give up


# --- values larger than SQLite holds in one place ------------------------------------------------------------


def test_values_above_the_limit_of_sqlite_are_kept_in_parts(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    connect = sqlite3.connect

    def limited(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)  # in place of 10^9 bytes
        return connection

    monkeypatch.setattr(sqlite3, "connect", limited)
    monkeypatch.setattr(ledger_chain, "PART", 90_000)
    payload = "[" + ", ".join(str(number) for number in range(100_000)) + "]"
    spend(ledger, "large", "0.1", [payload, "[]"])
    again = Ledger.open(ledger.path).reserve("large", fingerprint="f", cost=budget(epsilon="0.1"), description="")
    assert again.recorded(0) == ("q0", payload)
    assert again.recorded(1) == ("q1", "[]")
    monkeypatch.setattr(ledger_chain, "PART", 1000)  # another version may part otherwise
    assert Ledger.open(ledger.path).spent == Decimal("0.85")
    change(ledger.path, "DELETE FROM more_payload WHERE part = 2")
    with pytest.raises(FileFormatError, match="chain of digests"):
        again.recorded(0)
    with pytest.raises(FileFormatError, match="chain of digests"):
        Ledger.open(ledger.path)


def test_values_that_the_disk_cannot_hold_are_refused_before_anything_is_spent(ledger: Ledger):
    with pytest.raises(LedgerError, match="nothing was spent: make room"):
        ledger.check(budget(epsilon="0.1"), size=10**18)


def test_a_request_too_long_to_store_is_refused_and_costs_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    connect = sqlite3.connect

    def limited(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000)
        return connection

    monkeypatch.setattr(sqlite3, "connect", limited)
    with pytest.raises(LedgerError, match="too long"):
        ledger.reserve("long", fingerprint="f", cost=budget(epsilon="0.1"), description="x" * 60_000)
    assert ledger.spent == Decimal("0.75")


# --- ledgers of format 1 -------------------------------------------------------------------------------------


def golden(name: str, folder: Path) -> Path:
    return Path(shutil.copy(GOLDEN / f"{name}.ledger", folder / f"{name}.ledger"))


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return found


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.iterdir()))
def test_a_ledger_of_format_1_is_read_as_it_is_and_chained_at_its_first_write(name: str, tmp_path: Path):
    path = golden(name, tmp_path)
    before = Ledger.open(path)
    held = before.spent, before.total, before.uid, [(each.id, each.cost, each.state) for each in before.entries()]
    assert version(path) == 1
    assert path.read_bytes() == (GOLDEN / f"{name}.ledger").read_bytes()
    before.bind("town")
    before.reserve("new", fingerprint="f", cost=budget(epsilon="0.01"), description="").complete()
    assert version(path) == 2
    after = Ledger.open(path)
    charged = before.entries()[-1]
    assert (
        after.spent - charged.cost,
        after.total,
        after.uid,
        [(e.id, e.cost, e.state) for e in after.entries()[:-1]],
    ) == held
    change(path, "UPDATE ledger SET total = total || ' '")
    with pytest.raises(FileFormatError, match="chain of digests"):
        Ledger.open(path)


def test_charges_whose_unit_was_not_recorded_are_shown_as_such(tmp_path: Path):
    ledger = Ledger.open(golden("mixed-protection", tmp_path))
    assert ledger.protection is None
    ledger.reserve("new", fingerprint="f", cost=budget(epsilon="0.1"), description="", protection=Protection("person"))
    assert ledger.protection == Protection("person")
    assert [entry.protection for entry in ledger.entries()] == [None, None, None, Protection("person")]


def test_a_changed_cost_in_a_ledger_of_format_1_is_refused(tmp_path: Path):
    path = golden("epsilon", tmp_path)
    change(path, "UPDATE entries SET cost = '0.05' WHERE id = 'second'")
    with pytest.raises(FileFormatError, match="backup"):
        Ledger.open(path)
    with pytest.raises(FileFormatError):
        Ledger(path).reserve("new", fingerprint="f", cost=budget(epsilon="0.1"), description="")
    assert version(path) == 1


def charge_each(folder: Path) -> None:
    for path in sorted(folder.glob("*.ledger")):
        Ledger(path).reserve("new", fingerprint="f", cost=budget(epsilon="0.01"), description="")


def test_a_kill_while_a_ledger_is_chained_leaves_one_format_or_the_other(tmp_path: Path):
    rng = random.Random(4)
    seen = set()
    for run in range(5):
        folder = tmp_path / str(run)
        folder.mkdir()
        for number in range(40):
            shutil.copy(GOLDEN / "epsilon.ledger", folder / f"{number:02}.ledger")
        worker = multiprocessing.get_context("fork").Process(target=charge_each, args=(folder,))
        worker.start()
        time.sleep(rng.uniform(0.02, 0.2))
        worker.kill()
        worker.join()
        for path in folder.glob("*.ledger"):
            found = Ledger.open(path)
            new = found.knows("new")
            seen.add((version(path), new))
            assert found.spent == (Decimal("0.76") if new else Decimal("0.75"))
    assert seen <= {(1, False), (2, True)}
    assert len(seen) == 2  # else the kills came too early or too late
