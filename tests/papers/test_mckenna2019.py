"""McKenna, Sheldon & Miklau (2019), item by item: against tables written out cell by cell, and linear programmes."""

import itertools
import math
import sys
from functools import cache
from pathlib import Path

import numpy as np
import scipy.optimize

sys.path.insert(0, str(Path(__file__).parent))

from mckenna2019_mechanisms import (
    bayesian_network,
    dual_query_draws,
    dual_query_gradient,
    dual_query_loss,
    factored_weights,
    high_dimensional_mechanism,
    local_squares,
    queries_of_table_1,
    unknown_total,
    weights_and_mirror_descent,
    weights_update,
    workload_errors,
)
from paper_items import Item, Paper, Reproduced, assert_true, beyond, checked, difference, twins

from consilience.domain import Attribute, Domain, Query, factors
from consilience.estimators import Residual
from consilience.estimators.published.multiplicative_weights import FactoredWeights
from consilience.kernels.rng import generator
from consilience.measurements import Gaussian, MeasurementSet
from consilience.models.elimination import CalibratedModel
from consilience.models.factored_queries import answer
from consilience.models.fitting.first_order import Direct, DualAveraging, MirrorDescent
from consilience.models.fitting.fit_model import fit_model
from consilience.models.junction_trees import junction_tree
from consilience.models.model import GraphicalModel
from consilience.models.oracle import MarginalOracle
from consilience.models.tables import TableLayout
from consilience.privacy.budgets import budget
from consilience.privacy.pricing import price_queries

SIZES = (2, 3, 2, 3)
CYCLE = [(0, 1), (1, 2), (2, 3), (0, 3)]
TOTAL = 60.0


@cache
def model() -> tuple[GraphicalModel, np.ndarray, list[np.ndarray]]:
    """A model on a cycle, its table written out, and its parameters."""
    rng = np.random.default_rng(0)
    tables = [rng.normal(size=[SIZES[a] for a in scope]) for scope in CYCLE]
    made = GraphicalModel.of(SIZES, CYCLE, tables, total=TOTAL)
    return made, twins("models/test_inference_by_brute_force.py").brute_force(made, rng).joint, tables


def summed(joint: np.ndarray, scope: tuple[int, ...]) -> np.ndarray:
    return joint.sum(axis=tuple(a for a in range(joint.ndim) if a not in scope))


def spread(scope: tuple[int, ...], table: np.ndarray) -> np.ndarray:
    """A table over some attributes, ascending, that broadcasts over all cells."""
    return table.reshape([SIZES[a] if a in scope else 1 for a in range(len(SIZES))])


def oracle() -> MarginalOracle:
    return MarginalOracle(junction_tree(SIZES, CYCLE, restarts=1), CYCLE, total=TOTAL)


@cache
def problem(seed: int = 1):
    """Measurements of a cycle, as rows of marginals and as a matrix over all cells."""
    return twins("models/test_fit_model.py").Problem(CYCLE, seed)


@cache
def least_squares() -> float:
    """The least half sum of squares over all tables of the total, by active sets."""
    of = problem()
    heavy = 1e4
    stacked = np.vstack([of.matrix, np.full((1, of.matrix.shape[1]), heavy)])
    cells = scipy.optimize.nnls(stacked, np.append(of.observed, heavy * TOTAL), maxiter=10_000)[0]
    return 0.5 * float(np.sum((of.matrix @ cells - of.observed) ** 2))


# Definitions, and what they say of losses and models.


def marginal_matrices() -> float:
    _, joint, _ = model()
    calibrated = CalibratedModel(model()[0])
    wanted = [scope for size in range(4) for scope in itertools.combinations(range(4), size)]
    return max(difference(calibrated.marginal(scope), summed(joint, scope)) for scope in wanted)


