"""Budgets: exact decimals, refusals that help, and conversions that are tight and on the safe side."""

import json
import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr

from consilience.errors import DeclarationError
from consilience.privacy.budgets import (
    Budget,
    budget,
    decimal_text,
    epsilon_from_rho,
    exact_difference,
    exact_sum,
    rho_from_epsilon_delta,
    shortened,
)

epsilons = st.floats(1e-3, 50)
deltas = st.floats(math.log(1e-15), math.log(0.5)).map(math.exp)
rhos = st.floats(math.log(1e-8), math.log(100)).map(math.exp)
declared = st.one_of(
    st.builds(lambda e: budget(epsilon=e), epsilons),
    st.builds(lambda r: budget(rho=r), rhos),
    st.builds(lambda e, d: budget(epsilon=e, delta=d), epsilons, deltas),
)


def log_delta(alpha: float, rho: float, epsilon: float) -> float:
    """ln δ of one Rényi order α, straight from Proposition 7."""
    x = alpha - 1
    return x * (alpha * rho - epsilon) - math.log(x) + alpha * (math.log(x) - math.log1p(x))


def slow_log_delta(rho: float, epsilon: float) -> float:
    """The infimum over α by a grid of orders, refined around its best point."""
    grid = np.linspace(-30, 25, 1101)
    values = [log_delta(1 + math.exp(t), rho, epsilon) for t in grid]
    best = int(np.argmin(values))
    found = minimize_scalar(
        lambda t: log_delta(1 + math.exp(t), rho, epsilon),
        bounds=(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]),
        method="bounded",
        options={"xatol": 1e-10},
    )
    limit_at_order_one = 0.0
    refined = log_delta(1 + math.exp(found.x), rho, epsilon)  # pyright: ignore[reportAttributeAccessIssue]
    return min(refined, values[best], limit_at_order_one)


def delta_from_rho(rho: float | Decimal, epsilon: float | Decimal) -> Decimal:
    """The smallest δ for which ρ-zCDP implies (ε, δ)-DP, to many digits and never below 1e-150.

    The derivative of ln δ in α, (2α − 1)ρ − ε + ln(1 − 1/α), is negative and then positive.
    """
    with localcontext(Context(prec=80)):
        rho, epsilon = (each if isinstance(each, Decimal) else Decimal(repr(each)) for each in (rho, epsilon))
        low, high = Decimal("1e-50"), Decimal("1e50")
        while high - low > low * Decimal("1e-20"):
            x = (low * high).sqrt()
            low, high = (x, high) if (2 * x + 1) * rho - epsilon + (x / (1 + x)).ln() < 0 else (low, x)
        delta = (low * ((1 + low) * rho - epsilon) - low.ln() + (1 + low) * (low / (1 + low)).ln()).exp()
        return min(max(delta, Decimal("1e-150")), Decimal(1))


def gaussian_log_delta(rho: float, epsilon: float) -> float:
    """ln of the exact δ of the Gaussian mechanism that is ρ-zCDP (Balle and Wang 2018, Theorem 8)."""
    mean = math.sqrt(2 * rho)
    larger = float(log_ndtr(mean / 2 - epsilon / mean))
    smaller = epsilon + float(log_ndtr(-mean / 2 - epsilon / mean))
    return larger + math.log(-math.expm1(smaller - larger)) if smaller < larger else -math.inf


# --- declaring -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_numbers", "unit", "additive"),
    [
        ({"epsilon": 0.5}, "epsilon", "epsilon"),
        ({"rho": 0.015}, "rho", "rho"),
        ({"epsilon": 1, "delta": 1e-9}, "epsilon-delta", "rho"),
    ],
)
def test_the_numbers_given_decide_the_unit(given_numbers, unit, additive):
    made = budget(**given_numbers)
    assert (made.unit, made.additive_unit) == (unit, additive)


