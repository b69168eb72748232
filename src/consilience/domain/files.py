"""Writing files whole or not at all."""

import os
import tempfile
from pathlib import Path

from consilience.errors import FileFormatError


def write_atomically(path: Path, content: bytes) -> None:
    """Leave either the old file or the complete new one: write beside it, flush to disk, then rename."""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise FileFormatError(f"cannot write {path}: {error.strerror}; check the folder and its permissions") from None
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise FileFormatError(f"cannot write {path}: {error.strerror}") from None


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
