"""The ledger: never overspent, never half-written, ids bound to their contents, and errors that help."""

import multiprocessing
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.errors import BudgetExceeded, ConsilienceError, DeclarationError, FileFormatError, LedgerError
from consilience.privacy import ledger_chain, ledger_file
from consilience.privacy import reservations as owners
from consilience.privacy.budgets import Budget, Protection, budget, rho_from_epsilon_delta
from consilience.privacy.ledger import Ledger
from consilience.privacy.reservations import Reservation


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "adult.ledger"


@pytest.fixture
def ledger(path: Path) -> Ledger:
    return Ledger.create(path, dataset="adult", total=budget(epsilon=1))


def reserve(ledger: Ledger, name: str, epsilon: float = 0.3, *, fingerprint: str = "contents") -> Reservation:
    return ledger.reserve(name, fingerprint=fingerprint, cost=budget(epsilon=epsilon), description="a test")


def change(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, values)
    connection.close()


def change_owner(path: Path, name: str, value: object) -> None:
    """The owner of all reservations, as if another process had made them."""
    with ledger_file.writing(path) as connection:
        connection.execute(f"UPDATE entries SET {name} = ?", (value,))
        ledger_chain.seal(connection, *(entry for (entry,) in connection.execute("SELECT id FROM entries")))


# --- creating and opening ------------------------------------------------------------------------------------


def test_a_new_ledger_has_everything_left(ledger: Ledger, path: Path):
    assert (ledger.path, ledger.dataset, ledger.total) == (path, "adult", budget(epsilon=1))
    assert (ledger.spent, ledger.remaining, ledger.entries()) == (0, 1, ())


def test_the_file_is_private_alone_and_marked(ledger: Ledger, path: Path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA application_id").fetchone() == (ledger_file.APPLICATION_ID,)
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    connection.close()


def test_commits_are_synchronised_to_disk(path: Path, ledger: Ledger):
    with ledger_file.reading(path) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone()[0] >= 2  # FULL is 2, EXTRA is 3
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] in {"delete", "wal"}


def test_an_existing_file_is_never_overwritten(ledger: Ledger, path: Path):
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.create(path, dataset="adult", total=budget(epsilon=5))
    assert ledger.total == budget(epsilon=1)
    path.write_text("my thesis")
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.create(path, dataset="adult", total=budget(epsilon=5))
    assert path.read_text() == "my thesis"


def test_open_creates_a_missing_ledger_when_told_its_total(path: Path):
    made = Ledger.open(path, epsilon=1, delta=1e-9)
    assert made.dataset is None
    assert made.total == budget(epsilon=1, delta=1e-9)
    assert made.remaining == rho_from_epsilon_delta(1, 1e-9)


def test_open_without_a_total_needs_a_ledger(path: Path):
    with pytest.raises(LedgerError, match=r"no ledger at .*adult\.ledger; give its total"):
        Ledger.open(path)
    assert not path.exists()


def test_open_accepts_the_stored_total_and_names_both_when_they_differ(ledger: Ledger, path: Path):
    assert Ledger.open(path, epsilon=1.0).total == ledger.total
    with pytest.raises(LedgerError, match="is epsilon 1, and epsilon 2 was given"):
        Ledger.open(path, epsilon=2)
    with pytest.raises(LedgerError, match="is epsilon 1, and rho 1 was given"):
        Ledger.open(path, rho=1)


def test_a_ledger_serves_one_dataset(ledger: Ledger, path: Path):
    assert Ledger.open(path, dataset="adult").dataset == "adult"
    with pytest.raises(LedgerError, match="ledger of 'adult', not of 'census'"):
        Ledger.open(path, dataset="census")


def test_an_unbound_ledger_belongs_to_the_first_dataset(path: Path):
    unbound = Ledger.open(path, epsilon=1)
    with pytest.raises(LedgerError, match="not bound to a dataset yet"):
        reserve(unbound, "first")
    unbound.bind("adult")
    unbound.bind("adult")
    assert unbound.dataset == "adult"
    with pytest.raises(LedgerError, match="ledger of 'adult', not of 'census'"):
        unbound.bind("census")


