"""Lee, Wang & Kifer (2015), item by item: against linear programmes, dense algebra and the printed lines."""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import scipy.optimize

sys.path.insert(0, str(Path(__file__).parent))

from paper_items import Item, Paper, Reproduced, assert_true, beyond, checked, difference, twins

from consilience.domain import Attribute, Domain, Query, factors
from consilience.measuring import measure
from consilience.plans import Efpa, EfpaAsPublished, Flat, Histogram, Mwem, Php, PhpAsPublished, Wavelet
from consilience.privacy.budgets import budget
from consilience.privacy.pricing import price_queries
from consilience.solvers.admm.fit import admm
from consilience.solvers.losses import Loss, drawn_to_zero
from consilience.solvers.marginal_tables.table_fit import fit_table
from consilience.solvers.matrices.matrix_fit import fit_matrix
from consilience.solvers.projections.affine import Affine, SquareSolver
from consilience.solvers.projections.cells import NonNegative
from consilience.solvers.projections.sums import MarginalsEqual, TreeConsistency
from consilience.solvers.trees.fit import fit_tree
from consilience.solvers.trees.layout import histogram_parents
from consilience.strategies.attribute_strategies import column_norm, gram_root, semidefinite_strategy
from consilience.strategies.low_rank import low_rank_factors, published_low_rank_factors

TREE = np.array([14.0, 9.0, -3.0, 6.0, 1.0, -4.0, 2.0])
LEAVES = np.vstack([np.ones(4), [1, 1, 0, 0], [0, 0, 1, 1], np.eye(4)])
CANCER = np.array([9.0, 4.0, -2.0])
"""All, New York and New Jersey, before correction: the example of the introduction."""