@pytest.mark.parametrize(
    ("given_numbers", "text"),
    [
        ({}, "no budget was given; add epsilon=1"),
        ({"delta": 1e-9}, "delta 1E-9 was given without epsilon; add epsilon"),
        ({"epsilon": 1, "rho": 0.5}, "rho 0.5 and epsilon 1 were both given"),
        ({"delta": 0.1, "rho": 0.5}, "rho 0.5 and delta 0.1 were both given"),
        ({"epsilon": 0}, "epsilon is 0; it must be finite and greater than 0"),
        ({"epsilon": -0.5}, "epsilon is -0.5"),
        ({"epsilon": math.nan}, "epsilon is NaN"),
        ({"epsilon": math.inf}, "epsilon is Infinity"),
        ({"rho": 0}, "rho is 0"),
        ({"rho": "-inf"}, "rho is -Infinity"),
        ({"epsilon": 1, "delta": 0}, "delta is 0; it must lie strictly between 0 and 1"),
        ({"epsilon": 1, "delta": 1}, "delta is 1;"),
        ({"epsilon": 1, "delta": -1e-9}, "delta is -1E-9"),
        ({"epsilon": 1, "delta": math.nan}, "delta is NaN"),
        ({"epsilon": 0, "delta": 1e-9}, "epsilon is 0"),
        ({"epsilon": "a lot"}, "epsilon is 'a lot', which is not a number"),
        ({"epsilon": True}, "epsilon is True, which is not a number"),
        ({"epsilon": [1]}, "which is not a number"),
        ({"epsilon": 1e10}, "check the number of zeros"),
        ({"epsilon": "1e-41"}, "check the number of zeros"),
        ({"epsilon": "0.1" + "0" * 200 + "1"}, "more than 150 decimal places"),
    ],
)
def test_a_wrong_declaration_is_refused_and_the_value_named(given_numbers, text):
    with pytest.raises(DeclarationError) as refused:
        budget(**given_numbers)
    assert text in str(refused.value)


def test_three_times_a_tenth_is_three_tenths():
    tenth = budget(epsilon=0.1).amount
    assert exact_sum([tenth, tenth, tenth]) == Decimal("0.3")
    assert exact_difference(Decimal("0.3"), exact_sum([tenth] * 3)) == 0


@pytest.mark.parametrize("value", [np.float64(0.1), "0.1", Decimal("0.10"), 0.1])
def test_a_tenth_is_a_tenth_however_it_is_written(value):
    assert budget(epsilon=value) == budget(epsilon=0.1)
    assert budget(epsilon=value).to_json() == {"epsilon": "0.1"}


def test_whole_numbers_of_numpy_are_exact():
    assert budget(epsilon=np.int64(3)).amount == 3  # pyright: ignore[reportArgumentType]


def test_sums_ignore_the_ambient_decimal_context():
    with localcontext() as context:
        context.prec = 2
        total = exact_sum([Decimal("1.0001"), Decimal("1e-60")])
    assert str(total) == "1.0001" + "0" * 55 + "1"


# --- text ----------------------------------------------------------------------------------------------------


def test_descriptions_are_what_a_reader_expects():
    assert budget(epsilon=0.5).describe() == "epsilon 0.5"
    assert budget(rho=0.015).describe() == "rho 0.015"
    assert budget(epsilon=1, delta=1e-9).describe() == "epsilon 1, delta 1e-9 (rho 0.01497)"
    assert budget(rho=rho_from_epsilon_delta(1, 1e-9)).describe() == "rho 0.01497"
    assert budget(epsilon=100).describe() == "epsilon 100"


def test_shortened_numbers_can_be_rounded_to_either_side():
    value = Decimal("0.12345678")
    assert shortened(value, rounding="ROUND_UP") == "0.1235"
    assert shortened(value, rounding="ROUND_DOWN") == "0.1234"
    assert shortened(Decimal("0.123456")) == "0.123456"


@given(declared)
def test_json_reads_back_digit_for_digit(made: Budget):
    back = Budget.from_json(json.loads(json.dumps(made.to_json())))
    assert back == made
    assert back.amount == made.amount
    assert back.unit == made.unit


@given(st.decimals(min_value="1e-30", max_value="1e9", allow_nan=False, allow_infinity=False))
def test_decimal_text_reads_back_exactly(value: Decimal):
    assert Decimal(decimal_text(value)) == value


@pytest.mark.parametrize(
    "data", [{"epsilon": 0.5}, {"epsilon": "0.5", "sigma": "1"}, {"epsilon": "x"}, {}, {"delta": "0.1"}]
)
def test_json_that_is_no_budget_is_refused(data):
    with pytest.raises(DeclarationError):
        Budget.from_json(data)


# --- the conversion rule of the ledger -----------------------------------------------------------------------