def sensitivity_of_replacing() -> float:
    """2 · the largest column norm, by all pairs of records."""
    domain = Domain.from_sizes({"a": 4, "b": 3})
    queries = [Query.of({"a": factors.Prefix()}), Query.marginal("b")]
    priced = price_queries(queries, domain, budget(epsilon=1.0), neighbours="replace-one").queries
    cells = np.eye(12).reshape(12, 4, 3)
    answers = [np.concatenate([q.bind(domain).answer_full(cell).ravel() for q in queries]) for cell in cells]
    moved = max(np.abs(one - other).sum() for one in answers for other in answers)
    return max(abs(each.noise.scale_parameter / moved - 1) for each in priced)


def losses_of_marginals() -> float:
    of = problem()
    table = np.random.default_rng(3).random(of.matrix.shape[1])
    return difference(of.rows.apply(of.oracle.members.T @ table), of.matrix @ table)


def model_as_defined() -> float:
    _, _, tables = model()
    written = np.zeros(SIZES)
    for scope, table in zip(CYCLE, tables, strict=True):
        shape = [SIZES[a] if a in scope else 1 for a in range(4)]
        written = written + table.reshape(shape)
    weights = np.exp(written)
    return difference(CalibratedModel(model()[0]).marginal((0, 1, 2, 3)), TOTAL * weights / weights.sum())


def greatest_entropy() -> float:
    """Among all tables with the marginals of a model none has more entropy: a convex solver finds the model again."""
    found = CalibratedModel(model()[0]).marginal((0, 1, 2, 3))
    twin = twins("marginals/test_entropy_tables.py").by_convex_solver
    return difference(found, twin(SIZES, CYCLE, found))


def entropy_and_parameters() -> float:
    """H(μ) + μ·θ = log Z at μ = μ(θ), the least of −μ·θ − H(μ) (appendix A.1)."""
    _, joint, tables = model()
    found = oracle().marginals(TableLayout(SIZES, CYCLE).pack(tables))
    shares = joint / TOTAL
    entropy = -float((shares * np.log(shares)).sum())
    return difference(entropy + TableLayout(SIZES, CYCLE).pack(tables) @ found.values / TOTAL, found.log_partition)


# The algorithms.


def marginals_of_the_oracle() -> float:
    _, joint, tables = model()
    found = oracle().marginals(TableLayout(SIZES, CYCLE).pack(tables)).values
    return difference(found, TableLayout(SIZES, CYCLE).pack([summed(joint, scope) for scope in CYCLE]))


def mirror_step() -> float:
    """Equation (1): μ(θ − η∇L) is least of μ·∇L + KL(μ, μ(θ))/η, which over all cells is p·exp(−η·g) scaled."""
    _, joint, tables = model()
    rng, layout = np.random.default_rng(1), TableLayout(SIZES, CYCLE)
    gradient = [rng.normal(size=table.shape) for table in tables]
    over_cells = sum(spread(scope, table) for scope, table in zip(CYCLE, gradient, strict=True))
    moved = joint * np.exp(-0.3 * over_cells)
    moved *= TOTAL / moved.sum()
    found = oracle().marginals(layout.pack(tables) - 0.3 * layout.pack(gradient)).values
    return difference(found, layout.pack([summed(moved, scope) for scope in CYCLE]))


def dense_rows() -> np.ndarray:
    of = problem()
    return np.array([of.rows.apply(unit) for unit in np.eye(of.oracle.layout.size)]).T


def nearest_iterate(found: np.ndarray, iterates: list[np.ndarray]) -> float:
    """The difference to one of the last iterates: how many a number of calls allows is not told."""
    return min(difference(found, each) for each in iterates[3:])


def steps_of_algorithm_1() -> float:
    of, rows, step = problem(), dense_rows(), 0.002
    fit = fit_model(of.oracle, of.rows, of.costs(curvature=1.0), optimiser=MirrorDescent(step), max_steps=12)
    theta, iterates = np.zeros(of.oracle.layout.size), []
    for _ in range(15):
        mu = of.oracle.marginals(theta).values
        iterates.append(mu)
        theta = theta - step * rows.T @ (rows @ mu - of.observed)
    return nearest_iterate(fit.marginals, iterates)


