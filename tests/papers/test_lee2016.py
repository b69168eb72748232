"""Lee & Kifer (2016), item by item: against sums and densities written out, linear programmes and exact posteriors."""

import itertools
import math
import sys
from pathlib import Path

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parent))

from paper_items import Item, Paper, Reproduced, assert_true, beyond, checked, difference, twins

from benchmarks.problems.clusterings import wcss
from benchmarks.problems.points import published_points
from consilience.estimators.iterates import Iterates
from consilience.iterates.chain import Chain, ChainSettings
from consilience.iterates.chain_kernels import log_posterior, mixture_log_density
from consilience.iterates.clustering import clusters_of_cells, initial_centroids, lloyd, next_centroids
from consilience.iterates.problems import NoisyRounds, cluster_problem, consistent_counts, consistent_sums
from consilience.kernels.regions import BOX, CellGrid, Region
from consilience.kernels.rng import generator
from consilience.measuring import measure
from consilience.plans import HybridClusters, KMeans, SampleAndAggregate
from consilience.plans.published.clusters import suggested_blocks
from consilience.plans.published.privgene import largest_difference
from consilience.privacy.cluster_statistics import block_centroids, block_of_records, cluster_statistics
from consilience.privacy.model_statistics import LOSS_BITS, RecordLosses
from consilience.privacy.noise import SimulatedNoise
from consilience.privacy.scores import select

CENTROIDS = ((-0.3, 0.1), (0.4, -0.2), (0.0, 0.5))


def some_points(count: int = 40, seed: int = 0) -> np.ndarray:
    """Points of the unit L1 ball."""
    return Region("ball", 2).project(np.random.default_rng(seed).uniform(-1, 1, (count, 2)))


def rounds(seed: int = 0) -> NoisyRounds:
    """Three noisy rounds of three clusters."""
    rng, points = np.random.default_rng(seed), some_points(200)
    thetas = rng.uniform(-0.5, 0.5, (3, 3, 2))
    sums = twins("iterates/test_chain.py").slow_sums(thetas, points, np.ones(len(points)))
    noisy = sums + rng.laplace(0, 8.0, sums.shape)
    scales = np.full(3, 8.0)
    return NoisyRounds(thetas, noisy[:, :3], noisy[:, 3:].reshape(3, 3, 2), scales, scales, True, Region("ball", 2))


# DP-KMEANS.


def statistics_of_a_round() -> float:
    """Counts and sums of the clusters against a loop over points, with sums to the lattice of the points."""
    twin = twins("privacy/test_cluster_statistics.py")
    domain = twin.Domain("p", tuple(twin.Attribute.continuous(name, (-1.0, 1.0)) for name in "xy"))
    points = some_points()
    counts, sums = cluster_statistics(domain, ("x", "y"), "ball", CENTROIDS)
    slow = twins("iterates/test_chain.py").slow_sums(np.array([CENTROIDS]), points, np.ones(len(points)))[0]
    found = np.concatenate([counts.exact(points), sums.exact(points) / 2.0**sums.bits])
    return difference(found, slow)


def noise_of_a_round() -> float:
    """2T/ε for counts and for sums, in the ball of the L1 norm."""
    twin = twins("plans/test_kmeans.py")
    shown = measure(twin.PLANE, KMeans(3, rounds=5, region="ball"), epsilon=0.5, dry_run=True)
    return max(abs(row["scale"] / (2 * 5 / 0.5) - 1) for row in shown.rows())


def centroids_of_a_round() -> float:
    """s/n where n is at least 1 and the point lies in the ball."""
    counts, sums = np.array([10.0, 20.0, 5.0]), np.array([[3.0, -4.0], [2.0, 2.0], [-1.0, 0.5]])
    return difference(next_centroids(counts, sums, CENTROIDS, Region("ball", 2)), sums / counts[:, None])


