"""Error bars: how far an answer may be from the truth, because of the noise and of what a model fills in.

    question ──► pieces ──► bounds of each ──► Interval
    (questions)             (bounds)           (error_bars)
                               ├── refits         the method repeated on noise drawn anew; a bundle keeps them
                               └── drawn_errors   least squares, exact covariances, interactions nobody measured

Computed from what is published alone: they spend no budget.
"""

from consilience.publication.intervals.bounds import NEXT_TO_ZERO
from consilience.publication.intervals.error_bars import (
    ADAPTIVE,
    BETWEEN,
    MODELLED,
    SPENDS_NOTHING,
    UNKNOWN,
    Interval,
    interval,
    intervals,
    is_adaptive,
)

__all__ = [
    "ADAPTIVE",
    "BETWEEN",
    "MODELLED",
    "NEXT_TO_ZERO",
    "SPENDS_NOTHING",
    "UNKNOWN",
    "Interval",
    "interval",
    "intervals",
    "is_adaptive",
]
