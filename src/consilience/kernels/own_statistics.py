"""Statistics of a record that a user wrote, compiled so that none of them can add more than was declared.

A function `f(theta, record, found)` writes φ(x, θ) into `found`, which holds zeros: θ is a matrix, x the record's
coordinates in the region, all floats. It is compiled here, with the bounds of arrays checked and θ and x read-only, and
then called through

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
        inner = numba.njit(READ_ONLY, boundscheck=True, error_model="numpy")(source)
    except (NumbaError, TypeError) as error:
        first = str(error).strip().splitlines()[:1]
        raise DeclarationError(
            f"the statistic cannot be compiled: {' '.join(first)}; write f(theta, record, found) for numba, where "
            "theta is a matrix and the others are vectors of floats"
        ) from None
    code = "".join(inner.inspect_llvm().values())
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


@numba.njit(nogil=True, cache=True)
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
