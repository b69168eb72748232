"""Qardaji, Yang and Li (2014), Figure 4: what becomes of negative counts in the views.

All variants start with consistency, end with it, and reconstruct by greatest entropy. None leaves negative counts as
they are, Simple sets them to zero, Global also takes the same from all positive counts to keep the total, Ripple takes
it from the neighbours of the negative cell; Ripple 3 repeats Ripple and consistency three times. Where margins are
negative in the end, or no table has them, reconstruction meets them as nearly as a table can.
"""

from benchmarks.problems.flags import aol_sized, kosarak_sized
from benchmarks.reproduce.candlesticks import Candlesticks
from benchmarks.reproduce.figures import About, Extent, Rows
from benchmarks.reproduce.per_run import least, ratio
from benchmarks.reproduce.qardaji2014.asked import Asked, Size, medians, ordered, ratios, told
from benchmarks.reproduce.qardaji2014.differs import CANDLES, DATA, DESIGNS
from benchmarks.reproduce.qardaji2014.differs import RIPPLE as RIPPLE_DIFFERS
from benchmarks.reproduce.qardaji2014.priview import PriView
from benchmarks.reproduce.qardaji2014.variants import Variant, compare
from benchmarks.reproduce.verdicts import AS_WELL, BETTER, Claim, Threshold

ABOUT = About(
    "Qardaji, Yang and Li (2014), Figure 4: what becomes of negative counts",
    (DATA, DESIGNS, RIPPLE_DIFFERS, CANDLES),
    runs="Ten runs, where the paper has five, of 200 marginals of each size, ε = 1.",
)
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


def run(extent: Extent) -> Rows:
    """200 marginals of each size as in the paper, ten runs; few if quick."""
    size = Size.of(extent, runs=10)
    rows: Rows = []
    for records, strength in ((kosarak_sized(), 3), (aol_sized(), 2)):
        questions = [Asked.at_random(records, k, size.sets) for k in WAYS]
        each = PriView.by_design(records, BLOCK, strength)
        rows += compare(records, each, VARIANTS, EPSILON, questions, size.seeds)
    return ordered(rows)


def claims(rows: Rows) -> list[Claim]:
    """What §5.3 says of the figure."""
    found = medians(rows)
    others = (NONE, SIMPLE, GLOBAL)
    best = {told(place): ratio(least(each[name] for name in others), each[RIPPLE]) for place, each in found.items()}
    return [
        Claim(
            "not using non-negativity ('None') has 2 to 4 times more error when compared with applying non-negativity",
            "error of None in units of that of Ripple 1",
            Threshold(low=2.0),
            ratios(found, NONE, RIPPLE),
            paper="2 to 4 times",
        ),
        Claim(
            "simply change negative counts to zero (Simple) performs even worse",
            "error of Simple in units of that of None",
            BETTER,
            ratios(found, SIMPLE, NONE),
        ),
        Claim(
            "subtracting the same constant globally (Global) provide some improvement",
            "error of None in units of that of Global",
            BETTER,
            ratios(found, NONE, GLOBAL),
        ),
        Claim(
            "Ripple method produces the best result",
            "error of the best of the others in units of that of Ripple 1",
            BETTER,
            best,
        ),
        Claim(
            "Ripple 1 performs as well as Ripple 3",
            "error of Ripple 1 in units of that of Ripple 3",
            AS_WELL,
            ratios(found, RIPPLE, RIPPLE_3),
        ),
    ]
