"""Qardaji, Yang and Li (2014), Figure 6: PriView with different covering designs on the Kosarak-sized records.

The designs are the best that ship with the project, for views of 6 to 10 attributes; stars are the noise error of
equation (5).
"""

from benchmarks.problems.flags import kosarak_sized
from benchmarks.reproduce.candlesticks import Candlesticks
from benchmarks.reproduce.figures import About, Extent, Rows
from benchmarks.reproduce.per_run import Values, greatest, least, ratio
from benchmarks.reproduce.qardaji2014.asked import Asked, Setting, Size, ordered
from benchmarks.reproduce.qardaji2014.differs import CANDLES, DATA, RIPPLE
from benchmarks.reproduce.qardaji2014.expected_errors import view_noise_error
from benchmarks.reproduce.qardaji2014.priview import PriView
from benchmarks.reproduce.verdicts import AS_WELL, SIMILAR, Claim, Threshold

ABOUT = About(
    "Qardaji, Yang and Li (2014), Figure 6: different covering designs on Kosarak",
    (
        DATA,
        "Designs: the best that ship with this project, for ℓ = 6 to 10; the paper does not list its designs in text.",
        RIPPLE,
        CANDLES,
    ),
    runs="Five runs of 200 marginals of each size, ε = 1 and 0.1, as in the paper.",
)
PICTURE = Candlesticks(
    "Different covering designs (Qardaji et al. 2014, Figure 6)",
    note="Ct(ℓ,w): w views of ℓ attributes that cover all sets of t.",
    star="noise error by equation (5)",
    height=190,
    step=20,
)
WAYS = (4, 6, 8)
EPSILONS = (1.0, 0.1)
DESIGNS = (*((block, strength) for strength in (2, 3) for block in (6, 7, 8, 9, 10)), (8, 4))
"""ℓ and t."""
FAMILIES = {2: "pairs covered", 3: "triples covered", 4: "quadruples covered"}


def run(extent: Extent) -> Rows:
    """200 marginals of each size, five runs, as in the paper; few if quick."""
    size = Size.of(extent)
    records = kosarak_sized()
    questions = [Asked.at_random(records, k, size.sets) for k in WAYS]
    rows: Rows = []
    for block, strength in DESIGNS:
        each = PriView.by_design(records, block, strength)
        for epsilon in EPSILONS:
            rows += errors(each, epsilon, questions, size.seeds)
        print(f"  {each.name}: done", flush=True)
    return ordered(rows)


def errors(each: PriView, epsilon: float, questions: list[Asked], seeds: range) -> Rows:
    """The errors of one design, with the noise error that equation (5) promises."""
    records = questions[0].records
    noise = view_noise_error(records.flags, each.block, each.views, records.total, epsilon)
    rows: Rows = []
    for asked in questions:
        setting = Setting(f"{records.name}, ε = {epsilon:g}", asked, epsilon)
        answers = (
            each.marginals(asked.sets, each.published(epsilon, setting.noise(each.name, seed))) for seed in seeds
        )
        more = {"star": noise, "block": each.block, "strength": each.strength}
        rows += setting.rows(each.name, FAMILIES[each.strength], answers, **more)
    return rows


def claims(rows: Rows) -> list[Claim]:
    """What §5.4 says of the figure."""
    panels: dict[str, Rows] = {}
    for row in rows:
        panels.setdefault(f"ε = {row['epsilon']:g}, k = {row['k']:g}", []).append(row)
    similar: dict[str, Values] = {}
    eight: dict[str, Values] = {}
    near: dict[str, Values] = {}
    for panel, inside in panels.items():
        for strength in (2, 3):
            group = {row["block"]: row["values"] for row in inside if row["strength"] == strength}
            similar[f"t = {strength}, {panel}"] = ratio(greatest(group.values()), least(group.values()))
            eight[f"t = {strength}, {panel}"] = ratio(group[8], least(group.values()))
        if inside[0]["epsilon"] == 1.0:
            nearest = min(inside, key=lambda row: abs(row["star"] - NOISE))
            near[f"{panel}, noise error {nearest['star']:.2g}"] = ratio(
                nearest["values"], least(row["values"] for row in inside)
            )
    return [
        Claim(
            "multiple covering designs with different ℓ values perform similarly",
            "error of the worst ℓ of 6 to 10 in units of that of the best, with the same t",
            Threshold(high=SIMILAR.high),
            similar,
        ),
        Claim(
            "choosing ℓ = 8, while not optimal in all cases, perform reasonably well overall",
            "error of ℓ = 8 in units of that of the best ℓ, with the same t",
            AS_WELL,
            eight,
        ),
        Claim(
            "covering designs with t = 3 tend to have tighter band of errors than those covering only pairs",
            "share of the panels and ℓ in which the 95th percentile over the 25th is smaller for t = 3",
            Threshold(low=0.5),
            {"all panels": tighter(panels)},
            ratio=False,
        ),
        Claim(
            "choosing noise error to be around 0.002 would perform quite well",
            "error of the design with the nearest noise error in units of that of the best, ε = 1",
            AS_WELL,
            near,
        ),
    ]


NOISE = 0.002


def tighter(panels: dict[str, Rows]) -> Values:
    """In each run the share of panels and ℓ in which the band of triples is tighter than that of pairs."""
    widths: list[tuple[Values, Values]] = []
    for inside in panels.values():
        band = {(row["block"], row["strength"]): ratio(row["high_values"], row["low_values"]) for row in inside}
        widths += [(band[block, 2], band[block, 3]) for block, strength in band if strength == 2]
    runs = len(widths[0][0])
    return [sum(triples[run] < pairs[run] for pairs, triples in widths) / len(widths) for run in range(runs)]
