"""Whether a claim of a paper holds here: its words, a statistic of every run, a threshold, an interval, an outcome.

A claim is data. Its words are the paper's. Its statistic is a number that every run has by itself, in each of the
places that the claim speaks of (a panel, an ε, another method): most often the ratio of two errors of one run, which
see the same records and, where the methods share measurements, the same noise. Its threshold says which values are
what the words say, by one table of words for all papers (`WORDS`).

*Interval.* With n runs the values v of a place have the 95 % interval mean(v) ± t·sd(v)/√n of Student's t with n − 1
degrees of freedom; ratios are averaged as logarithms, so that their estimate is the geometric mean. A number that no
run changes, such as that of a formula, is exact and its own interval.

*Outcome.* A claim about m places holds if the interval of every place lies within the threshold: each is then shown
at 5 %, and so is that all hold (an intersection–union test). It does not hold if in some place the interval at level
1 − 0.05/m lies outside (Bonferroni). Otherwise the runs cannot tell. A tie, a difference of less than 1 %, is neither
better nor worse.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from scipy import stats

LEVEL = 0.95
LARGEST = 1e9
"""Ratios are kept within 1/LARGEST and LARGEST, so that an error of zero has one, too."""


class Outcome(StrEnum):
    """What became of a claim."""

    HELD = "held"
    NOT = "did not hold"
    UNTOLD = "cannot be told"


@dataclass(frozen=True)
class Threshold:
    """The values that are what a word says, from `low` to `high`."""

    low: float = -math.inf
    high: float = math.inf

    def holds(self, low: float, high: float) -> bool:
        return self.low <= low and high <= self.high

    def fails(self, low: float, high: float) -> bool:
        return high < self.low or self.high < low

    def slack(self, low: float, high: float) -> float:
        """How far an interval is inside, negative if it reaches outside; it orders places from the worst on."""
        return min(low - self.low, self.high - high)

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"at least {self.low:.4g}"
        if math.isinf(self.low):
            return f"at most {self.high:.4g}"
        return f"exactly {self.low:.4g}" if self.low == self.high else f"{self.low:.3g} to {self.high:.4g}"


def within(factor: float) -> Threshold:
    return Threshold(1.0 / factor, factor)


TIE = 1.01
BETTER = Threshold(low=TIE)
NOT_BETTER = Threshold(high=TIE)
SLIGHTLY = Threshold(low=TIE, high=1.25)
CLEARLY = Threshold(low=1.5)
MUCH = Threshold(low=2.0)
ORDER = Threshold(low=10.0)
TWO_ORDERS = Threshold(low=100.0)
SIMILAR = within(1.5)
SAME = within(1.25)
AS_WELL = Threshold(high=1.25)
TRUE = Threshold(1.0, 1.0)

WORDS: tuple[tuple[str, str], ...] = (
    ("better, worse, lower, outperforms, improves, best, worst", f"by a factor of {TIE:g} or more; less is a tie"),
    ("slightly", f"by a factor of {TIE:g} to {SLIGHTLY.high:g}"),
    ("clearly, noticeable, substantially", f"by a factor of {CLEARLY.low:g} or more"),
    ("much, huge, very poorly, dominates", f"by a factor of {MUCH.low:g} or more"),
    ("an order of magnitude; two orders", f"by a factor of {ORDER.low:g} or more; of {TWO_ORDERS.low:g}"),
    ("similar, comparable", f"within a factor of {SIMILAR.high:g}, either way"),
    ("essentially the same, about", f"within a factor of {SAME.high:g}, either way"),
    ("as well as, reasonably well", f"at most {AS_WELL.high:g} times the error"),
    ("a factor that the paper prints", "at least four fifths of it"),
)
"""What words mean, the same in all papers."""


def factor(printed: float) -> Threshold:
    """A factor that the paper prints: at least four fifths of it, and no tie."""
    return Threshold(low=max(0.8 * printed, TIE))


@dataclass(frozen=True)
class Interval:
    """An estimate and where it may be, in one place."""

    estimate: float
    low: float
    high: float


def interval(values: Sequence[float], *, level: float = LEVEL, ratio: bool = True, exact: bool = False) -> Interval:
    """The mean of some runs with Student's interval; of ratios the geometric mean.

    >>> interval([2.0, 8.0], ratio=True, exact=True).estimate
    4.0
    >>> interval([1.0, 2.0, 3.0], ratio=False)
    Interval(estimate=2.0, low=-0.484..., high=4.484...)
    """
    found = np.asarray(values, dtype=np.float64)
    if ratio:
        found = np.log(np.clip(found, 1.0 / LARGEST, LARGEST))
    back = math.exp if ratio else float
    mean = float(found.mean())
    if exact:
        return Interval(back(mean), back(mean), back(mean))
    if len(found) < 2:
        return Interval(back(mean), 0.0 if ratio else -math.inf, math.inf)
    reach = float(stats.t.ppf((1.0 + level) / 2.0, len(found) - 1) * found.std(ddof=1) / math.sqrt(len(found)))
    return Interval(back(mean), back(mean - reach), back(min(mean + reach, 700.0) if ratio else mean + reach))


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and the numbers that decide it: for each place those of all runs.

    `paper` is what the paper itself prints, `more` what a reader should know of the numbers. `ours` marks what this
    project says and the paper does not.
    """

    words: str
    statistic: str
    threshold: Threshold
    places: Mapping[str, Sequence[float]]
    paper: str = ""
    more: str = ""
    ratio: bool = True
    exact: bool = False
    ours: bool = False
    unit: str = field(default="", kw_only=True)

    def judged(self) -> "Verdict":
        if not self.places:
            raise ValueError(f"no place to judge: {self.words}")
        options = {"ratio": self.ratio, "exact": self.exact}
        wide = 1.0 - (1.0 - LEVEL) / len(self.places)
        found = {name: interval(values, **options) for name, values in self.places.items()}
        strict = {name: interval(values, level=wide, **options) for name, values in self.places.items()}
        outcomes = {name: self._outcome(found[name], strict[name]) for name in self.places}
        if all(each is Outcome.HELD for each in outcomes.values()):
            outcome = Outcome.HELD
        else:
            outcome = Outcome.NOT if Outcome.NOT in outcomes.values() else Outcome.UNTOLD
        return Verdict(self, outcome, found, outcomes)

    def _outcome(self, found: Interval, strict: Interval) -> Outcome:
        if self.threshold.holds(found.low, found.high):
            return Outcome.HELD
        return Outcome.NOT if self.threshold.fails(strict.low, strict.high) else Outcome.UNTOLD


