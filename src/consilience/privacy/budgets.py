"""Privacy budgets as exact decimal numbers, the conversions between their units, and between what they protect.

Three units are declared: pure ε, ρ (zero-concentrated, zCDP) and (ε, δ). Two of them add up: ε with ε and ρ
with ρ. An (ε, δ) budget is carried by the largest ρ that implies it, so it is additive in ρ: whoever is given
(ε, δ) calibrates Gaussian noise to `Budget.amount`, and is charged exactly that.

Everything is a `Decimal`: three times 0.1 is 0.3, and a sum of a thousand charges is what a person gets on
paper. Where a result has no finite decimal form it is rounded to the side that protects more.

The conversions between ρ and (ε, δ) come from Canonne, Kamath and Steinke, "The Discrete Gaussian for
Differential Privacy" (2020), Proposition 7: ρ-zCDP implies (ε, δ)-DP with

    δ = inf over α > 1 of   exp((α − 1)(αρ − ε)) / (α − 1) · (1 − 1/α)^α.

Every single α gives a guarantee that holds, so a search that stops early costs accuracy and never privacy.
With L = ln(1/δ), solving the inequality for the other two quantities gives

    ε = inf  αρ + (L − ln α)/(α − 1) + ln(1 − 1/α)
    ρ = sup  [ε − (L − ln α)/(α − 1) − ln(1 − 1/α)] / α.

Each has one stationary point, the root of a monotone function that bisection finds.

A ρ may come with a *failure δ*: with at most that probability the ρ-zCDP promise is broken (approximate zCDP: Bun and
Steinke 2016, Definition 8.1). Both add up (Lemma 8.2), and ρ with a failure δᶠ implies (ε, δᶠ + δ) wherever ρ alone
implies (ε, δ) (Lemma 8.8). A total of (ε, δ) thus has room for the ρ of (ε, δ − Σδᶠ) and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_DOWN,
    ROUND_HALF_EVEN,
    ROUND_UP,
    Context,
    Decimal,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
    localcontext,
)
from fractions import Fraction
from functools import lru_cache, reduce
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal

from consilience.errors import DeclarationError

if TYPE_CHECKING:
    from consilience.domain.sensitivity import Neighbours

Unit = Literal["epsilon", "rho", "epsilon-delta"]
AdditiveUnit = Literal["epsilon", "rho"]
Number = Decimal | int | float | str

SMALLEST = Decimal("1e-40")
LARGEST = Decimal("1e9")
MOST_PLACES = 150

# Charges have at most 150 decimal places and 19 digits before the point, so 200 digits hold any sum of them;
# the trap on Inexact turns a violation of that into an error instead of a rounded ledger.
_EXACT = Context(prec=200, traps=[Inexact, InvalidOperation, Overflow, DivisionByZero])
_DOWN = Context(prec=20, rounding=ROUND_DOWN, Emin=MIN_EMIN, Emax=MAX_EMAX)
_UP = Context(prec=20, rounding=ROUND_UP, Emin=MIN_EMIN, Emax=MAX_EMAX)
_SEARCH = Context(prec=120, rounding=ROUND_HALF_EVEN, Emin=MIN_EMIN, Emax=MAX_EMAX)

# The search works with 120 digits on values that lose at most 60 to cancellation. Results are moved by this
# relative margin to the safe side before they are rounded to 20 digits, which covers what was lost.
_MARGIN = Decimal("1e-30")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """An amount of privacy loss in one declared unit: ε, ρ, or ε with δ.

    >>> budget(epsilon=0.5).describe()
    'epsilon 0.5'
    >>> budget(epsilon=1, delta=1e-9).describe()
    'epsilon 1, delta 1e-9 (rho 0.01497)'
    """

    epsilon: Decimal | None = None
    delta: Decimal | None = None
    rho: Decimal | None = None
    failure_delta: Decimal | None = None
    """With ρ: the probability with which its promise may fail."""
    amount: Decimal = field(init=False, compare=False, repr=False)
    """What adds up: ε when pure, else ρ; for (ε, δ) the largest ρ that implies it, rounded down."""

    def __post_init__(self) -> None:
        if self.rho is not None:
            _refuse_mixture(self)
            amount = _checked("rho", self.rho)
        elif self.epsilon is None:
            raise DeclarationError(_nothing_given(self.delta))
        elif self.delta is None:
            amount = _checked("epsilon", self.epsilon)
        else:
            amount = rho_from_epsilon_delta(self.epsilon, self.delta)
        if self.failure_delta is not None:
            if self.rho is None:
                raise DeclarationError(
                    "a failure delta belongs to rho; with epsilon and delta it is taken out of that delta: leave it out"
                )
            _checked_delta(self.failure_delta)
        object.__setattr__(self, "amount", amount)

    @property
    def unit(self) -> Unit:
        """The unit in which the budget was declared."""
        if self.rho is not None:
            return "rho"
        return "epsilon" if self.delta is None else "epsilon-delta"

    @property
    def additive_unit(self) -> AdditiveUnit:
        """The unit of `amount`: epsilon for a pure budget, rho for the other two."""
        return "epsilon" if self.unit == "epsilon" else "rho"

    def cost_in(self, unit: Unit) -> Decimal:
        """What this budget costs in a ledger declared in `unit`, in that ledger's additive unit.

        The written rule: like costs like; (ε, δ) and ρ share ρ; pure ε costs ε²/2 of ρ, rounded up (Bun and
        Steinke 2016, Proposition 1.4). Nothing but pure ε can be charged to a ledger of pure ε.

        >>> budget(epsilon=0.1).cost_in("rho")
        Decimal('0.005')
        """
        if (unit == "epsilon") == (self.additive_unit == "epsilon"):
            return self.amount
        if self.additive_unit == "epsilon":
            return _UP.divide(_UP.multiply(self.amount, self.amount), Decimal(2))
        raise DeclarationError(
            f"{self.describe()} cannot be charged to a ledger of pure epsilon, because no finite epsilon "
            "follows from rho or from (epsilon, delta); ask with epsilon alone, or use a ledger declared "
            "in rho or in epsilon and delta"
        )

    @property
    def failure(self) -> Decimal:
        """The failure δ, 0 where there is none: it adds up, too."""
        return Decimal(0) if self.failure_delta is None else self.failure_delta

    def room(self, failures: Decimal) -> Decimal | None:
        """What amounts may add up to beside failures that add up to this; None where these are too many themselves.

        >>> shortened(budget(epsilon=1, delta=1e-9).room(Decimal("1e-10")))
        '0.01488'
        """
        if not failures:
            return self.amount
        if self.epsilon is None or self.delta is None:
            return self.amount if failures <= self.failure else None
        left = _EXACT.subtract(self.delta, failures)
        return rho_from_epsilon_delta(self.epsilon, left) if left >= SMALLEST else None

    def failing(self, failure_delta: Number) -> Budget:
        """The ρ that is left of this budget when it also pays for this failure δ, and the two as one budget."""
        failure = _checked_delta(failure_delta)
        left = self.room(failure)
        if left is None:
            raise DeclarationError(
                f"a failure delta of {shortened(failure)} does not fit in {self.describe()}"
                + (": no probability is left over; give epsilon a delta" if self.unit == "epsilon" else "; take less")
            )
        return budget(rho=left, failure_delta=failure)

    def scaled(self, share: Number | Fraction) -> Budget:
        """The budget whose additive amount is `share` times this one's, rounded down; (ε, δ) becomes ρ.

        A failure δ is left out. Shares given as `Fraction` that sum to one never cost more than the whole.

        >>> budget(epsilon=1).scaled(Fraction(1, 4)).describe()
        'epsilon 0.25'
        """
        factor = share if isinstance(share, Fraction) else _decimal("share", share)
        if not (isinstance(factor, Fraction) or factor.is_finite()) or factor <= 0:
            raise DeclarationError(f"the share is {share}; it must be finite and greater than 0, such as 0.5")
        product = Fraction(self.amount) * Fraction(factor)
        amount = _DOWN.divide(Decimal(product.numerator), Decimal(product.denominator))
        return budget(epsilon=amount) if self.additive_unit == "epsilon" else budget(rho=amount)

    def for_group(self, size: int) -> Budget:
        """What this budget comes to between tables that are so many neighbours apart: kε, or k²ρ.

        >>> budget(rho=0.1).for_group(2).describe()
        'rho 0.4'
        """
        if size == 1:
            return self
        if self.failure:
            raise DeclarationError(
                f"{self.describe()} holds between neighbours of the request alone, and no price is known for those "
                "that are several of them apart; ask for what the ledger protects"
            )
        if self.additive_unit == "epsilon":
            return budget(epsilon=_EXACT.multiply(self.amount, size))
        return budget(rho=_EXACT.multiply(self.amount, size * size))

    def describe(self) -> str:
        """The budget as a reader meets it in messages and reports, long numbers shortened."""
        declared = ", ".join(f"{name.replace('_', ' ')} {shortened(value)}" for name, value in self._declared())
        return f"{declared} (rho {shortened(self.amount)})" if self.unit == "epsilon-delta" else declared

    def to_json(self) -> dict[str, str]:
        """The declared numbers as exact decimal text, by name."""
        return {name: decimal_text(value) for name, value in self._declared()}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Budget:
        """The budget that `to_json` wrote, digit for digit."""
        unknown = sorted(set(data) - {"epsilon", "delta", "rho", "failure_delta"})
        if unknown:
            raise DeclarationError(f"a budget has epsilon, delta, rho and failure_delta; remove {unknown[0]!r}")
        numbers: dict[str, str] = {}
        for name, value in data.items():
            if not isinstance(value, str):
                raise DeclarationError(f"{name} is written as {value!r}; budgets are stored as text, such as '0.5'")
            numbers[name] = value
        return budget(**numbers)

    def _declared(self) -> list[tuple[str, Decimal]]:
        named = (("epsilon", self.epsilon), ("delta", self.delta), ("rho", self.rho))
        named += (("failure_delta", self.failure_delta),)
        return [(name, value) for name, value in named if value is not None]


def budget(
    *,
    epsilon: Number | None = None,
    delta: Number | None = None,
    rho: Number | None = None,
    failure_delta: Number | None = None,
) -> Budget:
    """The budget of these numbers, floats taken as the decimals they print as.

    >>> budget(epsilon=0.1).amount * 3
    Decimal('0.3')
    """
    return Budget(
        epsilon=None if epsilon is None else _decimal("epsilon", epsilon),
        delta=None if delta is None else _decimal("delta", delta),
        rho=None if rho is None else _decimal("rho", rho),
        failure_delta=None if failure_delta is None else _decimal("failure_delta", failure_delta),
    )


def rho_from_epsilon_delta(epsilon: Number, delta: Number) -> Decimal:
    """The largest ρ for which ρ-zCDP implies (ε, δ)-DP, rounded down.

    >>> shortened(rho_from_epsilon_delta(1, 1e-9))
    '0.01497'
    """
    return _largest_rho(_checked("epsilon", _decimal("epsilon", epsilon)), _checked_delta(delta))


def epsilon_from_rho(rho: Number, delta: Number) -> Decimal:
    """The smallest ε ≥ 0 for which ρ-zCDP implies (ε, δ)-DP, rounded up."""
    return _smallest_epsilon(_checked("rho", _decimal("rho", rho)), _checked_delta(delta))


def exact_sum(amounts: Iterable[Decimal]) -> Decimal:
    """The sum of amounts to the last digit, whatever the caller's decimal context."""
    return reduce(_EXACT.add, amounts, Decimal(0))