def steps_of_algorithm_2() -> float:
    of, rows = problem(), dense_rows()
    fit = fit_model(of.oracle, of.rows, of.costs(curvature=1.0), optimiser=DualAveraging(), max_steps=12)
    constant = TOTAL * float((of.matrix**2).sum(axis=0).max())
    mu = nu = of.oracle.marginals(np.zeros(rows.shape[1])).values
    mean, iterates = np.zeros(rows.shape[1]), []
    for t in range(1, 16):
        c = 2 / (t + 1)
        omega = (1 - c) * mu + c * nu
        mean = (1 - c) * mean + c * rows.T @ (rows @ omega - of.observed)
        nu = of.oracle.marginals(-t * (t + 1) / (4 * constant) * mean).values
        mu = (1 - c) * mu + c * nu
        iterates.append(nu)
    return nearest_iterate(fit.marginals, iterates)


def constant_of_algorithm_2() -> float:
    """The constant is never larger than the eigenvalue that the paper names, in counts."""
    of = problem()
    return beyond((of.matrix**2).sum(axis=0).max(), np.linalg.eigvalsh(of.matrix.T @ of.matrix).max())


def rate_of_algorithm_1() -> float:
    """Under L1, no farther from the linear programme's optimum than mirror descent's theorem allows."""
    of, steps = problem(), 150
    costs = of.costs(slope=1.0)
    best = twins("models/test_fit_model.py").least_cost(of.matrix, costs, TOTAL)
    fit = fit_model(of.oracle, of.rows, costs, optimiser=MirrorDescent("decreasing"), max_steps=steps)
    reach = TOTAL * np.abs(of.matrix).sum(axis=0).max()
    return beyond(fit.objective - best, reach * math.sqrt(2 * math.log(36) / steps) * (1 + math.log(steps)))


class Recorded:
    """An oracle that keeps what it answered."""

    def __init__(self, inner) -> None:
        self.inner, self.answers = inner, []

    def __getattr__(self, name: str):
        return getattr(self.inner, name)

    def marginals(self, potentials: np.ndarray):
        found = self.inner.marginals(potentials)
        self.answers.append(found.values)
        return found


def rate_of_algorithm_2() -> float:
    """The averaged marginals are within 4 K N ln n / t² of the optimum, at every step."""
    of, rows, excess = problem(), dense_rows(), 0.0
    recorded = Recorded(of.oracle)
    fit_model(recorded, of.rows, of.costs(curvature=1.0), optimiser=DualAveraging(), max_steps=60)
    constant, best = TOTAL * float((of.matrix**2).sum(axis=0).max()), least_squares()
    mu = recorded.answers[0]
    for t, nu in enumerate(recorded.answers[1:], start=1):
        mu = mu + 2 / (t + 1) * (nu - mu)
        cost = 0.5 * float(np.sum((rows @ mu - of.observed) ** 2))
        excess = max(excess, beyond(cost - best, 4 * constant * TOTAL * math.log(36) / t**2))
    return excess


def optimum_of(optimiser, within: float) -> float:
    of = problem()
    costs = of.costs(curvature=1.0)
    fit = fit_model(of.oracle, of.rows, costs, optimiser=optimiser, tolerance=within, max_steps=3000)
    return beyond(fit.objective - least_squares(), 0.0) / max(least_squares(), costs.expected)


def direct_gradient() -> float:
    """The derivative of L(μ(θ)) is the oracle's derivative in the direction ∇L, against differences."""
    of, rows = problem(), dense_rows()
    theta = np.random.default_rng(4).normal(size=rows.shape[1]) * 0.3

    def loss(at: np.ndarray) -> float:
        return 0.5 * float(np.sum((rows @ of.oracle.marginals(at).values - of.observed) ** 2))

    inner = MarginalOracle(junction_tree(SIZES, CYCLE, restarts=1), CYCLE, total=TOTAL)
    slope = rows.T @ (rows @ inner.marginals(theta).values - of.observed)
    found = inner.derivative(theta, slope)
    steps = 1e-5 * np.eye(len(theta))
    return difference(found, [(loss(theta + e) - loss(theta - e)) / 2e-5 for e in steps])