def test_a_wrong_total_creates_nothing(path: Path):
    with pytest.raises(DeclarationError):
        Ledger.open(path, epsilon=0)
    assert list(path.parent.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path):
    with pytest.raises(LedgerError, match=r"no ledger can be created at .*missing.a\.ledger"):
        Ledger.create(tmp_path / "missing" / "a.ledger", dataset="adult", total=budget(epsilon=1))


def test_creation_works_without_hard_links(path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    made = Ledger.create(path, dataset="adult", total=budget(epsilon=1))
    assert made.remaining == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.create(path, dataset="adult", total=budget(epsilon=2))


def test_of_many_creators_one_wins_and_all_open_its_ledger(path: Path):
    barrier = threading.Barrier(8)

    def open_it(_: int) -> Budget:
        barrier.wait()
        return Ledger.open(path, epsilon=1).total

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(open_it, range(8))) == {budget(epsilon=1)}
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_of_creators_with_different_totals_only_the_winner_is_served(path: Path):
    barrier = threading.Barrier(6)

    def open_it(epsilon: int) -> str:
        barrier.wait()
        try:
            return Ledger.open(path, epsilon=epsilon).total.describe()
        except LedgerError:
            return "refused"

    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(open_it, range(1, 7)))
    assert outcomes.count("refused") == 5
    assert Ledger.open(path).total.describe() in outcomes


def test_names_with_spaces_and_marks_are_paths_like_others(tmp_path: Path):
    odd = tmp_path / "what? 100% of #1.ledger"
    reserve(Ledger.create(odd, dataset="adult", total=budget(epsilon=1)), "first")
    assert Ledger.open(odd).spent == Decimal("0.3")


def test_a_relative_path_keeps_its_meaning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    made = Ledger.open("here.ledger", epsilon=1)
    monkeypatch.chdir("/")
    assert made.remaining == 1


# --- damaged and foreign files -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [b"", b"name,age\nAda,36\n", b"SQLite format 3\x00", os.urandom(9000)],
    ids=["empty", "csv", "header-alone", "random-bytes"],  # two test processes must agree on the names
)
def test_a_file_that_is_no_database_is_refused_and_kept(path: Path, content: bytes):
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="not a sound ledger"):
        Ledger.open(path, epsilon=1)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused(path: Path):
    change(path, "CREATE TABLE ledger (dataset TEXT, total TEXT)")
    with pytest.raises(FileFormatError, match="not a sound ledger"):
        Ledger.open(path)


