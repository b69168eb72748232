"""Refusing a confidential source without a word of what is in it.

Engines put values, lines and paths into their error texts. `attempt` lets their exceptions end here: the refusal is
raised after the handler has been left, so that neither `__cause__` nor `__context__` leads back to them.
"""

from collections.abc import Callable, Generator
from typing import TypeVar

from consilience.errors import ConsilienceError, SourceError

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
