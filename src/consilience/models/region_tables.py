"""The tables of clusters while messages move: as numbers where their range allows, else as logarithms.

Both kinds do the same: say the margin of a table on some axes as logarithms of shares, multiply a table by a factor
over these axes, and give the table as shares. Numbers are several times as fast; where one of their margins comes near
the smallest number there is, they raise `Underflow`, and the caller starts again with logarithms.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError

Array = NDArray[np.float64]

SMALLEST = 1e-200
"""A share of a table's total below which its digits may be lost."""


class Underflow(ArithmeticError):
    """Part of a table became too small to be told from nothing."""


class ClusterTables(Protocol):
    """Non-negative tables, each known up to a factor."""

    def log_margin(self, k: int, others: tuple[int, ...]) -> Array:
        """The logarithms of table k's shares, summed over its other axes; flat."""
        ...

    def tilt(self, k: int, factor: Array) -> None:
        """Multiply table k by exp(factor), which broadcasts over it."""
        ...

    def shares(self, k: int) -> Array:
        """Table k, divided by its sum."""
        ...


class NumberTables:
    """Tables as they are."""

    def __init__(self, logarithms: Sequence[Array]) -> None:
        self._tables = [np.exp(table - table.max()) for table in logarithms]

    def log_margin(self, k: int, others: tuple[int, ...]) -> Array:
        margin = self._tables[k].sum(axis=others).ravel()
        margin /= margin.sum()
        if not margin.min() > SMALLEST:
            raise Underflow
        return np.log(margin)

    def tilt(self, k: int, factor: Array) -> None:
        self._tables[k] *= np.exp(factor - factor.max())

    def shares(self, k: int) -> Array:
        table = self._tables[k]
        return table / table.sum()


class LogTables:
    """Tables by their logarithms, −∞ for what is impossible."""

    def __init__(self, logarithms: Sequence[Array]) -> None:
        self._tables = list(logarithms)

    def log_margin(self, k: int, others: tuple[int, ...]) -> Array:
        table = self._tables[k]
        top = table.max(axis=others, keepdims=True)
        top[np.isneginf(top)] = 0.0
        with np.errstate(divide="ignore"):
            margin = np.log(np.exp(table - top).sum(axis=others)).ravel() + top.ravel()
        return normalised(margin)

    def tilt(self, k: int, factor: Array) -> None:
        self._tables[k] = self._tables[k] + factor

    def shares(self, k: int) -> Array:
        table = np.exp(self._tables[k] - self._tables[k].max())
        return table / table.sum()


def normalised(logarithms: Array) -> Array:
    """Logarithms of shares: the same up to a constant, and their exponentials sum to 1."""
    top = logarithms.max()
    if np.isneginf(top):
        raise DeclarationError(
            "the cells allowed by different scopes exclude each other; allow at least one cell of all"
        )
    return logarithms - (top + np.log(np.exp(logarithms - top).sum()))


def less(one: Array, other: Array) -> Array:
    """The difference of logarithms, where what is impossible stays so whatever it is divided by."""
    impossible = np.isneginf(one)
    if not impossible.any():
        return one - other
    return np.where(impossible, -np.inf, one - np.where(impossible, 0.0, other))