def test_a_truncated_ledger_is_refused(ledger: Ledger, path: Path):
    reserve(ledger, "first").record(0, fingerprint="q", payload="1" * 50_000)
    whole = path.read_bytes()
    for kept in (10, 100, 4096, 3 * 4096, len(whole) // 2, len(whole) - 4096, len(whole) - 1):
        path.write_bytes(whole[:kept])
        with pytest.raises(FileFormatError):
            Ledger.open(path)


def test_a_newer_format_is_refused_with_the_remedy(ledger: Ledger, path: Path):
    change(path, "PRAGMA user_version = 3")
    with pytest.raises(FileFormatError, match=r"format 3.*reads formats up to 2; install a newer consilience"):
        Ledger.open(path)
    with pytest.raises(FileFormatError, match="install a newer consilience"):
        reserve(ledger, "first")


@pytest.mark.parametrize("cost", ["NaN", "-1", "many", "1e999999", "1e-400", b"\x00", 0.25])
def test_a_tampered_charge_is_refused(ledger: Ledger, path: Path, cost: object):
    reserve(ledger, "first")
    change(path, "UPDATE entries SET cost = ?", cost)
    with pytest.raises(FileFormatError):
        Ledger.open(path)
    with pytest.raises(FileFormatError):
        reserve(ledger, "second")


@pytest.mark.parametrize(
    "total", ['{"epsilon": "2"}', "", "[]", "null", '{"epsilon": 1}', '{"epsilon": "-1"}', '{"sigma": "1"}']
)
def test_a_tampered_total_is_refused(ledger: Ledger, path: Path, total: str):
    change(path, "UPDATE ledger SET total = ?", total)
    with pytest.raises(FileFormatError):
        Ledger.open(path)


def test_a_missing_table_or_row_is_refused(ledger: Ledger, path: Path):
    whole = path.read_bytes()
    for damage in ("DELETE FROM ledger", "DROP TABLE steps", "DROP TABLE entries", "DROP TABLE ledger"):
        path.write_bytes(whole)
        change(path, damage)
        with pytest.raises(FileFormatError):
            Ledger.open(path).reserve("x", fingerprint="f", cost=budget(epsilon=0.1), description="").recorded(0)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_flipped_bytes_never_surface_as_anything_but_our_errors(data: st.DataObject, tmp_path_factory):
    directory = tmp_path_factory.mktemp("flipped")
    path = directory / "adult.ledger"
    made = Ledger.create(path, dataset="adult", total=budget(epsilon=1))
    with reserve(made, "first") as held:
        held.record(0, fingerprint="q", payload="[1, 2]")
        held.complete()
    content = bytearray(path.read_bytes())
    interesting = [place for place, byte in enumerate(content) if byte] + list(range(100))
    for place in data.draw(st.lists(st.sampled_from(interesting), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        opened = Ledger.open(path)
        opened.entries()
        reserve(opened, "first").recorded(0)
        reserve(opened, "second").record(0, fingerprint="q", payload="[3]")
    except ConsilienceError:
        pass
    finally:
        shutil.rmtree(directory)


def test_a_ledger_that_vanished_is_named(ledger: Ledger, path: Path):
    path.unlink()
    with pytest.raises(LedgerError, match="cannot be used"):
        _ = ledger.spent
    assert not path.exists()


# --- reserving -----------------------------------------------------------------------------------------------


def test_a_reservation_is_charged_at_once(ledger: Ledger, path: Path):
    held = reserve(ledger, "first")
    assert (held.id, held.replayed, held.recorded(0)) == ("first", False, None)
    assert (ledger.spent, ledger.remaining) == (Decimal("0.3"), Decimal("0.7"))
    assert Ledger.open(path).spent == Decimal("0.3")


def test_ten_tenths_fit_exactly_and_an_eleventh_does_not(ledger: Ledger):
    for number in range(10):
        reserve(ledger, f"tenth {number}", 0.1)
    assert (ledger.spent, ledger.remaining) == (1, 0)
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "one more", 1e-30)
    assert len(ledger.entries()) == 10


def test_overspending_is_refused_and_nothing_spent(ledger: Ledger, path: Path):
    reserve(ledger, "most", 0.9)
    with pytest.raises(BudgetExceeded) as refused:
        reserve(ledger, "more", 0.3)
    assert str(refused.value).startswith(f"asked for epsilon 0.3, 0.1 of 1 remains in {path}; lower epsilon, or ")
    assert ledger.spent == Decimal("0.9")
    assert [entry.id for entry in ledger.entries()] == ["most"]


def test_shortened_numbers_in_a_refusal_never_seem_to_fit(ledger: Ledger):
    reserve(ledger, "most", 0.5)
    with pytest.raises(BudgetExceeded, match=r"asked for epsilon 0\.5001, 0\.5 of 1 remains"):
        reserve(ledger, "more", 0.50000001)


def test_other_units_are_charged_by_the_written_rule(path: Path):
    made = Ledger.create(path, dataset="adult", total=budget(epsilon=1, delta=1e-9))
    made.reserve("pure", fingerprint="f", cost=budget(epsilon=0.1), description="")
    assert made.spent == Decimal("0.005")
    made.reserve("rho", fingerprint="f", cost=budget(rho=0.004), description="")
    assert made.spent == Decimal("0.009")
    with pytest.raises(BudgetExceeded, match=r"asked for rho 0\.02 \(epsilon 0\.2\), 0\.005973 of 0\.01497 remains"):
        made.reserve("much", fingerprint="f", cost=budget(epsilon=0.2), description="")


def test_the_whole_of_an_epsilon_delta_ledger_can_be_spent_at_once(path: Path):
    made = Ledger.create(path, dataset="adult", total=budget(epsilon=1, delta=1e-9))
    made.reserve("all", fingerprint="f", cost=budget(epsilon=1, delta=1e-9), description="")
    assert made.remaining == 0


def test_rho_is_refused_by_a_ledger_of_pure_epsilon(ledger: Ledger):
    with pytest.raises(DeclarationError, match="cannot be charged to a ledger of pure epsilon"):
        ledger.reserve("rho", fingerprint="f", cost=budget(rho=0.1), description="")
    assert ledger.entries() == ()


def test_entries_say_what_happened_in_order(ledger: Ledger):
    with reserve(ledger, "zebra", 0.1) as held:
        held.complete()
    reserve(ledger, "ape", 0.2)
    zebra, ape = ledger.entries()
    assert (zebra.id, zebra.description, zebra.cost, zebra.budget, zebra.state) == (
        "zebra", "a test", Decimal("0.1"), budget(epsilon=0.1), "committed",
    )  # fmt: skip
    assert zebra.completed is not None
    assert zebra.created.endswith("+00:00")
    assert (ape.id, ape.state, ape.completed) == ("ape", "reserved", None)
    with pytest.raises(FrozenInstanceError):
        zebra.cost = Decimal(0)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", ["", "stray \udc80 byte"])
def test_an_id_that_cannot_be_stored_is_refused(ledger: Ledger, name: str):
    with pytest.raises(LedgerError, match="the id is"):
        reserve(ledger, name)
    assert ledger.spent == 0


# --- recording, completing, replaying ------------------------------------------------------------------------


def test_a_completed_id_replays_its_values_uncharged(ledger: Ledger, path: Path):
    with reserve(ledger, "first") as held:
        held.record(0, fingerprint="query a", payload="[1, 2]")
        held.record(1, fingerprint="query b", payload="[3]")
        held.complete()
    with reserve(Ledger.open(path), "first") as again:
        assert again.replayed
        assert again.recorded(0) == ("query a", "[1, 2]")
        assert again.recorded(1) == ("query b", "[3]")
        assert again.recorded(2) is None
        with pytest.raises(LedgerError, match="is completed"):
            again.record(2, fingerprint="query c", payload="[4]")
        again.complete()
    assert ledger.spent == Decimal("0.3")
    assert [entry.state for entry in ledger.entries()] == ["committed"]


@pytest.mark.parametrize("completed", [True, False])
@pytest.mark.parametrize(("epsilon", "fingerprint"), [(0.3, "other"), (0.2, "contents")])
def test_an_id_is_bound_to_its_contents(ledger: Ledger, completed: bool, epsilon: float, fingerprint: str):
    with reserve(ledger, "first") as held:
        if completed:
            held.complete()
    with pytest.raises(LedgerError, match=r"'first' .* other contents.*choose another id"):
        reserve(ledger, "first", epsilon, fingerprint=fingerprint)
    assert ledger.spent == Decimal("0.3")


def test_a_step_is_recorded_once(ledger: Ledger):
    with reserve(ledger, "first") as held:
        held.record(0, fingerprint="q", payload="[1]")
        with pytest.raises(LedgerError, match="step 0 of 'first' is recorded already"):
            held.record(0, fingerprint="q", payload="[2]")
        assert held.recorded(0) == ("q", "[1]")


def test_a_recorded_step_is_in_the_file_at_once(ledger: Ledger, path: Path):
    held = reserve(ledger, "first")
    held.record(0, fingerprint="q", payload="[1]")
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT entry, step, payload FROM steps").fetchall() == [("first", 0, "[1]")]
    connection.close()


def test_nothing_can_be_recorded_after_completion_or_release(ledger: Ledger):
    with reserve(ledger, "first", 0.1) as first:
        first.complete()
        with pytest.raises(LedgerError, match="is completed"):
            first.record(0, fingerprint="q", payload="[1]")
        with pytest.raises(LedgerError, match="is completed"):
            first.complete()
    with reserve(ledger, "second", 0.1) as second:
        pass
    with pytest.raises(LedgerError, match="given up, or taken over"):
        second.record(0, fingerprint="q", payload="[1]")
    with pytest.raises(LedgerError, match="given up, or taken over"):
        second.complete()


# --- failures and take-over ----------------------------------------------------------------------------------


def test_a_failure_leaves_the_budget_spent_and_the_retry_continues_uncharged(ledger: Ledger):
    def fail() -> None:
        with reserve(ledger, "first") as held:
            held.record(0, fingerprint="q", payload="[1]")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert ledger.spent == Decimal("0.3")
    with reserve(ledger, "first") as retry:
        assert not retry.replayed
        assert retry.recorded(0) == ("q", "[1]")
        retry.record(1, fingerprint="r", payload="[2]")
        retry.complete()
    assert ledger.spent == Decimal("0.3")
    assert [entry.state for entry in ledger.entries()] == ["committed"]


def test_a_reservation_in_use_by_this_process_is_refused(ledger: Ledger):
    with reserve(ledger, "first"), pytest.raises(LedgerError, match="in progress by this process"):
        reserve(ledger, "first")


def reserve_and_wait(path: Path, ready, done) -> None:
    held = reserve(Ledger.open(path), "first")
    held.record(0, fingerprint="q", payload="[1]")
    ready.set()
    done.wait(30)


def test_a_living_process_keeps_its_reservation_and_a_dead_one_loses_it(ledger: Ledger, path: Path):
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()
    owner = context.Process(target=reserve_and_wait, args=(path, ready, done))
    owner.start()
    assert ready.wait(30)
    try:
        for take_over in (False, True):
            with pytest.raises(LedgerError, match=rf"in progress by another process \({owner.pid}\)"):
                ledger.reserve(
                    "first",
                    fingerprint="contents",
                    cost=budget(epsilon=0.3),
                    description="",
                    take_over=take_over,
                )
    finally:
        owner.kill()
        os.waitid(os.P_PID, owner.pid or 0, os.WEXITED | os.WNOWAIT)  # it is dead, and a zombie
    heir = reserve(ledger, "first")
    assert heir.recorded(0) == ("q", "[1]")
    assert ledger.spent == Decimal("0.3")
    owner.join()


def test_a_recycled_process_id_does_not_keep_a_reservation(ledger: Ledger, path: Path):
    reserve(ledger, "first")
    change_owner(path, "owner_started", "an earlier boot 17")
    assert not reserve(ledger, "first").replayed


def test_a_process_id_that_nobody_has_is_dead(ledger: Ledger, path: Path):
    reserve(ledger, "first")
    change_owner(path, "owner_process", 99999999)
    assert not reserve(ledger, "first").replayed


def test_without_a_start_time_a_running_process_counts_as_the_owner(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(owners, "_process_start", lambda _: None)
    reserve(ledger, "first")
    with pytest.raises(LedgerError, match="in progress by this process"):
        reserve(ledger, "first")
    change_owner(path, "owner_process", 99999999)
    assert not reserve(ledger, "first").replayed


def test_an_owner_on_another_machine_is_taken_over_only_on_request(ledger: Ledger, path: Path):
    first = reserve(ledger, "first")
    change_owner(path, "owner_host", "elsewhere")
    with pytest.raises(LedgerError, match=r"on another machine.*elsewhere.*take_over=True"):
        reserve(ledger, "first")
    heir = ledger.reserve("first", fingerprint="contents", cost=budget(epsilon=0.3), description="", take_over=True)
    with pytest.raises(LedgerError, match="taken over by another process"):
        first.record(0, fingerprint="q", payload="[1]")
    with pytest.raises(LedgerError, match="taken over by another process"):
        first.complete()
    heir.record(0, fingerprint="q", payload="[2]")
    assert heir.recorded(0) == ("q", "[2]")
    assert ledger.spent == Decimal("0.3")


def test_leaving_a_lost_reservation_does_not_release_its_heir(ledger: Ledger, path: Path):
    with reserve(ledger, "first"):
        change_owner(path, "owner_process", 99999999)
        heir = reserve(ledger, "first")
    heir.record(0, fingerprint="q", payload="[1]")
    heir.complete()


# --- locks, threads, processes -------------------------------------------------------------------------------


def test_a_locked_ledger_says_so_after_waiting(ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ledger_file, "BUSY_SECONDS", 0.05)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(LedgerError, match=r"locked by another process.*try again"):
            reserve(ledger, "first")
        with pytest.raises(LedgerError, match="locked by another process"):
            _ = ledger.spent
    finally:
        blocker.close()
    assert ledger.spent == 0


def test_a_lock_at_release_does_not_hide_what_went_wrong(ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ledger_file, "BUSY_SECONDS", 0.05)
    blocker = sqlite3.connect(path, isolation_level=None)

    def fail() -> None:
        with reserve(ledger, "first"):
            blocker.execute("BEGIN EXCLUSIVE")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken") as failed:
        fail()
    blocker.close()
    assert "could not be given up" in failed.value.__notes__[0]


def test_a_lock_after_completion_disturbs_nobody(ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ledger_file, "BUSY_SECONDS", 0.05)
    blocker = sqlite3.connect(path, isolation_level=None)
    with reserve(ledger, "first") as held:
        held.complete()
        blocker.execute("BEGIN EXCLUSIVE")
    blocker.close()


def test_threads_cannot_overspend(ledger: Ledger):
    barrier = threading.Barrier(8)

    def spend(thread: int) -> int:
        barrier.wait()
        served = 0
        for number in range(6):
            try:
                reserve(ledger, f"{thread}-{number}", 0.03)
                served += 1
            except BudgetExceeded:
                continue
        return served

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(spend, range(8))) == 33
    assert ledger.spent == Decimal("0.99")


def test_of_many_threads_that_want_one_id_one_gets_it(ledger: Ledger):
    barrier = threading.Barrier(6)

    def want(_: int) -> bool:
        barrier.wait()
        try:
            reserve(ledger, "first")
        except LedgerError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(want, range(6))) == 1
    assert ledger.spent == Decimal("0.3")


def test_a_ledger_object_serves_forked_processes(ledger: Ledger):
    reserve(ledger, "parent", 0.1)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=reserve, args=(ledger, f"child {n}", 0.1)) for n in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert ledger.spent == Decimal("0.4")


