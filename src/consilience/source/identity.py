"""What a source is, so that a ledger tells it from every other: never anything of its rows, and no credentials.

Files are told apart by where they really are, however they were spelled: a symbolic link, a pattern and a roundabout
path come to the same files. A ledger keeps their paths as seen from its own directory, so that data and ledger may be
moved together. A frame in memory has no place; the name that its curator gives is all there is to tell it by.
"""

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SourceIdentity:
    """The files that a source really is, the table or the query in them, and the names that people gave it."""

    files: tuple[Path, ...] = ()
    """Resolved, in the order of their paths; none for data in memory."""
    table: str | None = None
    query: str | None = None
    name: str | None = None
    given: str | None = None
    """The path or pattern as it was spelled."""

    @staticmethod
    def of_files(
        files: Sequence[Path], given: str, *, table: str | None, query: str | None, name: str | None
    ) -> "SourceIdentity":
        """The identity of these files, links resolved."""
        resolved = sorted({Path(os.path.realpath(file)) for file in files})
        return SourceIdentity(tuple(resolved), table, query, name, given)

    def seen_from(self, directory: Path) -> dict[str, Any]:
        """The identity as a ledger in this directory keeps it, `directory` being where the paths begin."""
        if not self.files:
            return {"kind": "memory", "name": self.name}
        place = os.path.realpath(directory)
        files = [_relative(file, place) for file in self.files]
        return {"kind": "files", "files": files, "table": self.table, "query": self.query, "directory": place}

    @property
    def ledger_path(self) -> Path | None:
        """Beside the data: its file's name with `.ledger`, for several files what their names have in common."""
        if not self.files:
            return None
        if len(self.files) == 1:
            return self.files[0].with_name(self.files[0].name + ".ledger")
        directory = Path(os.path.commonpath([file.parent for file in self.files]))
        names = ["-".join(file.relative_to(directory).parts) for file in self.files]
        beginning = _common_beginning(names)
        end = _common_beginning([name[len(beginning) :][::-1] for name in names])[::-1]
        return directory / f"{beginning}_{end}.ledger"

    @property
    def spelled_ledger_path(self) -> Path | None:
        """Where earlier versions looked: beside the path as it was spelled, links and patterns not resolved."""
        if self.given is None:
            return None
        path = Path(self.given).absolute()
        if os.path.exists(self.given) or not glob.has_magic(self.given):
            return path.with_name(path.name + ".ledger")
        parts = path.parts
        plain = next(i for i, part in enumerate(parts) if glob.has_magic(part))
        pattern = "-".join(parts[plain:])
        return Path(*parts[:plain], "".join("_" if sign in "*?[]" else sign for sign in pattern) + ".ledger")


def _common_beginning(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    differing = (place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
    return first[: next(differing, len(first))]


def _relative(file: Path, directory: str) -> str:
    try:
        return Path(os.path.relpath(file, directory)).as_posix()
    except ValueError:  # another drive
        return file.as_posix()
