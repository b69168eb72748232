"""A user's statistic: whatever it does, one record adds no more than was declared and raises nothing."""

import math
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain
from consilience.errors import DeclarationError
from consilience.kernels.record_functions import RecordFunction, code_digest
from consilience.measuring import measure
from consilience.plans import OwnRounds
from consilience.privacy.budgets import budget
from consilience.privacy.ledger import Ledger
from consilience.privacy.model_statistics import OwnStatistic, own_statistics
from consilience.source import open_table

DOMAIN = Domain("plane", (Attribute.continuous("x", (0, 10)), Attribute.continuous("y", (-1, 1))))
THETA = [[0.5, -0.25]]


def moments(theta, record, found):
    found[0] = record[0] - theta[0, 0]
    found[1] = record[1] * record[0]
    found[2] = (record[1] - theta[0, 1]) ** 2


def hostile(theta, record, found):
    """Huge, not a number, out of place or failing, as the record has it."""
    found[0] = np.exp(2000.0 * record[0])
    found[1] = -1e300 * record[1]
    found[2] = np.log(record[0])
    if record[1] > 0.9:
        raise ValueError("a record")
    if record[1] < -0.9:
        found[int(1e6 * record[0])] = 1.0


def statistic(function, *, clip=3.0, norm=1, part="values") -> OwnStatistic:
    asked = RecordFunction("asked", function, size=3, clip=clip, clip_norm=norm)
    count, values = own_statistics(DOMAIN, ("x", "y"), "box", asked, THETA)
    return count if part == "count" else values


def slow_sums(points, clip: float, norm: int) -> np.ndarray:
    """The moments of each record, clipped, and cut toward zero, written out."""
    total = np.zeros(3)
    for x, y in points:
        record = np.trunc(np.clip([x / 5 - 1, y], -1, 1) * 2.0**20) / 2.0**20
        found = np.zeros(3)
        moments(np.array(THETA), record, found)
        found *= min(1.0, clip / np.linalg.norm(found, norm))
        total += np.trunc(found * 2.0**20)
    return total


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("clip", [0.3, 1.0, 20.0])
def test_sums_are_those_of_clipped_values_on_the_lattice(clip: float, norm: int) -> None:
    points = np.random.default_rng(0).uniform((-1, -1.2), (11, 1.2), (500, 2))
    np.testing.assert_allclose(
        statistic(moments, clip=clip, norm=norm).exact(points), slow_sums(points, clip, norm), atol=len(points)
    )


records = st.tuples(*[st.floats(allow_nan=True, allow_infinity=True)] * 2)


@given(records, st.sampled_from([1, 2]), st.sampled_from([0.5, 300.0]))
def test_no_record_adds_more_than_was_declared(record, norm: int, clip: float) -> None:
    for function in (hostile, moments):
        asked = statistic(function, clip=clip, norm=norm)
        added = asked.exact(np.array([record])).astype(object)
        size = sum(abs(each) for each in added) if norm == 1 else math.isqrt(sum(each * each for each in added))
        assert size <= clip * 2**20
        assert asked.sensitivity(norm, "add-remove") == clip
        assert asked.sensitivity(norm, "replace-one") == 2 * clip


def test_a_record_adds_the_same_wherever_it_stands_and_whatever_others_do() -> None:
    points = np.random.default_rng(1).uniform((0, -1), (10, 1), (300, 2))
    for function in (hostile, moments):
        asked = statistic(function)
        alone = sum(asked.exact(points[i : i + 1]) for i in range(len(points)))
        np.testing.assert_array_equal(asked.exact(points), alone)
        np.testing.assert_array_equal(asked.exact(points[::-1]), alone)


def test_records_that_fail_add_nothing_but_are_counted() -> None:
    failing = np.array([[5.0, 0.95], [9.0, -0.95], [0.0, 0.0]])
    np.testing.assert_array_equal(statistic(hostile).exact(failing), np.zeros(3))
    assert statistic(hostile, part="count").exact(failing) == [3]
    assert statistic(hostile, part="count").exact(np.array([[np.nan, 0.0]])) == [0]