def test_importing_the_ledger_stays_light():
    heavy = "numpy scipy numba pyarrow duckdb opendp pydantic typer rich"
    script = f"import sys, consilience.privacy.ledger\nprint(sorted(set({heavy!r}.split()) & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


# --- the law of the whole ------------------------------------------------------------------------------------

actions = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 60), st.sampled_from(["complete", "fail", "leave"])),
    max_size=25,
)


@settings(max_examples=12, deadline=None)
@given(actions)
def test_any_history_spends_exactly_what_was_first_reserved(tmp_path_factory, history):
    directory = tmp_path_factory.mktemp("history")
    made = Ledger.create(directory / "h.ledger", dataset="adult", total=budget(epsilon=1))
    expected: dict[str, tuple[Decimal, str]] = {}  # id: charge, payload
    completed: set[str] = set()
    for name, hundredths, ending in history:
        cost = Decimal(hundredths) / 100
        affordable = sum(charge for charge, _ in expected.values()) + cost <= 1
        try:
            with made.reserve(name, fingerprint="f", cost=budget(epsilon=cost), description="") as held:
                assert (name in expected) == (held.recorded(0) is not None)
                assert held.replayed == (name in completed)
                if name not in expected:
                    assert affordable
                    payload = f"[{len(expected)}]"
                    held.record(0, fingerprint="q", payload=payload)
                    expected[name] = (cost, payload)
                if ending == "fail":
                    raise RuntimeError("a failure in the middle")
                if ending == "complete":
                    held.complete()
                    completed.add(name)
                assert held.recorded(0) == ("q", expected[name][1])
        except BudgetExceeded:
            assert name not in expected
            assert not affordable
        except LedgerError:
            assert expected[name][0] != cost
        except RuntimeError:
            pass
        assert made.spent == sum(charge for charge, _ in expected.values()) <= 1
    entries = {entry.id: (entry.cost, entry.state == "committed") for entry in made.entries()}
    assert entries == {name: (charge, name in completed) for name, (charge, _) in expected.items()}
    shutil.rmtree(directory)


