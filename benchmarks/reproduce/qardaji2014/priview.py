"""PriView as Qardaji, Yang and Li (2014) run it, step by step: noise, consistency, non-negativity, reconstruction.

Users measure by `plans.Views` and estimate by `estimators.Views`; here the steps are called by themselves, so that each
can be left out or replaced, and the noise is simulated.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.flags import FlagRecords
from consilience.coverings.designs import covering
from consilience.marginals.consistency import ViewConsistency
from consilience.marginals.margins import ViewReader
from consilience.marginals.nonnegativity import nonnegative_views
from consilience.marginals.reconstruction import reconstruct
from consilience.marginals.table_stacks import TableStack

Array = NDArray[np.float64]
Scope = tuple[int, ...]
Blocks = tuple[Scope, ...]
Nonnegativity = Literal["none", "simple", "global", "ripple"]
Reconstruction = Literal["entropy", "least-squares", "linear-programme"]

THETA = 0.01
"""Ripple leaves cells above −θ alone, here in units of the noise's scale; the paper says "some small value"."""


@lru_cache(maxsize=32)
def design(points: int, block: int, strength: int) -> Blocks:
    """The best covering design that ships with the project."""
    return covering(points, block, strength)


def relabelled(blocks: Blocks, points: int, seed: int) -> Blocks:
    """The same design with its points renamed at random."""
    names = np.random.default_rng(seed).permutation(points).tolist()
    return tuple(tuple(sorted(names[point] for point in block)) for block in blocks)


class PriView:
    """The views of some records by a covering design: counted once, made noisy as often as wanted."""

    def __init__(self, records: FlagRecords, strength: int, blocks: Blocks) -> None:
        self.strength, self.block, self.views = strength, max(map(len, blocks)), len(blocks)
        self.stack = TableStack((2,) * records.flags, blocks)
        self.exact: Array = np.concatenate([records.counts(scope) for scope in self.stack.scopes])
        self.consistency = ViewConsistency(self.stack, np.ones(self.views))

    @staticmethod
    def by_design(records: FlagRecords, block: int, strength: int) -> "PriView":
        return PriView(records, strength, design(records.flags, block, strength))

    @property
    def name(self) -> str:
        """The paper's notation: C_t(ℓ, w)."""
        return f"C{self.strength}({self.block},{self.views})"

    @property
    def name_without_noise(self) -> str:
        return self.name.replace("(", "*(")

    def noisy(self, epsilon: float, rng: np.random.Generator) -> Array:
        """The views with Laplace noise of scale w/ε on every cell."""
        return self.exact + rng.laplace(scale=self.views / epsilon, size=self.exact.size)

    def synopsis(
        self, noisy: Array, epsilon: float, *, nonnegativity: Nonnegativity = "ripple", rounds: int = 1
    ) -> Array:
        """Consistency, then so many rounds of non-negativity and consistency."""
        theta = THETA * self.views / epsilon
        return nonnegative_views(self.consistency, noisy, method=nonnegativity, rounds=rounds, theta=theta).flat

    def published(self, epsilon: float, rng: np.random.Generator) -> Array:
        """A synopsis with new noise."""
        return self.synopsis(self.noisy(epsilon, rng), epsilon)

    def marginals(self, sets: Sequence[Scope], views: Array, *, method: Reconstruction = "entropy") -> Array:
        """The marginal of each set, flat, one in each row."""
        total = float(self.stack.table(views, self.stack.scopes[0]).sum())
        found = reconstruct(ViewReader(self.stack, views), sets, method=method, total=total)
        return np.array([each.table.ravel() for each in found])