def test_the_other_norm_is_bounded_too() -> None:
    assert statistic(moments, norm=2).sensitivity(1, "add-remove") == pytest.approx(3.0 * math.sqrt(3))
    assert statistic(moments, norm=1).sensitivity(2, "add-remove") == 3.0
    assert statistic(moments, part="count").sensitivity(1, "replace-one") == 1.0


def draws(theta, record, found):
    found[0] = np.random.random()


@numba.njit
def drawn(factor):
    return factor * np.random.random()


def draws_elsewhere(theta, record, found):
    found[0] = drawn(record[0])


@numba.njit
def tell(number):
    print(number)


def prints(theta, record, found):
    tell(record[0])


def calls_python(theta, record, found):
    with numba.objmode():
        KEPT.append(record[0])


KEPT: list[float] = []


def remembers(theta, record, found):
    theta[0, 0] += record[0]


def moves(theta, record, found):
    record[0] = 1.0


made = np.empty


@numba.njit
def left_by_others():
    return made(2)[0]


def reads_what_others_left(theta, record, found):
    found[0] = left_by_others()


def unknown(theta, record, found):
    found[0] = record.nothing


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"function": draws}, "random numbers"),
        ({"function": draws_elsewhere}, "random numbers"),
        ({"function": prints}, "prints"),
        ({"function": calls_python}, "calls Python"),
        ({"function": reads_what_others_left}, "an earlier record"),
        ({"function": remembers}, "cannot be compiled"),
        ({"function": moves}, "cannot be compiled"),
        ({"function": unknown}, "cannot be compiled"),
        ({"function": lambda record: record}, "cannot be compiled"),
        ({"clip": 0.0}, "a number above 0"),
        ({"clip": float("nan")}, "a number above 0"),
        ({"clip": 1e-9}, "less than one unit"),
        ({"clip_norm": 3}, "1 or 2"),
        ({"size": 0}, "a size from 1"),
    ],
)
def test_what_is_no_statistic_is_refused_by_its_declaration(options, message: str) -> None:
    given: dict[str, Any] = {"name": "asked", "function": moments, "size": 3, "clip": 1.0} | options
    with pytest.raises(DeclarationError, match=message):  # noqa: PT012
        asked = RecordFunction(**given)
        own_statistics(DOMAIN, ("x", "y"), "box", asked, THETA)[1].check(DOMAIN)


def test_functions_that_do_something_else_are_told_apart() -> None:
    def scaled(factor):
        def function(theta, record, found):
            found[0] = factor * record[0]

        return function

    one, same, two = (code_digest(scaled(factor)) for factor in (1.0, 1.0, 2.0))
    assert one == same
    assert len({one, two, code_digest(moments)}) == 3


def test_rounds_are_charged_once_and_answered_again(tmp_path) -> None:
    points = np.random.default_rng(2).uniform((0, -1), (10, 1), (400, 2))
    source = open_table(pa.table({"x": points[:, 0], "y": points[:, 1]}), DOMAIN)
    ledger = Ledger.create(tmp_path / "plane.ledger", dataset="plane", total=budget(epsilon=1))

    def follow(theta, records, sums):
        return theta + np.clip(sums[:2] / records, -1, 1)

    plan = OwnRounds(RecordFunction("moments", moments, 3, 2.0), THETA, follow, rounds=3)
    first, again = (measure(source, plan, ledger=ledger, epsilon=1).measurements for _ in range(2))
    assert ledger.spent == 1
    assert [each.values.tolist() for each in first] == [each.values.tolist() for each in again]
    assert [each.round for each in first] == [1, 1, 2, 2, 3, 3]
    thetas = [np.array(each.statistic["theta"]) for each in first]
    np.testing.assert_allclose(thetas[2], follow(thetas[0], max(1.0, first[0].values[0]), first[1].values))
    other = OwnRounds(RecordFunction("moments", hostile, 3, 2.0), THETA, follow, rounds=3)
    assert other.to_json() != plan.to_json()


def products(theta, record, found):
    found[:] = theta @ record


def test_a_product_of_arrays_may_be_taken() -> None:
    """Where shapes may differ numba compiles a message, and with it the hash of a text, which is no call of Python."""
    assert RecordFunction("products", products, size=1, clip=1.0).compiled is not None