# --- failure deltas ------------------------------------------------------------------------------------------


def charge(ledger: Ledger, name: str, **amounts: object) -> None:
    with ledger.reserve(name, fingerprint=name, cost=budget(**amounts), description="a test") as held:
        held.complete()


def test_spent_rho_is_held_to_what_the_rest_of_delta_allows(path: Path):
    ledger = Ledger.create(path, dataset="adult", total=budget(epsilon=1, delta="1e-6"))
    charge(ledger, "values", rho="0.001", failure_delta="4e-7")
    allowed = rho_from_epsilon_delta(1, "6e-7")
    assert ledger.remaining == allowed - Decimal("0.001")
    assert ledger.to_json()["failure_delta"] == "4e-7"
    with pytest.raises(BudgetExceeded, match=r"asked for rho .* remains"):
        charge(ledger, "too much", rho=allowed)  # less than the whole delta would have allowed
    charge(ledger, "the rest", rho=allowed - Decimal("0.001"))
    assert ledger.remaining == 0
    with pytest.raises(BudgetExceeded):  # the failure itself would lower what may be spent
        charge(ledger, "more failure", rho="1e-9", failure_delta="1e-7")
    assert "failure deltas add up to 4e-7" in ledger.show()
    assert "failure delta 4e-7" in ledger.show().splitlines()[3]