@dataclass(frozen=True)
class Verdict:
    """A claim with its outcome, and the interval and the outcome of every place."""

    claim: Claim
    outcome: Outcome
    found: Mapping[str, Interval]
    outcomes: Mapping[str, Outcome]

    def to_json(self) -> dict[str, Any]:
        claim = self.claim
        return {
            "words": claim.words,
            "statistic": claim.statistic,
            "threshold": str(claim.threshold) + claim.unit,
            "paper": claim.paper,
            "more": claim.more,
            "ours": claim.ours,
            "outcome": str(self.outcome),
            "evidence": self.evidence(),
            "places": {
                name: {"estimate": _kept(each.estimate), "low": _kept(each.low), "high": _kept(each.high)}
                | {"outcome": str(self.outcomes[name])}
                for name, each in self.found.items()
            },
        }

    def evidence(self) -> str:
        """In words: the range over all places, and the interval of the place that decides."""
        decisive = self._decisive()
        each, unit = self.found[decisive], self.claim.unit
        told = brief(each.estimate) if self.claim.exact else f"{brief(each.estimate)} [{_ends(each)}]"
        if len(self.found) == 1:
            return told + unit
        estimates = [one.estimate for one in self.found.values()]
        spread = f"{brief(min(estimates))} to {brief(max(estimates))}{unit} in {len(self.found)} places"
        return f"{spread}; {self._counted()}{decisive}: {told}{unit}"

    def _counted(self) -> str:
        """How many places are not as the words say, where some are not."""
        counts = {outcome: sum(each is outcome for each in self.outcomes.values()) for outcome in Outcome}
        if self.outcome is Outcome.HELD:
            return "the closest is "
        parts = [f"{counts[each]} {each}" for each in (Outcome.NOT, Outcome.UNTOLD) if counts[each]]
        return f"{', '.join(parts)}, the farthest off being "

    def _decisive(self) -> str:
        """The place that is farthest off, among those of the claim's outcome."""
        threshold = self.claim.threshold
        alike = [name for name, each in self.outcomes.items() if each is self.outcome]

        def slack(name: str) -> float:
            each = self.found[name]
            if self.claim.ratio and each.estimate > 0:
                low = math.log(threshold.low) if threshold.low > 0 else -math.inf
                high = math.log(threshold.high) if 0 < threshold.high < math.inf else math.inf
                return Threshold(low, high).slack(math.log(each.estimate), math.log(each.estimate))
            return threshold.slack(each.estimate, each.estimate)

        return min(alike, key=slack)


def brief(value: float) -> str:
    """A number with three digits at most, without an exponent where it is of a usual size.

    >>> brief(1234.5), brief(0.00123), brief(1.0), brief(2.345)
    ('1,230', '0.00123', '1', '2.35')
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞"
    if value != 0 and (abs(value) >= 1e7 or abs(value) < 1e-5):
        return f"{value:.1e}"
    return f"{float(f'{value:.3g}'):,.8g}"


def _ends(each: Interval) -> str:
    return f"{brief(each.low)}, {brief(each.high)}"


def _kept(value: float) -> float | str:
    """A number as JSON has it: six digits, and infinity as a word."""
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)
