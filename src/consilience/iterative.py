"""Iterative algorithms on a confidential table in one call: k-means and logistic regression, with error bars.

    Request ──► checks ──► ledger ──► noisy rounds ──► all rounds read together ──► a folder

What could not be read together or written is refused before anything is spent. Rounds that were measured before take
the place of a request and cost nothing.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

from consilience.domain.domains import Domain
from consilience.estimators.base import Progress, check_level
from consilience.estimators.clusters import ClusterEstimate, cluster
from consilience.estimators.iterates import Iterates
from consilience.estimators.logistic import RegressionEstimate, check_ridge, regress
from consilience.measurements import MeasurementSet
from consilience.plans.clusters import cluster_plan
from consilience.plans.published.privgene import regression_plan
from consilience.privacy.ledger import Ledger
from consilience.privacy.measure import Plan
from consilience.publication.iterate_folders import (
    CLUSTERS,
    REGRESSIONS,
    IterateFolder,
    Saved,
)
from consilience.publication.report_page import NoPictures, check_pictures
from consilience.request import Asked, File, Request

logger = logging.getLogger("consilience")

BeforeCharge = Callable[[Ledger], None]


class Shown(TypedDict, total=False):
    """What both may say about the chains and the folder; `_published` has the defaults."""

    level: float
    """That of the error bars."""
    steps: int | None
    chains: int | None
    """The length and the number of the chains; None leaves them to `Iterates`."""
    seed: int
    """Public: that of the chains, and of what a plan begins with."""
    pictures: bool
    overwrite: bool
    before_charge: BeforeCharge | None
    progress: Progress | None


class Options(Shown, Asked, total=False):
    """Both at once: how to show it, and what a request may say."""


def kmeans(
    data: object,
    domain: Domain | File,
    *,
    clusters: int,
    out: File,
    attributes: Sequence[str] | None = None,
    method: str | None = None,
    rounds: int = 5,
    region: Any = "box",
    **options: Unpack[Options],
) -> ClusterEstimate:
    """Clusters of confidential points with error bars, written to a folder.

    `method` is "rounds" of a noisy k-means, all of which are read, the counts of a "grid", their "hybrid", the
    centroids of blocks ("gupt"), a genetic algorithm ("privgene"), or "auto", the default: what suits the attributes, a
    noisy number of records and the budget. A request without a method that an earlier version recorded, as rounds, is
    answered with these.

    The budget and the ledger are named as for `release`: `epsilon`, `delta`, `rho`, `ledger`, `budget`, `id`,
    `neighbours`, `unit`, `max_rows_per_unit`, `table`, `query`, `name`, `simulate`, `take_over`, `convert`,
    `allow_cluster_disk`. What is
    shown: `level=0.9`, `steps`, `chains`, `seed=0`, `pictures=True`, `overwrite=False`, `progress`.

    >>> import tempfile
    >>> import consilience as cs
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> domain = cs.Domain("points", (cs.Attribute.continuous("x", (0, 1)),))
    >>> points = pa.table({"x": np.tile([0.1, 0.9], 500)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     options = {"epsilon": 10, "simulate": 0, "steps": 20, "chains": 1, "pictures": False}
    ...     found = kmeans(points, domain, clusters=2, out=f"{folder}/clusters", **options)
    >>> found.centroids.shape, found.private
    ((2, 1), False)
    """
    declared = domain if isinstance(domain, Domain) else Domain.load(domain)
    seed = options.get("seed", 0)
    plan = cluster_plan(method, clusters, attributes, rounds=rounds, region=region, seed=seed)
    request, shown = _requested(data, declared, plan, options)
    return cluster_points(request, out, **shown)


def cluster_points(asked: Request | MeasurementSet, out: File, **shown: Unpack[Shown]) -> ClusterEstimate:
    """Clusters of what is asked for, or of rounds that were measured before, written to a folder."""
    return _published(CLUSTERS, cluster, asked, out, **shown)


def logistic(
    data: object,
    domain: Domain | File,
    *,
    label: str,
    out: File,
    features: Sequence[str] | None = None,
    method: str = "rounds",
    rounds: int = 20,
    step_size: float = 4.0,
    region: Any = "box",
    ridge: float = 1.0,
    **options: Unpack[Options],
) -> RegressionEstimate:
    """A logistic regression of confidential records with error bars, from all rounds of a noisy one, in a folder.

    The label is a continuous attribute: the upper half of its bounds is one class, the lower half the other. Features
    are all other continuous attributes by default. `method` is "rounds" of noisy gradients, all of which are read, or
    "privgene", a genetic algorithm without error bars.

    The budget and the ledger are named as for `release`: `epsilon`, `delta`, `rho`, `ledger`, `budget`, `id`,
    `neighbours`, `unit`, `max_rows_per_unit`, `table`, `query`, `name`, `simulate`, `take_over`, `convert`,
    `allow_cluster_disk`. What is
    shown: `level=0.9`, `steps`, `chains`, `seed=0`, `pictures=True`, `overwrite=False`, `progress`.

    >>> import tempfile
    >>> import consilience as cs
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> declared = (cs.Attribute.continuous("dose", (0, 9)), cs.Attribute.continuous("cured", (0, 1)))
    >>> domain = cs.Domain("clinic", declared)
    >>> dose = np.tile(np.arange(10.0), 300)
    >>> patients = pa.table({"dose": dose, "cured": (np.arange(3000) % 7 < dose).astype(float)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     options = {"epsilon": 10, "simulate": 0, "steps": 20, "chains": 1, "pictures": False}
    ...     found = logistic(patients, domain, label="cured", out=f"{folder}/regression", **options)
    >>> found.terms, found.coefficients.shape, found.private
    (('dose', '(intercept)'), (2,), False)
    """
    declared = domain if isinstance(domain, Domain) else Domain.load(domain)
    seed = options.get("seed", 0)
    plan = regression_plan(method, label, features, rounds=rounds, step=step_size, region=region, seed=seed)
    request, shown = _requested(data, declared, plan, options)
    return regress_records(request, out, ridge=ridge, **shown)


def regress_records(
    asked: Request | MeasurementSet, out: File, *, ridge: float = 1.0, **shown: Unpack[Shown]
) -> RegressionEstimate:
    """The regression of what is asked for, or of rounds that were measured before, written to a folder."""
    check_ridge(ridge)
    return _published(REGRESSIONS, partial(regress, ridge=ridge), asked, out, **shown)


def _requested(data: object, domain: Domain, plan: Plan, options: Options) -> tuple[Request, Shown]:
    """The request that these options make, and those that are about what is shown."""
    asked: Any = {name: value for name, value in options.items() if name in Asked.__annotations__}
    shown: Any = {name: value for name, value in options.items() if name not in asked}
    return Request(data=data, domain=domain, plan=plan, **asked), shown


def _published(
    folder: IterateFolder[Saved],
    read: Callable[..., Saved],
    asked: Request | MeasurementSet,
    out: File,
    *,
    level: float = 0.9,
    steps: int | None = None,
    chains: int | None = None,
    seed: int = 0,
    pictures: bool = True,
    overwrite: bool = False,
    before_charge: BeforeCharge | None = None,
    progress: Progress | None = None,
) -> Saved:
    """What is read off the rounds, which are measured now and charged, or were measured before; in a folder."""
    given: dict[str, Any] = {"steps": steps, "chains": chains}
    settings = Iterates(**{name: value for name, value in given.items() if value is not None}, seed=seed)
    drawn = _checked(folder, out, level=level, pictures=pictures, overwrite=overwrite)
    if isinstance(asked, MeasurementSet):
        measured = asked
    else:
        measured = asked.measure(before_charge=before_charge, progress=progress)
    found = read(measured, settings, progress=progress)
    folder.publish(found, measured, Path(out), level=level, pictures=drawn, overwrite=overwrite)
    return found


def _checked(folder: IterateFolder[Any], out: File, *, level: float, pictures: bool, overwrite: bool) -> bool:
    """Whether pictures can be drawn; what could not be written is refused."""
    check_level(level)
    folder.refuse_other_place(Path(out), overwrite=overwrite)
    if not pictures:
        return False
    try:
        check_pictures()
    except NoPictures as reason:
        logger.warning("no pictures: %s", reason)
        return False
    return True
