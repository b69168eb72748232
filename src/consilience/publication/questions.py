"""What is asked of an estimate, however it was said, and ratios of answers."""

import numpy as np
from numpy.typing import NDArray

from consilience.domain.queries import Query, Question
from consilience.errors import DeclarationError
from consilience.estimators.base import Estimate


def as_query(query: Query | str) -> Query:
    return Query.parse(query) if isinstance(query, str) else query


def as_question(query: Query | Question | str, per: Query | str | None = None) -> Question:
    """What is asked, divided by `per` where that is given; a mean divides by itself and is refused another divisor."""
    asked = Question.parse(query) if isinstance(query, str) else query
    asked = Question(asked) if isinstance(asked, Query) else asked
    if per is None:
        return asked
    if asked.per is not None:
        raise DeclarationError(
            f"{asked.describe()!r} is divided by {asked.per.describe()!r} already, and was to be divided by "
            f"{as_query(per).describe()!r}, too; leave that away, or ask for {asked.query.describe()!r}, which mean() "
            "was in earlier versions"
        )
    return Question(asked.query, as_query(per))


def check_divisor(estimate: Estimate, asked: Query, divisor: Query) -> None:
    """Refuse to divide answers by another number of answers, unless by one."""
    above, below = (query.bind(estimate.domain).size for query in (asked, divisor))
    if below not in (1, above):
        raise DeclarationError(
            f"{asked.describe()!r} has {above} answers and {divisor.describe()!r} has {below}; a ratio is per one "
            "number, or per as many: name another query"
        )


def ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """The ratio, which is not a number where there is nothing to divide by."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below > 0.0, above / below, np.nan)
