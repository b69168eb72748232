"""The whole flow, from a confidential table to what may be published, in one call; `Request` has its steps."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from consilience.domain.domains import Domain
from consilience.domain.files import shown_path
from consilience.domain.workloads import Workload
from consilience.errors import DeclarationError
from consilience.estimators import Estimate
from consilience.estimators.base import Estimator, Progress
from consilience.privacy.ledger import Ledger
from consilience.privacy.measure import Plan
from consilience.publication.release import Release
from consilience.request import Asked, File, Request
from consilience.source.base import SourceIdentity
from consilience.source.tables import matching_files, reader_of

if TYPE_CHECKING:
    from consilience.discovering import DiscoveredDomain
    from consilience.estimators.reweighted import PublicRecords


def release(
    data: object,
    domain: Domain | File,
    *,
    out: File | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    failure_delta: float | None = None,
    discover_share: float | None = None,
    plan: Plan | str | None = None,
    workload: Workload | File | None = None,
    unnamed_share: float | None = None,
    sums_share: float | None = None,
    method: Estimator | str = "auto",
    public: "PublicRecords | None" = None,
    ledger: Ledger | File | None = None,
    budget: float | None = None,
    id: str | None = None,  # noqa: A002 (the word that users, files and the command line share)
    neighbours: str = "add-remove",
    unit: str | None = None,
    max_rows_per_unit: int | None = None,
    table: str | None = None,
    query: str | None = None,
    name: str | None = None,
    simulate: int | None = None,
    take_over: bool = False,
    convert: bool = False,
    allow_cluster_disk: bool = False,
    allow_misfit: bool = False,
    interval: float | None = None,
    refits: int = 200,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Release:
    """Measure a confidential table, estimate one consistent account, and write the bundle that may be published.

    `data` is whatever `open_table` takes, `domain` and `workload` may be files. Without a `plan`, one is chosen for the
    workload, or for all pairs of attributes. What could not be fitted, answered or written is refused before anything
    is spent. The `ledger` lies beside the data and is created on first use with the total `budget`, by default this
    first request; repeating a request spends nothing. What the domain leaves to be found is found first, with
    `discover_share` of the budget (a tenth), and the domain written beside the bundle. `interval` is the level of error
    bars in the bundle's tables, such as 0.95. `public` are records of a published table that the account begins with
    (`public_records`). The other names mean what they mean to `open_table`, `measure`, `estimate` and `write_bundle`.

    >>> import tempfile
    >>> import consilience as cs
    >>> import pyarrow as pa
    >>> domain = cs.Domain("people", (cs.Attribute.categorical("sex", ["F", "M"]),))
    >>> people = pa.table({"sex": ["F", "M", "F"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = release(people, domain, epsilon=1, plan="flat", simulate=0, out=f"{folder}/release")
    >>> made.estimate.domain.names, made.manifest["private"]
    (('sex',), False)
    """
    if isinstance(data, Estimate):
        raise DeclarationError(
            "release measures a table from now on, and was given an estimate; write the bundle of an estimate with "
            "write_bundle(estimate, path)"
        )
    if out is None:
        raise DeclarationError("name the directory to write: out=")
    return Request(
        data=data,
        domain=domain if isinstance(domain, Domain) else Domain.load(domain),
        plan=plan,
        workload=workload if workload is None or isinstance(workload, Workload) else Workload.load(workload),
        unnamed_share=unnamed_share,
        sums_share=sums_share,
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        failure_delta=failure_delta,
        discover_share=discover_share,
        ledger=ledger,
        budget=budget,
        id=id,
        neighbours=neighbours,
        unit=unit,
        max_rows_per_unit=max_rows_per_unit,
        table=table,
        query=query,
        name=name,
        simulate=simulate,
        take_over=take_over,
        convert=convert,
        allow_cluster_disk=allow_cluster_disk,
    ).release(
        out,
        method=method,
        public=public,
        allow_misfit=allow_misfit,
        interval=interval,
        refits=refits,
        seed=seed,
        overwrite=overwrite,
        progress=progress,
    )


def discover_domain(
    data: object,
    domain: Domain | File,
    *,
    failure_delta: float | None = None,
    progress: Progress | None = None,
    **asked: Unpack[Asked],
) -> "DiscoveredDomain":
    """Find what a domain leaves to be found, with privacy, and nothing else: all of the budget is for that.

    A domain file says `values = "discover"`, `edges = "discover"` or `bounds = "discover"`. Values need epsilon with
    delta, or rho with a `failure_delta`; bins and bounds take any budget. What the ledger holds already, of earlier
    requests for the same attributes of this table, is used again and costs nothing. `release` finds what is to be found
    by itself, with a share of its budget. The other names mean what they mean to `release`.

    >>> import consilience as cs
    >>> import pyarrow as pa
    >>> job = {"kind": "categorical", "values": "discover"}
    >>> town = cs.Domain.from_declaration({"name": "town", "attributes": {"job": job}})
    >>> jobs = pa.table({"job": ["nurse"] * 500 + ["smith"] * 400 + ["the only astronaut"]})
    >>> discover_domain(jobs, town, epsilon=1, delta=1e-9, simulate=0).domain["job"].labels
    ('nurse', 'smith', 'Other')
    """
    declared = domain if isinstance(domain, Domain) else Domain.load(domain)
    request = Request(data=data, domain=declared, discover_share=1, failure_delta=failure_delta, **asked)
    return request.find(progress=progress)


def public_records(
    data: object, domain: Domain | File, *, name: str, table: str | None = None, query: str | None = None
) -> "PublicRecords":
    """The records of a published table, such as another year's, coded by the domain of the confidential one.

    `data` is whatever `open_table` takes, with a column for each counted attribute; `name` is what statements and
    reports call it, such as "Census 2021". Records that the domain drops or calls impossible are left out. Its records
    become part of what is published: a table with a ledger beside it is confidential, and refused.

    >>> import consilience as cs
    >>> import pyarrow as pa
    >>> domain = cs.Domain("people", (cs.Attribute.categorical("sex", ["F", "M"]),))
    >>> public_records(pa.table({"sex": ["F", "M", "F"]}), domain, name="Census 2021").table(["sex"])
    array([2., 1.])
    """
    from consilience.estimators.reweighted import PublicRecords
    from consilience.source.readers import Required
    from consilience.source.records import RecordCoder

    declared = domain if isinstance(domain, Domain) else Domain.load(domain)
    declared.refuse_draft()
    files: list[Path] = []
    if isinstance(data, str | os.PathLike):
        given = os.fsdecode(data)
        files = matching_files(given)
        ledger = SourceIdentity.of_files(files, given, table=table, query=query, name=name).ledger_path
        if ledger is not None and ledger.exists():
            raise DeclarationError(
                f"{given} has a ledger, {shown_path(ledger)}: it is a confidential table, and its records cannot be "
                "public; name the file of a public one"
            )
    counted = declared.project(declared.counted_names)
    required: Required = {each.name: each for each in counted.attributes}
    reader = reader_of(data, required, declared.source_format, table=table, query=query)
    coder = RecordCoder(counted, counted.counted_names)
    parts = []
    with ThreadPoolExecutor(1) as workers, closing(reader.batches(coder.names)) as batches:
        for batch in batches:
            coded = coder.code(batch, workers)
            parts.append(np.stack(list(coder.columns(coded).values()), axis=1)[coded.kept].astype(np.int64))
    codes = np.concatenate([np.zeros((0, len(counted.shape)), dtype=np.int64), *parts])
    return PublicRecords.of(declared, codes, name=name, files=[os.path.realpath(file) for file in files])
