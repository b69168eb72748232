"""What every reader of a source is.

A reader knows the columns when it is made, which is when a source without a declared column is refused, and yields the
records of the columns it is asked for, batch by batch, always in the same order. The columns' own names never appear
in a message: only declared ones do.
"""

import codecs
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeVar

from consilience.domain.attributes import Attribute
from consilience.errors import ConsilienceError, SourceError

if TYPE_CHECKING:
    from consilience.source.records import Batch

ROWS_PER_BATCH = 2**18
"""Records per batch: 32 columns of codes take 8 MB, their values up to 64 MB."""

Required = Mapping[str, Attribute | None]
"""The columns a source must have: attributes by their names, and the unit's column, which may be no attribute."""


class Reader(Protocol):
    """A confidential source, opened."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns of the source, which appear in no message of a measurement."""
        ...

    @property
    def runs_code(self) -> bool:
        """Whether reading runs anything but the reader itself: a query, a view, a lazy plan, methods of objects.

        Such code may fail on some rows and not on others, so that who sees it fail has been told something.
        """
        ...

    @property
    def reads_once(self) -> bool:
        """Whether the records are gone once they have been read."""
        ...

    def batches(self, names: Sequence[str]) -> "Generator[Batch]":
        """The records, with at least the columns named, in the order of the source."""
        ...


def check_columns(shown: str, columns: Sequence[str], required: Required) -> None:
    """Refuse a source in which a declared column is absent or there twice."""
    absent = [name for name in required if name not in columns]
    if absent:
        raise SourceError(
            f"{shown} has no column {_named(absent)}, which the declaration needs; names must agree exactly, upper and "
            "lower case included: rename the column or correct the declaration"
        )
    repeated = [name for name in required if list(columns).count(name) > 1]
    if repeated:
        raise SourceError(
            f"{shown} has more than one column {_named(repeated)}; rename or remove all but the declared one"
        )


def check_types(shown: str, types: Mapping[str, Any], required: Required) -> None:
    """Refuse columns whose declared type holds nothing that their attribute could match."""
    from consilience.source.coding import unsuitable

    for name, attribute in required.items():
        found = unsuitable(attribute, types[name])
        if found is not None:
            wanted = "a unit" if attribute is None else f"a {attribute.kind} attribute"
            raise SourceError(
                f"the column {name!r} of {shown} holds {found}, but is declared as {wanted}; "
                "convert the column or declare it as what it is"
            )


def _named(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


def in_utf8(file: BinaryIO, encoding: str) -> "BinaryIO | InUtf8":
    """The file as if it had been saved in UTF-8; what is in UTF-8 is passed on as it is, valid or not."""
    return file if encoding == "utf-8" else InUtf8(file, encoding)


class InUtf8:
    """A file that turns its text into UTF-8 piece by piece; bytes without a meaning become U+FFFD."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def read(self, size: int) -> bytes:
        """The text of the next so many bytes; empty at the end alone."""
        while True:
            piece = self._file.read(size)
            text = self._decoder.decode(piece, final=not piece)
            if text or not piece:
                return text.encode("utf-8", "surrogatepass")


# ----------------------------------------------------------------------------------------------------------------------
# Refusing a confidential source without a word of what is in it.
#
# Engines put values, lines and paths into their error texts. `attempt` lets their exceptions end here: the refusal is
# raised after the handler has been left, so that neither `__cause__` nor `__context__` leads back to them.


T = TypeVar("T")


def attempt(action: Callable[[], T], refusal: str) -> T:
    """What the action returns; any failure of an engine becomes a SourceError with this text alone."""
    try:
        return action()
    except ConsilienceError:
        raise
    except Exception:
        pass
    raise SourceError(refusal)


def attempt_each(items: Generator[T], refusal: str) -> Generator[T]:
    """The items, with failures to produce the next one refused as `attempt` does."""
    finished = object()
    try:
        while (item := attempt(lambda: next(items, finished), refusal)) is not finished:
            yield item  # type: ignore[misc]
    finally:
        items.close()
