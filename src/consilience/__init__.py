"""One consistent, non-negative, most likely account of data measured with differential privacy.

The flow, and the names that carry it:

    table ──► exact counts ──► noisy measurements ──► estimate ──► publication
    open_table                 measure, plans         estimate     answer, interval, synthesize, report, write_bundle

`release` is all of it in one call, and every verb of the command line is a function of the same name.

    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"age": 3, "sex": 2})
    >>> measured = cs.MeasurementSet.from_marginals(
    ...     domain, {"age": [4.1, -1.2, 9.0], "sex": [7.5, 5.1]}, noise=cs.Laplace(2.0)
    ... )
    >>> estimate = cs.estimate(measured)
    >>> bool(estimate.marginal("age").min() >= 0)
    True

Names are imported when they are first used, so that `import consilience` is quick.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from consilience import estimators, plans
    from consilience.curation import check_domain, draft_domain
    from consilience.domain import Attribute, Date, Domain, Query, Workload, factors
    from consilience.errors import ConsilienceError
    from consilience.estimators import Estimate, estimate
    from consilience.evaluation import evaluate
    from consilience.file_checks import check
    from consilience.flow import discover_domain, public_records, release
    from consilience.iterative import kmeans, logistic
    from consilience.measurements import (
        DiscreteGaussian,
        DiscreteLaplace,
        Gaussian,
        Laplace,
        Measurement,
        MeasurementSet,
    )
    from consilience.measuring import measure
    from consilience.planning.what_if import plan
    from consilience.privacy.ledger import Ledger
    from consilience.publication import Release, interval, open_release, synthesize, write_bundle, write_synthetic
    from consilience.publication.maps import map  # noqa: A004
    from consilience.publication.release import answer, compare
    from consilience.publication.report import report
    from consilience.source import open_table

_HOMES = {
    "Attribute": "consilience.domain",
    "ConsilienceError": "consilience.errors",
    "Date": "consilience.domain",
    "DiscreteGaussian": "consilience.measurements",
    "DiscreteLaplace": "consilience.measurements",
    "Domain": "consilience.domain",
    "Estimate": "consilience.estimators",
    "Gaussian": "consilience.measurements",
    "Laplace": "consilience.measurements",
    "Ledger": "consilience.privacy.ledger",
    "Measurement": "consilience.measurements",
    "MeasurementSet": "consilience.measurements",
    "Query": "consilience.domain",
    "Release": "consilience.publication.release",
    "Workload": "consilience.domain",
    "answer": "consilience.publication.release",
    "check": "consilience.file_checks",
    "check_domain": "consilience.curation",
    "compare": "consilience.publication.release",
    "discover_domain": "consilience.flow",
    "draft_domain": "consilience.curation",
    "estimate": "consilience.estimators",
    "estimators": "",
    "evaluate": "consilience.evaluation",
    "factors": "",
    "interval": "consilience.publication.intervals",
    "kmeans": "consilience.iterative",
    "logistic": "consilience.iterative",
    "map": "consilience.publication.maps",
    "measure": "consilience.measuring",
    "open_release": "consilience.publication.release",
    "open_table": "consilience.source",
    "plan": "consilience.planning.what_if",
    "plans": "",
    "public_records": "consilience.flow",
    "release": "consilience.flow",
    "report": "consilience.publication.report",
    "synthesize": "consilience.publication.synthetic",
    "write_bundle": "consilience.publication.bundle",
    "write_synthetic": "consilience.publication.record_files",
}

__all__ = [
    "Attribute",
    "ConsilienceError",
    "Date",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Domain",
    "Estimate",
    "Gaussian",
    "Laplace",
    "Ledger",
    "Measurement",
    "MeasurementSet",
    "Query",
    "Release",
    "Workload",
    "answer",
    "check",
    "check_domain",
    "compare",
    "discover_domain",
    "draft_domain",
    "estimate",
    "estimators",
    "evaluate",
    "factors",
    "interval",
    "kmeans",
    "logistic",
    "map",
    "measure",
    "open_release",
    "open_table",
    "plan",
    "plans",
    "public_records",
    "release",
    "report",
    "synthesize",
    "write_bundle",
    "write_synthetic",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'consilience' has no attribute {name!r}")
    modules = {
        "estimators": "consilience.estimators",
        "factors": "consilience.domain.factors",
        "plans": "consilience.plans",
    }
    found = import_module(modules[name]) if name in modules else getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return list(__all__)
