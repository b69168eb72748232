"""Writing files whole or not at all."""

import os
import tempfile
from pathlib import Path

from consilience.errors import FileFormatError


def write_atomically(path: Path, content: bytes) -> None:
    """Leave either the old file or the complete new one: write beside it, flush to disk, then rename.

    The new file grows in a private folder beside its place, which goes away whatever happens, and gets the
    permissions of any new file.
    """
    try:
        with tempfile.TemporaryDirectory(
            prefix=f".{path.name}.", dir=path.parent, ignore_cleanup_errors=True
        ) as folder:
            temporary = Path(folder) / "new"
            with temporary.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise FileFormatError(f"cannot write {path}: {reason}; check the folder and its permissions") from None