def sensitivities() -> float:
    """Records move counts by 1 and sums by at most 1, over all pairs of a set without and with a record."""
    twin = twins("privacy/test_cluster_statistics.py")
    domain = twin.Domain("p", tuple(twin.Attribute.continuous(name, (-1.0, 1.0)) for name in "xy"))
    counts, sums = cluster_statistics(domain, ("x", "y"), "ball", CENTROIDS)
    corners = np.array([[1.0, 0.0], [0.0, -1.0], [0.3, 0.7], [5.0, -9.0]])
    moved = []
    for statistic in (counts, sums):
        empty = statistic.exact(np.empty((0, 2)))
        moves = [np.abs(statistic.exact(each[None]) - empty).sum() / 2.0**statistic.bits for each in corners]
        moved.append(max(moves))
    declared = [statistic.sensitivity(1, "add-remove") for statistic in (counts, sums)]
    return max(difference(moved, [1.0, 1.0]), difference(declared, [1.0, 1.0]))


def projection_to_the_ball() -> float:
    points = np.random.default_rng(1).uniform(-1, 1, (30, 3))
    return difference(Region("ball", 3).project(points), twins("iterates/test_chain.py").projected(points))


# Inference.


def likelihood() -> float:
    """ln π of any dataset: minus the residuals of all rounds in units of their noise."""
    given, points = rounds(), some_points(50, seed=3)
    target = cluster_problem(given, simulate_images=True).target
    sums = twins("iterates/test_chain.py").slow_sums(given.thetas, points, np.ones(50))
    released = np.concatenate([given.counts, given.sums.reshape(3, -1)], axis=1)
    return difference(log_posterior(target, sums), -np.abs(released - sums).sum() / 8.0)


def consistent_rounds(kind: str) -> float:
    """The least absolute deviations of counts, or of sums, that agree on their totals."""
    rng, twin = np.random.default_rng(2), twins("iterates/test_consistency.py").least_absolute
    noisy, weights = rng.integers(-20, 60, (4, 3)).astype(float), rng.uniform(0.2, 3, 4)
    if kind == "counts":
        found = consistent_counts(noisy, weights, sense="absolute")
        broken = max(np.ptp(found.sum(axis=1)), beyond(-found, 0.0))
    else:
        found = consistent_sums(noisy[:, :, None], weights, sense="absolute")[:, :, 0]
        broken = np.ptp(found.sum(axis=1))
    cost = (weights[:, None] * np.abs(found - noisy)).sum()
    return max(difference(cost, twin(noisy, weights, nonnegative=kind == "counts")), float(broken))


def proposal_density() -> float:
    """Equation (1): the mixture over all rounds, against scipy's normal densities."""
    problem = twins("iterates/test_chain.py").random_problem(region=BOX, image=BOX)
    chain = Chain(problem, ChainSettings(size=10, delta=0.001), generator(0))
    deviations = np.sqrt(0.001 * chain.mixture.widths**2 + chain.mixture.extra**2)
    found, expected = [], []
    for point in np.random.default_rng(0).uniform(-1, 1, (20, 2)):
        densities = stats.norm.pdf(point, chain.mixture.centres, deviations).prod(axis=1) * 2 * math.pi
        expected.append(math.log((chain.mixture.weights * densities).sum()))
        found.append(mixture_log_density(chain.proposal, point, np.empty(6)))
    return difference(found, expected)


def proposal_weights() -> float:
    """ω = n/Σ n of the corrected counts of a round drawn evenly, and centres s/n."""
    given = rounds()
    mixture = cluster_problem(given, anywhere=0.0).mixture
    counts, _ = given.corrected()
    shares = (counts / counts.sum(axis=1, keepdims=True) / 3).ravel()
    return max(difference(mixture.weights[:9], shares), difference(mixture.centres[:9], given.iterates.reshape(-1, 2)))


def differences_of_the_target() -> float:
    """What a chain adds up from step to step, against ln π of its points computed anew."""
    twin = twins("iterates/test_chain.py")
    problem = twin.random_problem(region=BOX, image=BOX)
    chain = Chain(problem, ChainSettings(size=40, delta=0.01, tune=False), generator(2))
    trace = chain.take(3000)
    sums = twin.slow_sums(problem.target.thetas, chain.state.points, chain.state.masses)
    return max(difference(trace[-1], log_posterior(problem.target, sums)), difference(chain.state.sums, sums))


def acceptance() -> float:
    """A chain on four values whose visits follow the exact posterior: 0 where a test of fit at 0.1 % agrees."""
    twin = twins("iterates/test_chain.py")
    found = twin.visits(twin.discrete_chain("mixture"), draws=3000, thin=40)
    return float(twin.p_value(found, twin.exact_posterior()) <= 1e-3)