def factored_queries() -> float:
    twin = twins("models/test_inference_by_brute_force.py")
    case = twin.brute_force(model()[0], np.random.default_rng(5))
    calibrated = CalibratedModel(case.model)
    queries = [twin.random_query(case) for _ in range(8)]
    return max(difference(answer(calibrated, query), case.answers(query)) for query in queries)


def query_factors() -> float:
    attribute = Attribute.numeric("a", [-0.5, 0.5, 1.5, 2.5, 3.5])
    labels = attribute.labels
    unit, values = np.eye(4), np.arange(4.0)
    groups = factors.Buckets.of({"low": labels[:1], "high": labels[1:]})
    pairs = [
        (factors.Identity(), unit),
        (factors.Total(), np.ones((1, 4))),
        (factors.Value(labels[2]), unit[2:3]),
        (factors.Subset((labels[0], labels[3])), unit[0:1] + unit[3:4]),
        (factors.Prefix(), np.tril(np.ones((4, 4)))),
        (groups, np.array([[1.0, 0, 0, 0], [0, 1, 1, 1]])),
        (factors.Mean(), values[None, :]),
        (factors.Moments(3), np.array([values, values**2, values**3])),
    ]
    return max(difference(factor.bind(attribute).dense(), expected) for factor, expected in pairs)


def gradients_of_losses() -> float:
    from consilience.models.fitting.objective import RowLoss

    of, found = problem(), 0.0
    mu = of.oracle.members.T @ of.truth
    for costs in (of.costs(curvature=1.0), of.costs(slope=1.0)):
        loss = RowLoss(of.rows, costs)
        steps = 1e-5 * np.eye(len(mu))
        slopes = [(loss.value(mu + e) - loss.value(mu - e)) / 2e-5 for e in steps]
        found = max(found, difference(loss.value_and_gradient(mu)[1], slopes))
    return found


def unequal_noise() -> float:
    """Rows divided by their scales are the rows of unequal noise: the same costs."""
    from consilience.solvers.losses import Loss

    rng = np.random.default_rng(0)
    counts, noisy, scales = rng.random(6), rng.random(6), rng.uniform(0.5, 3, 6)
    one = Loss.named("l1").value(counts, noisy, 1 / scales)
    return difference(one, np.abs(counts / scales - noisy / scales).sum())


def sampled_records() -> float:
    """Counts of synthetic records differ from the model's own by less than one, cell by cell of a small marginal."""
    found = twins("estimators/test_factored_weights.py")
    fitted = FactoredWeights().fit(found.measured())
    codes, counts = fitted.sample(2000, generator(0)), np.zeros((2, 3))
    np.add.at(counts, (codes[:, 0], codes[:, 1]), 1)
    return beyond(np.abs(counts - 20 * fitted.marginal("a", "b")), 1.0)


def estimation_without_an_oracle() -> float:
    """All pairs, which no small junction tree covers: what may be negative is what least squares over all cells say."""
    names, rng = "abcd", np.random.default_rng(2)
    domain = Domain.from_sizes(dict(zip(names, SIZES, strict=True)))
    pairs = list(itertools.combinations(range(len(SIZES)), 2))
    noisy = [rng.normal(5, 3, size=[SIZES[a] for a in pair]) for pair in pairs]
    measured = MeasurementSet.from_marginals(
        domain, {tuple(names[a] for a in pair): y for pair, y in zip(pairs, noisy, strict=True)}, noise=Gaussian(3.0)
    )
    fit = Residual(nonnegative=False).fit(measured)
    cells = np.eye(math.prod(SIZES)).reshape(-1, *SIZES)
    matrix = np.hstack([np.array([summed(cell, pair).ravel() for cell in cells]) for pair in pairs]).T
    table = np.linalg.lstsq(matrix, np.concatenate([y.ravel() for y in noisy]), rcond=None)[0].reshape(SIZES)
    triples = itertools.combinations(range(len(SIZES)), 3)
    return max(
        difference(fit.marginal(*(names[a] for a in scope)), summed(table, scope)) for scope in (*pairs, *triples)
    )


