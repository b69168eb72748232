"""Every error a user can meet: what was wrong, both sides of a mismatch, and the next step.

The children say *whose* mistake it was, because that decides what a message may contain. Errors about
declarations, measurements and files describe public things and say everything. A `SourceError` is about
confidential data: it names the declared column or the kind of file, never a value, a row or a count.
"""

import re

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
