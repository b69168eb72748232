"""An estimate as consistent marginals over some scopes, from which other marginals are put together."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.queries import Query
from consilience.errors import FileFormatError, TooLarge, readable_count
from consilience.estimators.base import Estimate, SavedModel, check_rows
from consilience.kernels.rng import Generator
from consilience.marginals.local_marginals import LocalMarginals, decode_scopes, encode_scopes
from consilience.marginals.margins import Reconstructed, ViewReader
from consilience.marginals.reconstruction import Method, reconstruct_from
from consilience.marginals.table_stacks import Scope, TableStack
from consilience.measurements import MeasurementSet
from consilience.solvers.fit import Status

LARGEST_ANSWER = 2**26
"""The most cells of a marginal that is put together on request: half a gigabyte."""


def replace_negative(tables: LocalMarginals) -> LocalMarginals:
    """The tables with 0 for every negative count."""
    return LocalMarginals(tables.stack, np.maximum(tables.flat, 0.0), max(tables.total, 0.0))


ARRAYS = {"counts", "scopes", "total"}


@dataclass(frozen=True, eq=False)
class MarginalsEstimate(Estimate):
    """Consistent non-negative marginals over `scopes`, one after the other in `counts`.

    A marginal that is part of one of them is summed from it. Any other is the table of greatest entropy with the
    marginals that are known of its attributes: a guess at interactions that were not measured. Two such guesses need
    not agree with each other; what is part of the workload always agrees. Where counts may be negative, interactions
    that were not measured are 0 instead, and everything agrees.
    """

    scopes: tuple[Scope, ...]
    """Places of attributes among the domain's counted ones, in the order of the tables' axes."""
    counts: NDArray[np.float64]
    count: float
    """The estimated number of records."""

    @property
    def nonnegative(self) -> bool:
        """Whether counts below 0 were ruled out."""
        return bool(self.method.get("nonnegative", True))

    @cached_property
    def tables(self) -> LocalMarginals:
        """The tables of the workload."""
        return LocalMarginals(TableStack(self.domain.shape, self.scopes), self.counts, self.count)

    def marginal(self, *attributes: str) -> NDArray[np.float64]:
        scope = self.places(*attributes)
        known = tuple(place for place in scope if place in self.tables.attributes)
        return self.spread(self.put_together(known), known, scope)

    def put_together(self, known: Scope) -> NDArray[np.float64]:
        """The marginal of attributes that were measured, from the tables that hold some of them."""
        return self.tables.marginal(known).tables if self.nonnegative else self.tables.added_up(known)

    def places(self, *attributes: str) -> Scope:
        """The places of these attributes among the counted ones; refused where their marginal cannot be made."""
        names = self.domain.counted_names
        self.check_names(attributes)
        cells = math.prod(self.domain.sizes(attributes))
        if cells > LARGEST_ANSWER:
            raise TooLarge(
                f"the marginal by {len(attributes)} attributes has {readable_count(cells)} cells, and "
                f"{LARGEST_ANSWER:,} are "
                "allowed; ask for fewer attributes"
            )
        return tuple(names.index(name) for name in attributes)

    def spread(self, found: NDArray[np.float64], known: Scope, scope: Scope) -> NDArray[np.float64]:
        """The marginal of a scope, with attributes that were never measured spread evenly."""
        shape = tuple(self.domain.shape[place] for place in scope)
        kept = [size if place in known else 1 for place, size in zip(scope, shape, strict=True)]
        even = found.reshape(kept) * (math.prod(kept) / max(math.prod(shape), 1))
        return np.array(np.broadcast_to(even, shape))

    @property
    def total(self) -> float:
        return self.count

    def sample(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        """Codes of synthetic records, one row each and a column for each counted attribute.

        Where one table has all measured attributes, each of its cells gets its share of rows rounded down or up.
        Otherwise no joint table is known: each attribute gets its share, and so do the pairs of the tree whose mutual
        information is largest. Other pairs get the dependence that this tree implies. Negative counts get no rows.
        """
        tables = self.tables if self.nonnegative else replace_negative(self.tables)
        return tables.sample(check_rows(rows), rng, attributes=len(self.domain.shape))

    def arrays(self) -> Mapping[str, NDArray[np.float64]]:
        return {"counts": self.counts, "scopes": encode_scopes(self.scopes), "total": np.array([self.count])}

    @classmethod
    def restore(cls, saved: SavedModel, measured: MeasurementSet) -> "MarginalsEstimate":
        if set(saved.arrays) != ARRAYS:
            raise FileFormatError(
                f"a model of marginals holds {sorted(ARRAYS)}, found {sorted(saved.arrays)}; write the bundle anew"
            )
        scopes = tuple(decode_scopes(saved.arrays["scopes"]))
        counts = saved.arrays["counts"]
        shape = measured.domain.shape
        if any(place >= len(shape) for scope in scopes for place in scope) or TableStack(shape, scopes).size != len(
            counts
        ):
            raise FileFormatError(
                f"a model of {len(scopes)} marginals with {counts.size} counts does not fit the domain "
                f"{measured.domain.name!r}; write the bundle anew"
            )
        total = float(saved.arrays["total"][0])
        return cls(measured, saved.method, saved.status, saved.stats, scopes, counts, total)


# ----------------------------------------------------------------------------------------------------------------------
# An estimate as the tables of some views, from which any marginal is reconstructed on request.


Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ViewsEstimate(MarginalsEstimate):
    """Views that agree with each other, and how marginals that none of them holds are put together.

    A marginal that is part of a view is summed from it. Any other is reconstructed from all views that share attributes
    with it; `reconstruction` says how well they fit together. Two such marginals need not agree with each other beyond
    what the views say.
    """

    @property
    def nonnegative(self) -> bool:
        """Whether all counts are 0 or more: not where the views were left with the negatives of the noise."""
        return bool(self.method.get("nonnegative", True))

    @property
    def way(self) -> Method:
        """How marginals are reconstructed."""
        found: Any = self.method.get("reconstruction", "entropy")
        return found

    @cached_property
    def reader(self) -> ViewReader:
        """The views, prepared to be asked for what they say of a marginal."""
        return ViewReader(self.tables.stack, self.counts)

    def put_together(self, known: Scope) -> Array:
        return self._reconstructed([known])[0].table

    def reconstruction(self, *attributes: str) -> Reconstructed:
        """The marginal of some attributes, with the largest count by which it misses what the views say of it."""
        scope = self.places(*attributes)
        known = tuple(place for place in scope if place in self.tables.attributes)
        return self._reconstructed([known])[0]

    def answers(self, queries: Sequence[Query | str]) -> list[Array]:
        """The answers to several queries; their marginals are reconstructed side by side, on all cores."""
        bound = [(Query.parse(query) if isinstance(query, str) else query).bind(self.domain) for query in queries]
        scopes = [self.places(*each.attributes) for each in bound]
        known = [tuple(place for place in scope if place in self.tables.attributes) for scope in scopes]
        distinct = list(dict.fromkeys(known))
        try:
            tables = dict(zip(distinct, self._reconstructed(distinct), strict=True))
        except TooLarge:
            return super().answers(queries)
        parts = zip(bound, scopes, known, strict=True)
        return [np.asarray(each.answer(self.spread(tables[held].table, held, scope))) for each, scope, held in parts]

    def _reconstructed(self, targets: Sequence[Scope]) -> list[Reconstructed]:
        """Marginals that views hold, as they are, and the others put together from views that agree or not."""
        held = {target: self.tables.known(target) for target in targets} if self.method.get("consistent", True) else {}
        asked = [target for target in targets if held.get(target) is None]
        made = reconstruct_from(self.reader, asked, method=self.way, total=self.count)
        others = dict(zip(asked, made, strict=True))
        found: list[Reconstructed] = []
        for target in targets:
            table = held.get(target)
            found.append(others[target] if table is None else Reconstructed(table, 0.0, False, 0, Status.CONVERGED))
        return found
