"""Qardaji, Yang and Li (2014), Figure 6: PriView with different covering designs on the Kosarak-sized records.

The designs are the best that ship with the project, for views of 6 to 10 attributes; stars are the noise error of
equation (5).
"""

from benchmarks.problems.flags import kosarak_sized
from benchmarks.reproduce.candlesticks import Candlesticks
from benchmarks.reproduce.figures import Claim, brief, publish
from benchmarks.reproduce.qardaji2014.asked import FULL, QUICK, Asked, Rows, Setting, Size, between, ordered
from benchmarks.reproduce.qardaji2014.expected_errors import view_noise_error
from benchmarks.reproduce.qardaji2014.priview import PriView

NAME = "qardaji2014-figure-6"
PICTURE = Candlesticks(
    "Different covering designs (Qardaji et al. 2014, Figure 6)",
    note="Ct(ℓ,w): w views of ℓ attributes that cover all sets of t.",
    star="noise error by equation (5)",
    height=190,
)
WAYS = (4, 6, 8)
EPSILONS = (1.0, 0.1)
DESIGNS = (*((block, strength) for strength in (2, 3) for block in (6, 7, 8, 9, 10)), (8, 4))
"""ℓ and t."""
FAMILIES = {2: "pairs covered", 3: "triples covered", 4: "quadruples covered"}
QUADRUPLES = Size(100, 2)
"""How much is asked of the largest design, of several hundred views."""


def run(quick: bool) -> bool:
    """200 marginals of each size, five runs, as in the paper; few if quick."""
    size = QUICK if quick else FULL
    records = kosarak_sized()
    questions = [Asked.at_random(records, k, size.sets) for k in WAYS]
    rows: Rows = []
    for block, strength in DESIGNS:
        each = PriView.by_design(records, block, strength)
        less = Size(min(size.sets, QUADRUPLES.sets), min(size.runs, QUADRUPLES.runs)) if strength == 4 else size
        for epsilon in EPSILONS:
            rows += errors(each, epsilon, [asked.first(less.sets) for asked in questions], less.runs)
        print(f"  {each.name}: done", flush=True)
    rows = ordered(rows)
    return publish(NAME, rows, PICTURE, claims(rows), quick=quick)


def errors(each: PriView, epsilon: float, questions: list[Asked], runs: int) -> Rows:
    """The errors of one design, with the noise error that equation (5) promises."""
    records = questions[0].records
    noise = view_noise_error(records.flags, each.block, each.views, records.total, epsilon)
    rows: Rows = []
    for asked in questions:
        setting = Setting(f"{records.name}, ε = {epsilon:g}", asked, epsilon)
        answers = (
            each.marginals(asked.sets, each.published(epsilon, setting.noise(each.name, run))) for run in range(runs)
        )
        more = {"star": noise, "block": each.block, "strength": each.strength}
        rows += setting.rows(each.name, FAMILIES[each.strength], answers, **more)
    return rows


def claims(rows: Rows) -> list[Claim]:
    """What §5.4 says of the figure."""
    panels: dict[tuple[float, int], Rows] = {}
    for row in rows:
        panels.setdefault((row["epsilon"], int(row["k"])), []).append(row)
    similar, eight, width, near = [], [], [], []
    for (epsilon, _), inside in panels.items():
        of_pairs = [row for row in inside if row["strength"] == 2]
        of_triples = [row for row in inside if row["strength"] == 3]
        best = min(row["p50"] for row in inside)
        for group in (of_pairs, of_triples):
            similar.append(max(row["p50"] for row in group) / min(row["p50"] for row in group))
            chosen = next(row["p50"] for row in group if row["block"] == 8)
            eight.append(chosen / min(row["p50"] for row in group))
        width += [
            (three["p95"] / three["p25"]) / (two["p95"] / two["p25"])
            for two, three in zip(of_pairs, of_triples, strict=True)
        ]
        if epsilon == 1.0:
            near.append(min(inside, key=lambda row: abs(row["star"] - 0.002))["p50"] / best)
    tighter = sum(ratio < 1 for ratio in width)
    return [
        Claim(
            "designs with different ℓ perform similarly",
            max(similar) <= 2.5,
            f"with the same t, the worst ℓ of 6 to 10 has {between(similar)} times the median error of the best",
        ),
        Claim(
            "ℓ = 8, while not always best, performs reasonably well",
            max(eight) <= 1.5,
            f"it has {between(eight)} times the error of the best ℓ",
        ),
        Claim(
            "designs that cover triples tend to have tighter bands of errors",
            tighter > len(width) / 2,
            f"the 95th percentile in units of the 25th is smaller for t = 3 in {tighter} of {len(width)} pairs of "
            f"designs, {between(width)} times that for t = 2",
        ),
        Claim(
            "a noise error of about 0.002 performs quite well",
            max(near) <= 2,
            f"at ε = 1 the design whose noise error is nearest to it has {between(near)} times the median error of "
            f"the best; its noise error is {brief(_nearest(rows))}",
        ),
    ]


def _nearest(rows: Rows) -> float:
    return min((row["star"] for row in rows if row["epsilon"] == 1.0), key=lambda noise: abs(noise - 0.002))