def equations() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A small A x = b, and noisy x."""
    matrix = np.array([[1.0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 0, 1, 0, 0]])
    return matrix, np.array([5.0, 7.0, 3.0]), np.random.default_rng(12).normal(2, 4, 6)


def strategy() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    return rng.normal(size=(9, 5)), rng.normal(0, 10, 9)


# What is to be solved.


def three_counts_by_squares() -> float:
    sums = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    best = sums @ np.linalg.lstsq(sums, CANCER, rcond=None)[0]
    return difference(fit_tree(CANCER, 2, loss="l2", nonnegative=False).counts, best)


def three_counts_by_likelihood() -> float:
    twin = twins("solvers/trees/test_exactness.py").least_absolute_by_linear_program
    best = twin(np.array([-1, 0, 0]), CANCER, np.ones(3), True)
    return difference(fit_tree(CANCER, 2, loss="l1").objective, best)


def marginals_as_equations() -> float:
    rng = np.random.default_rng(0)
    table, shape = rng.normal(size=(2, 3, 2)), (2, 3, 2)
    known = {(0, 1): rng.normal(size=(2, 3)), (2,): np.zeros(2)}
    known[2,] += known[0, 1].sum() / 2
    twin = twins("solvers/test_projections.py").marginal_matrix
    matrix = np.vstack([twin(shape, axes) for axes in known])
    values = np.concatenate([each.ravel() for each in known.values()])
    nearest = table.ravel() + np.linalg.pinv(matrix) @ (values - matrix @ table.ravel())
    return difference(MarginalsEqual(shape, known).project(table).ravel(), nearest)


def children_of_nodes() -> float:
    wrong = 0
    for k, height in ((2, 4), (3, 3), (5, 2)):
        parents = histogram_parents(k**height, k)
        inner = (k**height - 1) // (k - 1)
        wrong += sum(parents[k * (i - 1) + j] != i - 1 for i in range(1, inner + 1) for j in range(1, k + 1))
    return float(wrong)


def strategy_by_likelihood() -> float:
    twin = twins("solvers/matrices/test_fit_matrix.py")
    found = []
    for seed in range(5):
        matrix, noisy, _ = twin.random_case(seed)
        weights = np.ones(len(noisy))
        best = twin.least_l1(matrix, noisy, weights, nonnegative=True)
        found.append((fit_matrix(matrix, noisy, loss="l1").objective - best) / twin.cost(noisy, weights, "l1"))
    return float(np.abs(found).max())


def strategy_by_squares() -> float:
    matrix, noisy = strategy()
    fit = fit_matrix(matrix, noisy, loss="l2", nonnegative=False)
    return difference(fit.counts, np.linalg.inv(matrix.T @ matrix) @ matrix.T @ noisy)


def constrained_squares() -> float:
    matrix, values, noisy = equations()
    system = np.block([[np.eye(6), matrix.T], [matrix, np.zeros((3, 3))]])
    best = np.linalg.solve(system, np.concatenate([noisy, values]))[:6]
    return difference(Affine(matrix, values).project(noisy), best)


def likelihood_under_constraints() -> float:
    twin = twins("solvers/test_admm.py")
    cases = [twin.CASES[place] for place in (0, 2, 3)]
    return max(abs(twin.fitted(each, "l1").objective / twin.optimum(each, "l1") - 1) for each in cases)


# Its parts.


def nearest_by_search(cost, low: float = -60.0, high: float = 60.0) -> float:
    """The least point of a convex function of one number, by repeated grids."""
    while high - low > 1e-9:
        grid = np.linspace(low, high, 201)
        place = int(np.argmin([cost(each) for each in grid]))
        low, high = grid[max(place - 1, 0)], grid[min(place + 1, 200)]
    return (low + high) / 2


def clipping() -> float:
    return difference(NonNegative().project(TREE), [nearest_by_search(lambda x, v=v: (x - v) ** 2, 0.0) for v in TREE])


def soft_thresholding() -> float:
    tau, points = 0.5, np.array([-7.0, -0.4, 0.0, 0.3, 2.0])
    twin = [nearest_by_search(lambda x, v=v: tau * abs(x) + 0.5 * (x - v) ** 2) for v in points]
    return difference(drawn_to_zero(points, np.full(5, tau)), twin)


def ridge() -> float:
    matrix, right = strategy()
    toward = np.arange(5.0)
    stacked = np.vstack([matrix, np.sqrt(2.0) * np.eye(5)])
    best = np.linalg.lstsq(stacked, np.concatenate([right, np.sqrt(2.0) * toward]), rcond=None)[0]
    return difference(SquareSolver(matrix, 2.0).solve(matrix.T @ right + 2.0 * toward), best)


def elastic_thresholding() -> float:
    alpha, rho, points = 0.9, 2.0, np.array([-7.0, -0.4, 0.0, 0.3, 2.0])
    found = Loss.named("elastic", alpha=alpha).prox(points, np.zeros(5), np.ones(5), step=1 / rho)
    printed = twins("solvers/test_admm.py").theta(points, alpha, rho)
    searched = [
        nearest_by_search(lambda x, v=v: alpha * abs(x) + (1 - alpha) * x**2 + rho / 2 * (x - v) ** 2) for v in points
    ]
    return max(difference(found, printed), difference(found, searched))


# The algorithms, step by step with the printed lines.


def steps_of_algorithms_1_and_2(loss: str) -> float:
    twin = twins("solvers/test_admm.py")
    updates = {"l1": lambda v: twin.soft(v, 0.5), "elastic": lambda v: twin.theta(v, 0.9, 2.0), "l2": lambda v: v / 1.5}
    matrix, values, noisy = equations()
    sets = [NonNegative(), Affine(matrix, values)]
    return max(
        difference(
            admm(noisy, sets, loss=loss, preset="paper", max_steps=steps).counts,
            twin.algorithm_1_and_2(matrix, values, noisy, steps, updates[loss]),
        )
        for steps in (1, 2, 25)
    )


def steps_of_the_split_algorithm() -> float:
    """Section 4.3: the equations as a projection, with L1."""
    matrix, values, noisy = equations()
    of = Affine(matrix, values)
    x, mu, nu, eta = noisy.copy(), np.zeros(6), np.zeros(6), np.zeros(6)
    for _ in range(25):
        y = drawn_to_zero(x - noisy + mu, np.full(6, 0.5))
        z, w = np.maximum(x + nu, 0), of.project(x + eta)
        x = ((y + noisy - mu) + (z - nu) + (w - eta)) / 3
        mu, nu, eta = mu + x - y - noisy, nu + x - z, eta + x - w
    fit = admm(noisy, [NonNegative(), of.project], loss="l1", preset="paper", max_steps=25)
    return difference(fit.counts, x)


def steps_of_algorithm_3() -> float:
    twin, sets = twins("solvers/test_admm.py"), [TreeConsistency(2), NonNegative()]
    return max(
        difference(admm(TREE, sets, preset="paper", max_steps=steps).counts, twin.algorithm_3(TREE, steps))
        for steps in (1, 2, 25)
    )


def steps_of_algorithm_4() -> float:
    matrix, noisy = strategy()
    twin = twins("solvers/test_admm.py").algorithm_4
    return max(
        difference(
            admm(noisy, NonNegative(), strategy=matrix, preset="paper", max_steps=steps).counts,
            twin(matrix, noisy, steps),
        )
        for steps in (1, 2, 25)
    )


def projection_is_least_squares() -> float:
    return difference(TreeConsistency(2).project(TREE), LEAVES @ np.linalg.lstsq(LEAVES, TREE, rcond=None)[0])


def stopping_rule() -> float:
    """Everything before the last step violates the rule, and the last step does not."""
    fit = admm(TREE, [TreeConsistency(2), NonNegative()], preset="paper", tolerance=1e-4, history=True)
    met = [max(entry.primal, entry.dual) <= 1e-4 for entry in fit.history]
    return float(sum(met[:-1]) + (not met[-1]) + (fit.stats["rule"] != "residuals (22)"))


def one_solution_from_any_start() -> float:
    sets = [TreeConsistency(2), NonNegative()]
    found = [admm(TREE, sets, start=start).counts for start in (TREE, np.zeros(7), np.full(7, 30.0))]
    return max(difference(each, found[0]) for each in found)


def elastic_net_towards_likelihood() -> float:
    """Where α is nearly 1, the L1 cost of the elastic net's solution is the least one."""
    twin = twins("solvers/trees/test_exactness.py").least_absolute_by_linear_program
    best = twin(histogram_parents(4, 2), TREE, np.ones(7), True)
    counts = fit_tree(TREE, 2, loss="elastic", alpha=1 - 1e-9).counts
    return difference(np.abs(counts - TREE).sum(), best)


