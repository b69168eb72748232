"""A pass over all parameters that keeps, for each, the recipe with the fewest blocks."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from benchmarks.coverings.candidates import Candidate, sizes_so_far, split_candidates, weighted_candidates
from benchmarks.coverings.dependencies import affected_by, leads_to, references
from benchmarks.coverings.table_files import packed_rows
from consilience.coverings.designs import SEARCHED, DesignTable, Key, ShippedDesign, cooked, packed_bytes
from consilience.errors import ConsilienceError

MOST_COOKED = {2: 10, 3: 10, 4: 5}
"""How many of the most promising recipes are carried out; tidying may make any of them smaller than promised."""

MOST_PACKED = 20_000
"""The most bytes of blocks that are kept for a design that could also be built from others."""


def construct(table: DesignTable, keys: Sequence[Key], *, report: Callable[[str], None]) -> int:
    """Improve the table by constructions, in the given order; returns how many designs became smaller."""
    sizes = sizes_so_far(table)
    improved = 0
    for number, key in enumerate(keys):
        if number % 50 == 49:
            report(f"{number + 1} of {len(keys)} designs")
        points, block, strength = key
        before = table.designs.get(key)
        candidates = sorted(
            [*_best_splits(key, sizes), *weighted_candidates(key, sizes), *_greedy(before)],
            key=lambda each: each[0],
        )
        best = keep_best(table, key, candidates)
        if before is None or best.size < before.size:
            improved += before is not None
            sizes[strength, block, points] = best.size
            if before is not None:
                report(f"({points}, {block}, {strength}): {before.size} → {best.size} by {best.recipe}")
    return improved


def keep_best(table: DesignTable, key: Key, candidates: Sequence[Candidate]) -> ShippedDesign:
    """Carry the most promising recipes out and enter the smallest design into the table, if it is smaller."""
    for promised, recipe in candidates[: MOST_COOKED[key[2]]]:
        held = table.designs.get(key)
        if held is not None and (recipe == held.recipe or promised > _slack(key) * held.size):
            continue
        try:
            rows = cooked(recipe, *key, table.rows)
        except ConsilienceError:
            continue
        if held is not None and len(rows) >= held.size:
            continue
        if leads_to(table, recipe, key):
            # The blocks themselves end the circle, where they are few enough to be kept.
            if packed_bytes(key, len(rows)) > MOST_PACKED:
                continue
            recipe = SEARCHED
        enter(table, key, rows, recipe)
    return table.designs[key]


def enter(table: DesignTable, key: Key, rows: np.ndarray, recipe: str) -> None:
    """Put a design into the table in place of the one before."""
    table.designs[key] = ShippedDesign(len(rows), recipe)
    table.built[key] = rows
    table.searched.pop(key, None)
    if recipe == SEARCHED:
        table.searched[key] = packed_rows(rows, key)


def _slack(key: Key) -> float:
    """How much more than the best a recipe may promise and still be tried: tidying gains less on larger designs."""
    return {2: 1.6, 3: 1.3, 4: 1.03}[key[2]]


def settle(table: DesignTable, changed: Iterable[Key], *, report: Callable[[str], None]) -> None:
    """Rebuild what the changed designs are parts of, parts first, because its size may have changed too.

    A design that would come out larger than before is kept block by block instead.
    """
    affected = affected_by(table, changed)
    before = {key: table.built.pop(key, None) for key in affected}
    settled: set[Key] = set()

    def visit(key: Key) -> None:
        if key in settled or key not in affected:
            return
        settled.add(key)
        design = table.designs[key]
        for part in references(design.recipe, key):
            visit(part)
        rows = table.rows(*key)
        old = before[key]
        if len(rows) > design.size and old is not None and len(old) == design.size:
            report(f"{key}: {design.recipe} now gives {len(rows)} and not {design.size}; its blocks are kept instead")
            enter(table, key, old, SEARCHED)
        else:
            table.designs[key] = ShippedDesign(len(rows), design.recipe)

    for key in sorted(affected, key=lambda key: (key[2], key[0], key[1])):
        visit(key)


def level(table: DesignTable, *, report: Callable[[str], None]) -> None:
    """Make no design larger than one with more points or smaller blocks, by cutting or filling up that one."""
    for key in sorted(table.designs, key=lambda key: (key[2], key[1], -key[0])):
        points, block, strength = key
        for points_from, block_from in ((points + 1, block), (points, block - 1)):
            held, other = table.designs[key], table.designs.get((points_from, block_from, strength))
            if other is not None and other.size < held.size:
                keep_best(table, key, [(other.size, f"multiplied {points_from} {block_from} 0")])
                report(f"{key}: {held.size} → {table.designs[key].size} from ({points_from}, {block_from}, {strength})")


def _best_splits(key: Key, sizes) -> list[Candidate]:
    return sorted(split_candidates(key, sizes))[:3]


def _greedy(before: ShippedDesign | None) -> list[Candidate]:
    """Block by block: the first recipe for every design, which later ones have to beat."""
    return [(0, "greedy 0")] if before is None else []
