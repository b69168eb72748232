"""Reading declared files, and writing files whole or not at all."""

import os
import re
import tempfile
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from consilience.errors import FileFormatError

GROWING = ".consilience-"
"""What folders are called in which files grow before they take their place."""
LARGEST_TOML = 2**26
DEEPEST_TOML = 100

_KEY = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![A-Za-z0-9_-])(?:{_KEY}[ \t]*+\.[ \t]*+){{{DEEPEST_TOML}}}")


def read_toml(path: str | os.PathLike[str], *, what: str, hint: str) -> dict[str, Any]:
    """What a TOML file declares; `what` it should be and a `hint` are for the messages.

    Dotted keys are counted before they are read: the reader's time grows with the square of their length.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_TOML + 1)
        if len(content) > LARGEST_TOML:
            raise FileFormatError(f"{path} is larger than {LARGEST_TOML / 1e6:,.0f} MB, which no {what} is")
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        raise FileFormatError(f"there is no {what} {path}; {hint}") from None
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path} cannot be read as a text file: {type(error).__name__}") from None
    try:
        if not _DEEP_KEY.search(text):
            return tomllib.loads(text)
    except RecursionError:
        pass
    except ValueError as error:
        raise FileFormatError(f"{path} is not valid TOML: {error}") from None
    raise FileFormatError(f"{path} is nested too deeply for a {what}; check that it is one")


def write_atomically(path: Path, content: bytes) -> None:
    """Leave either the old file or the complete new one: write beside it, flush to disk, then rename.

    The new file grows in a private folder beside its place, which goes away whatever happens, and gets the
    permissions of any new file.
    """
    with file_in_place_of(path) as stream:
        stream.write(content)


@contextmanager
def file_in_place_of(target: Path) -> Generator[BinaryIO]:
    """A new file to fill: it takes the target's place when the block ends well, and goes away when it does not."""
    try:
        with tempfile.TemporaryDirectory(
            prefix=GROWING, dir=target.absolute().parent, ignore_cleanup_errors=True
        ) as folder:
            growing = Path(folder) / "new"
            with growing.open("wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            growing.replace(target)
    except OSError as error:
        refuse_to_write(target, error)


def refuse_to_write(target: Path, error: OSError) -> NoReturn:
    """Say why nothing could be written there."""
    reason = error.strerror or str(error) or type(error).__name__
    raise FileFormatError(
        f"cannot write {target}: {reason}; nothing of it was left behind: check the folder, its permissions and the "
        "space on its disk"
    ) from None


def shown_path(path: str | os.PathLike[str]) -> str:
    """A path as it is seen from the current folder, where that is shorter."""
    try:
        return min(os.fspath(path), os.path.relpath(path), key=len)
    except ValueError:  # on another drive
        return os.fspath(path)
