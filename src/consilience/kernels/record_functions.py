"""Functions of a record, clipped and on a lattice: those that a user wrote, and gradients of the logistic loss.

*A user's own* are compiled so that none of them can add more than was declared. A function `f(theta, record, found)`
writes φ(x, θ) into `found`, which holds zeros: θ is a matrix, x the record's coordinates in the region, all floats. It
is compiled here, with the bounds of arrays checked and θ and x read-only, and then called through

    g = f, 0 where f raises or a number is not finite;    g · min(1, C / ‖g‖)    clipped to the norm C.

What is summed over records (`own_sums`) is cut toward zero to the lattice 2^−b besides, and a record of which the norm
is then above C · 2^b, which no rounding should cause, adds nothing. θ and x cannot be written to, `found` is zeros
anew for each record, and f may not draw random numbers, print, call Python or ask for memory that nobody has written
to: so it can pass nothing on from one record to the next, or elsewhere.

One type stands for all such functions, so that the kernels that call them are compiled once.
"""

import functools
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Literal

import numba
import numpy as np
from numba import types
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.kernels.kernel_cache import njit

Floats = NDArray[np.float64]
Places = NDArray[np.int32]
Integers = NDArray[np.int64]

SIGNATURE = types.void(types.float64[:, ::1], types.float64[::1], types.float64[::1])
READ_ONLY = types.void(
    types.Array(types.float64, 2, "C", readonly=True),
    types.Array(types.float64, 1, "C", readonly=True),
    types.float64[::1],
)
FORBIDDEN = ("random_state", "PySys_", "PyObject_", "PyEval_", "PyRun_")
"""What compiled code calls that draws random numbers, prints, or runs Python."""
HARMLESS = "PyObject_Hash"
"""What numba compiles into functions that may raise: the hash of a constant text."""
UNWRITTEN = {"empty", "empty_like", "ndarray", "carray", "farray"}
"""Names of what hands out memory that still holds what an earlier record left there."""
MARGIN = 1.0 - 2.0**-40
"""Sums of up to 2^12 squares are exact to this."""
MOST_VALUES = 2**12


@dataclass(frozen=True)
class RecordFunction:
    """A function f(theta, record, found) that writes `size` numbers of a record, which count up to `clip` in a norm.

    `theta` is a matrix, `record` the attributes with their bounds mapped to −1 and 1, and `found` holds zeros. It is
    compiled by numba. Where a record's numbers have a larger norm (`clip_norm`: 1, or 2 for noise of ρ) they are scaled
    down to it; where it raises or gives what is no number, the record adds nothing.

    >>> def squares(theta, record, found):
    ...     found[0] = (record[0] - theta[0, 0]) ** 2
    >>> RecordFunction("squares", squares, size=1, clip=4.0).clip_norm
    1
    """

    name: str
    function: Callable[..., Any] = field(compare=False)
    size: int
    clip: float
    clip_norm: Literal[1, 2] = 1

    def __post_init__(self) -> None:
        whole = isinstance(self.size, int) and not isinstance(self.size, bool)
        if not whole or not 1 <= self.size <= MOST_VALUES:
            raise DeclarationError(f"the statistic has {self.size!r} numbers; give a size from 1 to {MOST_VALUES:,}")
        if self.clip_norm not in (1, 2) or not (math.isfinite(self.clip) and self.clip > 0):
            raise DeclarationError(
                f"the statistic is clipped to {self.clip} in the norm {self.clip_norm!r}; give a number above 0, and 1 "
                "or 2"
            )

    @property
    def compiled(self) -> Any:
        """The function as kernels call it."""
        return safe(self.function, float(self.clip), int(self.clip_norm))

    def describe(self) -> dict[str, Any]:
        """Plain data that tell this function from others."""
        digest = code_digest(self.function)
        return {"name": self.name, "function": digest, "clip": self.clip, "clip_norm": self.clip_norm}


