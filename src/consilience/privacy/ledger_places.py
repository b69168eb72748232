"""Where the ledger of a source is: beside the data, one for all the names that the data has."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.errors import ConsilienceError, LedgerError
from consilience.privacy.ledger import Ledger

if TYPE_CHECKING:
    from consilience.source import Source


def ledger_place(source: Source) -> Path:
    """Where the ledger of the source is, or where a new one may be created.

    It lies beside the files that the data really is. A ledger that an earlier version put beside the name that was
    given, such as a symbolic link's, is found as well. Where there is neither, but another ledger lies there that holds
    the same data or is bound to the same dataset, nobody but the caller can say which of them is to be charged.
    """
    place, spelled = source.identity.ledger_path, source.identity.spelled_ledger_path
    if place is None or spelled is None:
        raise LedgerError(
            "this source has no place of its own for a ledger; name one with ledger=Ledger.open(path, ...)"
        )
    existing = [path for path in _distinct([place, spelled]) if os.path.exists(path)]
    if len(existing) == 1:
        return existing[0]
    others = existing or [path for path in _ledgers_beside([place, spelled]) if _concerns(path, source)]
    if others:
        raise LedgerError(
            f"{_listed(others)} {'is' if len(others) == 1 else 'are'} for the same data as {source.identity.given!r}, "
            f"or for a dataset of the same name, {source.name!r}, and one more ledger would allow the whole budget "
            "again; say which one to charge with ledger=Ledger.open(path). If this is other data, give its "
            "domain another name, or name its new ledger there"
        )
    return place


def _ledgers_beside(places: Iterable[Path]) -> list[Path]:
    folders = _distinct(place.parent for place in places)
    return _distinct(path for folder in folders for path in sorted(folder.glob("*.ledger")) if path.is_file())


def _concerns(path: Path, source: Source) -> bool:
    """Whether a ledger is named after one of the source's files, holds charges for one, or has the dataset's name."""
    if _among(path.with_suffix(""), source.identity.files):
        return True
    try:
        ledger = Ledger(path)
        sources = [entry.source for entry in ledger.entries() if entry.source is not None]
        return ledger.dataset == source.name or any(
            _among(file, source.identity.files) for each in sources for file in _files_of(each, path)
        )
    except ConsilienceError:  # somebody else's file; a damaged ledger is refused when it is to be used
        return False


def _files_of(source: Mapping[str, Any], ledger: Path) -> list[Path]:
    """The files of a recorded source, as they lie from the ledger now."""
    folder = Path(os.path.realpath(ledger)).parent
    return [folder / file for file in source.get("files", ())]


def _among(file: Path, files: Iterable[Path]) -> bool:
    """Whether the file is one of these, also under another name (a hard link)."""
    return any(file == each or (file.exists() and each.exists() and file.samefile(each)) for each in files)


def _distinct(paths: Iterable[Path]) -> list[Path]:
    return list({os.path.realpath(path): path for path in paths}.values())


def _listed(paths: list[Path]) -> str:
    return " and ".join(str(path) for path in paths)