def least_squares_without_negatives() -> float:
    leaves = scipy.optimize.nnls(LEAVES, TREE)[0]
    return difference(fit_tree(TREE, 2, loss="l2").counts, LEAVES @ leaves)


# The three applications at their optima, and what they are compared with.


def tables_at_their_optimum() -> float:
    twin, found = twins("solvers/marginal_tables/test_fit_table.py"), []
    for seed in range(4):
        case = twin.random_case(seed)
        best = twin.least_l1(case, nonnegative=True)
        fit = fit_table(case.noisy, case.marginals, loss="l1", weights=case.weights, zeros=case.zeros)
        found.append(abs(fit.objective - best) / max(best, 1.0))
    return max(found)


def trees_at_their_optimum() -> float:
    twin, found = twins("solvers/trees/test_exactness.py"), []
    for seed in range(6):
        parent, noisy, weights, nonnegative = twin.random_problem(seed)
        best = twin.least_absolute_by_linear_program(parent, noisy, weights, nonnegative)
        fit = twin.fit_forest(noisy, parent, loss="l1", weights=weights, nonnegative=nonnegative)
        found.append(abs(fit.objective - best) / max(best, 1.0))
    return max(found)


def elastic_nets_at_their_optimum() -> float:
    twin = twins("solvers/test_admm.py")
    cases = [twin.CASES[place] for place in (0, 2, 6)]
    return max(abs(twin.fitted(each, "elastic").objective / twin.optimum(each, "elastic") - 1) for each in cases)


