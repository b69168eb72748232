"""The release bundle: a directory with everything a release publishes, and nothing that must stay.

    release.json           what this is: tool, method, privacy statement, a checksum for every file
    domain.toml            the public description of the table
    publication.toml       who publishes it, for which time and place, under which licence; where that was said
    measurements.parquet   the noisy measurements
    model.parquet          the estimate
    refits.parquet         the refits of error bars, once some were made
    tables/*.csv           one-way margins and the measured tables: labels, estimate, low and high if asked for, noisy,
                           and what each estimate stands on; what was not measured has no estimate. More than 300
                           tables stand below each other: tables/2-way.csv has all of two attributes
    tables/csv-metadata.json, metadata/
                           what the tables are and where all of it comes from, for catalogues and programs
    report.html            the report, once it was made; its pictures are in pictures/

A bundle is written beside its place and renamed, so that it is there whole or not at all.
"""

import csv
import hashlib
import io
import itertools
import json
import logging
import os
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from consilience.domain.domains import Domain
from consilience.domain.factors import Mean
from consilience.domain.files import GROWING, refuse_to_write
from consilience.domain.queries import Query
from consilience.domain.questions import Question, mean_divisor
from consilience.errors import FileFormatError
from consilience.estimators import Estimate, restore
from consilience.estimators.base import Progress, SavedModel
from consilience.measurements import MeasurementSet
from consilience.measurements.measurement_set import NOT_PRIVATE
from consilience.publication.about import PUBLICATION, Publication, given
from consilience.publication.answers import AnswerTable, CsvWriter, answer_table, cell, heading, table_of
from consilience.publication.intervals import intervals
from consilience.publication.intervals.refits import attach_refits, kept_with, refits_file, refits_made
from consilience.publication.metadata import FOLDER as METADATA
from consilience.publication.metadata import check_metadata, csvw, write_metadata
from consilience.publication.model_files import load_model, origin, save_model

logger = logging.getLogger("consilience")

FORMAT = "release"
VERSION = 1
LARGEST_CSV = 100_000
"""Measured tables with more rows than this stay in the measurement file and are not written as CSV."""
REFITS = "refits.parquet"
MOST_TABLE_FILES = 300
"""So many tables are a file each; of more, all of as many attributes are one file."""
LONGEST_SHOWN = 200
LONGEST_NAME = 80
"""Bytes of a table's file name without its ending. File systems take 255, and some of them encrypt."""
MOST_WITH_BARS = 200_000
"""So many rows of all tables together get error bars, in the order of the tables; later tables have none."""


@dataclass(frozen=True)
class Finding:
    """What a file is, and what speaks against publishing it."""

    kind: str
    summary: str
    private: bool | None = None
    """Whether the noise was real; None of files without noise, and where a file does not say."""
    warning: str = ""

    @property
    def notice(self) -> str:
        """What everybody has to know before anything else; empty where there is nothing."""
        return "\n".join(filter(None, [NOT_PRIVATE if self.private is False else "", self.warning]))


@dataclass(frozen=True, eq=False)
class Bundle:
    """A bundle, opened."""

    path: Path
    manifest: dict[str, Any]
    estimate: Estimate
    publication: Publication = field(default_factory=Publication)
    """What its publisher says of it; empty where nothing was said."""

    @property
    def finding(self) -> Finding:
        """What the bundle was when it was opened."""
        from consilience.publication.diagnostics import CHANGED

        kept_with(self.estimate)  # refuses refits that are not as they should be
        check_metadata(self.path, self.manifest)
        summary = f"{self.estimate.domain.name}, fitted by {self.estimate.method['method']}."
        changed = CHANGED if self.estimate.measurements.as_drawn is False else ""
        return Finding("release bundle", summary, self.estimate.private, changed)


