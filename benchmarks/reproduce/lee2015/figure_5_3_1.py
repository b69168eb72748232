"""Lee, Wang and Kifer (2015), Figure 5.3.1: the matrix mechanism against ε, for queries of random signs."""

from benchmarks.reproduce.figures import About, Extent, Rows
from benchmarks.reproduce.lee2015.methods import DATA_DIFFERS, EPSILONS
from benchmarks.reproduce.lee2015.strategies import METHOD_DIFFERS, error_rows, histograms, signs
from benchmarks.reproduce.per_run import by, geometric, ratio
from benchmarks.reproduce.pictures import Picture
from benchmarks.reproduce.verdicts import BETTER, Claim

ABOUT = About(
    "Lee, Wang and Kifer (2015), Figure 5.3.1: the matrix mechanism on queries of random signs",
    (
        DATA_DIFFERS + " All three are aggregated to 1,024 bins, as in the paper.",
        METHOD_DIFFERS,
        "The paper prints curves without numbers; its axes reach from 10⁴ to 10⁸ or 10⁹.",
    ),
    runs="Ten runs, ε = 0.1, 0.2, … 1, as in the paper.",
)
PICTURE = Picture(
    "Error of 1,024 queries of random signs (Lee et al. 2015, Figure 5.3.1)",
    "epsilon",
    "ε",
    "dataset",
    x_log=False,
    height=280,
    note="Means of ten runs. Marks of one ε are moved sideways so that none hides another.",
)
MM_1, MM_2 = "MM(ℓ1), as printed", "MM(ℓ2)"
OTHERS = ("HTree", "Privlet", "LM", "LRM")


def run(extent: Extent) -> Rows:
    """Ten runs of every method, as in the paper; two, and two ε, if quick."""
    task = signs()
    return [
        row
        for histogram in histograms()
        for epsilon in (EPSILONS[::9] if extent.quick else EPSILONS)
        for row in error_rows(task, histogram, epsilon, seeds=extent.seeds(10))
    ]


def claims(rows: Rows) -> list[Claim]:
    """What §5.3 says of the figure."""
    found = by(rows, "dataset", "epsilon", "method")
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    epsilons = list(dict.fromkeys(row["epsilon"] for row in rows))

    def curve(dataset: str, above: str, below: str) -> list[float]:
        return geometric(ratio(found[dataset, e, above], found[dataset, e, below]) for e in epsilons)

    return [
        Claim(
            "MM performs worse than other algorithms",
            "error of MM(ℓ2) in units of HTree's, Privlet's, LM's and LRM's, over all ε",
            BETTER,
            {
                f"{name}, {dataset.split(' (')[0]}": curve(dataset, MM_2, name)
                for dataset in datasets
                for name in OTHERS
            },
        ),
        Claim(
            "replacing its estimation step with our algorithm improves its accuracy on all three test datasets",
            "error of MM(ℓ2) in units of MM(ℓ1)'s, over all ε",
            BETTER,
            {dataset.split(" (")[0]: curve(dataset, MM_2, MM_1) for dataset in datasets},
        ),
    ]
