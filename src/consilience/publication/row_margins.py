"""Records whose one-way margins are the model's, rounded.

Estimators place synthetic records so that counts follow the model, but where several tables share attributes what
rounding gained and lost can add up to a little more than one record. Here the few records too many of a value are given
the value that has too few. A record that changes is one for which there is another, with the wanted value, that it has
most in common with, so that it becomes a record such as there are already. Impossible records are not made.
"""

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.kernels.rng import Generator

Codes = NDArray[np.int64]

COMPARED = 64
"""How many records of each side are compared to find two that are alike."""
MANY, COMPARED_OF_MANY = 2_000, 8
"""Fewer are compared where more than so many records change, as where a method draws records by chance."""
WHOLE = 1e-9
"""A share of records this close to a whole number, in parts of it, is taken to be it."""


def settle_margins(codes: Codes, margins: list[NDArray[np.float64]], domain: Domain, rng: Generator) -> None:
    """Change records, in place, until each value has its share of them rounded down or up.

    `margins` holds the counts that the shares come from, for each column of the codes. Columns whose counts are not
    all from 0 up, or are all 0, stay as they are.
    """
    for column, counts in enumerate(margins):
        if len(codes) and counts.min(initial=0.0) >= 0.0 and counts.sum() > 0.0:
            present = np.bincount(codes[:, column], minlength=counts.size)
            shares = counts / counts.sum() * len(codes)
            _move(codes, column, present - nearest_shares(present, shares), domain, rng)


def nearest_shares(present: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole counts, each its share rounded down or up and with the same sum, that are nearest to those present.

    >>> nearest_shares(np.array([5, 0, 4]), np.array([3.4, 1.8, 3.8]))
    array([4, 1, 4])
    """
    nearest = np.rint(shares)
    settled = np.abs(shares - nearest) <= WHOLE * np.maximum(shares, 1.0)
    low = np.where(settled, nearest, np.floor(shares)).astype(np.int64)
    high = np.where(settled, nearest, np.ceil(shares)).astype(np.int64)
    wanted = np.clip(present, low, high)
    surplus = int(wanted.sum() - present.sum())
    movable = np.flatnonzero(wanted > low) if surplus > 0 else np.flatnonzero(wanted < high)
    # First those whose share is furthest on that side, so that rounding is to the nearest as far as it can be.
    order = np.argsort((shares - wanted)[movable] * np.sign(surplus), kind="stable")
    wanted[movable[order[: abs(surplus)]]] -= np.sign(surplus)
    return wanted


def _move(codes: Codes, column: int, surplus: NDArray[np.int64], domain: Domain, rng: Generator) -> None:
    """Give records of values with a surplus the values that lack some."""
    lacking = np.repeat(np.arange(surplus.size), np.maximum(-surplus, 0))
    giving = np.repeat(np.arange(surplus.size), np.maximum(surplus, 0))
    rng.shuffle(lacking)
    compared = COMPARED if lacking.size <= MANY else COMPARED_OF_MANY
    having = {value: np.flatnonzero(codes[:, column] == value) for value in np.flatnonzero(surplus)}
    for given, wanted in zip(giving, lacking, strict=True):
        pool = having[given]
        models = codes[having[wanted][_some(having[wanted].size, compared, rng)]]
        place = _most_alike(codes, pool, _some(pool.size, compared, rng), models, column, int(wanted), domain)
        if place is None:
            continue
        codes[pool[place], column] = wanted
        pool[place] = pool[-1]
        having[given] = pool[:-1]


def _some(size: int, compared: int, rng: Generator) -> NDArray[np.intp]:
    """Places below `size`: all of them, or some by chance."""
    return np.arange(size) if size <= compared else np.unique(rng.integers(0, size, compared))


def _most_alike(
    codes: Codes,
    pool: NDArray[np.intp],
    places: NDArray[np.intp],
    models: Codes,
    column: int,
    wanted: int,
    domain: Domain,
) -> int | None:
    """Where in the pool the record is that may take the wanted value and is most like a model; None where none may.

    Those at `places` are tried first, then all others.
    """
    for tried in (places, np.arange(pool.size)):
        records = codes[pool[tried]]
        records[:, column] = wanted
        possible = np.flatnonzero(_are_possible(records, domain))[:COMPARED]
        if possible.size:
            alike = (records[possible][:, None, :] == models[None, :, :]).sum(axis=2).max(axis=1, initial=0)
            return int(tried[possible[np.argmax(alike)]])
    return None


def _are_possible(records: Codes, domain: Domain) -> NDArray[np.bool_]:
    possible = np.ones(len(records), dtype=np.bool_)
    names = domain.counted_names
    for rule in domain.impossible:
        broken = [np.isin(records[:, names.index(name)], codes) for name, codes in rule.codes]
        possible &= ~np.logical_and.reduce(broken)
    return possible
