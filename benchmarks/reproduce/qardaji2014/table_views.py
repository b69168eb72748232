"""Qardaji, Yang and Li (2014), the tables of §4.5: how many attributes a view should have, and how much it covers.

The first table has 2^(ℓ/2)/(ℓ(ℓ−1)) and its analogue for triples; the second the noise error of equation (5) for the
best designs known to its authors, with 32 attributes, 900,000 records and ε = 1. Ours has it for the designs that ship
with the project, and for other ℓ too.
"""

from benchmarks.problems.flags import AOL_FLAGS, AOL_RECORDS, CHAIN_FLAGS, CHAIN_RECORDS
from benchmarks.reproduce.figures import Claim, Picture, publish
from benchmarks.reproduce.qardaji2014.asked import Rows
from benchmarks.reproduce.qardaji2014.expected_errors import block_criterion, view_noise_error
from consilience.coverings.designs import covering_size

NAME = "qardaji2014-table-views"
PICTURE = Picture(
    "How many attributes a view should have (Qardaji et al. 2014, tables of §4.5)",
    "block",
    "attributes of a view, ℓ",
    "panel",
    y="value",
    y_title="criterion, or noise error in parts of N",
    series="covered",
    x_log=False,
)
CRITERION, NOISE = "2^(ℓ/2) / (ℓ (ℓ − 1) …)", "noise error, d = 32, N = 900,000, ε = 1"
PRINTED_CRITERIA = {
    5: (0.283, 0.094), 6: (0.267, 0.067), 7: (0.269, 0.054), 8: (0.286, 0.048),
    9: (0.314, 0.045), 10: (0.356, 0.044), 11: (0.411, 0.046), 12: (0.485, 0.048),
}  # fmt: skip
"""For each ℓ, for pairs and for triples."""
PRINTED_NOISE = {2: (20, 0.00047), 3: (106, 0.0011), 4: (620, 0.0026)}
"""For each t the number of views and the noise error, ℓ = 8."""
COVERED = {2: "pairs", 3: "triples", 4: "quadruples"}
FLAGS, RECORDS = 32, 900_000
WORTHWHILE = 0.002
"""The noise error up to which covering larger sets is worth it."""


def run(quick: bool) -> bool:
    """Formulas and sizes of designs; there is nothing to shorten."""
    rows: Rows = [
        {
            "panel": CRITERION,
            "covered": COVERED[strength],
            "block": block,
            "strength": strength,
            "views": "",
            "value": block_criterion(block, strength),
            "printed": printed[strength - 2],
        }
        for block, printed in PRINTED_CRITERIA.items()
        for strength in (2, 3)
    ]
    for strength in COVERED:
        for block in range(6, 11):
            views = covering_size(FLAGS, block, strength)
            row = {"panel": NOISE, "covered": COVERED[strength], "block": block, "strength": strength, "views": views}
            printed = PRINTED_NOISE[strength][1] if block == 8 else ""
            rows.append(row | {"value": view_noise_error(FLAGS, block, views, RECORDS), "printed": printed})
    return publish(NAME, rows, PICTURE, claims(rows), quick=quick)


def claims(rows: Rows) -> list[Claim]:
    """The printed numbers, and the choice of t that follows from them."""
    first = {(int(row["block"]), int(row["strength"])): row for row in rows if row["panel"] == CRITERION}
    off = {place: row for place, row in first.items() if f"{row['value']:.3f}" != f"{row['printed']:.3f}"}
    told = "; ".join(f"ℓ = {block}: {row['value']:.4f}, printed {row['printed']}" for (block, _), row in off.items())
    second = {int(row["strength"]): row for row in rows if row["panel"] == NOISE and row["block"] == 8}
    same = [
        f"{view_noise_error(FLAGS, 8, views, RECORDS):.{5 if strength == 2 else 4}f}" == str(error)
        for strength, (views, error) in PRINTED_NOISE.items()
    ]
    ours = "; ".join(f"t = {strength}: {row['views']:g} views, {row['value']:.2g}" for strength, row in second.items())
    return [
        Claim(
            "the criterion for ℓ is as printed, lowest about ℓ = 6 for pairs and 10 for triples",
            not off,
            f"{len(first) - len(off)} of {len(first)} numbers to the digit" + (f"; {told}" if told else ""),
        ),
        Claim(
            "20, 106 and 620 views have noise errors of 0.00047, 0.0011 and 0.0026",
            all(same),
            f"to the digit by equation (5); with the designs of this project {ours}",
        ),
        *_choices(),
    ]


def _choices() -> list[Claim]:
    """Which t the rule chooses: the largest whose noise error is worthwhile."""
    cases = {
        "Kosarak, ε = 1": (32, RECORDS, 1.0),
        "Kosarak, ε = 0.1": (32, RECORDS, 0.1),
        "AOL, ε = 1": (AOL_FLAGS, AOL_RECORDS, 1.0),
        "AOL, ε = 0.1": (AOL_FLAGS, AOL_RECORDS, 0.1),
        "Markov chains, ε = 1": (CHAIN_FLAGS, CHAIN_RECORDS, 1.0),
    }
    chosen = {name: chosen_strength(*case) for name, case in cases.items()}
    return [
        Claim(
            "one would choose t = 3 for Kosarak at ε = 1, and t = 2 at ε = 0.1 and for the other sets",
            [*chosen.values()] == [3, 2, 2, 2, 2],
            f"the largest t with a noise error of at most {WORTHWHILE}, or 2: "
            + ", ".join(f"{name}: t = {strength}" for name, strength in chosen.items()),
        )
    ]


def chosen_strength(flags: int, records: float, epsilon: float) -> int:
    sizes = {strength: covering_size(flags, 8, strength) for strength in COVERED}
    fine = [t for t, views in sizes.items() if view_noise_error(flags, 8, views, records, epsilon) <= WORTHWHILE]
    return max(fine, default=2)