def exact_difference(total: Decimal, spent: Decimal) -> Decimal:
    """What `spent` leaves of `total`, to the last digit."""
    return _EXACT.subtract(total, spent)


def decimal_text(value: Decimal) -> str:
    """The shortest text that reads back as exactly this number: '0.5', '1e-9'."""
    plain = _EXACT.normalize(value)
    return format(plain, "f") if -6 < plain.adjusted() < 15 else format(plain, "e")


def shortened(value: Decimal, *, rounding: str = ROUND_HALF_EVEN) -> str:
    """The number for a reader: exact up to six significant digits, else rounded to four."""
    if len(_EXACT.normalize(value).as_tuple().digits) <= 6:
        return decimal_text(value)
    return decimal_text(Context(prec=4, rounding=rounding).plus(value))


# With x = α − 1, the derivative of the bracketed ρ has the sign of
#     (2α − 1)(L − ln α)/x² + ln(1 − 1/α) − ε,
# which falls from +∞ at α = 1 to ln(1 − δ) − ε < 0 at α = 1/δ.
@lru_cache(maxsize=1024)
def _largest_rho(epsilon: Decimal, delta: Decimal) -> Decimal:
    with localcontext(_SEARCH):
        log_inverse_delta = -delta.ln()

        def slope(x: Decimal) -> Decimal:
            return (2 * x + 1) * (log_inverse_delta - (1 + x).ln()) / (x * x) + _log_ratio(x) - epsilon

        x = _where_positive_turns_negative(slope)
        alpha = 1 + x
        rho = (epsilon - (log_inverse_delta - alpha.ln()) / x - _log_ratio(x)) / alpha
        return _DOWN.normalize(rho * (1 - _MARGIN))


