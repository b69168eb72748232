"""Qardaji, Yang and Li (2014), Figure 5: Markov chains of order 1 to 7, asked for consecutive attributes.

64 attributes, all runs of k consecutive ones, C2(8,72). A design from the plane of order 8 holds the eight attributes
of each row of the plane, so with the points in order most short runs would lie within a view; the points are renamed
at random. The paper does not print how many records it drew: here it is one million.
"""

from benchmarks.problems.flags import CHAIN_RECORDS, markov_chain
from benchmarks.reproduce.candlesticks import Candlesticks
from benchmarks.reproduce.figures import Claim, brief, publish
from benchmarks.reproduce.qardaji2014.asked import (
    FULL,
    OTHERS,
    PRIVIEW,
    QUICK,
    WITHOUT_NOISE,
    Asked,
    Rows,
    Setting,
    Size,
    between,
)
from benchmarks.reproduce.qardaji2014.priview import PriView, design, relabelled

NAME = "qardaji2014-figure-5"
PICTURE = Candlesticks(
    "Markov chains of order 1 to 7 (Qardaji et al. 2014, Figure 5)",
    note="mci: bits that depend on the i before them; 64 bits, one million records;\nall runs of k consecutive bits.",
    method="dataset",
    row="panel",
    star="Uniform, mean",
    height=190,
    step=28,
)
WAYS = (4, 6, 8)
ORDERS = range(1, 8)
BLOCK, STRENGTH = 8, 2
EPSILON = 1.0


def run(quick: bool) -> bool:
    """All runs of consecutive attributes, five runs of noise, as in the paper; few if quick."""
    size = QUICK if quick else FULL
    rows: Rows = []
    for order in ORDERS:
        rows += errors(order, size, CHAIN_RECORDS)
        print(f"  order {order}: done", flush=True)
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    rows.sort(key=lambda row: (panels.index(row["panel"]), row["k"]))
    return publish(NAME, rows, PICTURE, claims(rows), quick=quick)


def errors(order: int, size: Size, records: int) -> Rows:
    """With noise and without, and those of Uniform."""
    chains = markov_chain(order, records)
    each = PriView(chains, STRENGTH, relabelled(design(chains.flags, BLOCK, STRENGTH), chains.flags, seed=5))
    rows: Rows = []
    for k in WAYS:
        sets = [tuple(range(begin, begin + k)) for begin in range(chains.flags - k + 1)]
        asked = Asked.of(chains, sets[: size.sets])
        setting = Setting(f"{each.name}, ε = {EPSILON:g}", asked, EPSILON)
        uniform = setting.rows("Uniform", OTHERS, [asked.uniform])[0]["mean"]
        answers = (
            each.marginals(asked.sets, each.published(EPSILON, setting.noise(each.name, run)))
            for run in range(size.runs)
        )
        rows += setting.rows(each.name, PRIVIEW, answers, star=uniform)
        without = Setting(f"{each.name_without_noise}, without noise", asked, EPSILON)
        answers = [each.marginals(asked.sets, each.exact)]
        rows += without.rows(each.name_without_noise, WITHOUT_NOISE, answers, star=uniform)
    return rows


def claims(rows: Rows) -> list[Claim]:
    """What §5.5 says of the figure."""
    noisy = [row for row in rows if row["family"] == PRIVIEW]
    found = {(int(row["k"]), row["dataset"]): row for row in noisy}
    largest = {
        k: max((name for each, name in found if each == k), key=lambda name: found[k, name]["mean"]) for k in WAYS
    }
    told = "; ".join(
        f"k = {k}: " + ", ".join(f"{name} {found[k, name]['mean']:.2g}" for each, name in found if each == k)
        for k in WAYS
    )
    shares = [row["star"] / row["mean"] for row in noisy]
    return [
        Claim(
            "the 3rd order has the largest error",
            set(largest.values()) == {"mc3"},
            f"{'; '.join(f'k = {k}: {name}' for k, name in largest.items())} (mean errors for {told})",
        ),
        Claim(
            "although only pairs are covered, the results are quite accurate even for larger orders",
            min(shares) > 3,
            f"Uniform has {between(shares)} times the error; the largest is {brief(max(row['mean'] for row in noisy))}",
        ),
    ]
