"""Lee, Wang and Kifer (2015), Figure 5.3.2: the matrix mechanism on three workloads at ε = 0.1."""

from benchmarks.reproduce.figures import About, Extent, Rows
from benchmarks.reproduce.lee2015.methods import DATA_DIFFERS
from benchmarks.reproduce.lee2015.strategies import (
    METHOD_DIFFERS,
    all_ranges,
    error_rows,
    histograms,
    identity,
    predicates,
)
from benchmarks.reproduce.per_run import Values, by, ratio
from benchmarks.reproduce.pictures import Picture
from benchmarks.reproduce.verdicts import BETTER, NOT_BETTER, Claim

ABOUT = About(
    "Lee, Wang and Kifer (2015), Figure 5.3.2: the matrix mechanism on three workloads",
    (
        DATA_DIFFERS + " All three are aggregated to 1,024 bins, as in the paper.",
        METHOD_DIFFERS,
        "The paper prints bars without numbers; its axes reach from 1 to 10⁷.",
    ),
    runs="Ten runs, ε = 0.1, as in the paper.",
)
PICTURE = Picture(
    "Error on three workloads, ε = 0.1 (Lee et al. 2015, Figure 5.3.2)",
    "workload",
    "",
    "dataset",
    bars=True,
    width=235,
    height=260,
    note="Means of ten runs.",
)
EPSILON = 0.1
MM_1, MM_2, ALONE = "MM(ℓ1), as printed", "MM(ℓ2)", "MM(ℓ1), L1 alone"
EXCEPTION = "all ranges, Nettrace"


def run(extent: Extent) -> Rows:
    """Ten runs of every method, as in the paper; two if quick."""
    return [
        row
        for task in (identity(), predicates(), all_ranges())
        for histogram in histograms()
        for row in error_rows(task, histogram, EPSILON, seeds=extent.seeds(10))
    ]


def claims(rows: Rows) -> list[Claim]:
    """What §5.3 says of the figure."""
    found = by(rows, "dataset", "workload", "method")
    cases = list(dict.fromkeys((row["dataset"], row["workload"]) for row in rows))

    def gains(method: str) -> dict[str, Values]:
        """The error of least squares in units of a method's, in each case."""
        return {
            f"{workload}, {dataset.split(' (')[0]}": ratio(
                found[dataset, workload, MM_2], found[dataset, workload, method]
            )
            for dataset, workload in cases
        }

    printed = gains(MM_1)
    exception = {EXCEPTION: printed.pop(EXCEPTION)}
    statistic = "error of MM(ℓ2) in units of MM(ℓ1)'s"
    return [
        Claim(
            "applying the proposed algorithm to MM improves the accuracy in all cases, except all range workload on "
            "Nettrace",
            statistic,
            BETTER,
            printed,
        ),
        Claim("… except all range workload on Nettrace dataset", statistic, NOT_BETTER, exception),
        Claim(
            "the same holds for the L1 norm alone, the likelihood itself",
            "error of MM(ℓ2) in units of that of L1 alone",
            BETTER,
            gains(ALONE),
            ours=True,
        ),
    ]