def scales_by_brute_force() -> float:
    """Δ/ε with Δ from all pairs of neighbouring tables of one record and none."""
    domain = Domain.from_sizes({"a": 4, "b": 3})
    queries = [Query.of({"a": factors.Prefix()}), Query.marginal("a", "b")]
    priced = price_queries(queries, domain, budget(epsilon=0.5)).queries
    records = np.eye(12).reshape(12, 4, 3)
    moved = max(sum(np.abs(q.bind(domain).answer_full(each)).sum() for q in queries) for each in records)
    shares = [0.5 * each.noise.scale_parameter for each in priced]
    return max(abs(share / moved - 1) for share in shares)


def levels_of_a_tree() -> float:
    shown = measure(Domain.from_sizes({"a": 16}), Histogram("a", branching=2), epsilon=0.5, dry_run=True)
    return max(abs(row["scale"] - 5 / 0.5) / 10 for row in shown.rows())


def plain_cells() -> float:
    shown = measure(Domain.from_sizes({"a": 16}), Flat(total_share=0), epsilon=0.5, dry_run=True)
    return max(abs(row["scale"] - 2.0) / 2 for row in shown.rows())


def haar_rows() -> float:
    counts = np.random.default_rng(0).integers(0, 50, 16)
    matrix = factors.Haar().bind(Domain.from_sizes({"a": 16})["a"]).dense()
    shown = measure(Domain("d", (Attribute.numeric("a", [*range(17)]),)), Wavelet(), epsilon=0.5, dry_run=True)
    scale = abs(shown.rows()[0]["scale"] - 5 / 0.5) / 10
    return max(scale, difference(matrix @ counts, twins("plans/test_wavelet.py").haar_coefficients(counts)))


