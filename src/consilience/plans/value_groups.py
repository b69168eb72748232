"""Values joined into groups, so that a table has no more cells than its records can tell from noise.

N records over m cells are N/m in the mean. Where that is less than the noise σ of a cell, most cells say nothing, and
their noise adds up all the same. Joining rare values keeps the cells above the noise; how the records of a group divide
among its values is then taken from what is known of the attribute alone, because the model of greatest entropy keeps
those shares. McKenna, Miklau and Sheldon (2021, §4) join, for each attribute, the values whose noisy count is below 3σ
into one; here a table of two attributes is joined until it has at most N/(kσ) cells, and rare values make as many
groups as reach the same count together, neighbours first: for an ordered attribute they are ranges of rare values.

All of this looks at noisy counts alone.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute
from consilience.domain.factors import Buckets, Factor, Identity, Matrix
from consilience.privacy.scores import JoinedValues

Counts = NDArray[np.float64]
Groups = NDArray[np.intp]

FIRST_STEP, STEP = 1.0 / 2048.0, 1.25
"""The least count of a group begins at this share of all records and grows by this factor."""


def separate(size: int) -> Groups:
    """Every value in a group of its own."""
    return np.arange(size, dtype=np.intp)


def joined_below(counts: Counts, least: float) -> Groups:
    """All values with a count below `least` in one group, the last; the others by themselves, in order.

    >>> joined_below(np.array([5.0, 90.0, 1.0, 30.0]), 10.0).tolist()
    [2, 0, 2, 1]
    """
    rare = counts < least
    if rare.sum() < 2:
        return separate(len(counts))
    groups = np.cumsum(~rare) - 1
    groups[rare] = (~rare).sum()
    return groups.astype(np.intp)


def joined_to(counts: Counts, least: float) -> Groups:
    """Values below `least` joined in order until each group reaches it; what falls short joins the group before.

    >>> joined_to(np.array([6.0, 90.0, 5.0, 30.0, 8.0, 4.0]), 10.0).tolist()
    [0, 1, 0, 2, 3, 3]
    """
    groups = np.full(len(counts), -1, dtype=np.intp)
    number, gathered, members = 0, 0.0, []
    for value in np.flatnonzero(counts < least):
        members.append(value)
        gathered += max(0.0, float(counts[value]))
        if gathered >= least:
            groups[members] = number
            number, gathered, members = number + 1, 0.0, []
    if members:
        number = max(number, 1)
        groups[members] = number - 1
    common = np.flatnonzero(groups < 0)
    groups[common] = np.arange(number, number + len(common))
    return _in_order(groups)


def _in_order(groups: Groups) -> Groups:
    """The same groups, numbered by their first values."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.intp)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse]


class Joining:
    """The groups of one attribute's values at growing least counts, each found once."""

    def __init__(self, counts: Counts, records: float) -> None:
        self._counts = counts
        self._first = max(records, 1.0) * FIRST_STEP
        self._found: list[Groups] = []

    def at(self, level: int) -> Groups:
        """The values by themselves at level 0; from then on the least count grows by a factor."""
        if level == 0:
            return separate(len(self._counts))
        while len(self._found) < level:
            self._found.append(joined_to(self._counts, self._first * STEP ** len(self._found)))
        return self._found[level - 1]


def joined_table(attributes: Sequence[Joining], most_cells: float) -> JoinedValues:
    """The values of some attributes joined to at most so many cells together, with one least count for all groups.

    Where even two groups each are too many cells, some attribute has a single group.
    """
    level = 0
    while True:
        groups = tuple(each.at(level) for each in attributes)
        if math.prod(int(group.max()) + 1 for group in groups) <= max(most_cells, 1.0):
            return JoinedValues(groups)
        level += 1


def group_factor(attribute: Attribute, groups: Groups) -> Factor:
    """The factor that asks for the groups: the values themselves where nothing is joined.

    >>> from consilience.domain.attributes import Attribute
    >>> group_factor(Attribute.categorical("a", ["x", "y", "z"]), np.array([0, 1, 0])).groups
    (('x and 1 more', ('x', 'z')), ('y', ('y',)))
    """
    count = int(groups.max(initial=-1)) + 1
    if count == len(groups):
        return Identity()
    labels = attribute.labels
    members = [np.flatnonzero(groups == group) for group in range(count)]
    names = [labels[codes[0]] + (f" and {len(codes) - 1} more" if len(codes) > 1 else "") for codes in members]
    if all(attribute.codes(label) == (code,) for code, label in enumerate(labels)) and len(set(names)) == count:
        return Buckets(
            tuple((name, tuple(labels[c] for c in codes)) for name, codes in zip(names, members, strict=True))
        )
    rows = np.zeros((count, len(groups)))
    rows[groups, np.arange(len(groups))] = 1.0
    return Matrix.of(rows)