# The derivative of ε in α is ρ − (L − ln α)/x²: negative, then positive.
@lru_cache(maxsize=1024)
def _smallest_epsilon(rho: Decimal, delta: Decimal) -> Decimal:
    with localcontext(_SEARCH):
        log_inverse_delta = -delta.ln()

        def descent(x: Decimal) -> Decimal:
            return log_inverse_delta - (1 + x).ln() - rho * x * x

        x = _where_positive_turns_negative(descent)
        alpha = 1 + x
        epsilon = alpha * rho + (log_inverse_delta - alpha.ln()) / x + _log_ratio(x)
        return _UP.normalize(max(epsilon, Decimal(0)) * (1 + _MARGIN))


def _log_ratio(x: Decimal) -> Decimal:
    """ln(1 − 1/α) for α = 1 + x."""
    return (x / (1 + x)).ln()


def _where_positive_turns_negative(function: Callable[[Decimal], Decimal]) -> Decimal:
    """The x = α − 1 in [1e-50, 1e50] where a falling function crosses zero, to twenty digits.

    Near its optimum a guarantee depends on α to second order, so twenty digits of α are forty of the result.
    """
    low, high = Decimal("1e-50"), Decimal("1e50")
    while high - low > low * Decimal("1e-20"):
        middle = (low * high).sqrt()
        if function(middle) > 0:
            low = middle
        else:
            high = middle
    return low


