"""The chain visits datasets as often as their posterior says, and its bookkeeping is exact."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from consilience.iterates.chain import Chain, ChainProblem, ChainSettings, Mixture, run_chains
from consilience.iterates.chain_kernels import BEST, KMEANS, LOG_POSTERIOR, Target, log_posterior, mixture_log_density
from consilience.kernels.record_functions import no_statistic
from consilience.kernels.regions import BALL, BOX
from consilience.kernels.rng import generator

VALUES = np.array([[-0.8], [-0.1], [0.3], [0.9]])
THETAS = np.array([[[-0.5], [0.5]], [[-0.9], [0.2]]])
RELEASED = np.array([[1.7, 0.4, -1.1, 0.6], [0.3, 2.2, -0.4, 0.2]])
SCALES = np.array([[1.0, 1.0, 0.7, 0.7], [0.8, 0.8, 0.9, 0.9]])


def target_of(thetas, released, scales, *, laplace=True, region=BOX, image=BOX):
    """A target of k-means."""
    nothing = np.zeros(released.shape)
    return Target(
        KMEANS, region, thetas.shape[2], 1 + thetas.shape[2], thetas, released,
        1 / scales if laplace else nothing, nothing if laplace else 0.5 / scales**2, no_statistic(), image,
    )  # fmt: skip


def slow_sums(thetas, points, masses):
    """Counts and sums of every round, written out."""
    rows = []
    for theta in thetas:
        counts, sums = np.zeros(len(theta)), np.zeros(theta.shape)
        for point, mass in zip(points, masses, strict=True):
            k = int(np.argmin(((point - theta) ** 2).sum(axis=1)))
            counts[k] += mass
            sums[k] += mass * point
        rows.append(np.concatenate([counts, sums.ravel()]))
    return np.array(rows)


def slow_log_posterior(points, masses, *, laplace=True):
    residuals = (RELEASED - slow_sums(THETAS, points, masses)) / SCALES
    return -np.abs(residuals).sum() if laplace else -0.5 * (residuals**2).sum()


def discrete_problem(*, laplace=True, points=3):
    """Points on four values; the value 0.3 has two components, so that component and mixture differ."""
    centres = np.vstack([VALUES, [[0.3]]])
    weights = np.array([0.4, 0.1, 0.15, 0.25, 0.1])
    nothing = np.zeros(centres.shape)
    mixture = Mixture(centres, weights, nothing, nothing)
    return ChainProblem(target_of(THETAS, RELEASED, SCALES, laplace=laplace), mixture, float(points), (weights,))


def visits(chain, *, draws, thin):
    """How often each dataset was met, of those in `itertools.product` order."""
    places = {value: index for index, value in enumerate(VALUES.ravel())}
    size = len(chain.state.points)
    found = np.zeros(len(VALUES) ** size)
    for _ in range(draws):
        chain.take(thin)
        codes = [places[value] for value in chain.state.points.ravel()]
        found[np.ravel_multi_index(codes, (len(VALUES),) * size)] += 1
    return found


def exact_posterior(*, laplace=True, points=3, pairs=False):
    """Of datasets; of pairs of points and components, it is the law of the points."""
    components = np.log([1.0, 1.0, 2.0, 1.0]) if pairs else np.zeros(4)
    scores = [
        slow_log_posterior(VALUES[list(codes)], np.ones(points), laplace=laplace) + components[list(codes)].sum()
        for codes in itertools.product(range(len(VALUES)), repeat=points)
    ]
    weights = np.exp(np.array(scores) - max(scores))
    return weights / weights.sum()


def p_value(found, expected):
    """Of the chi-squared test, with rare outcomes in one class."""
    rare = expected * found.sum() < 8
    observed = np.append(found[~rare], found[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum()) * found.sum()
    keep = wanted > 0
    return stats.chisquare(observed[keep], wanted[keep]).pvalue


def discrete_chain(ratio, *, laplace=True, seed=5, prior_power=0.0):
    settings = ChainSettings(size=3, ratio=ratio, tune=False, scatter_start=False, prior_power=prior_power)
    return Chain(discrete_problem(laplace=laplace), settings, generator(seed))


@pytest.mark.parametrize(
    ("ratio", "laplace"),
    [
        ("mixture", True),
        ("component", False),
        pytest.param("mixture", False, marks=pytest.mark.slow),
        pytest.param("component", True, marks=pytest.mark.slow),
    ],
)
def test_visits_on_a_tiny_domain_match_the_exact_posterior(ratio, laplace):
    found = visits(discrete_chain(ratio, laplace=laplace), draws=6000, thin=40)
    assert p_value(found, exact_posterior(laplace=laplace, pairs=ratio == "component")) > 1e-3


@pytest.mark.parametrize("power", [0.25, pytest.param(1.0, marks=pytest.mark.slow)])
def test_visits_match_the_posterior_under_a_prior_that_is_a_power_of_the_mixture(power):
    found = visits(discrete_chain("mixture", prior_power=power), draws=6000, thin=40)
    prior = np.array([0.4, 0.1, 0.25, 0.25]) ** power
    every = itertools.product(range(len(VALUES)), repeat=3)
    weights = exact_posterior() * [math.prod(prior[list(codes)]) for codes in every]
    assert p_value(found, weights / weights.sum()) > 1e-3
    assert p_value(found, exact_posterior()) < 1e-9


@pytest.mark.parametrize("ratio", ["mixture", pytest.param("component", marks=pytest.mark.slow)])
def test_the_same_test_refuses_a_chain_whose_ratio_is_inverted(ratio):
    chain = discrete_chain(ratio)
    chain.proposal = chain.proposal._replace(log_heights=-chain.proposal.log_heights)
    chain.refresh()
    found = visits(chain, draws=6000, thin=40)
    assert p_value(found, exact_posterior(pairs=ratio == "component")) < 1e-9


def test_the_same_test_refuses_a_chain_without_the_ratio():
    chain = discrete_chain("mixture")
    chain.proposal = chain.proposal._replace(log_heights=np.zeros(5))
    chain.refresh()
    assert p_value(visits(chain, draws=6000, thin=40), exact_posterior()) < 1e-9


# One cluster, one round, one point of mass 2: ln π(x) = −|y − 2x|/b on the region, up to the count, which is fixed.
ONE_THETA = np.zeros((1, 1, 1))


def density_bins(log_density, low, high, bins=12):
    """Edges of equally likely bins of a density that is known up to a constant."""
    grid = np.linspace(low, high, 20_001)
    middle = (grid[1:] + grid[:-1]) / 2
    mass = np.cumsum(np.exp(log_density(middle)))
    return np.interp(np.arange(1, bins) / bins, mass / mass[-1], grid[1:])


def even(values, edges):
    """The p-value of values being equally often in all bins."""
    return stats.chisquare(np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)).pvalue


@pytest.mark.parametrize(("ratio", "power"), [("mixture", 0.0), ("component", 0.0), ("mixture", 0.5)])
@pytest.mark.parametrize(
    "walk_share", [pytest.param(0.0, marks=pytest.mark.slow), 0.5, pytest.param(1.0, marks=pytest.mark.slow)]
)
def test_jumps_and_walks_of_one_point_follow_its_density(walk_share, ratio, power):
    target = target_of(ONE_THETA, np.array([[2.0, 0.9]]), np.array([[1.0, 0.6]]))
    mixture = Mixture(np.array([[0.5], [-0.5]]), np.array([0.8, 0.2]), np.ones((2, 1)), np.zeros((2, 1)))
    problem = ChainProblem(target, mixture, 2.0, (mixture.weights,))
    settings = ChainSettings(size=1, delta=0.2, walk_share=walk_share, ratio=ratio, tune=False, prior_power=power)
    chain = Chain(problem, settings, generator(3))
    found = []
    for _ in range(4000):
        chain.take(25)
        found.append(chain.state.points[0, 0])

    def log_density(x):
        mixed = 0.8 * stats.norm.pdf(x, 0.5, math.sqrt(0.2)) + 0.2 * stats.norm.pdf(x, -0.5, math.sqrt(0.2))
        return -np.abs(0.9 - 2 * x) / 0.6 + power * np.log(mixed)

    edges = density_bins(log_density, -1, 1)
    assert even(found, edges) > 1e-3
    assert even(found, density_bins(lambda x: np.zeros(x.shape), -1, 1)) < 1e-9


def test_transfers_of_mass_follow_their_density():
    thetas = np.array([[[-0.5], [0.5]]])
    released = np.array([[3.0, 9.0, -1.5, 4.0]])
    target = target_of(thetas, released, np.full((1, 4), 2.0))
    mixture = Mixture(np.array([[-0.5], [0.5]]), np.array([0.5, 0.5]), np.zeros((2, 1)), np.zeros((2, 1)))
    problem = ChainProblem(target, mixture, 10.0, (mixture.weights,))
    chain = Chain(problem, ChainSettings(size=2, transfer_share=1.0, tune=False), generator(8))
    found = []
    for _ in range(4000):
        chain.take(25)
        assert chain.state.masses.sum() == pytest.approx(10.0)
        found.append(chain.state.masses[0])

    def log_density(m):
        first, second = np.abs(3.0 - m) + np.abs(-1.5 + 0.5 * m), np.abs(9.0 - (10 - m)) + np.abs(4.0 - 0.5 * (10 - m))
        return -(first + second) / 2.0

    assert even(found, density_bins(log_density, 0, 10)) > 1e-3
    assert even(found, density_bins(lambda m: np.zeros(m.shape), 0, 10)) < 1e-9


@pytest.mark.slow
def test_the_total_follows_its_density_under_a_flat_prior():
    target = target_of(ONE_THETA, np.array([[6.0, 1.5]]), np.array([[2.0, 0.5]]))
    mixture = Mixture(np.array([[0.5]]), np.ones(1), np.zeros((1, 1)), np.zeros((1, 1)))
    chain = Chain(
        ChainProblem(target, mixture, 5.0, (mixture.weights,)), ChainSettings(size=1, rescale=True), generator(4)
    )
    chain.rescaling = 0.8
    found = []
    for _ in range(4000):
        for _ in range(4):
            chain.rescale()
        found.append(chain.state.masses[0])
    edges = density_bins(lambda m: -np.abs(6.0 - m) / 2.0 - np.abs(1.5 - 0.5 * m) / 0.5, 0, 60)
    assert even(found, edges) > 1e-3
    assert (
        even(found, density_bins(lambda m: -np.abs(6 - m) / 2 - np.abs(1.5 - m / 2) / 0.5 - np.log(m), 1e-9, 60)) < 1e-6
    )


def random_problem(*, region, image, seed=1, clusters=4, rounds=3, dimensions=2, laplace=True):
    rng = np.random.default_rng(seed)
    thetas = rng.uniform(-0.4, 0.4, (rounds, clusters, dimensions))
    released = np.hstack([rng.uniform(20, 120, (rounds, clusters)), rng.normal(0, 30, (rounds, clusters * dimensions))])
    target = target_of(thetas, released, np.full(released.shape, 8.0), region=region, image=image, laplace=laplace)
    centres = rng.uniform(-0.5, 0.5, (6, dimensions))
    weights = rng.dirichlet(np.ones(6))
    mixture = Mixture(centres, weights, np.ones(centres.shape), np.full(centres.shape, 0.2))
    return ChainProblem(target, mixture, 250.0, (weights,))


def projected(points):
    """Onto the L1 ball along lines to the nearest point, by bisection on the threshold."""
    found = points.copy()
    for row in found:
        if np.abs(row).sum() > 1:
            low, high = 0.0, np.abs(row).max()
            for _ in range(100):
                middle = (low + high) / 2
                low, high = (middle, high) if np.maximum(np.abs(row) - middle, 0).sum() > 1 else (low, middle)
            row[:] = np.sign(row) * np.maximum(np.abs(row) - low, 0)
    return found


@pytest.mark.parametrize(("region", "image"), [(BOX, BOX), (BALL, BOX), (BOX, BALL)])
@pytest.mark.parametrize("laplace", [True, False])
def test_sums_kept_over_100_000_steps_equal_sums_computed_anew(region, image, laplace):
    problem = random_problem(region=region, image=image, laplace=laplace)
    settings = ChainSettings(size=60, walk_share=0.3, transfer_share=0.3, rescale=True, delta=0.01, tune=False)
    chain = Chain(problem, settings, generator(2))
    for _ in range(10):
        chain.take(10_000)
        chain.rescale()
    state = chain.state
    assert state.tally[0].sum() == 100_000
    assert (state.tally[1] > 500).all()
    images = projected(state.points) if image == BALL else state.points
    assert np.abs(images - state.images).max() < 1e-12
    anew = slow_sums(problem.target.thetas, images, state.masses)
    assert np.abs(anew - state.sums).max() < 1e-8
    assert state.scores[LOG_POSTERIOR] == pytest.approx(log_posterior(problem.target, anew), abs=1e-7)
    kept = state.log_densities.copy()
    chain.refresh()
    assert np.allclose(kept, state.log_densities, atol=1e-9)


@pytest.mark.parametrize(("region", "image"), [(BOX, BOX), (BALL, BOX), (BOX, BALL)])
def test_no_point_ever_lies_outside_the_region(region, image):
    chain = Chain(random_problem(region=region, image=image), ChainSettings(size=40, walk_share=0.3), generator(2))
    for _ in range(20):
        chain.take(500)
        state = chain.state
        assert np.abs(state.points).max() <= 1
        if BALL in (region, image):
            assert np.abs(state.images).sum(axis=1).max() <= 1 + 1e-12


def test_the_best_dataset_is_the_one_with_the_greatest_log_posterior_met():
    problem = random_problem(region=BOX, image=BOX)
    settings = ChainSettings(size=60, walk_share=0.3, transfer_share=0.3, rescale=True, delta=0.01, tune=False)
    chain = Chain(problem, settings, generator(9))
    greatest = chain.state.scores[LOG_POSTERIOR]
    for _ in range(40):
        greatest = max(greatest, chain.take(250).max())
        chain.rescale()
        greatest = max(greatest, chain.state.scores[LOG_POSTERIOR])
        best = chain.best()
        score = log_posterior(problem.target, slow_sums(problem.target.thetas, best.points, best.masses))
        assert chain.state.scores[BEST] == greatest
        assert score == pytest.approx(greatest, abs=1e-6)
    assert chain.state.scores[LOG_POSTERIOR] < greatest


def test_the_density_of_the_mixture_is_the_sum_of_its_components():
    chain = Chain(random_problem(region=BOX, image=BOX), ChainSettings(size=10, delta=0.02), generator(0))
    proposal, mixture = chain.proposal, chain.mixture
    deviations = np.sqrt(0.02 * mixture.widths**2 + mixture.extra**2)
    for point in np.random.default_rng(0).uniform(-1, 1, (20, 2)):
        densities = stats.norm.pdf(point, mixture.centres, deviations).prod(axis=1) * 2 * math.pi
        expected = math.log((mixture.weights * densities).sum())
        assert mixture_log_density(proposal, point, np.empty(6)) == pytest.approx(expected, abs=1e-9)


def test_tuning_brings_walks_and_transfers_to_a_useful_acceptance_and_then_stops():
    settings = ChainSettings(size=60, steps=20_000, burn_in=15_000, walk_share=0.4, transfer_share=0.3, delta=1e-6)
    chain = Chain(random_problem(region=BOX, image=BOX), settings, generator(1))
    run = chain.run()
    assert np.all(np.abs((run.accepted / run.tried)[1:] - 0.4) < 0.12)
    assert 1e-7 <= run.delta <= 1e-5
    untuned = Chain(random_problem(region=BOX, image=BOX), settings, generator(1))
    frozen = (untuned.walk, untuned.transfer)
    untuned.take(1000)
    assert (untuned.walk, untuned.transfer) == frozen


def test_a_seed_decides_everything_and_chains_differ(monkeypatch):
    problem = random_problem(region=BOX, image=BALL)
    settings = ChainSettings(size=30, steps=3000, burn_in=1000, walk_share=0.3, transfer_share=0.2, draws=5)
    first = run_chains(problem, settings, chains=3, seed=4)
    monkeypatch.setattr("consilience.iterates.chain._cores", lambda: 1)
    again = run_chains(problem, settings, chains=3, seed=4)
    other = run_chains(problem, settings, chains=3, seed=5)
    assert np.array_equal(first.traces, again.traces)
    assert np.array_equal(first.best.points, again.best.points)
    assert np.array_equal(first.pooled.points, again.pooled.points)
    assert not np.array_equal(first.traces, other.traces)
    assert not np.array_equal(first.traces[0], first.traces[1])


def test_runs_report_every_chain_and_pool_all_draws():
    told = []
    problem = random_problem(region=BOX, image=BOX)
    settings = ChainSettings(size=30, steps=2000, burn_in=500, draws=7, transfer_share=0.2)
    runs = run_chains(problem, settings, chains=2, seed=0, progress=lambda *what: told.append(what))
    assert told == [("chains", 1, 2), ("chains", 2, 2)]
    assert runs.traces.shape == (2, 2000)
    assert len(runs.draws) == 14
    assert runs.pooled.points.shape == (14 * 30, 2)
    assert runs.pooled.masses.sum() == pytest.approx(problem.total)
    assert 0 < runs.acceptance < 1
    assert runs.acceptance_by_move[1] == 0
    assert runs.best_log_posterior >= runs.traces.max()
