"""What a request costs under another unit: the factors of the table, against every pair of small tables."""

from collections import deque
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import cache
from itertools import combinations_with_replacement, product
from math import inf
from pathlib import Path

import pyarrow as pa
import pytest

from consilience.domain import Domain
from consilience.errors import BudgetExceeded, LedgerError
from consilience.measuring import measure
from consilience.plans import Flat
from consilience.privacy.budgets import Protection, budget, steps_between
from consilience.privacy.ledger import Ledger
from consilience.source import open_table

Table = tuple[tuple[int, ...], ...]
"""For each unit its rows, sorted; a row is a value. A unit without rows is not in the table."""


def tables(units: int, rows: int) -> list[Table]:
    """All tables of so many units with at most so many rows of two values each."""
    one = [held for size in range(rows + 1) for held in combinations_with_replacement(range(2), size)]
    return list(product(one, repeat=units))


def with_unit(table: Table, unit: int, rows: tuple[int, ...]) -> Table:
    return tuple(rows if place == unit else held for place, held in enumerate(table))


def rows_removed(table: Table) -> Iterable[Table]:
    for unit, held in enumerate(table):
        for place in range(len(held)):
            yield with_unit(table, unit, held[:place] + held[place + 1 :])


def units_removed(table: Table) -> Iterable[Table]:
    return (with_unit(table, unit, ()) for unit, held in enumerate(table) if held)


def neighbours(everything: list[Table], protection: Protection) -> dict[Table, set[Table]]:
    """The neighbours of each table, by the definition: one is removed or added, or one is removed and another added."""
    removed: Callable[[Table], Iterable[Table]] = rows_removed if protection.unit is None else units_removed
    below = {table: set(removed(table)) for table in everything}
    above: dict[Table, set[Table]] = {table: set() for table in everything}
    for table, smaller in below.items():
        for each in smaller:
            above[each].add(table)
    if protection.neighbours == "add-remove":
        return {table: below[table] | above[table] for table in everything}
    return {table: {other for each in below[table] for other in above[each]} - {table} for table in everything}


def distances(start: Table, edges: dict[Table, set[Table]]) -> dict[Table, int]:
    found, waiting = {start: 0}, deque([start])
    while waiting:
        table = waiting.popleft()
        for other in edges[table] - found.keys():
            found[other] = found[table] + 1
            waiting.append(other)
    return found


def most_steps(bound: Protection, asked: Protection, *, units: int = 3, rows: int = 2) -> float:
    """The most steps of the asked kind between two neighbours of the bound kind, over all small tables."""
    pairs, reached = neighbours(tables(units, rows), bound), all_distances(asked, units, rows)
    return max(reached[table].get(other, inf) for table in pairs for other in pairs[table])


@cache
def all_distances(asked: Protection, units: int, rows: int) -> dict[Table, dict[Table, int]]:
    everything = tables(units, rows)
    steps = neighbours(everything, asked)
    return {table: distances(table, steps) for table in everything}


ROW, REPLACED_ROW = Protection(), Protection(neighbours="replace-one")
PERSON, REPLACED_PERSON = Protection("person", 2), Protection("person", 2, "replace-one")
KINDS = [ROW, REPLACED_ROW, PERSON, REPLACED_PERSON]


@pytest.mark.parametrize("asked", KINDS, ids=Protection.describe)
@pytest.mark.parametrize("bound", KINDS, ids=Protection.describe)
def test_the_factor_is_the_largest_distance_between_neighbours_of_the_ledger(bound: Protection, asked: Protection):
    claimed = steps_between(bound, asked)
    if claimed is not None:
        assert most_steps(bound, asked) == claimed
    elif bound.unit is not None and asked.unit is None and asked.neighbours == "add-remove":
        few, more = (most_steps(bound, asked, units=2, rows=rows) for rows in (2, 4))
        assert more == 2 * few  # there is no finite factor: it grows with the rows that a unit has
    else:
        assert most_steps(bound, asked) == inf


def test_how_many_rows_of_a_unit_are_counted_does_not_change_what_is_protected():
    assert steps_between(Protection("person", 1), Protection("person", 7)) == 1
    assert steps_between(Protection("person", 7), Protection("person", 1)) == 1


def test_units_of_two_columns_have_no_factor():
    assert steps_between(Protection("person"), Protection("household")) is None


def test_a_group_of_k_costs_k_times_epsilon_and_k_squared_times_rho():
    assert budget(epsilon="0.1").for_group(4) == budget(epsilon="0.4")
    assert budget(rho="0.1").for_group(4) == budget(rho="1.6")
    approximate = budget(epsilon=1, delta=1e-9)
    assert approximate.for_group(2).amount == 4 * approximate.amount
    assert approximate.for_group(1) == approximate


def test_pure_epsilon_costs_a_ledger_of_rho_the_same_whichever_is_converted_first():
    assert budget(epsilon=1).for_group(2).cost_in("rho") == 4 * budget(epsilon=1).cost_in("rho")


