"""Numbers in classes: between which breaks, what each class is called, and its colour.

Values have up to six classes with about as many places each, between round numbers. Differences, which may have either
sign, have classes on both sides of 0. How sure a count is has classes that are always the same. The colours are
ColorBrewer's YlGnBu, YlOrBr and PuOr, which colour-blind readers can tell apart.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.publication.answers import AnswerTable

Numbers = NDArray[np.float64]

VALUES = ("#ffffcc", "#c7e9b4", "#7fcdbb", "#41b6c4", "#2c7fb8", "#253494")
DOUBTS = ("#ffffd4", "#fee391", "#fec44f", "#fe9929", "#d95f0e", "#993404")
SIGNED = ("#b35806", "#f1a340", "#fee0b6", "#d8daeb", "#998ec3", "#542788")
SHARES_OF_DOUBT = (0.02, 0.05, 0.1, 0.25, 0.5)
"""Half an interval in parts of the count: beyond the last of these the interval is wider than the count."""


@dataclass(frozen=True, eq=False)
class Classes:
    """Numbers in classes, between breaks: what each is called, and its colour."""

    breaks: tuple[float, ...]
    names: tuple[str, ...]
    colours: tuple[str, ...]

    @staticmethod
    def of_values(values: Sequence[Numbers], table: AnswerTable) -> "Classes":
        known = np.concatenate(values)
        known = known[np.isfinite(known)]
        if known.size and known.min() < 0.0 < known.max() and table.question.word == "minus":
            far = np.abs(known)
            outer = [_rounded(each) for each in np.quantile(far, [1 / 3, 2 / 3])]
            breaks = sorted({0.0, *outer, *(-each for each in outer)})
            return Classes._between(breaks, table, SIGNED)
        breaks = sorted({_rounded(each) for each in np.quantile(known, np.arange(1, 6) / 6)}) if known.size else []
        breaks = [each for each in breaks if known.min() < each <= known.max()] if known.size else []
        return Classes._between(breaks, table, VALUES)

    @staticmethod
    def of_doubts(doubts: Sequence[Numbers], table: AnswerTable) -> "Classes":
        known = np.concatenate(doubts)
        known = known[np.isfinite(known)]
        breaks = sorted({_rounded(each) for each in np.quantile(known, np.arange(1, 6) / 6)}) if known.size else []
        return Classes._between([each for each in breaks if each > known.min()], table, DOUBTS, sign="± ")

    @staticmethod
    def of_shares() -> "Classes":
        parts = [f"{100 * each:g}" for each in SHARES_OF_DOUBT]
        between = [f"± {low} to {high} %" for low, high in itertools.pairwise(parts)]
        names = (f"up to ± {parts[0]} %", *between, "more: wider than the count")
        return Classes(SHARES_OF_DOUBT, names, DOUBTS)

    @staticmethod
    def _between(breaks: Sequence[float], table: AnswerTable, colours: Sequence[str], sign: str = "") -> "Classes":
        written = [_short(each, percent=table.style.percent) for each in breaks]
        between = [f"{sign}{low} to {high}" for low, high in itertools.pairwise(written)]
        names = [f"under {sign}{written[0]}", *between, f"{sign}{written[-1]} and more"] if written else ["all"]
        picked = np.linspace(0, len(colours) - 1, len(names)).round().astype(int) if len(names) > 1 else [2]
        return Classes(tuple(breaks), tuple(names), tuple(colours[place] for place in picked))

    def of(self, values: Numbers) -> list[str | None]:
        """The class of each number; None for what is no number."""
        places = np.searchsorted(self.breaks, values, side="right").tolist()
        return [
            None if math.isnan(value) else self.names[at] for value, at in zip(values.tolist(), places, strict=True)
        ]


def _rounded(value: float) -> float:
    """The number with two digits.

    >>> _rounded(1234.0), _rounded(0.0567), _rounded(0.0)
    (1200.0, 0.057, 0.0)
    """
    return float(f"{value:.2g}")


def _short(value: float, *, percent: bool) -> str:
    return f"{100 * value:,.10g} %" if percent else f"{value:,.10g}"