CELLS, DIFFERENCES, LP = "the table written out", "differences", "linear programme (HiGHS)"
MODELS, FITTING = "consilience.models", "consilience.models.fitting"
FIRST, PLANS, ESTIMATORS = f"{FITTING}.first_order", "consilience.plans", "consilience.estimators"

PAPER = Paper(
    "McKenna, Sheldon and Miklau (2019): estimation with graphical models",
    (
        Item("Marginals μ_A = M_A p", f"{MODELS}.elimination.CalibratedModel", CELLS, marginal_matrices, 1e-9),
        Item("Definitions 1 and 2, Δ = 2‖Q‖₁", "consilience.privacy.pricing.price_queries", "all pairs of records",
             sensitivity_of_replacing, 1e-6),
        Item("L(p) = L(μ)", f"{FITTING}.objective.MeasuredRows", CELLS, losses_of_marginals, 1e-9),
        Item("Definition 3 (graphical model)", f"{MODELS}.model.GraphicalModel", CELLS, model_as_defined, 1e-9),
        Item("Theorem 1 (greatest entropy)", f"{MODELS}.elimination.CalibratedModel", "convex solver (scipy)",
             greatest_entropy, 1e-6),
        Item("Marginal oracle", f"{MODELS}.oracle.MarginalOracle", CELLS, marginals_of_the_oracle, 1e-9),
        Item("Equation (1), appendix A.1", f"{MODELS}.oracle.MarginalOracle", "closed form over all cells",
             mirror_step, 1e-9),
        Item("∇H(μ) = −θ, appendix A.1", f"{MODELS}.oracle.MarginalOracle", "log Z = H(μ) + μ·θ",
             entropy_and_parameters, 1e-9),
        Item("Algorithm 1, steps", f"{FIRST}.MirrorDescent", "its printed lines, dense", steps_of_algorithm_1, 1e-9),
        Item("Algorithm 1, O(1/√t) under L1", f"{FIRST}.MirrorDescent", f"{LP} and the theorem's bound",
             rate_of_algorithm_1, 1e-9),
        Item("Algorithm 1, optimum", f"{FIRST}.MirrorDescent", "active sets (nnls)",
             lambda: optimum_of(MirrorDescent(), 1e-3), 1e-2),
        Item("Algorithm 2, steps, appendix A.2", f"{FIRST}.DualAveraging", "its printed lines, dense",
             steps_of_algorithm_2, 1e-9,
             "returned are the parameters θ with their own marginals ν; the averaged μ converge faster, but no "
             "parameters "
             "are known for them."),
        Item("Algorithm 2, constant K", f"{FIRST}.DualAveraging", "largest eigenvalue of QᵀQ", constant_of_algorithm_2,
             1e-9,
             "K is the largest squared column norm, which the entropy asks for and which is at most that eigenvalue."),
        Item("Algorithm 2, O(1/t²)", f"{FIRST}.DualAveraging", "active sets and the theorem's bound",
             rate_of_algorithm_2, 1e-6),
        Item("Algorithm 2, optimum", f"{FIRST}.DualAveraging", "active sets (nnls)",
             lambda: optimum_of(DualAveraging(), 1e-3), 1e-2),
        Item("Appendix A.3 (direct), gradient", f"{MODELS}.oracle.MarginalOracle", DIFFERENCES, direct_gradient, 1e-6),
        Item("Appendix A.3 (direct), optimum", f"{FIRST}.Direct", "active sets (nnls)", lambda: optimum_of(Direct(),
             1e-3), 1e-2),
        Item("Section 3.3, synthetic records", f"{ESTIMATORS}.published.multiplicative_weights.FactoredEstimate",
             "counts within 1",
             sampled_records, 1e-9),
        Item("Algorithm 3 and Definition 4 (factored queries)", f"{MODELS}.factored_queries.answer", CELLS,
             factored_queries, 1e-9),
        Item("Table 2 (factors)", "consilience.domain.factors", "their definitions", query_factors, 1e-12),
        Item("Appendix C.1 (gradients)", f"{FITTING}.objective.RowLoss", DIFFERENCES, gradients_of_losses, 1e-6),
        Item("Appendix C.2 (unequal noise)", "consilience.solvers.losses.Loss", "scaled rows", unequal_noise, 1e-12),
        Item("Appendix E.1 (unknown total)", "consilience.marginals.least_squares.combined_total", "pseudo-inverses",
             unknown_total, 1e-9),
        Item("Equation (2), MW", f"{ESTIMATORS}.published.multiplicative_weights.WeightedTable", "its formula",
             weights_update, 1e-9),
        Item("Appendix E.2 (MW is mirror descent)", f"{ESTIMATORS}.published.multiplicative_weights.WeightedTable",
             "a step of mirror descent", weights_and_mirror_descent, 1e-12),
        Item("Factored MWEM", f"{ESTIMATORS}.published.multiplicative_weights.FactoredWeights", "full weights",
             factored_weights, 1e-9),
        Item("PrivBayes, estimation", f"{ESTIMATORS}.published.bayesian_network.BayesianNetwork",
             "clip, divide, multiply",
             bayesian_network, 1e-9),
        Item("HDMM", f"{PLANS}.Hdmm", "dense least squares", high_dimensional_mechanism, 1e-2),
        Item("HDMM+LLS", f"{ESTIMATORS}.LocalSquares", "differences of prefixes", local_squares, 1e-9),
        Item("Algorithm 4 (DualQuery)", f"{PLANS}.DualQuery", "all records", dual_query_draws, 0.0,
             "the first record is drawn evenly rather than found from queries drawn evenly, and the budget is that "
             "of all draws, added up under ε or ρ."),
        Item("Algorithm 5 (its loss)", f"{ESTIMATORS}.published.dual_query_model.draws_loss", "its printed lines",
             dual_query_loss, 1e-9),
        Item("Algorithm 5, gradient", f"{ESTIMATORS}.published.dual_query_model.SignedChoices", DIFFERENCES,
             dual_query_gradient, 1e-6),
        Item("Section 5.2, approximate oracles", f"{ESTIMATORS}.Residual", "dense least squares",
             estimation_without_an_oracle, 1e-9,
             "loopy belief propagation in place of the oracle was tried and removed "
             "([why](../decisions/0040-no-loopy-propagation.md)): where no junction tree is small enough, `Residual` "
             "fits marginals without a model."),
        Item("Error of a workload (section 5.1)", "consilience.evaluation.evaluate", "its formula", workload_errors,
             1e-9),
        Item("Table 1", "benchmarks.problems.triples.TRIPLES", "the printed numbers", queries_of_table_1, 0.0,
             "4,851 and 62,876 queries here as printed; 352,201 where the paper prints 362,201 (loans) and 17,116 "
             "where "
             "it prints 17,716 (stroke), for the same triples."),
        Reproduced("Figure 1a", "mckenna2019-figure-1a"),
        Reproduced("Figure 1b", "mckenna2019-figure-1b"),
        Reproduced("Figure 1c", "mckenna2019-figure-1c"),
        Reproduced("Figure 1d", "mckenna2019-figure-1d"),
        Reproduced("Figure 2a", "mckenna2019-figure-2a"),
        Reproduced("Figure 2b", "mckenna2019-figure-2b"),
        Reproduced("Figure 3", "mckenna2019-figure-3"),
    ),
)  # fmt: skip


@checked(PAPER)
def test_every_item_is_where_it_is_said_to_be_and_equals_its_twin(item: Item) -> None:
    assert_true(item)