# --- a ledger bound to what it protects ----------------------------------------------------------------------

DOMAIN = Domain.from_sizes({"a": 2}, name="town")
PEOPLE = pa.table({"a": ["0", "1", "1"], "person": ["x", "x", "y"], "household": ["h", "h", "h"]})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "town.ledger", dataset="town", total=budget(epsilon=4))


def people(unit: str | None = None, rows: int | None = None):
    return open_table(PEOPLE, DOMAIN, unit=unit, max_rows_per_unit=rows)


def test_a_ledger_is_bound_by_its_first_charge_and_says_so(ledger: Ledger):
    assert ledger.protection is None
    measure(people("person", 2), Flat(), ledger=ledger, epsilon=0.5)
    assert ledger.protection == Protection("person", 2)
    assert Ledger.open(ledger.path).entries()[0].protection == Protection("person", 2)


def test_a_ledger_can_be_bound_when_it_is_created(tmp_path: Path):
    bound = Protection("person", 3, "replace-one")
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="town", total=budget(epsilon=1), protection=bound)
    assert ledger.protection == bound
    with pytest.raises(LedgerError, match="any number of rows"):
        measure(people(), Flat(), ledger=ledger, epsilon=0.5, neighbours="replace-one", convert=True)
    assert ledger.spent == 0


CONVERTIBLE = [
    (((None, None), "replace-one"), ((None, None), "add-remove"), "1"),
    ((("person", 2), "replace-one"), (("person", 2), "add-remove"), "1"),
    (((None, None), "add-remove"), (("person", 2), "add-remove"), "1"),
    (((None, None), "replace-one"), (("person", 2), "add-remove"), "2"),
    ((("person", 2), "add-remove"), (("person", 5), "add-remove"), "0.5"),
]


@pytest.mark.parametrize(("bound", "asked", "cost"), CONVERTIBLE)
def test_a_request_for_another_unit_is_refused_with_its_cost_and_charged_that_on_demand(ledger, bound, asked, cost):
    (unit, relation), (other, other_relation) = bound, asked
    measure(people(*unit), Flat(), ledger=ledger, epsilon=0.25, neighbours=relation)
    request = {"ledger": ledger, "epsilon": 0.5, "neighbours": other_relation}
    with pytest.raises(LedgerError, match=rf"do not add up.*would cost epsilon {cost}, .*convert=True"):
        measure(people(*other), Flat(), **request)
    assert ledger.spent == Decimal("0.25")
    measured = measure(people(*other), Flat(), **request, convert=True)
    assert ledger.spent == Decimal("0.25") + Decimal(cost)
    assert measured.privacy.neighbours == other_relation
    assert measured.privacy.spent == {"epsilon": "0.5"}  # what it promises of its own unit is as true as ever
    measure(people(*other), Flat(), **request)  # a repeated request needs no consent: nothing is charged
    assert Ledger.open(ledger.path).spent == Decimal("0.25") + Decimal(cost)


@pytest.mark.parametrize(
    ("bound", "asked", "reason"),
    [
        (((None, None), "add-remove"), ((None, None), "replace-one"), "replacing never changes how many"),
        ((("person", 2), "add-remove"), ((None, None), "add-remove"), "any number of rows"),
        ((("person", 2), "add-remove"), (("household", 2), "add-remove"), "any number of values of 'household'"),
        (((None, None), "add-remove"), (("person", 2), "replace-one"), "replacing never changes how many"),
    ],
)
def test_where_no_finite_cost_follows_nothing_is_converted(ledger: Ledger, bound, asked, reason: str):
    (unit, relation), (other, other_relation) = bound, asked
    measure(people(*unit), Flat(), ledger=ledger, epsilon=0.25, neighbours=relation)
    for convert in (False, True):
        with pytest.raises(LedgerError, match=f"no finite cost follows, because .*{reason}"):
            measure(people(*other), Flat(), ledger=ledger, epsilon=0.5, neighbours=other_relation, convert=convert)
    assert ledger.spent == Decimal("0.25")


def test_a_converted_cost_must_fit(ledger: Ledger):
    measure(people(), Flat(), ledger=ledger, epsilon=0.25)
    with pytest.raises(BudgetExceeded, match=r"asked for epsilon 4 \(epsilon 2\), 3\.75 of 4 remains"):
        measure(people("person", 2), Flat(), ledger=ledger, epsilon=2, convert=True)


def test_rho_is_converted_by_the_square(tmp_path: Path):
    ledger = Ledger.create(tmp_path / "rho.ledger", dataset="town", total=budget(rho=1))
    measure(people(), Flat(), ledger=ledger, rho=0.1, neighbours="replace-one")
    measure(people(), Flat(), ledger=ledger, rho=0.1, convert=True)
    measure(people("person", 2), Flat(), ledger=ledger, epsilon=0.1, convert=True)
    assert [entry.cost for entry in ledger.entries()] == [Decimal("0.1"), Decimal("0.4"), Decimal("0.08")]
    assert ledger.entries()[1].charged == budget(rho="0.4")