def test_like_costs_like():
    assert budget(epsilon=0.3).cost_in("epsilon") == Decimal("0.3")
    assert budget(rho=0.3).cost_in("rho") == Decimal("0.3")
    assert budget(rho=0.3).cost_in("epsilon-delta") == Decimal("0.3")
    whole = budget(epsilon=1, delta=1e-9)
    assert whole.cost_in("epsilon-delta") == whole.cost_in("rho") == whole.amount


def test_pure_epsilon_costs_half_its_square_of_rho():
    assert budget(epsilon=0.3).cost_in("rho") == Decimal("0.045")
    assert budget(epsilon=0.3).cost_in("epsilon-delta") == Decimal("0.045")


@given(epsilons)
def test_the_cost_of_pure_epsilon_is_rounded_up(epsilon: float):
    exact = Fraction(repr(epsilon)) ** 2 / 2
    charged = Fraction(budget(epsilon=epsilon).cost_in("rho"))
    assert exact <= charged <= exact * (1 + Fraction(1, 10**18))


@pytest.mark.parametrize("cost", [budget(rho=0.1), budget(epsilon=1, delta=1e-9)])
def test_only_pure_epsilon_can_be_charged_in_pure_epsilon(cost: Budget):
    with pytest.raises(DeclarationError, match="cannot be charged to a ledger of pure epsilon"):
        cost.cost_in("epsilon")


# --- shares --------------------------------------------------------------------------------------------------


def test_shares_keep_the_additive_unit():
    assert budget(epsilon=1).scaled(0.25) == budget(epsilon=0.25)
    assert budget(rho=1).scaled("0.1") == budget(rho=0.1)
    part = budget(epsilon=1, delta=1e-9).scaled(0.5)
    assert part.unit == "rho"
    assert part.amount * 2 <= budget(epsilon=1, delta=1e-9).amount


@given(declared, st.lists(st.integers(1, 1000), min_size=1, max_size=20))
def test_fractional_shares_that_sum_to_one_never_exceed_the_whole(made: Budget, weights: list[int]):
    parts = [made.scaled(Fraction(weight, sum(weights))) for weight in weights]
    together = Fraction(exact_sum(part.amount for part in parts))
    assert together <= Fraction(made.amount)
    assert together >= Fraction(made.amount) * (1 - Fraction(1, 10**15))


@pytest.mark.parametrize("share", [0, -0.5, math.nan, math.inf, "half", Fraction(0)])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(DeclarationError, match="share"):
        budget(epsilon=1).scaled(share)


# --- zCDP and (ε, δ) -----------------------------------------------------------------------------------------


def test_the_known_value_of_the_tight_conversion():
    assert round(rho_from_epsilon_delta(1, 1e-9), 5) == Decimal("0.01497")
    assert budget(epsilon=1, delta=1e-9).amount == rho_from_epsilon_delta(1, 1e-9)


@settings(deadline=None, max_examples=25)
@given(rhos, epsilons)
def test_delta_agrees_with_a_search_over_orders(rho: float, epsilon: float):
    fast = float(delta_from_rho(rho, epsilon).ln())
    slow = max(slow_log_delta(rho, epsilon), math.log(1e-150))
    assert fast == pytest.approx(slow, abs=1e-6, rel=1e-7)


@settings(deadline=None, max_examples=25)
@given(epsilons, deltas)
def test_rho_agrees_with_a_search_over_orders(epsilon: float, delta: float):
    rho = float(rho_from_epsilon_delta(epsilon, delta))
    assert slow_log_delta(rho, epsilon) == pytest.approx(math.log(delta), abs=1e-6, rel=1e-7)


@settings(deadline=None, max_examples=20)
@given(epsilons, deltas)
def test_rho_from_epsilon_and_delta_implies_them_and_little_less(epsilon: float, delta: float):
    rho = rho_from_epsilon_delta(epsilon, delta)
    exact_epsilon, exact_delta = Decimal(repr(epsilon)), Decimal(repr(delta))
    assert delta_from_rho(rho, epsilon) <= exact_delta
    more = rho * (1 + Decimal("1e-12"))
    assert delta_from_rho(more, epsilon) > exact_delta
    assert abs(epsilon_from_rho(rho, delta) - exact_epsilon) <= Decimal("1e-12")


@settings(deadline=None, max_examples=25)
@given(rhos, deltas)
def test_epsilon_from_rho_is_on_the_safe_side(rho: float, delta: float):
    epsilon = epsilon_from_rho(rho, delta)
    assert epsilon >= 0
    if epsilon > Decimal("1e-6"):
        assert delta_from_rho(rho, epsilon) <= Decimal(repr(delta)) * (1 + Decimal("1e-15"))
        assert delta_from_rho(rho, epsilon * (1 - Decimal("1e-9"))) > Decimal(repr(delta))