def test_failures_that_lower_the_room_below_what_is_spent_are_refused(path: Path):
    ledger = Ledger.create(path, dataset="adult", total=budget(epsilon=1, delta="1e-6"))
    charge(ledger, "first", rho=rho_from_epsilon_delta(1, "5e-7"))
    with pytest.raises(BudgetExceeded):
        charge(ledger, "values", rho="1e-9", failure_delta="6e-7")
    with pytest.raises(BudgetExceeded, match="asked for a failure delta of 1e-6, 0 of the 1e-6"):
        charge(ledger, "values", rho="1e-9", failure_delta="1e-6")
    assert [entry.id for entry in ledger.entries()] == ["first"]


def test_a_ledger_of_rho_needs_a_declared_failure_delta(path: Path, tmp_path: Path):
    plain = Ledger.create(path, dataset="adult", total=budget(rho=1))
    with pytest.raises(BudgetExceeded, match="allows none: create a ledger with one"):
        charge(plain, "values", rho="0.1", failure_delta="1e-9")
    declared = Ledger.open(tmp_path / "other.ledger", dataset="adult", rho=1, failure_delta="1e-9")
    charge(declared, "values", rho="0.1", failure_delta="8e-10")
    with pytest.raises(BudgetExceeded, match="8e-10 of the 1e-9"):
        charge(declared, "more values", rho="0.1", failure_delta="3e-10")
    charge(declared, "the rest", rho="0.9")
    assert declared.remaining == 0
    assert Ledger.open(declared.path).total == budget(rho=1, failure_delta="1e-9")


def test_a_ledger_of_pure_epsilon_has_no_room_for_failures(ledger: Ledger):
    with pytest.raises(DeclarationError, match="pure epsilon"):
        charge(ledger, "values", rho="0.1", failure_delta="1e-9")


def test_a_request_that_may_fail_is_not_converted(path: Path):
    bound = Protection(neighbours="replace-one")
    ledger = Ledger.create(path, dataset="adult", total=budget(epsilon=1, delta=1e-6), protection=bound)
    with pytest.raises(DeclarationError, match="no price is known"):
        ledger.reserve(
            "values",
            fingerprint="values",
            cost=budget(rho="0.001", failure_delta="1e-9"),
            description="a test",
            convert=True,
        )
