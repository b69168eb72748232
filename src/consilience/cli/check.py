"""`consilience check`: is this file one of ours, and is it whole?"""

from pathlib import Path
from typing import Annotated

import typer

from consilience.cli import options
from consilience.cli.console import print_json
from consilience.errors import FileFormatError

EXAMPLE = "Example: consilience check release"


def check_command(
    path: Annotated[
        Path,
        typer.Argument(help="A bundle, a ledger, or a file: domain, workload, measurements, model, synthetic."),
    ],
    json: options.AsJson = False,
) -> None:
    """Say what a file is and that it is valid, or what is wrong with it (exit code 1)."""
    kind, summary = examine(path)
    if json:
        print_json({"file": str(path), "kind": kind, "valid": True, "summary": summary})
    else:
        typer.echo(f"{path}: {kind}, valid. {summary}")


def examine(path: Path) -> tuple[str, str]:
    """The kind of a file and a line about it; a ConsilienceError says what is wrong."""
    if not path.exists():
        raise FileFormatError(f"there is no file {path}")
    if path.is_dir():
        return _bundle(path)
    start = _first_bytes(path)
    if start.startswith(b"SQLite format 3"):
        return _ledger(path)
    if start.startswith(b"PAR1"):
        return _parquet(path)
    if path.suffix == ".toml":
        return _toml(path)
    raise FileFormatError(f"{path} is none of our files: no TOML, no Parquet, no ledger, no bundle")


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(16)
    except OSError as error:
        raise FileFormatError(f"{path} cannot be read: {error.strerror}") from None


def _bundle(path: Path) -> tuple[str, str]:
    from consilience.publication import open_release

    estimate = open_release(path).estimate
    simulated = "" if estimate.private else " NOT PRIVATE: simulated noise."
    return "release bundle", f"{estimate.domain.name}, fitted by {estimate.method['method']}.{simulated}"


def _ledger(path: Path) -> tuple[str, str]:
    from consilience.privacy.ledger import Ledger

    found = Ledger.open(path)
    return "ledger", f"dataset {found.dataset!r}, {found.total.describe()} in all, {found.remaining_text} remains."


def _parquet(path: Path) -> tuple[str, str]:
    from consilience.measurements import MeasurementSet
    from consilience.publication.models import is_model, load_model
    from consilience.publication.record_files import synthetic_file

    if is_model(path):
        saved = load_model(path)
        return "model file", f"fitted by {saved.method.get('method')}, status {saved.status.value}."
    records = synthetic_file(path)
    if records is not None:
        return "synthetic records", records
    measured = MeasurementSet.load(path)
    return "measurement file", f"{measured.domain.name}, {len(measured)} measurements. {measured.privacy.describe()}"


def _toml(path: Path) -> tuple[str, str]:
    from consilience.domain import Domain, Workload
    from consilience.domain.workloads import is_workload_file

    if is_workload_file(path):
        return "workload file", f"{len(Workload.load(path))} queries."
    domain = Domain.load(path)
    return "domain file", f"{domain.name}, {len(domain.attributes)} attributes, {domain.cells:,} cells."