def printed_ratio() -> float:
    """The ratio of components, as printed, has the posterior of pairs of points and components."""
    twin = twins("iterates/test_chain.py")
    found = twin.visits(twin.discrete_chain("component"), draws=3000, thin=40)
    return float(twin.p_value(found, twin.exact_posterior(pairs=True)) <= 1e-3)


def first_state() -> float:
    """n points at the centroids of the last round, in the shares of its counts, rounded."""
    given = rounds()
    problem = cluster_problem(given, overdispersed=False, simulate_images=True)
    chain = Chain(problem, ChainSettings(size=100, scatter_start=False), generator(0))
    counts = given.corrected()[0][-1]
    ends = np.round(np.cumsum(counts) / counts.sum() * 100).astype(int)
    return difference(chain.state.points, np.repeat(given.last_iterate, np.diff(ends, prepend=0), axis=0))


def best_dataset() -> float:
    twin = twins("iterates/test_chain.py")
    problem = twin.random_problem(region=BOX, image=BOX)
    chain = Chain(problem, ChainSettings(size=40, delta=0.01, tune=False), generator(9))
    start = log_posterior(problem.target, chain.state.sums)
    greatest, best = max(start, chain.take(2000).max()), chain.best()
    return difference(
        log_posterior(problem.target, twin.slow_sums(problem.target.thetas, best.points, best.masses)), greatest
    )


def settings_as_published() -> float:
    made = Iterates.as_published()
    printed = {
        "steps": 30_000,
        "chains": 1,
        "delta": 0.001,
        "size": "records",
        "ratio": "component",
        "target": "corrected",
        "tune": False,
        "moves": "jumps",
        "use": "best",
        "prior_power": 0.0,
    }
    return float(sum(getattr(made, name) != value for name, value in printed.items()))


def sums_of_squares() -> float:
    points, centroids = some_points(), np.array(CENTROIDS)
    return difference(wcss(points, centroids), ((points[:, None] - centroids) ** 2).sum(axis=2).min(axis=1).sum())


def clustering_without_noise() -> float:
    points = generator(4).uniform(-1, 1, (6, 2))
    best = twins("iterates/test_lloyd.py").best_partition(points, 2)
    return difference(wcss(points, lloyd(points, 2, generator(1), restarts=20)), best)


def first_centroids() -> float:
    """Pairs of initial centroids nearer than twice the distance of any from the border of the ball."""
    found = initial_centroids(5, 2, "ball", seed=3)
    gaps = [np.linalg.norm(one - other) for one, other in itertools.combinations(found, 2)]
    border = (1 - np.abs(found).sum(axis=1)) / math.sqrt(2)
    return max(beyond(0.05, min(gaps)), beyond(np.abs(found).sum(axis=1).max(), 1.0), beyond(0.0, border.min()))


# What it is compared with.


def blocks_of_records() -> float:
    """GUPT: the centroids of each block are those of Lloyd's steps from the common start on its records."""
    units = (some_points(90) * 2**10).astype(np.int32)
    start, bits = np.array(CENTROIDS), 10
    found = block_centroids(units, start, blocks=3, bits=bits, seed=1, rounds=50)
    labels = block_of_records(units, blocks=3, seed=1)
    expected = [lloyd(units[labels == b] / 2.0**bits, 3, generator(0), start=start, most_steps=50) for b in range(3)]
    return max(difference(found, expected), float(suggested_blocks(5000) != round(5000**0.4)))


def clusters_of_a_grid() -> float:
    """EUGkM: k-means on the centres of cells, each as often as its count says."""
    grid = CellGrid(4, Region("box", 2))
    counts = np.random.default_rng(3).integers(0, 9, grid.size).astype(float)
    found = clusters_of_cells(grid, counts, float(counts.sum()), 2, seed=0, restarts=20)
    points = np.repeat(grid.centres, counts.astype(int), axis=0)
    expected = lloyd(points, 2, generator(0), restarts=20)
    return difference(wcss(points, found), wcss(points, expected))


