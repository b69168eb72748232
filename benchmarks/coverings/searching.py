"""The search for smaller designs: take a block out, anneal until everything is covered again, and so on."""

from collections.abc import Callable, Sequence
from time import monotonic

import numpy as np

from benchmarks.coverings.bounds import schonheim_bound
from benchmarks.coverings.chosen_flats import chosen_flats
from benchmarks.coverings.constructing import enter
from consilience.coverings.designs import SEARCHED, DesignTable, Key
from consilience.coverings.searches import alone_counts, annealed, greedy_rows
from consilience.coverings.sets import block_rows, uncovered

HEATS = ((0.6, 0.15), (0.3, 0.15), (1.0, 0.1), (0.4, 0.2))
"""First and last temperatures, tried in turn: structure survives a mild one, and a new one needs more."""

FIRST_MOVES, MOST_MOVES = 100_000, 20_000_000

FLATS: dict[Key, tuple[int, int, int, int]] = {(32, 8, 3): (5, 2, 3, 2), (32, 8, 2): (5, 2, 3, 1)}
"""Designs for which flats of a geometry are chosen: dimension, order, flat, smaller flat."""


def search(table: DesignTable, keys: Sequence[Key], *, until: float, seed: int, report: Callable[[str], None]) -> int:
    """Improve each design by annealing within an equal share of the time; returns how many became smaller."""
    improved = 0
    open_keys = [key for key in keys if table.designs[key].size > schonheim_bound(*key)]
    for place, key in enumerate(open_keys):
        now = monotonic()
        if now >= until:
            break
        before = table.designs[key].size
        improve(table, key, until=now + (until - now) / (len(open_keys) - place), seed=seed)
        after = table.designs[key].size
        if after < before:
            improved += 1
            report(f"{key}: {before} → {after}")
    return improved


def improve(table: DesignTable, key: Key, *, until: float, seed: int) -> None:
    """Make one design smaller as often as the time allows."""
    points, block, strength = key
    best = table.rows(*key)
    if key in FLATS:
        best = _smaller(table, key, best, block_rows(chosen_flats(*FLATS[key], rounds=20_000, seed=seed), block))
    failures = 0
    while monotonic() < until and len(best) > schonheim_bound(*key):
        hot, cold = HEATS[failures % len(HEATS)]
        start = best if failures % 3 < 2 else greedy_rows(points, block, strength, seed=seed + failures + 1)
        worth = alone_counts(start, points, strength)
        surplus = len(start) - len(best) + 1
        order = np.argsort(worth, kind="stable")
        dropped = order[:surplus] if surplus > 1 else order[[min(failures // 4, len(order) - 1)]]
        moves = min(FIRST_MOVES << (failures // 2), MOST_MOVES)
        rows, left = annealed(
            np.delete(start, dropped, axis=0),
            points,
            strength,
            moves=moves,
            hot=hot,
            cold=cold,
            seed=seed + 1000 * len(best) + failures,
        )
        failures = failures + 1 if left else 0
        best = best if left else _smaller(table, key, best, rows)


def _smaller(table: DesignTable, key: Key, best: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Enter a design into the table if it is smaller and covers everything; returns the better of the two."""
    points, _, strength = key
    if len(rows) >= len(best) or uncovered(rows.tolist(), points, strength):
        return best
    enter(table, key, rows, SEARCHED)
    return rows