@settings(deadline=None, max_examples=60)
@given(rhos, epsilons)
def test_delta_lies_between_the_gaussian_mechanism_and_the_classical_bound(rho: float, epsilon: float):
    log_of_delta = float(delta_from_rho(rho, epsilon).ln())
    assert log_of_delta >= gaussian_log_delta(rho, epsilon) - 1e-9
    if epsilon > rho:
        classical = -((epsilon - rho) ** 2) / (4 * rho)
        assert log_of_delta <= max(classical, math.log(1e-150)) + 1e-9


@settings(deadline=None, max_examples=12)
@given(epsilons, deltas, st.floats(1.001, 3))
def test_more_epsilon_or_more_delta_buys_more_rho(epsilon: float, delta: float, factor: float):
    rho = rho_from_epsilon_delta(epsilon, delta)
    assert rho_from_epsilon_delta(epsilon * factor, delta) > rho
    assert rho_from_epsilon_delta(epsilon, min(delta * factor, 0.999)) >= rho


@pytest.mark.parametrize("epsilon", [1e-40, 1e-3, 50, 1e9])
@pytest.mark.parametrize("delta", [1e-40, 1e-15, 0.5, 0.999999])
def test_the_ends_of_the_range_convert(epsilon: float, delta: float):
    rho = rho_from_epsilon_delta(epsilon, delta)
    assert 0 < rho < Decimal(repr(epsilon)) + 20
    if rho >= Decimal("1e-40"):
        assert delta_from_rho(rho, epsilon) <= Decimal(repr(delta))


def test_a_delta_that_covers_everything_needs_no_epsilon():
    assert epsilon_from_rho(1e-6, 0.5) == 0


# --- failure deltas ------------------------------------------------------------------------------------------


def test_a_failure_delta_belongs_to_rho_and_is_kept():
    made = budget(rho=0.1, failure_delta=1e-9)
    assert (made.unit, made.failure, made.amount) == ("rho", Decimal("1e-9"), Decimal("0.1"))
    assert made.describe() == "rho 0.1, failure delta 1e-9"
    assert Budget.from_json(made.to_json()) == made != budget(rho=0.1)
    for numbers in ({"epsilon": 1}, {"epsilon": 1, "delta": 1e-9}):
        with pytest.raises(DeclarationError, match="belongs to rho"):
            budget(**numbers, failure_delta=1e-10)
    for wrong in (0, 1, -1e-9, "nan"):
        with pytest.raises(DeclarationError):
            budget(rho=0.1, failure_delta=wrong)


def test_what_fails_leaves_epsilon_the_rest_of_its_delta():
    total = budget(epsilon=1, delta="1e-9")
    assert total.room(Decimal(0)) == total.amount
    assert total.room(Decimal("4e-10")) == rho_from_epsilon_delta(1, "6e-10") < total.amount
    assert total.room(Decimal("1e-9")) is None
    assert total.room(Decimal("1e-9") - Decimal("1e-60")) is None
    assert budget(epsilon=1).room(Decimal("1e-30")) is None
    assert budget(rho=1).room(Decimal("1e-30")) is None
    declared = budget(rho=1, failure_delta="1e-9")
    assert (declared.room(Decimal("1e-9")), declared.room(Decimal("1.1e-9"))) == (1, None)


def test_a_budget_that_may_fail_costs_its_rho_beside():
    part = budget(epsilon=1, delta="1e-9").failing("1e-10")
    assert part == budget(rho=rho_from_epsilon_delta(1, "9e-10"), failure_delta="1e-10")
    assert budget(rho=2, failure_delta="1e-9").failing("1e-9") == budget(rho=2, failure_delta="1e-9")
    for short in (budget(epsilon=1), budget(rho=1), budget(epsilon=1, delta="1e-10")):
        with pytest.raises(DeclarationError, match="does not fit"):
            short.failing("1e-10")


def test_a_budget_that_may_fail_has_no_price_for_groups():
    made = budget(rho=0.1, failure_delta=1e-9)
    assert made.for_group(1) == made
    with pytest.raises(DeclarationError, match="no price is known"):
        made.for_group(2)
    with pytest.raises(DeclarationError, match="pure epsilon"):
        made.cost_in("epsilon")
