"""Qardaji, Yang and Li (2014), Figure 4: what becomes of negative counts in the views.

All variants start with consistency, end with it, and reconstruct by greatest entropy. None leaves negative counts as
they are, Simple sets them to zero, Global also takes the same from all positive counts to keep the total, Ripple takes
it from the neighbours of the negative cell; Ripple 3 repeats Ripple and consistency three times. Where margins are
negative in the end, or no table has them, reconstruction meets them as nearly as a table can.
"""

from benchmarks.problems.flags import aol_sized, kosarak_sized
from benchmarks.reproduce.candlesticks import Candlesticks
from benchmarks.reproduce.figures import Claim, publish
from benchmarks.reproduce.qardaji2014.asked import FULL, QUICK, Asked, Place, Rows, between, judged, medians, ordered
from benchmarks.reproduce.qardaji2014.priview import PriView
from benchmarks.reproduce.qardaji2014.variants import Variant, compare

NAME = "qardaji2014-figure-4"
PICTURE = Candlesticks(
    "What becomes of negative counts (Qardaji et al. 2014, Figure 4)",
    note="Ripple 1 and Ripple 3: one and three rounds of Ripple and consistency.",
    height=190,
    step=32,
)
WAYS = (4, 6, 8)
BLOCK = 8
EPSILON = 1.0
NONE, SIMPLE, GLOBAL, RIPPLE, RIPPLE_3 = "None", "Simple", "Global", "Ripple 1", "Ripple 3"
VARIANTS = (
    Variant(NONE, nonnegativity="none"),
    Variant(SIMPLE, nonnegativity="simple"),
    Variant(GLOBAL, nonnegativity="global"),
    Variant(RIPPLE),
    Variant(RIPPLE_3, rounds=3),
)


def run(quick: bool) -> bool:
    """200 marginals of each size, five runs, as in the paper; few if quick."""
    size = QUICK if quick else FULL
    rows: Rows = []
    for records, strength in ((kosarak_sized(), 3), (aol_sized(), 2)):
        questions = [Asked.at_random(records, k, size.sets) for k in WAYS]
        rows += compare(records, PriView.by_design(records, BLOCK, strength), VARIANTS, EPSILON, questions, size)
    rows = ordered(rows)
    return publish(NAME, rows, PICTURE, claims(rows), quick=quick)


def claims(rows: Rows) -> list[Claim]:
    """What §5.3 says of the figure."""
    found = medians(rows)

    def ratios(method: str, other: str) -> dict[Place, float]:
        return {place: each[method] / each[other] for place, each in found.items()}

    best = {place: min(each[name] for name in (NONE, SIMPLE, GLOBAL)) / each[RIPPLE] for place, each in found.items()}
    either = [best[place] * each[RIPPLE] / min(each[RIPPLE], each[RIPPLE_3]) for place, each in found.items()]
    none, none_told = judged(ratios(NONE, RIPPLE), lambda ratio: 1.8 <= ratio <= 4.5)
    simple, simple_told = judged(ratios(SIMPLE, NONE), lambda ratio: ratio > 1)
    improved, improved_told = judged(ratios(NONE, GLOBAL), lambda ratio: ratio > 1)
    ripple, ripple_told = judged(best, lambda ratio: ratio > 1)
    rounds, rounds_told = judged(ratios(RIPPLE_3, RIPPLE), lambda ratio: 0.9 < ratio < 1.1)
    return [
        Claim(
            "without non-negativity the error is 2 to 4 times as large",
            none,
            f"in units of the median error of Ripple 1, None has {none_told}",
        ),
        Claim(
            "setting negative counts to zero is even worse",
            simple,
            f"in units of the error of None, Simple has {simple_told}",
        ),
        Claim("Global is some improvement", improved, f"in units of the error of Global, None has {improved_told}"),
        Claim(
            "Ripple is the best",
            ripple,
            f"in units of the error of Ripple 1, the best of the others has {ripple_told}; in units of the better of "
            f"Ripple 1 and 3 it has {between(either)}",
        ),
        Claim(
            "one round of Ripple performs as well as three",
            rounds,
            f"in units of the error of Ripple 1, Ripple 3 has {rounds_told}",
        ),
    ]
