"""A table that is known by its counts alone, as a source for simulations."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Attribute, Domain
from consilience.source.base import SourceIdentity
from consilience.source.local import LocalSource

READS_NOTHING = SimpleNamespace(runs_code=False, reads_once=False)
"""In place of a reader, for sources that hold in memory what they tell."""


class CountedTable(LocalSource):
    """A source that sums up given counts instead of reading records. For simulations: there is nobody to protect."""

    __slots__ = ("_counts",)

    def __init__(self, domain: Domain, counts: NDArray[np.int64]) -> None:
        super().__init__(cast(Any, READS_NOTHING), domain, unit=None, identity=SourceIdentity())
        self._counts = counts.astype(np.int64).reshape(domain.shape)

    @staticmethod
    def histogram(counts: NDArray[np.int64], *, name: str = "histogram", attribute: str = "x") -> "CountedTable":
        """A table with one numeric attribute of one bin for each count."""
        ordered = Attribute.numeric(attribute, np.arange(counts.size + 1).tolist())
        return CountedTable(Domain(name, (ordered,)), counts)

    def exact_counts(
        self, marginals: Sequence[tuple[str, ...]], *, amount: str | None = None, threads: int | None = None
    ) -> list[NDArray[np.int64]]:
        names = self.domain.counted_names
        found = []
        for marginal in marginals:
            away = tuple(axis for axis, name in enumerate(names) if name not in marginal)
            kept = [name for name in names if name in marginal]
            summed = np.asarray(self._counts.sum(axis=away))
            found.append(summed.transpose([kept.index(name) for name in marginal]))
        return found
