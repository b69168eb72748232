"""What can be asked: attributes, domains, queries and workloads. Plain, public data."""

from consilience.domain import factors
from consilience.domain.attributes import Attribute
from consilience.domain.dates import Date
from consilience.domain.domains import Domain
from consilience.domain.queries import BoundQuery, Query
from consilience.domain.sensitivity import Neighbours, Sensitivity, sensitivity
from consilience.domain.workloads import Workload

__all__ = [
    "Attribute",
    "BoundQuery",
    "Date",
    "Domain",
    "Neighbours",
    "Query",
    "Sensitivity",
    "Workload",
    "factors",
    "sensitivity",
]