def write_bundle(
    estimate: Estimate,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    interval: float | None = None,
    refits: int = 200,
    seed: int = 0,
    publication: Publication | str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write the bundle of an estimate to a directory, and return its path.

    `interval` is the level of error bars in the tables, such as 0.95; without it they have none. `refits` and `seed`
    are those of `publication.intervals`. `publication` says who publishes the release, or is a file that says it.

    >>> import tempfile
    >>> import consilience as cs
    >>> domain = cs.Domain.from_sizes({"age": 3, "sex": 2})
    >>> noisy = {"age": [4.1, -1.2, 9.0], "sex": [7.5, 5.1]}
    >>> account = cs.estimate(cs.MeasurementSet.from_marginals(domain, noisy, noise=cs.Laplace(2.0)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = write_bundle(account, f"{folder}/release")
    ...     sorted(path.name for path in written.iterdir())
    ['domain.toml', 'measurements.parquet', 'metadata', 'model.parquet', 'release.json', 'tables']
    """
    told = given(publication)
    target = Path(path)
    if target.exists() and not (overwrite and is_bundle(target)):
        hint = "choose another name" if not is_bundle(target) else "choose another name, or overwrite it on purpose"
        raise FileFormatError(f"{target} exists already; {hint}")
    tables = _tables(estimate)
    about: dict[str, Any] = {}
    if interval is not None:
        tables = _with_bars(estimate, tables, interval, refits, seed, progress)
        about["intervals"] = {"level": interval, "refits": refits, "seed": seed}
    with folder_in_place_of(target) as building:
        if told:
            (building / PUBLICATION).write_bytes(told.to_toml())
        _fill(estimate, tables, about, building)
    return target


def add_to_bundle(
    path: Path, files: Mapping[str, bytes], *, about: Mapping[str, Any], in_place_of: Sequence[str] = ()
) -> None:
    """Write more files into a bundle, with their checksums; the bundle is replaced whole or left as it was.

    `about` becomes part of the manifest. Files of the bundle that have a name of `in_place_of`, or lie in a folder of
    that name, go away. A bundle that is not whole is refused.
    """
    manifest = check_bundle(path)
    gone = (*in_place_of, METADATA)
    kept = {name: digest for name, digest in manifest["files"].items() if name.split("/")[0] not in gone}
    if taken := sorted(set(kept) & set(files)):
        raise FileFormatError(f"{path} holds {taken[0]} already; it is part of the release and is not replaced")
    with folder_in_place_of(path) as building:
        for name in kept:
            (building / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path / name, building / name)
        for name, content in files.items():
            (building / name).parent.mkdir(parents=True, exist_ok=True)
            (building / name).write_bytes(content)
        digests = kept | {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        _complete(building, manifest | dict(about) | {"files": digests})


def is_bundle(path: Path) -> bool:
    return path.is_dir() and (path / "release.json").is_file()


def open_bundle(path: str | os.PathLike[str]) -> Bundle:
    """The bundle at a path, checked: all files there with their checksums and in agreement, and nothing foreign."""
    directory = Path(path)
    manifest = check_bundle(directory)
    measured = MeasurementSet.load(directory / "measurements.parquet")
    saved = load_model(directory / "model.parquet")
    _check_agreement(directory, manifest, measured, saved)
    estimate = restore(saved, measured)
    if REFITS in manifest["files"]:
        attach_refits(estimate, directory / REFITS, _what_is_refitted(manifest))
    told = Publication.load(directory / PUBLICATION) if PUBLICATION in manifest["files"] else Publication()
    return Bundle(directory, manifest, estimate, told)


def _what_is_refitted(manifest: Mapping[str, Any]) -> str:
    """A checksum of what refits depend on: the measurements, the domain that they are of, and the method."""
    files = manifest["files"]
    told = [files["measurements.parquet"], files["domain.toml"], manifest["method"]]
    return hashlib.sha256(json.dumps(told, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def keep_refits(bundle: Bundle) -> bool:
    """Write the refits that were made for a bundle into it, so that its next intervals need none; whether it was done.

    Not where the bundle is another one by now, or cannot be written to: it answers all the same.
    """
    made = refits_made(bundle.estimate)
    if made == bundle.manifest.get("refits", {}):
        return False
    content = refits_file(bundle.estimate, _what_is_refitted(bundle.manifest))
    try:
        now = check_bundle(bundle.path)
        if content is None or _what_is_refitted(now) != _what_is_refitted(bundle.manifest):
            return False
        add_to_bundle(bundle.path, {REFITS: content}, about={"refits": made}, in_place_of=(REFITS,))
    except FileFormatError as error:
        logger.info("refits were not kept: %s", error)
        return False
    bundle.manifest["refits"] = made
    logger.info("kept the refits in %s: its next error bars need none", bundle.path)
    return True


def check_bundle(directory: Path) -> dict[str, Any]:
    """The manifest of a bundle that is whole and holds nothing foreign."""
    if not is_bundle(directory):
        raise FileFormatError(f"{directory} is no release bundle: it has no release.json")
    try:
        manifest = json.loads((directory / "release.json").read_text(encoding="utf-8"))
        files: dict[str, str] = dict(manifest["files"])
        known = manifest["format"] == FORMAT and manifest["version"] == VERSION
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise FileFormatError(f"{directory / 'release.json'} cannot be read; write the bundle anew") from None
    if not known:
        raise FileFormatError(f"{directory} is a bundle of another version than {VERSION}; upgrade consilience")
    present = {str(each.relative_to(directory)) for each in directory.rglob("*") if not each.is_dir()} - {
        "release.json"
    }
    for name in sorted(present):
        if (directory / name).is_symlink() or not (directory / name).is_file():
            raise FileFormatError(f"{directory} holds {name}, which is no plain file; remove it before you publish")
    for name in sorted(present - set(files)):
        raise FileFormatError(
            f"{directory} holds {name}, which is no part of the release; a bundle must not hold a ledger, a source or "
            "anything else: remove it before you publish"
        )
    for name, digest in files.items():
        if name not in present:
            raise FileFormatError(f"{directory} lacks {name}; write the bundle anew")
        if _digest(directory / name) != digest:
            raise FileFormatError(f"{name} in {directory} differs from what was released; write the bundle anew")
    return manifest


def _check_agreement(directory: Path, manifest: Mapping[str, Any], measured: MeasurementSet, saved: SavedModel) -> None:
    """Refuse a bundle whose files tell different stories, as they do when one was taken from another release."""
    try:
        told = {key: manifest[key] for key in ("dataset", "private")} | dict(manifest["privacy"])
        told |= {key: manifest["provenance"].get(key) for key in ("release", "ledger")}
        fit = {key: manifest[key] for key in ("method", "status")}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise FileFormatError(f"{directory / 'release.json'} cannot be read; write the bundle anew") from None
    told |= {"domain": manifest["domain"]} if "domain" in manifest else {}
    domain = Domain.load(directory / "domain.toml")
    known = origin(measured)
    sides = [
        ("release.json", told, "measurements.parquet", known),
        ("model.parquet", saved.origin or {}, "measurements.parquet", known),
        ("domain.toml", {"dataset": domain.name, "domain": domain.fingerprint}, "measurements.parquet", known),
        ("release.json", fit, "model.parquet", {"method": dict(saved.method), "status": saved.status.value}),
    ]
    for name, one, other_name, other in sides:
        for key in one:
            if one[key] != other.get(key):
                raise FileFormatError(
                    f"the files of {directory} do not agree: {name} says {key} {_shown(one[key])}, and {other_name} "
                    f"says {_shown(other.get(key))}; they are of different releases, or were changed: write the bundle "
                    "anew"
                )


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."


def _fill(estimate: Estimate, tables: Sequence[AnswerTable], about: Mapping[str, Any], directory: Path) -> None:
    estimate.domain.save(directory / "domain.toml")
    estimate.measurements.save(directory / "measurements.parquet")
    save_model(estimate, directory / "model.parquet")
    (directory / "tables").mkdir()
    described = []
    for name, there, text in _csv_files(tables):
        (directory / "tables" / name).write_text(text, encoding="utf-8")
        described.append((name, there, next(csv.reader(text.splitlines()))))
    (directory / "tables" / csvw.NAME).write_bytes(csvw.table_group(estimate.domain, described))
    files = sorted(each for each in directory.rglob("*") if each.is_file())
    digests = {str(each.relative_to(directory)): _digest(each) for each in files}
    manifest = {**_manifest(estimate), **about, "files": digests}
    if (content := refits_file(estimate, _what_is_refitted(manifest))) is not None:
        (directory / REFITS).write_bytes(content)
        digests[REFITS] = _digest(directory / REFITS)
        manifest |= {"refits": refits_made(estimate)}
    _complete(directory, manifest)


def _complete(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Write what is made of all other files: the metadata, and the manifest."""
    digests = {**manifest["files"], **write_metadata(directory, manifest)}
    text = json.dumps({**manifest, "files": dict(sorted(digests.items()))}, indent=2, ensure_ascii=False)
    (directory / "release.json").write_text(text + "\n", encoding="utf-8")


def _tables(estimate: Estimate) -> list[AnswerTable]:
    """The total, every one-way margin, each measured table of a printable size, and means of measured sums."""
    domain = estimate.domain
    queries = [Query.marginal(), *(Query.marginal(name) for name in domain.counted_names)]
    measured = [table_of(each.query) for each in estimate.measurements if each.values.size <= LARGEST_CSV]
    queries += [query for query in measured if query.bind(domain).size <= LARGEST_CSV]
    means = [
        Question(sums, mean_divisor(sums))
        for each in estimate.measurements.sums
        if each.values.size <= LARGEST_CSV and each.amount not in each.query.attributes
        for sums in [Query(((str(each.amount), Mean()), *each.query.factors))]
    ]
    wanted = [*map(Question, dict.fromkeys(queries)), *(Question(each.query) for each in means), *means]
    return [answer_table(estimate, each) for each in dict.fromkeys(wanted)]


def _csv_files(tables: Sequence[AnswerTable]) -> Iterator[tuple[str, list[AnswerTable], str]]:
    """The names of the files of tables, which tables they hold, and what stands in them."""
    if len(tables) <= MOST_TABLE_FILES:
        names: set[str] = set()
        for table in tables:
            yield _file_name(table.question, names), [table], table.to_csv()
        return
    for ways in sorted({len(table.columns) for table in tables}):
        there = [table for table in tables if len(table.columns) == ways]
        yield f"{ways}-way.csv", there, _below_each_other(there)


def _below_each_other(tables: Sequence[AnswerTable]) -> str:
    """Tables of as many attributes as one CSV: which table, attributes and values, then the columns of all of them."""
    of_table = [table.header[len(table.label_columns) :] for table in tables]
    columns = [
        name for name in ("estimate", "low", "high", "noisy", "basis", "note") if any(name in h for h in of_table)
    ]
    worded = any(table.shown_axes != table.axes for table in tables)
    words = ("attribute", "value", *(["label"] if worded else []))
    private, stream = tables[0].private, io.StringIO()
    writer = CsvWriter(stream)
    places = range(1, len(tables[0].columns) + 1)
    writer.writerow([*heading(private=private), "table", *(f"{w}_{i}" for i in places for w in words), *columns])
    for table, own in zip(tables, of_table, strict=True):
        title = [*cell(private=private), table.title]
        for values, shown, row in zip(table.labels, table.shown_labels, table.rows(), strict=True):
            labels = [each[: len(words)] for each in zip(table.columns, values, shown, strict=True)]
            numbers = (row[name] if name in own else None for name in columns)
            writer.writerow([*title, *itertools.chain(*labels), *numbers])
    return stream.getvalue()


def _with_bars(
    estimate: Estimate, tables: Sequence[AnswerTable], level: float, refits: int, seed: int, progress: Progress | None
) -> list[AnswerTable]:
    """The tables with intervals from the same refits, as many as may have them."""
    rows = np.cumsum([len(table) for table in tables])
    chosen = [table for table, so_far in zip(tables, rows, strict=True) if so_far <= MOST_WITH_BARS]
    found = intervals(
        estimate, [table.question for table in chosen], level, refits=refits, seed=seed, progress=progress
    )
    barred = [replace(table, interval=bars) for table, bars in zip(chosen, found, strict=True)]
    return [*barred, *tables[len(barred) :]]


def _file_name(query: Question, taken: set[str]) -> str:
    """A file name from the query's own words, unique within the bundle; a digest stands for what is too long."""
    described = query.describe()
    words = re.sub(r"[^\w.-]+", "-", described).strip("-.") or "table"
    if len(words.encode()) > LONGEST_NAME:
        digest = hashlib.sha256(described.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        words = f"{words.encode()[: LONGEST_NAME - 13].decode(errors='ignore').rstrip('-.')}-{digest}"
    name, copy = f"{words}.csv", 2
    while _alike(name) in taken:
        name, copy = f"{words}-{copy}.csv", copy + 1
    taken.add(_alike(name))
    return name


def _alike(name: str) -> str:
    """Equal for names that some file systems take for the same."""
    return unicodedata.normalize("NFKC", name.casefold())


def _manifest(estimate: Estimate) -> dict[str, Any]:
    measured = estimate.measurements
    return {
        "format": FORMAT,
        "version": VERSION,
        "dataset": estimate.domain.name,
        "domain": estimate.domain.fingerprint,
        "private": estimate.private,
        "tool": f"consilience {version('consilience')}",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "privacy": measured.privacy.to_json(),
        "provenance": dict(measured.provenance),
        "method": dict(estimate.method),
        "status": estimate.status.value,
        "stats": dict(estimate.stats),
        "basis": estimate.columns_basis.to_json(),
    }


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def folder_in_place_of(target: Path) -> Generator[Path]:
    """A new folder to fill: it takes the target's place when the block ends well, and goes away when it does not.

    It grows beside the target. What was at the target is moved aside first, and removed only when the new one is there.
    """
    parent = target.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=GROWING, dir=parent, ignore_cleanup_errors=True) as folder:
            building, retired = Path(folder) / "new", Path(folder) / "old"
            building.mkdir()
            yield building
            if target.exists():
                os.replace(target, retired)
            try:
                os.replace(building, target)
            except OSError:
                if retired.exists():
                    os.replace(retired, target)
                raise
    except OSError as error:
        refuse_to_write(target, error)
