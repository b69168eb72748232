"""Lee and Kifer (2016), Figure 1: within-cluster sum of squares against ε, with every comparator.

T = 5 rounds of DP-KMEANS, the mean of ten runs, on the six sets of the paper's Table 1 (some of them stand-ins, as
their names say). Points are mapped to [−1, 1] and projected onto the L1 ball, and costs are those of the projected
points. DP-KMEANS and what follows from all its iterates have the same measurements, with one rule for small counts: a
centroid whose noisy count is below 1 stays where it was. All iterates are used twice: by the chain as published, of
which the paper's claims are judged, and as the library does by default.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.problems.points import NamedPoints, published_points
from benchmarks.reproduce.figures import About, Extent, Rows
from benchmarks.reproduce.lee2016.methods import DPKM, FLOOR, MCMC, METHODS, OURS, costs_of_run, floor_cost
from benchmarks.reproduce.per_run import Values, by, geometric, ratio
from benchmarks.reproduce.pictures import Picture
from benchmarks.reproduce.verdicts import BETTER, MUCH, NOT_BETTER, Claim

ABOUT = About(
    "Lee and Kifer (2016), Figure 1: k-means from every iterate",
    (
        "Data: S1, Adult's numeric attributes and Lifesci (26,733 of its 27,733 points) are the paper's; locations of "
        "Mopsi users stand in for TIGER, points from a grid of check-ins for Gowalla, a generated picture for Image.",
        "Method: the chain has all that the paper prints: 30,000 steps, δ = 0.001, consistent values, the ratio of "
        "components, as many points as the released counts say there are records (up to 107,021, without a cap). "
        "Initial centroids are far from each other as in Su et al.; the paper does not print the distance.",
        "The other methods are not in the paper's figure. PrivGene is run on all records, with as many candidates, "
        "survivors and generations as its paper recommends; how far a mutation goes is set here.",
        "ε: 0.05 to 1, the paper's range; its grid is not in the copy at hand. It prints curves without numbers.",
    ),
    runs="Ten runs, as in the paper.",
)
EPSILONS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
PICTURE = Picture(
    "Clustering from every iterate (Lee and Kifer 2016, Figure 1)",
    "epsilon",
    "ε",
    "dataset",
    y="wcss",
    y_title="within-cluster sum of squares",
    note="Means of ten runs; T = 5 rounds, chains of 30,000 steps. Sets whose name says stand-in are not the paper's.\n"
    "Marks of one ε are moved sideways so that none hides another.",
    own_scale=True,
    dashed=FLOOR,
    width=210,
    height=230,
)
WORKERS = 2
QUICK_POINTS = 5_000


def run(extent: Extent) -> Rows:
    """Ten runs of every set and ε, as in the paper; two runs of three ε on fewer points if quick."""
    rows: Rows = []
    for problem in published_points():
        asked = problem.first(QUICK_POINTS) if extent.quick else problem
        epsilons = (0.05, 0.2, 1.0) if extent.quick else EPSILONS
        rows += costs(asked, epsilons, extent.seeds(10))
        print(f"  {asked.name}: done", flush=True)
    return rows


def costs(problem: NamedPoints, epsilons: Sequence[float], seeds: range) -> Rows:
    """The mean cost of every method at every ε, and those of all runs."""
    problem.projected  # noqa: B018 (made once, before threads ask for it)
    tasks = [(epsilon, seed) for epsilon in epsilons for seed in seeds]
    with ThreadPoolExecutor(WORKERS) as workers:
        found = list(workers.map(lambda task: costs_of_run(problem, *task), tasks))
    floor = floor_cost(problem)
    rows: Rows = []
    for epsilon in epsilons:
        drawn = [costs for (at, _), costs in zip(tasks, found, strict=True) if at == epsilon]
        for method in METHODS:
            values = [floor if method == FLOOR else costs[method] for costs in drawn]
            place = {"dataset": problem.name, "method": method, "epsilon": epsilon}
            rows.append(place | {"wcss": float(np.mean(values)), "values": values})
    return rows


def claims(rows: Rows) -> list[Claim]:
    """What §4 says of the figure, and what this project sets out to show."""
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    found = Curves(rows)
    others = [name for name in names if not name.startswith("Lifesci")]
    smallest = found.epsilons[0]
    s1 = next(name for name in names if name.startswith("S1"))
    tuned = [name for name in names if name.startswith(("S1", "Adult"))]
    return [
        Claim(
            "the proposed algorithm improves the accuracy of the final clusterings on all datasets, except on the "
            "Lifesci dataset",
            "cost of the last iterate in units of that of the published chain, over all ε",
            BETTER,
            {name: found.over_epsilons(name, DPKM, MCMC) for name in others},
        ),
        Claim(
            "… except on the Lifesci dataset: that it does not there",
            "cost of the last iterate in units of that of the published chain, over all ε",
            NOT_BETTER,
            {name: found.over_epsilons(name, DPKM, MCMC) for name in names if name not in others},
        ),
        Claim(
            f"on S1 and Tiger datasets, huge improvements in WCSS were observed when ε = {smallest:g}",
            "cost of the last iterate in units of that of the published chain",
            MUCH,
            {name: found.at(name, smallest, DPKM, MCMC) for name in names if name.startswith(("S1", "TIGER"))},
        ),
        Claim(
            "the library's default at least halves the excess on S1 at ε = 0.05 and 0.1",
            "excess over non-private k-means of the last iterate in units of that of the default",
            MUCH,
            {f"ε = {e:g}": found.excess(s1, e, DPKM, OURS) for e in found.epsilons if e <= 0.1},
            ours=True,
        ),
        Claim(
            "the library's default beats the last iterate on S1 and Adult at every ε up to 0.5",
            "cost of the last iterate in units of that of the default",
            BETTER,
            {f"{name}, ε = {e:g}": found.at(name, e, DPKM, OURS) for name in tuned for e in found.epsilons if e <= 0.5},
            ours=True,
        ),
        Claim(
            "the library's default beats the last iterate on every dataset but Lifesci",
            "cost of the last iterate in units of that of the default, over all ε",
            BETTER,
            {name: found.over_epsilons(name, DPKM, OURS) for name in others},
            ours=True,
        ),
    ]


class Curves:
    """The costs of all runs by dataset, ε and method."""

    def __init__(self, rows: Rows) -> None:
        self._found = by(rows, "dataset", "epsilon", "method")
        self.epsilons: list[float] = sorted({row["epsilon"] for row in rows})

    def at(self, name: str, epsilon: float, above: str, below: str) -> Values:
        return ratio(self._found[name, epsilon, above], self._found[name, epsilon, below])

    def over_epsilons(self, name: str, above: str, below: str) -> Values:
        return geometric(self.at(name, epsilon, above, below) for epsilon in self.epsilons)

    def excess(self, name: str, epsilon: float, above: str, below: str) -> Values:
        """The ratio of what both cost beyond k-means without noise."""
        floor = self._found[name, epsilon, FLOOR]
        over = [
            [cost - least for cost, least in zip(self._found[name, epsilon, method], floor, strict=True)]
            for method in (above, below)
        ]
        return ratio(*over)