def _decimal(name: str, value: Number) -> Decimal:
    """The exact decimal that the caller wrote; a float becomes the number it prints as."""
    if isinstance(value, Decimal):
        return value
    with suppress(InvalidOperation):  # text that is no number meets the same refusal as a value of another type
        if isinstance(value, str):
            return Decimal(value)
        if isinstance(value, Integral) and not isinstance(value, bool):
            return Decimal(int(value))
        if isinstance(value, Real) and not isinstance(value, bool):
            return Decimal(repr(float(value)))
    raise DeclarationError(f"{name} is {value!r}, which is not a number; write it like 0.5 or 1e-9")


def _checked(name: str, value: Decimal) -> Decimal:
    """The value without trailing zeros, refused when it is no amount of privacy loss."""
    if not value.is_finite() or value <= 0:
        raise DeclarationError(f"{name} is {value}; it must be finite and greater than 0, such as {name}=0.5")
    if not SMALLEST <= value <= LARGEST:
        raise DeclarationError(
            f"{name} is {value}; budgets lie between {decimal_text(SMALLEST)} and {decimal_text(LARGEST)}: "
            "check the number of zeros"
        )
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent < -MOST_PLACES:
        raise DeclarationError(f"{name} has more than {MOST_PLACES} decimal places; round it down to fewer")
    return _EXACT.normalize(value)


def _checked_delta(delta: Number) -> Decimal:
    value = _decimal("delta", delta)
    if not value.is_finite() or not 0 < value < 1:
        raise DeclarationError(f"delta is {value}; it must lie strictly between 0 and 1, such as delta=1e-9")
    return _checked("delta", value)


def _refuse_mixture(declared: Budget) -> None:
    other = "epsilon" if declared.epsilon is not None else "delta" if declared.delta is not None else None
    if other is not None:
        raise DeclarationError(
            f"rho {declared.rho} and {other} {getattr(declared, other)} were both given; "
            "a budget is epsilon, or epsilon with delta, or rho: keep one"
        )


def _nothing_given(delta: Decimal | None) -> str:
    if delta is not None:
        return f"delta {delta} was given without epsilon; add epsilon, such as epsilon=1"
    return "no budget was given; add epsilon=1, or epsilon=1 with delta=1e-9, or rho=0.015"


