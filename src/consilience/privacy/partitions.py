"""Private partitions: the values of one attribute cut into buckets of neighbouring values that are alike.

A partition is a private choice like any selection, but from exponentially many candidates, so each rule comes with a
sampler and a proof of its own. What leaves it is the first code of every bucket, nothing else.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.sensitivity import Neighbours
from consilience.privacy.noise import NoiseSource

Integers = NDArray[np.int64]


class PartitionRule(Protocol):
    """What the Gate needs to know of a way to cut an attribute's values into buckets."""

    @property
    def attribute(self) -> str:
        """The attribute whose values are cut."""
        ...

    def check(self, domain: Domain) -> None:
        """Refuse a rule that does not fit the domain."""
        ...

    def draw(self, counts: Integers, *, epsilon: float, neighbours: Neighbours, noise: NoiseSource) -> Sequence[int]:
        """The first code of each bucket, ascending from 0; ε-private between tables that differ in one record."""
        ...

    def fingerprint(self) -> Sequence[object]:
        """Plain data that identifies the rule, for the ledger."""
        ...
