"""Every error a user can meet: what was wrong, both sides of a mismatch, and the next step.

The children say *whose* mistake it was, because that decides what a message may contain. Errors about
declarations, measurements and files describe public things and say everything. A `SourceError` is about
confidential data: it names the declared column or the kind of file, never a value, a row or a count.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

Found = TypeVar("Found")

LONGEST_MESSAGE = 2000
"""Characters that fit on a screen. What is quoted from a file may be of any length."""

LONG_WORD = re.compile(r"(\S{60})\S{140,}(\S{20})")


class ConsilienceError(Exception):
    """The root of all errors that consilience raises on purpose.

    Words of hundreds of letters are shortened, and a message that is still too long loses its middle: what was wrong
    stands at its beginning, the next step at its end.

    >>> len(str(ConsilienceError(f"the name {'x' * 10_000!r} is too long; shorten it")))
    114
    """

    def __init__(self, message: str = "", *details: object) -> None:
        if len(message) > LONGEST_MESSAGE:
            message = LONG_WORD.sub(r"\1…\2", message)
        if len(message) > LONGEST_MESSAGE:
            message = message[: LONGEST_MESSAGE - 603] + " … " + message[-600:]
        super().__init__(message, *details)


class DeclarationError(ConsilienceError):
    """A domain, query, workload, plan or option that contradicts itself or its surroundings."""


class MeasurementError(ConsilienceError):
    """Noisy values, noise laws or privacy statements that do not fit together."""


class FileFormatError(ConsilienceError):
    """A file that is not what it claims to be: truncated, foreign, of another version, or tampered with."""


class SourceError(ConsilienceError):
    """A confidential source that cannot be read. Its text never holds a value, a row number or a count."""


class BudgetExceeded(ConsilienceError):
    """A request that would spend more privacy budget than remains; nothing was spent."""


class LedgerError(ConsilienceError):
    """A ledger that is locked, belongs to another dataset, or contradicts the request."""


class TooLarge(ConsilienceError):
    """A problem whose predicted memory exceeds the limit; nothing was allocated."""


class ModelTooLarge(TooLarge):
    """A graphical model whose junction tree would not fit; names its largest cliques and what causes them."""


class PoorFit(ConsilienceError):
    """An account that misses its measurements by far more than their noise explains; the estimate is `details[0]`."""

    def __init__(self, message: str = "", *details: object) -> None:
        super().__init__(message)
        self.details = details


class Unanswered(TooLarge):
    """Queries of a batch that need more memory than there may be; it carries the answers to the others.

    `answers` has an entry for each query, None for those without an answer; `reasons` says why, by their places.
    """

    def __init__(self, answers: Sequence[Any], reasons: Mapping[int, str]) -> None:
        self.answers, self.reasons = list(answers), dict(reasons)
        first = next(iter(self.reasons))
        super().__init__(
            f"{len(self.reasons)} of {len(self.answers)} queries have no answer, the first of them query {first + 1}: "
            f"{self.reasons[first]}. The other answers are in this error's `answers`"
        )


def refused(found: Callable[[], Found]) -> Found | TooLarge:
    """What a call finds, or the error with which it refuses what is too large."""
    try:
        return found()
    except TooLarge as error:
        return error


def all_or_unanswered(found: Sequence[Found | TooLarge]) -> list[Found]:
    """What was found of each; raises `Unanswered`, which holds the rest, where something was refused."""
    reasons = {place: str(each) for place, each in enumerate(found) if isinstance(each, TooLarge)}
    answers = [each for each in found if not isinstance(each, TooLarge)]
    if reasons:
        raise Unanswered([None if place in reasons else each for place, each in enumerate(found)], reasons)
    return answers


def readable_count(count: int) -> str:
    """A whole number for people: in full up to a thousand million million, then as a power of ten.

    >>> readable_count(48_842), readable_count(2**1000)
    ('48,842', '10^301')
    """
    return f"{count:,}" if count < 10**15 else f"10^{math.floor(math.log10(count))}"


def readable_bytes(count: int) -> str:
    """A number of bytes for people.

    >>> readable_bytes(1_500_000_000), readable_bytes(2**1000)
    ('1.5 GB', '10^286 PB')
    """
    if count >= 10**30:
        return f"{readable_count(count // 10**15)} PB"
    value = float(count)
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} PB"


def listed(names: Sequence[str], most: int = 8) -> str:
    """The first of some names, and how many more there are.

    >>> listed(["a", "b", "c", "d"], 2)
    'a, b and 2 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
