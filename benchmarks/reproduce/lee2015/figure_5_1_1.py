"""Lee, Wang and Kifer (2015), Figure 5.1.1: tables whose total, 1-way or 2-way marginals are publicly known."""

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.contingency_tables import CONTINGENCY_TABLES, ContingencyTable
from benchmarks.problems.counted import CountedTable
from benchmarks.reproduce.figures import About, Extent, Rows
from benchmarks.reproduce.lee2015.methods import EPSILONS
from benchmarks.reproduce.per_run import by, geometric, least, ratio
from benchmarks.reproduce.pictures import Picture
from benchmarks.reproduce.verdicts import BETTER, CLEARLY, Claim
from consilience import plans
from consilience.domain import Workload
from consilience.estimators import Matrix, MultiplicativeWeights
from consilience.measuring import measure
from consilience.solvers.marginal_tables.table_fit import fit_table

ABOUT = About(
    "Lee, Wang and Kifer (2015), Figure 5.1.1: the error of cells when marginals are publicly known",
    (
        "Data: the paper's three tables.",
        "Method: the paper's elastic net (α = 0.9 on residuals in counts) at its exact optimum, where the paper stops "
        "ADMM at a tolerance that it does not print. Privlet is the Haar wavelet of the cells in lexicographic order, "
        "the likely reading of a method for histograms. MWEM asks for all 3-way marginals, which the paper does not "
        "say, with the number of rounds that its bound suggests.",
        "The paper prints curves without numbers; its vertical axes reach from 1, or 0.1, to 10⁴.",
    ),
    runs="Ten runs, ε = 0.1, 0.2, … 1, as in the paper.",
)
PICTURE = Picture(
    "Error of cells with known marginals (Lee et al. 2015, Figure 5.1.1)",
    "epsilon",
    "ε",
    "dataset",
    row="known",
    x_log=False,
    note="Means of ten runs. Marks of one ε are moved sideways so that none hides another.",
)
KNOWN = ("total known", "1-way known", "2-way known")
ORDERS = range(len(KNOWN))
LEAST_SQUARES = Matrix(loss="l2", nonnegative=False)
ADMM_1, ADMM_2, AUTO = "ADMM(ℓ1), as printed", "ADMM(ℓ2)", "Consilience, auto"
OTHERS = ("LM", "Privlet", "MWEM")
SPARSE = ("Edwards", "Rochdale")

Array = NDArray[np.float64]


def run(extent: Extent) -> Rows:
    """Ten runs of every method, as in the paper; two of three ε if quick."""
    rows: Rows = []
    for table in CONTINGENCY_TABLES:
        for epsilon in EPSILONS[::4] if extent.quick else EPSILONS:
            rows += errors(table, epsilon, extent.seeds(10))
        print(f"  {table.name}: done", flush=True)
    return sorted(rows, key=lambda row: KNOWN.index(row["known"]))


def errors(table: ContingencyTable, epsilon: float, seeds: range) -> Rows:
    found: dict[tuple[int, str], list[float]] = {}
    for seed in seeds:
        for (order, method), counts in released(table, epsilon, seed).items():
            found.setdefault((order, method), []).append(float(np.mean((counts - table.counts) ** 2)))
    return [
        {"known": KNOWN[order], "dataset": table.name.capitalize(), "epsilon": epsilon, "method": method}
        | {"mse": float(np.mean(values)), "values": values}
        for (order, method), values in found.items()
    ]


def released(table: ContingencyTable, epsilon: float, seed: int) -> dict[tuple[int, str], Array]:
    """The table as every method would publish it, for each order of the known marginals."""
    source, names = CountedTable(table.domain, table.counts), table.variables
    flat = measure(source, plans.Flat(total_share=0), epsilon=epsilon, simulate=seed)
    noisy = flat.measurements[0].values.reshape(table.counts.shape)
    workload = Workload.marginals(table.domain, ways=3)
    weighted = measure(source, plans.Mwem(workload), epsilon=epsilon, simulate=seed)
    others = {
        "LM": np.maximum(noisy, 0.0),
        "Privlet": np.maximum(wavelet_of_cells(table, epsilon, seed), 0.0),
        "MWEM": MultiplicativeWeights().fit(weighted).marginal(*names),
    }
    results: dict[tuple[int, str], Array] = {}
    for order in ORDERS:
        known = marginals(table.counts, order)
        results[order, ADMM_1] = fit_table(noisy, known, loss="elastic", alpha=0.9).counts
        results[order, ADMM_2] = fit_table(noisy, known, loss="l2").counts
        scaled = np.full(noisy.shape, epsilon)
        results[order, AUTO] = fit_table(noisy, known, loss="elastic", alpha=0.7, weights=scaled).counts
        results |= {(order, name): counts for name, counts in others.items()}
    return results


def wavelet_of_cells(table: ContingencyTable, epsilon: float, seed: int) -> Array:
    """Privlet on the vector of cells, the last variable changing fastest."""
    vector = CountedTable.histogram(table.counts.ravel())
    measured = measure(vector, plans.Wavelet(["x"]), epsilon=epsilon, simulate=seed)
    return LEAST_SQUARES.fit(measured).marginal("x").reshape(table.counts.shape)


def marginals(counts: NDArray[np.int64], order: int) -> dict[tuple[int, ...], NDArray[np.int64]]:
    """All marginals of one order, by their axes."""
    axes = range(counts.ndim)
    return {
        kept: np.asarray(counts.sum(axis=tuple(axis for axis in axes if axis not in kept)))
        for kept in itertools.combinations(axes, order)
    }


def claims(rows: Rows) -> list[Claim]:
    """What §5.1 says of the figure."""
    found = by(rows, "known", "dataset", "epsilon", "method")
    panels = list(dict.fromkeys((row["known"], row["dataset"]) for row in rows))
    epsilons = list(dict.fromkeys(row["epsilon"] for row in rows))

    def curve(panel: tuple[Any, Any], method: str, below: str) -> list[float]:
        """One method's error in units of another's, over all ε."""
        return geometric(ratio(found[(*panel, e, method)], found[(*panel, e, below)]) for e in epsilons)

    gap = {panel: least(curve(panel, other, ADMM_1) for other in OTHERS) for panel in panels}
    sparse = geometric(values for panel, values in gap.items() if panel[1] in SPARSE)
    dense = geometric(values for panel, values in gap.items() if panel[1] not in SPARSE)
    return [
        Claim(
            "the proposed algorithms … consistently outperform other algorithms",
            "error of LM, Privlet and MWEM in units of ADMM's (ℓ1 and ℓ2), over all ε, in each panel",
            BETTER,
            {
                f"{panel[1]}, {panel[0]}, {other} against {own}": curve(panel, other, own)
                for panel in panels
                for other in OTHERS
                for own in (ADMM_1, ADMM_2)
            },
        ),
        Claim(
            "the performance gap between the proposed and other algorithms becomes noticeable on sparse datasets",
            "lead of ADMM(ℓ1) over the best other method on Edwards and Rochdale, in units of its lead on Czech",
            CLEARLY,
            {"all panels": ratio(sparse, dense)},
        ),
        Claim(
            "this is because of the different behavior of L1 and L2 norms",
            "error of ADMM(ℓ2), which has the same constraints, in units of ADMM(ℓ1)'s, on the sparse tables",
            BETTER,
            {f"{panel[1]}, {panel[0]}": curve(panel, ADMM_2, ADMM_1) for panel in panels if panel[1] in SPARSE},
        ),
    ]
