"""Qardaji, Yang and Li (2014), Figure 3: ways to reconstruct a marginal that no view holds.

CME has the greatest entropy, CLN the least sum of squares, CLP the least largest violation of the same synopsis, which
has been made consistent and non-negative by Ripple. LP is the linear programme on the noisy views themselves, and CME*
the greatest entropy without noise. The three alternatives are slow on 256 cells and make two runs there in place of
five; the columns `sets` and `runs` say how many there were.
"""

import numpy as np

from benchmarks.problems.flags import aol_sized, kosarak_sized
from benchmarks.reproduce.candlesticks import Candlesticks
from benchmarks.reproduce.figures import Claim, publish
from benchmarks.reproduce.qardaji2014.asked import FULL, QUICK, Asked, Rows, Size, between, judged, medians, ordered
from benchmarks.reproduce.qardaji2014.priview import PriView
from benchmarks.reproduce.qardaji2014.variants import Variant, compare

NAME = "qardaji2014-figure-3"
SLOW = {(name, 8): Size(200, 2) for name in ("LP", "CLP", "CLN")}
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


def run(quick: bool) -> bool:
    """200 marginals of each size and five runs, as in the paper, but fewer where they are slow."""
    size = QUICK if quick else FULL
    slow = {place: Size(3, 1) for place in SLOW} if quick else SLOW
    rows: Rows = []
    for records, strength in ((kosarak_sized(), 3), (aol_sized(), 2)):
        questions = [Asked.at_random(records, k, size.sets) for k in WAYS]
        each = PriView.by_design(records, BLOCK, strength)
        rows += compare(records, each, VARIANTS, EPSILON, questions, size, slow=slow)
    rows = ordered(rows)
    return publish(NAME, rows, PICTURE, claims(rows), quick=quick)


def claims(rows: Rows) -> list[Claim]:
    """What §5.3 says of the figure."""
    found = medians(rows)
    others = {place: min(each[name] for name in ("LP", "CLP", "CLN")) / each["CME"] for place, each in found.items()}
    worst = {place: each["LP"] / max(each[name] for name in ("CME", "CLP", "CLN")) for place, each in found.items()}
    gain = {place: each["LP"] / each["CLP"] for place, each in found.items()}
    aol = [value for place, value in gain.items() if place[0].startswith("AOL")]
    kosarak = [value for place, value in gain.items() if not place[0].startswith("AOL")]
    best, best_told = judged(others, lambda ratio: ratio > 1)
    last, last_told = judged(worst, lambda ratio: ratio > 1)
    substantial, gain_told = judged(gain, lambda ratio: ratio > 1.2)
    return [
        Claim(
            "greatest entropy has less error than the alternatives",
            best,
            f"in units of its median error, the best alternative has {best_told}",
        ),
        Claim(
            "the linear programme performs worst",
            last,
            f"in units of the error of the second worst, it has {last_told}",
        ),
        Claim(
            "consistency before the linear programme lowers its error substantially",
            substantial,
            f"in units of the error of CLP, LP has {gain_told}",
        ),
        Claim(
            "this helps most with the larger overlapping views of AOL",
            bool(np.median(aol) > np.median(kosarak)),
            f"{between(aol)} times there, {between(kosarak)} on Kosarak",
        ),
    ]