# ----------------------------------------------------------------------------------------------------------------------
# What a ledger protects, and what a request costs a ledger that protects something else.
#
# Privacy losses add up only for the same pairs of tables. A ledger is therefore bound to one unit of protection (a row,
# or a value of one column of which at most m rows are counted) and to one neighbour relation. A request of another kind
# is refused, or charged what it costs *between the ledger's neighbours*. That is group privacy: if every two neighbours
# of the ledger are joined by at most k steps, each of which leads from one neighbour of the request to another, then
#
#     pure ε:  the request costs k·ε       (k factors of exp(ε))
#     ρ:       the request costs k²·ρ      (Bun, Steinke 2016, Proposition 1.9; (ε, δ) is carried by its ρ)
#
# How many steps there are at most depends on the units and relations alone:
#
#     the ledger protects          the request protects        k   the steps
#     unit c, add-remove           c, add-remove, other m      1   a unit is added or removed, however many rows count
#     unit c, replace-one          c, replace-one, other m     1   likewise
#     row, replace-one             row, add-remove             2   remove the old row, add the new one
#     unit c, replace-one          unit c, add-remove          2   remove the unit, add it with its new rows
#     row, add-remove              unit c, add-remove          2   a unit gains a row: remove it, add it with that row
#     row, replace-one             unit c, add-remove          4   one unit loses a row and another one gains one
#
# For the rest no finite k exists, and there is no conversion:
#
#   - From replace-one to add-remove: replacing never changes the number of rows or units, so that no number of such
#     steps leads from a table to one with a row more. That covers units under replace-one and rows as well: a row may
#     be the only one of its unit.
#   - From a row to a unit: a unit may have any number of rows, and each is a step.
#   - From one column's units to another's: a unit of the one may have rows in any number of units of the other.


STEPS = {
    ("same", "add-remove", "add-remove"): 1,
    ("same", "replace-one", "replace-one"): 1,
    ("same", "replace-one", "add-remove"): 2,
    ("row", "add-remove", "add-remove"): 2,
    ("row", "replace-one", "add-remove"): 4,
}
"""At most so many steps, by: the ledger has the request's unit or the row; its relation; the request's relation."""


@dataclass(frozen=True)
class Protection:
    """What is protected: one row, or one value of the column `unit`, of which at most `max_rows` rows are counted."""

    unit: str | None = None
    max_rows: int = 1
    neighbours: Neighbours = "add-remove"

    @property
    def unit_text(self) -> str:
        """The unit as privacy statements name it."""
        return "row" if self.unit is None else f"{self.unit}, at most {self.max_rows} rows"

    def describe(self) -> str:
        """
        >>> Protection("person", 3).describe()
        "one value of 'person' (at most 3 rows), add-remove"
        """
        rows = f"at most {self.max_rows} row{'' if self.max_rows == 1 else 's'}"
        what = "one row" if self.unit is None else f"one value of {self.unit!r} ({rows})"
        return f"{what}, {self.neighbours}"

    def to_json(self) -> dict[str, Any]:
        return {"unit": self.unit, "max_rows_per_unit": self.max_rows, "neighbours": self.neighbours}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Protection:
        """The protection that `to_json` wrote; anything else is a ValueError."""
        found = cls(data["unit"], data["max_rows_per_unit"], data["neighbours"])
        if not isinstance(found.unit, str | None) or not isinstance(found.max_rows, int) or found.max_rows < 1:
            raise ValueError(f"no unit of protection: {data!r}")
        if found.neighbours not in ("add-remove", "replace-one"):
            raise ValueError(f"no neighbour relation: {data!r}")
        return found


def steps_between(bound: Protection, asked: Protection) -> int | None:
    """How many steps of what was asked for join neighbours of what is bound at most; None where no number does."""
    if bound.unit == asked.unit:
        place = "same"
    elif bound.unit is None:
        place = "row"
    else:
        return None
    return STEPS.get((place, bound.neighbours, asked.neighbours))


def why_not_convertible(bound: Protection, asked: Protection) -> str:
    """Why no finite cost under what is bound follows from a guarantee for what was asked for."""
    if bound.unit is not None and asked.unit is None:
        return (
            f"one value of {bound.unit!r} may have any number of rows, and a guarantee for one row says nothing of many"
        )
    if bound.unit is not None and bound.unit != asked.unit:
        return f"one value of {bound.unit!r} may have rows in any number of values of {asked.unit!r}"
    return "replacing never changes how many there are, so it says nothing about adding or removing one"
