"""Writing files and folders whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from consilience.errors import FileFormatError


def write_atomically(path: Path, content: bytes) -> None:
    """Leave either the old file or the complete new one: write beside it, flush to disk, then rename.

    The new file grows in a private folder beside its place, which goes away whatever happens, and gets the
    permissions of any new file.
    """
    with file_in_place_of(path) as stream:
        stream.write(content)


@contextmanager
def file_in_place_of(target: Path) -> Iterator[BinaryIO]:
    """A new file to fill: it takes the target's place when the block ends well, and goes away when it does not."""
    try:
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}.", dir=target.absolute().parent, ignore_cleanup_errors=True
        ) as folder:
            growing = Path(folder) / "new"
            with growing.open("wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            growing.replace(target)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise FileFormatError(f"cannot write {target}: {reason}; check the folder and its permissions") from None


@contextmanager
def folder_in_place_of(target: Path) -> Iterator[Path]:
    """A new folder to fill: it takes the target's place when the block ends well, and goes away when it does not.

    It grows beside the target. What was at the target is moved aside first, and removed only when the new one is there.
    """
    parent = target.absolute().parent
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=parent))
    try:
        yield building
        building.chmod(0o755)
        if target.exists():
            retired = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=parent))
            os.replace(target, retired / "old")
            os.replace(building, target)
            shutil.rmtree(retired)
        else:
            os.replace(building, target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