@functools.cache
def safe(function: Callable[..., Any], clip: float, norm: int) -> Any:
    """The function compiled, guarded and clipped to this norm, 1 or 2; refused where it cannot be compiled."""
    source = getattr(function, "py_func", function)
    try:
        inner = numba.njit(READ_ONLY, boundscheck=True, error_model="numpy")(source)  # noqa: TID251 (not kept)
    except (NumbaError, TypeError) as error:
        first = str(error).strip().splitlines()[:1]
        raise DeclarationError(
            f"the statistic cannot be compiled: {' '.join(first)}; write f(theta, record, found) for numba, where "
            "theta is a matrix and the others are vectors of floats"
        ) from None
    code = "".join(inner.inspect_llvm().values()).replace(HARMLESS, "")
    if any(symbol in code for symbol in FORBIDDEN):
        raise DeclarationError(
            "the statistic draws random numbers, prints, or calls Python; it must be a function of a record and theta "
            "alone, and do nothing else"
        )
    if left_over := sorted(UNWRITTEN & names_in(function)):
        raise DeclarationError(
            f"the statistic uses {left_over[0]!r}, whose memory may hold what an earlier record left there; use zeros"
        )
    largest = clip * MARGIN

    @numba.cfunc(SIGNATURE)
    def guarded(theta: Floats, record: Floats, found: Floats) -> None:  # pragma: no cover - compiled
        try:
            inner(theta, record, found)
        except Exception:
            found[:] = 0.0
        size = 0.0
        for i in range(found.shape[0]):
            size += abs(found[i]) if norm == 1 else found[i] * found[i]
        if norm == 2:
            size = np.sqrt(size)
        if not size < np.inf:
            found[:] = 0.0
        elif size > largest:
            for i in range(found.shape[0]):
                found[i] *= largest / size

    return guarded


@functools.cache
def no_statistic() -> Any:
    """A function of that type that is never called."""

    @numba.cfunc(SIGNATURE)
    def nothing(theta: Floats, record: Floats, found: Floats) -> None:  # pragma: no cover - compiled
        pass

    return nothing


@njit(nogil=True, cache=True)
def own_sums(own: Any, units: Places, theta: Floats, size: int, clip: float, norm: int, bits: int) -> Integers:
    """Σ over records of φ on the lattice, in its units; every record's norm is at most `clip`."""
    scale = 1.0 / (1 << bits)
    total = np.zeros(size, np.int64)
    rounded = np.zeros(size, np.int64)
    for i in range(units.shape[0]):
        found = np.zeros(size)
        own(theta, units[i] * scale, found)
        length = 0.0
        for j in range(size):
            cut = min(max(found[j], -clip), clip) / scale
            rounded[j] = np.int64(cut) if cut == cut else 0
            length += abs(rounded[j]) if norm == 1 else float(rounded[j]) * float(rounded[j])
        if norm == 2:
            length = np.sqrt(length)
        if length <= clip / scale:
            for j in range(size):
                total[j] += rounded[j]
    return total


def names_in(function: Callable[..., Any]) -> set[str]:
    """The names that a function looks up, with those of all functions that it calls by a name or closes over."""
    found, seen, left = set[str](), set[CodeType](), [function]
    while left:
        source = left.pop()
        source = getattr(source, "py_func", source)
        found.add(getattr(source, "__name__", ""))
        code = getattr(source, "__code__", None)
        package = str(getattr(source, "__module__", "")).partition(".")[0]
        if code is None or code in seen or package in ("numpy", "numba"):
            continue
        seen.add(code)
        names = _looked_up(code)
        found |= names
        held = [cell.cell_contents for cell in source.__closure__ or ()]
        held += [source.__globals__[name] for name in names if name in source.__globals__]
        left += [each for each in held if callable(each)]
    return found


def _looked_up(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_looked_up, inner))