def variances_of_ranges() -> float:
    """By dense algebra, the worst range of HTree and Privlet has at most log₂³ n · 2/ε² from 16 values on."""
    found = 0.0
    for size in (16, 32, 64, 128):
        tree = np.vstack(
            [np.kron(np.eye(size // width), np.ones(width)) for width in 2 ** np.arange(size.bit_length())]
        )
        haar = factors.Haar().bind(Domain.from_sizes({"a": size})["a"]).dense()
        first, last = np.triu_indices(size)
        for rows in (tree, haar):
            levels = np.abs(rows).sum(axis=0).max()
            summed = np.concatenate([np.zeros((1, size)), np.cumsum(np.linalg.inv(rows.T @ rows), axis=0)])
            both = np.concatenate([np.zeros((size + 1, 1)), np.cumsum(summed, axis=1)], axis=1)
            diagonal, mixed = np.diag(both), both[last + 1, first]
            variances = levels**2 * (diagonal[last + 1] - 2 * mixed + diagonal[first])
            found = max(found, beyond(variances.max(), np.log2(size) ** 3))
    return found


def multiplicative_weights() -> float:
    """Rounds repeated from the measurements, with the update of Hardt et al. written out."""
    twin = twins("plans/test_mwem.py")
    plan = Mwem(twin.RANGES, rounds=5, sweeps=1)
    measured = measure(twin.histogram(twin.PUBLIC), plan, epsilon=1.0, simulate=3)
    counts = np.full(twin.SIZE, 2000.0 / twin.SIZE)
    rows, answers = [], []
    for each in measured:
        rows.append(query_row(each, measured.domain))
        answers.append(each.values[0])
        for row, answer in zip(rows, answers, strict=True):
            counts = counts * np.exp(row * (answer - row @ counts) / (2 * 2000.0))
            counts *= 2000.0 / counts.sum()
    return difference(plan.estimator().fit(measured).counts, counts)


def query_row(each, domain: Domain) -> np.ndarray:
    """The coefficients of a query with one answer."""
    bound = each.query.bind(domain)
    cells = np.eye(int(np.prod(domain.shape))).reshape(-1, *domain.shape)
    return np.array([float(bound.answer_full(cell).ravel()[0]) for cell in cells])


def approximate_matrix_mechanism() -> float:
    """The strategy's error under L2 noise is within a thousandth of a proven lower bound on every strategy's."""
    workload = np.random.default_rng(7).choice([-1.0, 1.0], (12, 12))
    found = semidefinite_strategy(workload.T @ workload, tolerance=1e-6)
    return abs(found.objective / found.lower_bound - 1)


def low_rank_mechanism() -> float:
    workload = np.random.default_rng(3).integers(0, 2, (4, 12)) * 2.0 - 1.0
    found = low_rank_factors(workload.T @ workload)
    product = difference(found.answers @ found.strategy, gram_root(workload.T @ workload))
    return max(product, abs(column_norm(found.strategy, norm=1) - 1))


def published_low_rank_mechanism() -> float:
    workload = np.random.default_rng(3).integers(0, 2, (4, 12)) * 2.0 - 1.0
    found = published_low_rank_factors(workload.T @ workload)
    missed = float(np.linalg.norm(found.answers @ found.strategy - gram_root(workload.T @ workload)))
    return max(missed, abs(column_norm(found.strategy, norm=1) - 1), float(len(found.strategy) != 5))


def fourier_perturbation(plan: type[Efpa | EfpaAsPublished] = Efpa) -> float:
    """Rows kept of a noiseless run, against numpy's transform of the counts."""
    twin = twins("plans/test_efpa.py")
    measured = measure(twin.source_of(twin.SMOOTH), plan("a"), epsilon=1e7, simulate=0)
    (each,) = measured
    rows = twin.FourierMap.on_lattice(twin.SIZE, twin.kept(measured), 20).dense()
    spectrum = np.fft.fft(twin.SMOOTH)
    spectrum[np.abs(np.fft.fftfreq(twin.SIZE) * twin.SIZE).round() >= twin.kept(measured)] = 0
    return difference(np.linalg.pinv(rows) @ each.values, np.fft.ifft(spectrum).real)


def clustered_histogram(plan: type[Php | PhpAsPublished] = Php) -> float:
    """With ample budget every step of the counts is cut, and each bucket holds its own total."""
    twin = twins("plans/test_bucket_plans.py")
    (each,) = measure(twin.source_of(twin.STEPS), plan("a"), epsilon=1e7, simulate=3)
    starts = twin.starts_of(each)
    return max(difference(each.values, np.add.reduceat(twin.STEPS, starts)), float(not {16, 32, 56} <= set(starts)))


def contingency_tables() -> float:
    """Dimensions, samples and empty cells as printed, the last to a tenth of a per cent."""
    from benchmarks.problems.contingency_tables import CZECH, EDWARDS, ROCHDALE

    printed = {EDWARDS: (6, 70, 65.6), CZECH: (6, 1841, 1.5), ROCHDALE: (8, 665, 64.4)}
    wrong = 0.0
    for table, (dimensions, samples, empty) in printed.items():
        counts = table.counts
        wrong += (counts.ndim != dimensions) + (counts.sum() != samples)
        wrong += abs(100 * float(np.mean(counts == 0)) - empty) > 0.1
    return wrong


def histograms() -> float:
    from benchmarks.problems.histograms import nettrace, search_logs, social_network

    printed = {search_logs: (32_768, 496, 52.1), nettrace: (65_536, 1423, 96.6), social_network: (11_342, 1678, 0)}
    wrong = 0.0
    for make, (size, most, empty) in printed.items():
        counts = make().counts
        wrong += (counts.size != size) + (counts.max() != most)
        wrong += abs(100 * float(np.mean(counts == 0)) - empty) > 0.1
    return wrong


LINES, LP, DENSE = "its printed lines, step by step", "linear programme (HiGHS)", "dense algebra"
SOLVERS, LOSSES = "consilience.solvers", "consilience.solvers.losses"
ADMM, PLANS = f"{SOLVERS}.admm.fit.admm", "consilience.plans"

PAPER = Paper(
    "Lee, Wang and Kifer (2015): maximum-likelihood post-processing",
    (
        Item("Equation (1)", f"{SOLVERS}.trees.fit.fit_tree", DENSE, three_counts_by_squares, 1e-12),
        Item("Equation (2)", f"{SOLVERS}.trees.fit.fit_tree", LP, three_counts_by_likelihood, 1e-9),
        Item("Definitions 2 and 3 (sensitivity, Laplace mechanism)", "consilience.privacy.pricing.price_queries",
             "all single records", scales_by_brute_force, 1e-6),
        Item("Equation (3) (marginals)", f"{SOLVERS}.projections.sums.MarginalsEqual", DENSE, marginals_as_equations,
             1e-12),
        Item("Equation (4) (trees)", f"{SOLVERS}.trees.layout.histogram_parents", "the formula", children_of_nodes,
             0.0),
        Item("Matrix mechanism, x̂ = A⁺r̃", f"{SOLVERS}.matrices.matrix_fit.fit_matrix", DENSE, strategy_by_squares,
             1e-9),
        Item("Equation (5)", f"{SOLVERS}.matrices.matrix_fit.fit_matrix", LP, strategy_by_likelihood, 1e-6),
        Item("Equation (6)", f"{SOLVERS}.projections.affine.Affine", DENSE, constrained_squares, 1e-12),
        Item("Problem (7)", ADMM, LP, likelihood_under_constraints, 1e-3),
        Item("Subproblem (i), equation (12)", f"{SOLVERS}.projections.cells.NonNegative", "search on a grid", clipping,
             1e-6),
        Item("Subproblem (ii), equation (13)", f"{LOSSES}.drawn_to_zero", "search on a grid", soft_thresholding, 1e-6),
        Item("Subproblem (iii)", f"{SOLVERS}.projections.affine.SquareSolver", DENSE, ridge, 1e-9),
        Item("Subproblem (iv), equation (14)", f"{LOSSES}.Loss", "the formula, and search on a grid",
             elastic_thresholding, 1e-6),
        Item("Algorithm 1, equations (8) to (11) and (15)", ADMM, LINES, lambda: steps_of_algorithms_1_and_2("l1"),
             1e-9),
        Item("Algorithm 1 in three copies (section 4.3)", ADMM, LINES, steps_of_the_split_algorithm, 1e-9),
        Item("Remark 1 (projection is least squares)", f"{SOLVERS}.projections.sums.TreeConsistency", DENSE,
             projection_is_least_squares, 1e-12),
        Item("Stopping rule (22), equations (16) to (21)", ADMM, "residuals of every step", stopping_rule, 0.0),
        Item("Problem (23), one solution", ADMM, "other starts", one_solution_from_any_start, 1e-3),
        Item("Problem (23), towards L1 as α grows", f"{SOLVERS}.trees.fit.fit_tree", LP,
             elastic_net_towards_likelihood, 1e-6),
        Item("Problem (23), optimum", ADMM, "interior point, dense", elastic_nets_at_their_optimum, 1e-3),
        Item("L2 formulation, equation (25)", ADMM, LINES, lambda: steps_of_algorithms_1_and_2("l2"), 1e-9,
             "(25) is read as the update of y with the factor ρ/(1 + ρ), without which it minimises nothing "
             "([why](../concepts/admm.md#what-is-different-from-the-paper))."),
        Item("L2 formulation, optimum", f"{SOLVERS}.trees.fit.fit_tree", "active sets (nnls)",
             least_squares_without_negatives, 1e-9),
        Item("Algorithm 2, equation (24)", ADMM, LINES, lambda: steps_of_algorithms_1_and_2("elastic"), 1e-9),
        Item("Algorithm 2, optimum", f"{SOLVERS}.marginal_tables.table_fit.fit_table", LP, tables_at_their_optimum,
             1e-6),
        Item("Algorithm 3", ADMM, LINES, steps_of_algorithm_3, 1e-9),
        Item("Algorithm 3, optimum", f"{SOLVERS}.trees.fit.fit_forest", LP, trees_at_their_optimum, 1e-9),
        Item("Algorithm 4", ADMM, LINES, steps_of_algorithm_4, 1e-9,
             "line 6 is read with the z of the same step, as in the other algorithms."),
        Item("LM, LM(L)", f"{PLANS}.Flat", "1/ε", plain_cells, 1e-6),
        Item("LM(H)", f"{PLANS}.Histogram", "levels/ε", levels_of_a_tree, 1e-6),
        Item("HTree", f"{SOLVERS}.projections.sums.TreeConsistency", DENSE, projection_is_least_squares, 1e-12),
        Item("Privlet", f"{PLANS}.Wavelet", "its definition, coefficient by coefficient", haar_rows, 1e-6),
        Item("O(log³ n/ε²) of HTree and Privlet", f"{PLANS}.Wavelet", "variances of all ranges, dense",
             variances_of_ranges, 1e-9),
        Item("MWEM", f"{PLANS}.Mwem", "its update, written out", multiplicative_weights, 1e-9),
        Item("EFPA", f"{PLANS}.EfpaAsPublished", "Fourier transform (numpy)",
             partial(fourier_perturbation, EfpaAsPublished), 1e-6),
        Item("EFPA, ours", f"{PLANS}.Efpa", "Fourier transform (numpy)", fourier_perturbation, 1e-6,
             "less noise than published for the coefficients kept (their largest column norm in place of √k), "
             "candidates end at 2,048 frequencies, and frequency 0 is never alone."),
        Item("P-HP", f"{PLANS}.PhpAsPublished", "bucket totals", partial(clustered_histogram, PhpAsPublished), 1e-6),
        Item("P-HP, ours", f"{PLANS}.Php", "bucket totals", clustered_histogram, 1e-6,
             "buckets are cut by deviations from their medians, not means "
             "([why](../decisions/0008-partitions-are-chosen-by-medians.md)), on at most 12 levels."),
        Item("Matrix mechanism, approximated as in Yuan et al.",
             "consilience.strategies.attribute_strategies.semidefinite_strategy",
             "a proven lower bound", approximate_matrix_mechanism, 1e-3),
        Item("LRM", "consilience.strategies.low_rank.published_low_rank_factors",
             "B L = W up to γ = 0.01, sensitivity 1", published_low_rank_mechanism, 1e-2),
        Item("LRM, ours", "consilience.strategies.low_rank.low_rank_factors", "B L = W, sensitivity 1",
             low_rank_mechanism, 1e-6,
             "its search starts from p-identity too, and the cells are taken where they are better."),
        Item("Table 2 (contingency tables)", "benchmarks.problems.contingency_tables", "the printed numbers",
             contingency_tables, 0.0),
        Item("Table 3 (histograms)", "benchmarks.problems.histograms", "the printed numbers", histograms, 0.0,
             "stand-ins: sizes, largest counts and shares of empty bins hold, the shapes are not the originals', and "
             "the smallest "
             "count of Social Network, 1 in the paper, does not hold."),
        Reproduced("Figure 5.1.1", "lee2015-figure-5.1.1"),
        Reproduced("Figure 5.2.1", "lee2015-figure-5.2.1", differs="stand-ins for all three histograms."),
        Reproduced("Figure 5.2.2", "lee2015-figure-5.2.2", differs="stand-ins for all three histograms."),
        Reproduced("Figure 5.3.1", "lee2015-figure-5.3.1", differs="stand-ins for all three histograms."),
        Reproduced("Figure 5.3.2", "lee2015-figure-5.3.2", differs="stand-ins for all three histograms."),
        Reproduced("Section 5, linear programmes fail", "lee2015-linear-programs"),
    ),
)  # fmt: skip


@checked(PAPER)
def test_every_item_is_where_it_is_said_to_be_and_equals_its_twin(item: Item) -> None:
    assert_true(item)
