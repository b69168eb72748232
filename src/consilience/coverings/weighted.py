"""Coverings whose blocks are bounded by their cells, the product of their attributes' sizes.

A greedy covering comes first. Then the block that covers fewest sets alone is taken out, and annealing moves attributes
between the others until everything is covered again; this goes on while it succeeds. At the end attributes that a block
does not need leave it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from consilience.coverings import weighted_kernels as kernels
from consilience.coverings.chance import chance_state
from consilience.coverings.coverage import Block
from consilience.coverings.designs import covering
from consilience.coverings.set_ranks import binomials, unranked
from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.compilation import announce

MOST_SETS = 2_000_000
LARGEST_BOUND = 1 << 40
HOT, COLD = 0.2, 0.1
ATTEMPTS = 3
"""How often annealing may fail in a row before the search ends."""


@dataclass(eq=False)
class _Blocks:
    """Blocks under construction: ascending rows, their lengths and cells, and how often each t-set is covered."""

    rows: NDArray[np.int16]
    lengths: NDArray[np.int64]
    cells: NDArray[np.int64]
    counts: NDArray[np.int32]

    def without(self, numbers: NDArray[np.int64], strength: int, coefficients: NDArray[np.int64]) -> "_Blocks":
        """The others; the counts follow."""
        counts = self.counts.copy()
        for number in numbers:
            kernels.add_sets(self.rows[number], self.lengths[number], -1, strength, coefficients, counts)
        kept = np.delete(np.arange(len(self.rows)), numbers)
        return _Blocks(self.rows[kept], self.lengths[kept], self.cells[kept], counts)


def weighted_covering(sizes: Sequence[int], most_cells: int, strength: int, *, seed: int = 0) -> tuple[Block, ...]:
    """Sets of attributes with at most `most_cells` cells, few of them, that hold every `strength` attributes together.

    A set of `strength` attributes that has more cells by itself gets a block of its own. Where all attributes have the
    same size the blocks are those of `covering`.

    >>> weighted_covering([10, 10, 2, 2], most_cells=40, strength=2)
    ((0, 1), (0, 2, 3), (1, 2, 3))
    """
    _check(sizes, most_cells, strength)
    attributes = len(sizes)
    if prod(sizes) <= most_cells or strength >= attributes:
        return (tuple(range(attributes)),)
    if min(sizes) == max(sizes):
        block = _exponent(sizes[0], most_cells)
        return covering(attributes, max(block, strength), strength)
    # Attributes go by falling size: blocks do not depend on how they are declared, and trimming takes large ones first.
    order = sorted(range(attributes), key=lambda attribute: -sizes[attribute])
    found = _searched(np.array([sizes[attribute] for attribute in order]), most_cells, strength, seed)
    return tuple(sorted(tuple(sorted(order[point] for point in block)) for block in found))


def _check(sizes: Sequence[int], most_cells: int, strength: int) -> None:
    if not sizes or min(sizes) < 1:
        raise DeclarationError(
            f"the sizes {tuple(sizes)} are not the sizes of attributes: give at least one, all above 0"
        )
    if not 1 <= most_cells <= LARGEST_BOUND or strength < 1:
        raise DeclarationError(
            f"blocks of at most {most_cells} cells and strength {strength}: give 1 to {LARGEST_BOUND:,} cells and a "
            f"strength of at least 1"
        )
    sets = comb(len(sizes), strength)
    if sets > MOST_SETS:
        raise TooLarge(
            f"there are {sets:,} sets of {strength} of {len(sizes)} attributes, and at most {MOST_SETS:,} are covered "
            f"by search: lower the strength, or name the blocks yourself"
        )


def _exponent(base: int, bound: int) -> int:
    """The largest n with baseⁿ ≤ bound."""
    exponent, power = 0, base
    while power <= bound:
        exponent, power = exponent + 1, power * base
    return exponent


def _searched(sizes: NDArray[np.int64], most_cells: int, strength: int, seed: int) -> list[list[int]]:
    """Blocks over attributes that are ordered by falling size."""
    coefficients = binomials(len(sizes), strength)
    sets = unranked(np.arange(comb(len(sizes), strength)), len(sizes), strength)
    set_cells = np.prod(sizes[sets].astype(float), axis=1)
    own = set_cells > most_cells
    announce(kernels.anneal)
    blocks = _greedy(sizes, most_cells, sets, own, np.argsort(-set_cells, kind="stable"), coefficients)
    blocks = _fewer(blocks, sizes, most_cells, sets, coefficients, seed)
    order = np.argsort(-blocks.cells, kind="stable")
    kernels.trim(blocks.rows, blocks.lengths, blocks.cells, sizes, order, strength, coefficients, blocks.counts)
    kept = [
        row[:length].tolist() for row, length in zip(blocks.rows, blocks.lengths, strict=True) if length >= strength
    ]
    return kept + sets[own].tolist()


def _greedy(
    sizes: NDArray[np.int64],
    most_cells: int,
    sets: NDArray[np.int64],
    own: NDArray[np.bool_],
    order: NDArray[np.int64],
    coefficients: NDArray[np.int64],
) -> _Blocks:
    points, most = len(sizes), int((~own).sum())
    # No block is longer than the smallest attributes that fit together.
    longest = int((np.cumprod(np.sort(sizes).astype(float)) <= most_cells).sum())
    width = min(points, max(longest, sets.shape[1]) + 1)
    blocks = _Blocks(
        np.zeros((most, width), dtype=np.int16),
        np.zeros(most, dtype=np.int64),
        np.ones(most, dtype=np.int64),
        own.astype(np.int32),
    )
    arrays = blocks.counts, blocks.rows, blocks.lengths, blocks.cells
    number = int(kernels.build(sizes, most_cells, order, sets, sets.shape[1], coefficients, *arrays))
    return _Blocks(
        blocks.rows[:number].copy(), blocks.lengths[:number].copy(), blocks.cells[:number].copy(), blocks.counts
    )


def _fewer(
    blocks: _Blocks,
    sizes: NDArray[np.int64],
    most_cells: int,
    sets: NDArray[np.int64],
    coefficients: NDArray[np.int64],
    seed: int,
) -> _Blocks:
    """As few of the blocks, with attributes moved, as the search can do with."""
    strength = sets.shape[1]
    state = chance_state(seed)
    budget = _moves(len(sets), strength)
    share = budget // (2 * ATTEMPTS)
    step, failures = max(1, len(blocks.rows) // 30), 0
    while failures < ATTEMPTS and len(blocks.rows) > step and budget > 0:
        worth = kernels.alone(blocks.rows, blocks.lengths, strength, coefficients, blocks.counts)
        # After a failure other blocks are taken out, so that it is not simply repeated.
        first = min(failures, len(worth) - step)
        out = np.argsort(worth, kind="stable")[first : first + step]
        tried = blocks.without(out, strength, coefficients)
        left, used = kernels.anneal(
            tried.rows,
            tried.lengths,
            tried.cells,
            sizes,
            most_cells,
            sets,
            coefficients,
            tried.counts,
            min(budget, share),
            HOT,
            COLD,
            state,
        )
        budget -= used
        if left == 0:
            blocks, failures = tried, 0
        elif step > 1:
            step //= 2
        else:
            failures += 1
    return blocks


def _moves(sets: int, strength: int) -> int:
    """How many moves one search may make: more for more sets, within seconds."""
    return min(6_000 * sets, 500_000 + 150 * sets, 1_200_000 if strength <= 2 else 600_000)
