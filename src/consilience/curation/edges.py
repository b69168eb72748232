"""Bins as a statistician would cut them: round edges near the quantiles, and one open bin for a long tail.

Edges are multiples of 1, 2, 2.5 or 5 times a power of ten. Of all numbers near a quantile the roundest is taken, so
that bins hold about equally many records and still have edges that people would write.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from consilience.curation.columns import Numbers

FACTORS = (Decimal(5), Decimal("2.5"), Decimal(2), Decimal(1))
AGE_BANDS = (0, 15, 25, 35, 45, 55, 65, 75, 85)
"""Bands of ten years as statistical offices publish ages; public, where quantiles are the data's own."""


@dataclass(frozen=True)
class Cutting:
    """How numbers are cut into bins."""

    bins: int = 8
    """How many bins to aim at. A table of three such attributes has 512 cells, of which a few thousand records are
    still seen at epsilon 1; with twenty each it would have 8,000."""
    reach: float = 0.35
    """How far an edge may lie from its quantile, in bins."""
    tail: float = 0.01
    """The share of records that an open bin at an end may cut off in thought; 1 % is where published tables stop."""
    long_tail: float = 0.4
    """A tail is long if that share takes more than this part of the range of all others. Heights and temperatures
    stay below 0.3, incomes, fares and counts of events lie above 0.5."""
    spike: float = 0.1
    """A zero that this share of all has is a bin of its own."""
    fewest: float = 0.5
    """A bin that holds less than this part of its share is joined with its neighbour, at the rounder edge."""
    to_zero: float = 0.2
    counts: int = 10
    """Whole numbers of which 98 % lie within so many get a bin each, and the last one is open."""
    """Bins begin with 0 where the least number is below this part of the range."""


class Cut(NamedTuple):
    """Edges, and whether the first and the last bin are open: they also hold what is beyond."""

    edges: Sequence[float]
    open_below: bool
    open_above: bool


def cut(numbers: Numbers, cutting: Cutting) -> Cut:
    """The bins of these numbers: edges between which about equally many lie, and which are round.

    >>> import numpy as np
    >>> fares = Numbers()
    >>> fares.add(np.exp(np.linspace(1, 6, 1000)).round(4))
    >>> cut(fares, Cutting()).edges
    [0, 5, 10, 20, 40, 100, 250, 420]
    """
    whole = numbers.whole
    low, high = numbers.low, numbers.high
    end = numbers.at(0.98)
    if whole and end - low <= cutting.counts:
        return Cut([int(low) + place for place in range(int(end - low) + 2)], False, high > end)
    first, last = numbers.at(cutting.tail), numbers.at(1 - cutting.tail)
    middle = last - first
    open_above = high - last > cutting.long_tail * middle > 0
    open_below = first - low > cutting.long_tail * middle > 0 and low < 0
    top = _above(last if open_above else high, middle or high - low, whole=whole)
    bottom = first if open_below else low
    bottom = -_above(-bottom, middle or high - low, whole=False) if bottom < 0 else bottom
    if 0 < bottom <= cutting.to_zero * (top - bottom) or 0 < bottom < 1:
        bottom = 0.0
    elif bottom > 0:
        bottom = roundest(bottom - 0.1 * (top - bottom), bottom, whole=whole)
    edges = {bottom, top} | ({0.0} if bottom < 0 < top else set())
    start = 0.0
    if low >= 0 and numbers.share(0, 0) >= cutting.spike:
        start = numbers.share(0, 0)
        least = numbers.at(min(1.0, start + 0.01 * (1 - start) + 1e-9))
        edges |= {0.0, 1.0 if whole else roundest(0.5 * least, least, whole=False)}
    share = (1 - start) / cutting.bins
    coarse = whole or middle >= 20
    for place in range(1, cutting.bins):
        at = start + place * share
        near, far = numbers.at(at - cutting.reach * share), numbers.at(at + cutting.reach * share)
        edges.add(_near(near, far, middle or high - low, whole=coarse))
    kept = _joined(sorted(edge for edge in edges if bottom <= edge <= top), numbers, cutting.fewest * share)
    if whole or all(edge == int(edge) for edge in kept):
        kept = [int(edge) for edge in kept]
    return Cut(kept, open_below, open_above)


def _joined(edges: list[float], numbers: Numbers, fewest: float) -> list[float]:
    """The edges without those that leave fewer than this share between them; of two the rounder one stays."""
    kept = edges[:1]
    for edge in edges[1:]:
        if edge > 1 and len(kept) > 1 and numbers.share(kept[-1], math.nextafter(edge, -math.inf)) < fewest:
            if edge != edges[-1] and _size(edge) <= _size(kept[-1]):
                continue
            kept.pop()
        kept.append(edge)
    return kept


def _size(edge: float) -> float:
    """How round a number is: the largest step of which it is a multiple."""
    return next(
        step * 10.0**power
        for power in range(18, -20, -1)
        for step in (5, 2.5, 2, 1)
        if abs(math.remainder(edge, step * 10.0**power)) <= 1e-9 * step * 10.0**power
    )


def _near(low: float, high: float, spread: float, *, whole: bool) -> float:
    """The roundest number from low to high, or near them where they are closer together than a hundredth of all.

    Never further than a fiftieth of themselves: a long tail makes the spread large.
    """
    room = max(0.0, min(0.01 * spread, 0.02 * abs(low + high)) - (high - low)) / 2
    return roundest(low - room, high + room, whole=whole)


def _above(number: float, spread: float, *, whole: bool) -> float:
    """A round number just above."""
    least = number + 1 if whole else number
    return roundest(least, least + 0.05 * abs(spread), whole=whole)


def roundest(low: float, high: float, *, whole: bool = False) -> float:
    """The number from low to high that is a multiple of the largest of 1, 2, 2.5 or 5 times a power of ten.

    >>> roundest(17.3, 23.9), roundest(40.51, 40.58), roundest(-3, 2), roundest(61, 88, whole=True)
    (20.0, 40.55, 0.0, 75.0)
    """
    if low <= 0 <= high:
        return 0.0
    least, most = Decimal(repr(float(low))), Decimal(repr(float(high)))
    power = math.floor(math.log10(max(abs(low), abs(high)))) + 1
    for exponent in range(power, power - 20, -1):
        for factor in FACTORS:
            step = factor * Decimal(10) ** exponent
            if whole and step != int(step):
                continue
            multiple = (least / step).to_integral_value(rounding="ROUND_CEILING") * step
            if multiple <= most:
                return float(multiple)
        if whole and exponent < 0:
            break
    return float(math.ceil(low)) if whole else float(high)


def age_bands(numbers: Numbers) -> Cut | None:
    """The usual bands of ages where the numbers look like ages of people of all ages."""
    if numbers.low < 0 or numbers.high > 125 or numbers.at(0.9) <= 35:
        return None
    first = max(edge for edge in AGE_BANDS if edge <= numbers.low)
    last = next((edge for edge in AGE_BANDS if edge > numbers.at(0.99)), AGE_BANDS[-1])
    last = max(last, AGE_BANDS[AGE_BANDS.index(first) + 1])
    edges: list[float] = [edge for edge in AGE_BANDS if first <= edge <= last]
    if last == AGE_BANDS[-1]:
        edges.append(100)
    return Cut(edges, False, numbers.high >= last)
