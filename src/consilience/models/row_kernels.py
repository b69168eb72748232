"""What is done to rows of cells: exponentials, maxima, sums and products.

Each is a function of its own for a reason: a loop over one row inside other loops is not always compiled to run several
cells at a time, and these are.
"""

import numba
import numpy as np

REORDERED = {"contract", "reassoc", "nsz", "arcp", "nnan"}
"""Sums may be taken in any order, and no number is NaN."""

_LEAST_EXPONENT = -708.0
_ROUND = 6755399441055744.0  # 1.5 · 2^52: adding and subtracting it rounds to a whole number


# exp x = 2^n · exp r with n = round(x / log 2), |r| ≤ log(2)/2. The Taylor polynomial of degree 13 is exact to 5e-18
# there, so the result is within two units in the last place. The sum that rounds leaves n in its lowest bits, from
# where it moves into the exponent. Flags that reorder sums would break both: only fused multiply-adds are allowed.
@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def exponential(values, shift, out):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """out = exp(values − shift), zero below 1e-307 and for NaN; the number of values that are not finite."""
    unbounded = 0
    for i in range(values.size):
        unbounded += (np.float64(values[i]).view(np.int64) >> np.int64(52)) & np.int64(2047) == np.int64(2047)
        x = values[i] - shift
        kept = x if x > _LEAST_EXPONENT else _LEAST_EXPONENT
        rounded = kept * 1.4426950408889634 + _ROUND
        n = rounded - _ROUND
        r = kept - n * 6.93147180369123816490e-01
        r -= n * 1.90821492927058770002e-10
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        p = p * r + 1.0
        power = (np.float64(rounded).view(np.int64) + np.int64(1023)) << np.int64(52)
        out[i] = p * np.int64(power).view(np.float64) if x > _LEAST_EXPONENT else 0.0
    return unbounded


# Floating-point numbers are ordered as their bits are when read as integers, once those below zero are mirrored; and a
# maximum of integers runs several at a time, which one of floating-point numbers, with their NaN, does not.
@numba.njit(nogil=True, cache=True, error_model="numpy")
def largest_entry(values):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The largest of some numbers."""
    top = np.int64(-(2**63))
    for i in range(values.size):
        bits = np.float64(values[i]).view(np.int64)
        bits ^= (bits >> np.int64(63)) & np.int64(2**63 - 1)
        top = max(top, bits)
    top ^= (top >> np.int64(63)) & np.int64(2**63 - 1)
    return np.int64(top).view(np.float64)


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=REORDERED)
def total_of(row):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The sum of a row."""
    total = 0.0
    for i in range(row.size):
        total += row[i]
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")
def fill(row, value):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Every entry becomes the value."""
    for i in range(row.size):
        row[i] = value


@numba.njit(nogil=True, cache=True, error_model="numpy")
def scale(row, factor):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Every entry times a factor."""
    for i in range(row.size):
        row[i] *= factor


@numba.njit(nogil=True, cache=True, error_model="numpy")
def add(row, other):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """row + other, in row."""
    for i in range(row.size):
        row[i] += other[i]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def subtract(row, other):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """row − other, in row."""
    for i in range(row.size):
        row[i] -= other[i]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def multiply(row, other):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """row · other, in row."""
    for i in range(row.size):
        row[i] *= other[i]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def raise_to(row, other):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The larger of both, in row."""
    for i in range(row.size):
        row[i] = other[i] if other[i] > row[i] else row[i]
