"""Qardaji, Yang and Li (2014), Figure 3: ways to reconstruct a marginal that no view holds.

CME has the greatest entropy, CLN the least sum of squares, CLP the least largest violation of the same synopsis, which
has been made consistent and non-negative by Ripple. LP is the linear programme on the noisy views themselves, and CME*
the greatest entropy without noise.
"""

from benchmarks.problems.flags import aol_sized, kosarak_sized
from benchmarks.reproduce.candlesticks import Candlesticks
from benchmarks.reproduce.figures import About, Extent, Rows
from benchmarks.reproduce.per_run import geometric, greatest, least, ratio
from benchmarks.reproduce.qardaji2014.asked import Asked, Size, medians, ordered, ratios, told
from benchmarks.reproduce.qardaji2014.differs import CANDLES, DATA, DESIGNS, RIPPLE
from benchmarks.reproduce.qardaji2014.priview import PriView
from benchmarks.reproduce.qardaji2014.variants import Variant, compare
from benchmarks.reproduce.verdicts import BETTER, CLEARLY, Claim

ABOUT = About(
    "Qardaji, Yang and Li (2014), Figure 3: ways to reconstruct a marginal that no view holds",
    (DATA, DESIGNS, RIPPLE, CANDLES),
    runs="Five runs of 200 marginals of each size, ε = 1, as in the paper.",
)
PICTURE = Candlesticks(
    "Ways to reconstruct marginals from views (Qardaji et al. 2014, Figure 3)",
    note="CME: greatest entropy; CLN: least squares; CLP: linear programme; CME*: without noise;\n"
    "LP: linear programme on views that have not been made consistent.",
    height=190,
    step=32,
)
WAYS = (4, 6, 8)
BLOCK = 8
EPSILON = 1.0
VARIANTS = (
    Variant("CME"),
    Variant("LP", "linear-programme", raw=True),
    Variant("CLP", "linear-programme"),
    Variant("CLN", "least-squares"),
    Variant("CME*", noise=False),
)


def run(extent: Extent) -> Rows:
    """200 marginals of each size and five runs, as in the paper; few if quick."""
    size = Size.of(extent)
    rows: Rows = []
    for records, strength in ((kosarak_sized(), 3), (aol_sized(), 2)):
        questions = [Asked.at_random(records, k, size.sets) for k in WAYS]
        each = PriView.by_design(records, BLOCK, strength)
        rows += compare(records, each, VARIANTS, EPSILON, questions, size.seeds)
    return ordered(rows)


def claims(rows: Rows) -> list[Claim]:
    """What §5.3 says of the figure."""
    found = medians(rows)
    others = ("LP", "CLP", "CLN")
    best = {told(place): ratio(least(each[name] for name in others), each["CME"]) for place, each in found.items()}
    worst = {
        told(place): ratio(each["LP"], greatest(each[name] for name in ("CME", "CLP", "CLN")))
        for place, each in found.items()
    }
    gain = ratios(found, "LP", "CLP")
    aol = geometric(values for place, values in gain.items() if place.startswith("AOL"))
    kosarak = geometric(values for place, values in gain.items() if not place.startswith("AOL"))
    return [
        Claim(
            "the maximum entropy method outperforms the alternatives",
            "error of the best alternative in units of that of CME",
            BETTER,
            best,
        ),
        Claim(
            "the Linear Programming approach performs the worst",
            "error of LP in units of the largest of the others",
            BETTER,
            worst,
        ),
        Claim(
            "[with consistency before it] the error substantially decreased",
            "error of LP in units of that of CLP",
            CLEARLY,
            gain,
        ),
        Claim(
            "the result is most substantial with larger overlapping views for the AOL covering designs",
            "gain by consistency on AOL in units of that on Kosarak",
            BETTER,
            {"all k": ratio(aol, kosarak)},
        ),
    ]