def code_digest(function: Callable[..., Any]) -> str:
    """A digest of what a function does, in this version of Python: its code, its defaults and what it closes over."""
    source = getattr(function, "py_func", function)
    parts = [_code_text(source.__code__), repr(source.__defaults__)]
    for cell in source.__closure__ or ():
        held = cell.cell_contents
        parts.append(code_digest(held) if callable(held) else repr(np.asarray(held).tolist()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _code_text(code: CodeType) -> str:
    constants = [_code_text(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return repr((code.co_code, constants, code.co_names, code.co_varnames))


# ----------------------------------------------------------------------------------------------------------------------
# Gradients of the logistic loss, record by record: clipped, and on a lattice where sums are exact.
#
# A record is a point x of a region inside [−1, 1]^d with a label y of −1 or 1. With z = y·(x, 1), the last coordinate
# for the intercept, and coefficients θ of d + 1 numbers, its loss is ln(1 + exp(−θ·z)), and its clipped gradient
#
#     φ = g · min(1, C / ‖g‖),        g = −s z,        s = 1 / (1 + exp(θ·z)),
#
# in the L1 or the L2 norm. 0 ≤ s ≤ 1 holds in floating point too, so |φ_j| ≤ |z_j|. Each coordinate is rounded toward
# zero to the lattice 2^−b, which makes no norm larger. Rounding errors of the clipping itself may leave the norm above
# C by a last place: the kernel checks it in whole numbers and takes away any excess, so that the bound rests on integer
# arithmetic alone. φ depends on one record and θ, and not on where the record stands among others.


Array = NDArray[np.float64]
Norm = Literal[1, 2]

LARGEST_LIMIT = 2.0**31
"""A norm of this many lattice units bounds nothing, and its square still fits in 64 bits."""


def gradient_sums(
    points_on_lattice: NDArray[np.int32],
    labels: Array,
    coefficients: Array,
    *,
    bits: int,
    clip: float,
    norm: Norm,
) -> Integers:
    """The sum of the clipped gradients of all records, exact, in lattice units; the intercept's comes last.

    >>> gradient_sums(np.array([[8], [-16]], np.int32), np.array([1.0, 1.0]), np.zeros(2), bits=4, clip=9.0, norm=1)
    array([  4, -16])
    """
    coefficients = np.ascontiguousarray(coefficients, dtype=np.float64)
    rows, columns = points_on_lattice.shape
    if labels.shape != (rows,) or coefficients.shape != (columns + 1,):
        raise DeclarationError(
            f"coefficients of the shape {coefficients.shape} and one label a record do not fit points of {columns} "
            "coordinates; give a coefficient for each, and one for the intercept"
        )
    units = np.ascontiguousarray(points_on_lattice, dtype=np.int32)
    return _gradient_sums(units, np.ascontiguousarray(labels), coefficients, bits, clip, norm)


@njit(nogil=True, cache=True)
def clipped_gradient(
    coefficients: Floats, point: Floats, label: Any, clip: float, norm: int, gradient: Floats
) -> None:  # pragma: no cover - compiled
    """Write φ of one record to `gradient`."""
    dimensions = coefficients.shape[0] - 1
    margin = coefficients[dimensions]
    for j in range(dimensions):
        margin += coefficients[j] * point[j]
    factor = -label * _misfit(label * margin)
    size = 0.0
    for j in range(dimensions + 1):
        gradient[j] = factor * point[j] if j < dimensions else factor
        size += abs(gradient[j]) if norm == 1 else gradient[j] * gradient[j]
    if norm == 2:
        size = np.sqrt(size)
    if size > clip:
        for j in range(dimensions + 1):
            gradient[j] *= clip / size


@njit(nogil=True, cache=True)
def _misfit(margin: Any) -> float:  # pragma: no cover - compiled
    """1 / (1 + exp(margin)), which never overflows."""
    if margin > 0.0:
        small = np.exp(-margin)
        return small / (1.0 + small)
    return 1.0 / (1.0 + np.exp(margin))


@njit(nogil=True, cache=True)
def _gradient_sums(
    points: Places, labels: Floats, coefficients: Floats, bits: int, clip: float, norm: int
) -> Integers:  # pragma: no cover - compiled
    size = coefficients.shape[0]
    one = 2.0**bits
    limit = np.int64(min(clip * one, LARGEST_LIMIT))
    point, gradient = np.empty(size - 1), np.empty(size)
    units, sums = np.empty(size, np.int64), np.zeros(size, np.int64)
    for i in range(points.shape[0]):
        for j in range(size - 1):
            point[j] = points[i, j] / one
        clipped_gradient(coefficients, point, labels[i], clip, norm, gradient)
        for j in range(size):
            units[j] = np.int64(gradient[j] * one)
        _take_away_excess(units, limit, norm)
        for j in range(size):
            sums[j] += units[j]
    return sums


@njit(nogil=True, cache=True)
def _take_away_excess(units: Integers, limit: Any, norm: int) -> None:  # pragma: no cover - compiled
    """Shrink the largest coordinate by one unit until the norm is within the limit."""
    while True:
        size = 0
        largest = 0
        for j in range(units.shape[0]):
            size += abs(units[j]) if norm == 1 else units[j] * units[j]
            if abs(units[j]) > abs(units[largest]):
                largest = j
        if size <= (limit if norm == 1 else limit * limit):
            return
        units[largest] -= 1 if units[largest] > 0 else -1