def hybrid() -> float:
    """One round of counts and sums around the clusters of a grid: the last centroids follow from it."""
    twin = twins("plans/test_cluster_comparators.py")
    plan = HybridClusters(3, divisions=5)
    measured = measure(twin.table(), plan, epsilon=2.0, simulate=0)
    counts, sums = measured.measurements[-2:]
    about = sums.statistic
    before = np.array(about["centroids"])
    moved = next_centroids(counts.values, sums.values.reshape(before.shape), before, Region("box", 2))
    low, high = np.array(about["bounds"]).T
    return difference(plan.centroids(measured), low + (moved + 1) / 2 * (high - low))


def sampled_and_averaged() -> float:
    """The mean over blocks, where there is hardly any noise, within its own noise."""
    twin = twins("plans/test_cluster_comparators.py")
    plan = SampleAndAggregate(3, blocks=10)
    measured = measure(twin.table(), plan, epsilon=1e9, simulate=0)
    found = measured.measurements[-1]
    shape, about = (3, 2), found.statistic
    low, high = np.array(about["bounds"]).T
    means = Region("box", 2).project(found.values.reshape(shape) / 10)
    return difference(plan.centroids(measured), low + (means + 1) / 2 * (high - low))


def private_selection() -> float:
    """Survivors: the law of the exponential mechanism on minus the sums of squares, within four deviations."""
    points = np.array([[0.0, 0.0], [0.5, 0.0]])
    centroids = np.array([[[0.0, 0.0]], [[0.25, 0.25]]])
    widest, epsilon = 2 * 0.25 + 2 * 0.25**2, 2.0
    bounds = ((-1.0, 1.0), (-1.0, 1.0))
    score = RecordLosses(("x", "y"), bounds, "ball", centroids, largest_difference(centroids, "ball"))
    noise, draws = SimulatedNoise(0), 2000
    asked = {"sensitivity": score.sensitivity("add-remove"), "epsilon": epsilon, "noise": noise}
    found = score.values([points])
    second = sum(select(found, selector="exponential", **asked) for _ in range(draws)) / draws
    weights = np.exp([-wcss(points, each) * epsilon / widest for each in centroids])
    share = weights[1] / weights.sum()
    bound = abs(score.limit / 2.0**LOSS_BITS - widest) / widest
    return max(beyond(abs(second - share), 4 * math.sqrt(share * (1 - share) / draws)), beyond(bound, 1e-3))


def genetic_algorithm() -> float:
    """PrivGene with a budget that makes selections exact: those of least cost in each generation, the least at last."""
    twin = twins("plans/test_privgene.py")
    plan = twin.CLUSTERS
    found = twin.normalised(plan.centroids(measure(twin.table(), plan, epsilon=1e9, simulate=0)))
    points = np.trunc(twin.normalised(twin.POINTS) * 2**20) / 2**20

    def costs(population: np.ndarray) -> np.ndarray:
        gaps = points[:, None, None] - population[None]
        return np.floor((gaps**2).sum(axis=3).min(axis=2) * 2**LOSS_BITS).sum(axis=0)

    rng = generator(plan.seed)
    population = plan._first(2, rng)
    for number in range(plan.generations - 1):
        parents = population[np.argsort(costs(population), kind="stable")[: plan.survivors]]
        children = plan._children(parents, plan.step * plan.cooling**number, rng)
        population = np.concatenate([parents, children])
    return difference(found, population[np.argmin(costs(population))])


def sizes_of_table_1() -> float:
    """Dimensions and clusters of all six sets."""
    printed = [(2, 15), (2, 2), (2, 5), (3, 3), (6, 5), (10, 3)]
    return difference([(each.dimensions, each.clusters) for each in published_points()], printed)


LOOP, LP = "a loop over points", "linear programme (HiGHS)"
ITERATES, CHAIN, PLANS = "consilience.iterates", "consilience.iterates.chain.Chain", "consilience.plans"

