"""Whether measurements determine a query, so that an interval needs no belief about the data.

A query with factors ⊗ F_i is a linear combination of one measured query's answers if for every attribute the rows of
its factor lie in the row space of the measured factor; an attribute that only one of them names counts as a row of
ones. A query that only several measurements together determine is not found: calling it undetermined errs on the safe
side.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from consilience.domain.domains import Domain
from consilience.domain.queries import Query
from consilience.measurements import MeasurementSet
from consilience.numerics.linear_maps import IdentityMap, LinearMap, SumMap

LARGEST_FACTOR = 4_000_000
"""Factors with more numbers than these are not written out, and count as not determining anything but themselves."""


def is_determined(query: Query, measured: MeasurementSet) -> bool:
    """Whether a measurement, or a public fact, determines every answer of the query.

    >>> from consilience.measurements import Laplace
    >>> domain = Domain.from_sizes({"a": 2, "b": 2, "c": 2})
    >>> measured = MeasurementSet.from_marginals(domain, {("a", "b"): [[1, 2], [3, 4]]}, noise=Laplace(1.0))
    >>> is_determined(Query.parse("by a"), measured), is_determined(Query.parse("a by c"), measured)
    (True, False)
    """
    domain = measured.domain
    asked = _maps(query, domain)
    known = [each.query for each in measured if each.kind == "linear" and each.censored is None]
    known += [Query.marginal(*margin.attributes) for margin in domain.public.margins]
    if domain.public.total is not None:
        known.append(Query.marginal())
    return any(each == query or _contains(_maps(each, domain), asked, domain) for each in known)


def _maps(query: Query, domain: Domain) -> dict[str, LinearMap]:
    bound = query.bind(domain)
    return dict(zip(bound.attributes, bound.maps, strict=True))


def _contains(known: Mapping[str, LinearMap], asked: Mapping[str, LinearMap], domain: Domain) -> bool:
    for name in dict.fromkeys((*known, *asked)):
        size = domain[name].size
        if not _spans(known.get(name, SumMap(size)), asked.get(name, SumMap(size))):
            return False
    return True


def _spans(known: LinearMap, asked: LinearMap) -> bool:
    """Whether every row of `asked` is a combination of rows of `known`."""
    if isinstance(known, IdentityMap) or (isinstance(known, SumMap) and isinstance(asked, SumMap)):
        return True
    if isinstance(known, SumMap) and isinstance(asked, IdentityMap):
        return known.columns == 1
    if max(known.rows, asked.rows) * known.columns > LARGEST_FACTOR:
        return False
    rows: NDArray[np.float64] = known.dense()
    wanted: NDArray[np.float64] = asked.dense()
    combination = np.linalg.lstsq(rows.T, wanted.T, rcond=None)[0]
    return bool(np.allclose(rows.T @ combination, wanted.T, atol=1e-9 * max(1.0, float(np.abs(wanted).max()))))
