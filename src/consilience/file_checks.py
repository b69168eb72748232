"""`check`: is this file one of ours, is it whole, and may it be published?"""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from consilience.errors import FileFormatError, LedgerError, readable_count
from consilience.publication.bundle import Finding

if TYPE_CHECKING:
    from consilience.measurements import MeasurementSet

NOT_SAID = (
    "PRIVACY NOT KNOWN: a model file of an earlier version does not say whether its noise was simulated. "
    "Check the bundle or the measurements that it belongs to."
)


def check(path: str | os.PathLike[str], *, ledger: str | os.PathLike[str] | None = None) -> Finding:
    """What a file, a bundle or a ledger is, and what speaks against publishing it; an error says what is wrong with it.

    With a ledger, measurements are compared with the checksum that it has of them.

    >>> import tempfile
    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"age": 3, "sex": 2})
    >>> noisy = {"age": [4.1, -1.2, 9.0], "sex": [7.5, 5.1]}
    >>> account = cs.estimate(cs.MeasurementSet.from_marginals(domain, noisy, noise=cs.Laplace(2.0)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     check(cs.write_bundle(account, f"{folder}/release"))
    Finding(kind='release bundle', summary='unnamed, fitted by graphical.', private=True, warning='')
    """
    return _examined(Path(path), None if ledger is None else Path(ledger))


def _examined(path: Path, ledger: Path | None) -> Finding:
    if not path.exists():
        raise FileFormatError(f"there is no file {path}")
    if path.is_dir():
        return _folder(path, ledger)
    start = _first_bytes(path)
    if start.startswith(b"SQLite format 3"):
        return _ledger(path)
    if start.startswith(b"PAR1"):
        return _parquet(path, ledger)
    if path.suffix == ".toml":
        return _toml(path)
    return _other_file(path, start)


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(64)
    except OSError as error:
        raise FileFormatError(f"{path} cannot be read: {error.strerror}") from None


def _folder(path: Path, ledger: Path | None = None) -> Finding:
    from consilience.publication import open_release
    from consilience.publication.iterate_folders import CLUSTERS, REGRESSIONS

    if CLUSTERS.is_at(path):
        clusters, measured = CLUSTERS.open(path)
        summary = f"{measured.domain.name}, {len(clusters.centroids)} clusters."
        return Finding("clusters", summary + _promise(measured), clusters.private, _changed(measured, ledger))
    if REGRESSIONS.is_at(path):
        fitted, measured = REGRESSIONS.open(path)
        summary = f"{measured.domain.name}, {fitted.label} explained by {len(fitted.attributes)} attributes."
        return Finding("regression", summary + _promise(measured), fitted.private, _changed(measured, ledger))
    opened = open_release(path)
    found = opened.finding
    return found if ledger is None else replace(found, warning=_changed(opened.estimate.measurements, ledger))


def _ledger(path: Path) -> Finding:
    from consilience.privacy.ledger import Ledger

    found = Ledger.open(path)
    summary = f"dataset {found.dataset!r}, {found.total.describe()} in all, {found.remaining_text} remains."
    return Finding("ledger", summary)


def _parquet(path: Path, ledger: Path | None) -> Finding:
    from consilience.measurements import MeasurementSet
    from consilience.publication.bundle import REFITS
    from consilience.publication.model_files import is_model
    from consilience.publication.record_files import synthetic_file

    if is_model(path):
        return _model(path)
    if path.name == REFITS and (bundle := _bundle_of(path)) is not None:
        return replace(_folder(bundle), kind="part of a release bundle")
    records = synthetic_file(path)
    if records is not None:
        return Finding("synthetic records", f"{records[0]:,} rows.", records[1])
    measured = MeasurementSet.load(path)
    summary = f"{measured.domain.name}, {len(measured)} measurements."
    return Finding("measurement file", summary + _promise(measured), measured.private, _changed(measured, ledger))


def _promise(measured: "MeasurementSet") -> str:
    """What real noise promises; simulated noise promises nothing."""
    return f" {measured.privacy.describe()}" if measured.private else ""


def _changed(measured: "MeasurementSet", ledger: Path | None) -> str:
    """What speaks against these being the measurements that were drawn; empty where nothing does."""
    from consilience.publication.diagnostics import CHANGED

    if measured.as_drawn is False:
        return CHANGED
    if ledger is None:
        return ""
    from consilience.privacy.ledger import Ledger

    book = Ledger.open(ledger)
    release = str(measured.provenance.get("release", ""))
    recorded = book.checksum(release)
    if recorded is None:
        raise LedgerError(
            f"{ledger} has no checksum of the release {release!r}: it was made with another ledger, by an earlier "
            "version, or merged from several; ask for it again, which its ledger answers uncharged, and compare"
        )
    return "" if recorded == measured.provenance.get("checksum") else f"{CHANGED} {ledger} has another one."


def _model(path: Path) -> Finding:
    from consilience.publication.model_files import load_model

    saved = load_model(path)
    summary = f"fitted by {saved.method.get('method')}, status {saved.status.value}."
    bundle = _bundle_of(path)
    if saved.origin is None and bundle is not None:
        return Finding("model file", summary, _folder(bundle).private)
    private = None if saved.origin is None else bool(saved.origin["private"])
    return Finding("model file", summary, private, NOT_SAID if private is None else "")


def _toml(path: Path) -> Finding:
    from consilience.domain import Domain, Workload
    from consilience.domain.workloads import is_workload_file
    from consilience.publication.about import PUBLICATION, Publication

    if path.name == PUBLICATION:
        told = Publication.load(path)
        return Finding("publication file", f"It says: {', '.join(told.to_declaration()) or 'nothing'}.")
    if is_workload_file(path):
        return Finding("workload file", f"{len(Workload.load(path))} queries.")
    domain = Domain.load(path)
    left = domain.left_to_review
    return Finding(
        "domain file",
        f"{domain.name}, {len(domain.attributes)} attributes, {readable_count(domain.cells)} cells.",
        warning=f"DRAFT: read off the data, which is not private. Left to review: {left}." if left else "",
    )


def _other_file(path: Path, start: bytes) -> Finding:
    """A table, known by its mark or by the bundle that it is in."""
    from consilience.publication.answers import is_marked
    from consilience.publication.metadata import croissant

    if is_marked(start):
        return Finding("comma-separated table", "Its first column says that the noise was simulated.", private=False)
    if path.name.endswith(croissant.ENDING):
        return Finding("description of synthetic records", "In the words of Croissant 1.0.", croissant.check(path))
    bundle = _bundle_of(path)
    if bundle is not None:
        whole = _folder(bundle)
        return Finding("part of a release bundle", whole.summary, whole.private)
    hint = ""
    if path.suffix.lower() == ".csv":
        hint = "; comma-separated text does not say what it is: check the bundle or the file that it was made from"
    raise FileFormatError(f"{path} is none of our files: no TOML, no Parquet, no ledger, no bundle{hint}")


def _bundle_of(path: Path) -> Path | None:
    """The bundle that a file is in, if it is in one."""
    from consilience.publication.bundle import is_bundle

    return next((folder for folder in path.absolute().parents[:3] if is_bundle(folder)), None)