PAPER = Paper(
    "Lee and Kifer (2016): post-processing for iterative algorithms",
    (
        Item("Algorithm 1 (DP-KMEANS), counts and sums", "consilience.privacy.cluster_statistics.cluster_statistics",
             LOOP,
             statistics_of_a_round, 1e-6),
        Item("Algorithm 1, noise 2T/ε", f"{PLANS}.KMeans", "the formula", noise_of_a_round, 1e-6),
        Item("Algorithm 1, centroids", f"{ITERATES}.clustering.next_centroids", "s/n", centroids_of_a_round, 1e-12,
             "a cluster whose noisy count is below 1 keeps its centroid, and centroids are moved into the region."),
        Item("Sensitivities of counts and sums", "consilience.privacy.cluster_statistics.ClusterStatistic",
             "records at the border",
             sensitivities, 1e-6),
        Item("Projection onto the L1 ball", "consilience.kernels.regions.Region", "bisection", projection_to_the_ball,
             1e-9),
        Item("Log-likelihood (section 3.1) and target π (3.3)", f"{ITERATES}.chain_kernels.log_posterior", LOOP,
             likelihood, 1e-9),
        Item("Consistency of counts (section 3.2)", f"{ITERATES}.problems.consistent_counts", LP,
             lambda: consistent_rounds("counts"), 1e-6),
        Item("Consistency of sums (section 3.2)", f"{ITERATES}.problems.consistent_sums", LP,
             lambda: consistent_rounds("sums"), 1e-6),
        Item("Proposal, equation (1)", f"{ITERATES}.chain_kernels.mixture_log_density", "normal densities (scipy)",
             proposal_density, 1e-9),
        Item("Proposal, weights and centres", f"{ITERATES}.problems.cluster_problem", "the formula", proposal_weights,
             1e-9),
        Item("Difference of ln π in a step", CHAIN, "sums computed anew", differences_of_the_target, 1e-6),
        Item("Metropolis–Hastings, exact ratio", CHAIN, "exact posterior of a tiny domain", acceptance, 0.0),
        Item("Metropolis–Hastings, ratio of components as printed", CHAIN, "exact posterior of a tiny domain",
             printed_ratio, 0.0),
        Item("Initial state", CHAIN, "last centroids, in the shares of their counts", first_state, 1e-12),
        Item("Best dataset of a chain", CHAIN, "greatest ln π met, computed anew", best_dataset, 1e-6),
        Item("Settings of section 4 (30,000 steps, δ = 0.001)", "consilience.estimators.iterates.Iterates.as_published",
             "the printed numbers", settings_as_published, 0.0,
             "as many points as the counts of all rounds, corrected to agree, say that there are records."),
        Item("WCSS", "benchmarks.problems.clusterings.wcss", LOOP, sums_of_squares, 1e-12),
        Item("K-means on the dataset found", f"{ITERATES}.clustering.lloyd", "all partitions",
             clustering_without_noise, 1e-9),
        Item("Initial centroids", f"{ITERATES}.clustering.initial_centroids", "distances of all pairs",
             first_centroids, 1e-12),
        Item("GUPT, blocks", "consilience.privacy.cluster_statistics.block_centroids", "Lloyd's steps, block by block",
             blocks_of_records, 1e-9,
             "records go to blocks by a hash of their values, so that equal records share a block."),
        Item("GUPT, average", f"{PLANS}.SampleAndAggregate", "its mean", sampled_and_averaged, 1e-9),
        Item("EUGkM", f"{ITERATES}.clustering.clusters_of_cells", "points repeated by counts", clusters_of_a_grid, 1e-9,
             "negative counts are projected onto the total by default; `negatives=\"zero\"` clips them."),
        Item("Hybrid", f"{PLANS}.HybridClusters", "s/n of its last round", hybrid, 1e-9),
        Item("PrivGene, selection", "consilience.privacy.model_statistics.RecordLosses",
             "the exponential mechanism's law", private_selection, 1e-12,
             "noise goes by the difference of two candidates that one record can make."),
        Item("PrivGene, generations", f"{PLANS}.PrivGene", "the least cost of every generation", genetic_algorithm,
             1e-9,
             "how far a mutation moves is set here; the paper is not at hand."),
        Item("Table 1", "benchmarks.problems.points.published_points", "the printed dimensions and clusters",
             sizes_of_table_1, 0.0,
             "S1, Adult and Lifesci (26,733 points in the file that is distributed; the paper prints 27,733); "
             "stand-ins for TIGER "
             "(13,467 points), Gowalla and Image."),
        Reproduced("Figure 1", "lee2016-figure-1",
             differs="TIGER, Gowalla and Image are stand-ins."),
    ),
)  # fmt: skip


@checked(PAPER)
def test_every_item_is_where_it_is_said_to_be_and_equals_its_twin(item: Item) -> None:
    assert_true(item)
