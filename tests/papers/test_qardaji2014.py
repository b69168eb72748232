"""Qardaji, Yang & Li (2014), item by item: its printed numbers, its worked example, and slow twins of its steps."""

import itertools
import math
import sys
from pathlib import Path

import numpy as np
from scipy.spatial.distance import jensenshannon

sys.path.insert(0, str(Path(__file__).parent))

from paper_items import Item, Paper, Reproduced, assert_true, beyond, checked, difference, twins

from benchmarks.problems.flags import markov_chain
from benchmarks.reproduce.qardaji2014 import expected_errors
from benchmarks.reproduce.qardaji2014.errors import distances, divergences
from consilience.coverings.designs import covering, covering_size
from consilience.domain import Domain
from consilience.domain.public_facts import PublicFacts
from consilience.estimators.published.fourier import Fourier, nearest_table
from consilience.estimators.published.learning import Learning
from consilience.marginals.consistency import ViewConsistency
from consilience.marginals.nonnegativity import nonnegative_views, without_negatives
from consilience.marginals.reconstruction import greatest_entropy_table, least_squares_table, linear_programme_table
from consilience.marginals.table_stacks import TableStack, summed
from consilience.measuring import price
from consilience.plans import DataCube, Flat, Marginals, Views
from consilience.strategies.attribute_strategies import eigen_design

EXAMPLE = np.array([0.3, 0.3, 0.3, 0.1, 0.2, 0.3, 0.1, 0.4])
AFTER = np.array([0.275, 0.275, 0.325, 0.125, 0.225, 0.325, 0.075, 0.375])
SCOPES = [(0, 1, 2), (1, 2, 3), (0, 3), (2, 4), (0, 1, 4)]
SIZES = (2, 3, 2, 2, 3)


def flags(count: int, total: int | None = None) -> Domain:
    attributes = Domain.from_sizes({f"f{place}": 2 for place in range(count)}).attributes
    return Domain("flags", attributes, public=PublicFacts(total=total))


def scales(domain: Domain, plan) -> list[float]:
    """The noise of every query of a plan at ε = 1."""
    return [row["scale"] for row in price(domain, plan, epsilon=1).rows()]


# Errors that are expected.


def divergence() -> float:
    rng = np.random.default_rng(0)
    some, others = rng.random((5, 8)), rng.random((5, 8))
    some[0, :4] = 0.0
    printed = [jensenshannon(p, q) ** 2 for p, q in zip(some, others, strict=True)]
    return difference(divergences(7.0 * some, others), printed)


def error_distance() -> float:
    rng = np.random.default_rng(1)
    some, others = rng.random((5, 8)), rng.random((5, 8))
    return difference(distances(some, others, 2.0), np.linalg.norm(some - others, axis=1) / 2)


def laplace_variance() -> float:
    """∫ x² e^(−ε|x|) ε/2 dx, by the trapezium rule."""
    grid = np.linspace(0, 400, 400_001)
    return difference(expected_errors.unit_variance(0.2), np.trapezoid(grid**2 * np.exp(-0.2 * grid) * 0.2, grid))


def dense_error(plan, count: int, ways: int) -> float:
    """The mean squared error of a marginal by summing up noisy cells, in units of the variance of Laplace(1)."""
    scale = scales(flags(count), plan)[0]
    summed_cells = 2 ** (count - ways) if isinstance(plan, Flat) else 1
    return 2**ways * summed_cells * scale**2


def all_pairs(count: int) -> Marginals:
    return Marginals(list(itertools.combinations(flags(count).names, 2)))


def flat_errors() -> float:
    found = [expected_errors.flat_error(count) / 2 for count in (3, 5)]
    return difference(found, [dense_error(Flat(total_share=0), count, 2) for count in (3, 5)])


def direct_errors() -> float:
    found = [expected_errors.direct_error(count, 2) / 2 for count in (4, 6)]
    return difference(found, [dense_error(all_pairs(count), count, 2) for count in (4, 6)])


def direct_beats_flat() -> float:
    return difference([expected_errors.direct_beats_flat_from(k) for k in (2, 3, 4, 5)], [16, 26, 36, 46])


def middle_ground() -> float:
    """d = 16, k = 2: Flat, Direct, and six views of eight, with the product that the paper writes worked out."""
    found = [
        expected_errors.flat_error(16) / 2,
        expected_errors.direct_error(16, 2) / 2,
        expected_errors.expected_squared_error([2**8], views=6) / 2,
    ]
    return difference([*found, covering_size(16, 8, 2)], [65536, 57600, 2**2 * 6**2 * 2**6, 6])


def fourier_coefficients() -> float:
    from consilience.plans.published.marginals import fourier_coefficients as count

    return difference([count(9, k) for k in (1, 2, 4)], [sum(math.comb(9, j) for j in range(k + 1)) for k in (1, 2, 4)])


def fourier_error() -> float:
    """m² V by dense algebra: the inverse of the signs of all subsets of a marginal."""
    ways, points = 2, 5
    signs = np.array([[(-1) ** bin(a & b).count("1") for b in range(4)] for a in range(4)])
    scale = sum(math.comb(points, j) for j in range(ways + 1))
    dense = np.trace(np.linalg.inv(signs) @ np.linalg.inv(signs).T) * scale**2
    return difference(expected_errors.fourier_error(points, ways) / 2, dense)


def noise_error() -> float:
    """Equation (5), and its values for Kosarak as printed, to a unit of their last digit."""
    found = [expected_errors.view_noise_error(32, 8, w, 900_000) for w in (20, 106, 620)]
    formula = [2**4.5 / 900_000 * math.sqrt(w * 32 * 31 / (8 * 7)) for w in (20, 106, 620)]
    wrong = sum(
        abs(a - b) > unit for a, b, unit in zip(found, (0.00047, 0.0011, 0.0026), (1e-5, 1e-4, 1e-4), strict=True)
    )
    return max(difference(found, formula), float(wrong))


def block_sizes() -> float:
    printed = {5: (0.283, 0.094), 6: (0.267, 0.067), 7: (0.269, 0.054), 8: (0.286, 0.048), 9: (0.314, 0.045),
               10: (0.356, 0.044), 11: (0.411, 0.046), 12: (0.485, 0.048)}  # fmt: skip
    found = [[expected_errors.block_criterion(block, t) for t in (2, 3)] for block in printed]
    return difference(found, list(printed.values()))


def categorical_sizes() -> float:
    """For b values the s of least √s / (log_b s (log_b s − 1)) lies in the recommended range."""
    ranges = {2: (100, 1000), 3: (150, 2000), 4: (200, 3200), 5: (250, 5000)}
    wrong = 0
    for b, (low, high) in ranges.items():
        s = np.geomspace(b**2.05, 1e5, 4000)
        length = np.log(s) / np.log(b)
        triples = (
            np.sqrt(s) / (length * (length - 1) * (length - 2)) if b == 2 else np.sqrt(s) / (length * (length - 1))
        )
        cost = np.where(length > 2.01, triples, np.inf)
        near = s[cost <= 1.25 * cost.min()]
        wrong += not (near.min() <= high and near.max() >= low)
    return float(wrong)


# The steps of PriView.


def noise_of_views() -> float:
    found = scales(flags(32, 900_000), Views(ways=2, attributes_per_view=8))
    return max(abs(len(found) - 20), difference(found, np.full(len(found), 20.0)))


def designs_cover() -> float:
    """Sets that no view holds, over some of the designs of the paper, by looking at all."""
    missed = 0
    for points, block, strength in ((9, 6, 2), (16, 8, 2), (32, 8, 2), (20, 8, 3)):
        held = {
            each for row in covering(points, block, strength) for each in itertools.combinations(sorted(row), strength)
        }
        missed += math.comb(points, strength) - len(held)
        missed += sum(len(set(row)) > block for row in covering(points, block, strength))
    return float(missed)


def design_sizes() -> float:
    """Views that the designs here need beyond those the paper names, but for one."""
    named = {(9, 6, 2): 3, (32, 8, 2): 20, (32, 8, 3): 106, (32, 8, 4): 620, (45, 8, 2): 42, (64, 8, 2): 72}
    return beyond([covering_size(*key) for key in named], list(named.values()))


def worked_example() -> float:
    stack = TableStack((2, 2, 2), [(0, 1), (0, 2)])
    return difference(ViewConsistency(stack, [1.0, 1.0]).consistent(EXAMPLE), AFTER)


def overall_consistency() -> float:
    """The closed form against mutual consistency on every set of the closure, in topological order."""
    twin = twins("marginals/test_consistency.py")
    stack, flat, precisions = twin.random_problem(SIZES, SCOPES, np.random.default_rng(3), size=100.0)
    given = {scope: stack.table(flat, scope) for scope in stack.scopes}
    weights = {scope: p / given[scope].size for scope, p in zip(stack.scopes, precisions, strict=True)}
    expected = twin.step_by_step(given, weights)
    found = ViewConsistency(stack, precisions).consistent(flat)
    return max(difference(stack.table(found, scope), expected[scope]) for scope in stack.scopes)


def views_agree() -> float:
    """Definition 2, for all pairs of views."""
    twin = twins("marginals/test_consistency.py")
    stack, flat, precisions = twin.random_problem(SIZES, SCOPES, np.random.default_rng(4), size=100.0)
    found = ViewConsistency(stack, precisions).consistent(flat)
    gaps = []
    for one, other in itertools.combinations(stack.scopes, 2):
        shared = tuple(sorted(set(one) & set(other)))
        tables = [summed(stack.table(found, scope), scope, shared) for scope in (one, other)]
        gaps.append(difference(tables[0], tables[1]))
    return max(gaps)


def lemma_1() -> float:
    """Views that agree on {0} already: agreement on more leaves what they say about others and {0} as it was."""
    twin, rng = twins("marginals/test_consistency.py"), np.random.default_rng(5)
    scopes = [(0, 1, 2), (0, 1, 3)]
    tables = twin.mutually_consistent([rng.normal(size=(2, 3, 2)), rng.normal(size=(2, 3, 2))], scopes, on=(0,))
    after = twin.mutually_consistent(tables, scopes, on=(0, 1))
    kept = [(0, 2), (2,), (0,)]
    return max(difference(summed(after[0], scopes[0], on), summed(tables[0], scopes[0], on)) for on in kept)


def any_topological_order() -> float:
    """Steps in another topological order end where the closed form ends."""
    twin = twins("marginals/test_consistency.py")
    stack, flat, _ = twin.random_problem(SIZES, SCOPES, np.random.default_rng(6), size=100.0)
    tables = {scope: stack.table(flat, scope).copy() for scope in stack.scopes}
    for on in sorted(twin.closure(tables), key=lambda each: (len(each), [-place for place in sorted(each)])):
        holders = [scope for scope in tables if on <= set(scope)]
        made = twin.mutually_consistent([tables[s] for s in holders], holders, on=tuple(sorted(on)))
        tables |= dict(zip(holders, made, strict=True))
    found = ViewConsistency(stack, np.ones(len(stack.scopes))).consistent(flat)
    return max(difference(stack.table(found, scope), tables[scope]) for scope in stack.scopes)


def ripples(shape: tuple[int, ...]) -> float:
    twin = twins("marginals/test_nonnegativity.py")
    table = np.random.default_rng(7).laplace(3.0, 3.0, shape)
    return difference(twin.one_table(shape, table, method="ripple", theta=0.05), twin.ripple_by_scanning(table, 0.05))


def ripple_between_consistency() -> float:
    """Consistency, Ripple, Consistency: the three steps one after another."""
    stack, flat, _ = twins("marginals/test_nonnegativity.py").overlapping_views(0)
    consistency = ViewConsistency(stack, np.ones(len(stack.scopes)))
    found = nonnegative_views(consistency, flat, method="ripple", theta=1.0, rounds=1)
    rippled = without_negatives(consistency.consistent(flat), stack, method="ripple", theta=1.0)[0]
    return difference(found.flat, consistency.consistent(rippled))


def other_corrections() -> float:
    """Simple clips; Global clips and takes one number off all positive cells, as a projection on the simplex does."""
    from consilience.kernels.simplex import project_to_simplex

    shape, table = (2, 3, 4), np.random.default_rng(8).laplace(2.0, 3.0, (2, 3, 4))
    twin = twins("marginals/test_nonnegativity.py").one_table
    simple = difference(twin(shape, table, method="simple"), np.maximum(table, 0))
    projected = project_to_simplex(table.ravel(), float(table.sum())).reshape(shape)
    return max(simple, difference(twin(shape, table, method="global"), projected))


def margins_of(shape: tuple[int, ...], seed: int):
    table = np.random.default_rng(seed).gamma(0.6, 30.0, shape) + 0.5
    scopes = list(itertools.combinations(range(len(shape)), 2))
    return table, scopes, [(axes, summed(table, tuple(range(len(shape))), axes)) for axes in scopes]


def by_linear_programme() -> float:
    table, _, margins = margins_of((2, 3, 4), 0)
    noisy = [(axes, values + np.random.default_rng(1).normal(0, 5, values.shape)) for axes, values in margins]
    twin = twins("marginals/test_linear_programme_tables.py").least_violation
    return difference(linear_programme_table(table.shape, noisy).violation, twin(table.shape, noisy))


def by_least_squares() -> float:
    table, scopes, margins = margins_of((2, 3, 4), 2)
    wanted = np.concatenate([values.ravel() for _, values in margins]) / table.sum()
    shares = [(axes, values / table.sum()) for axes, values in margins]
    twin = twins("marginals/test_least_squares_tables.py").by_active_sets
    return difference(least_squares_table(table.shape, shares, total=1.0).table, twin(table.shape, scopes, wanted))


def by_entropy() -> float:
    table, scopes, margins = margins_of((2, 3, 4), 3)
    twin = twins("marginals/test_entropy_tables.py").by_convex_solver
    found = greatest_entropy_table(table.shape, margins, total=float(table.sum())).table
    return difference(found, twin(table.shape, scopes, table))


# What it is compared with.


def fourier_reconstruction() -> float:
    twin = twins("estimators/test_fourier.py")
    fitted = Fourier().fit(twin.measured(2, 1e-12))
    return max(
        difference(fitted.marginal(*names), twin.exact(*names)) for names in ((), ("a",), ("d", "b"), ("a", "c"))
    )


def fourier_linear_programme() -> float:
    """The largest error over coefficients, against the programme written out."""
    twin, rng = twins("estimators/test_fourier.py"), np.random.default_rng(3)
    sets = twin.sets_up_to(3, 2)
    values = np.array([twin.by_definition(rng.poisson(3.0, (2,) * 3), each) for each in sets]) + rng.laplace(
        0, 9, len(sets)
    )
    scales = rng.uniform(0.5, 2.0, len(sets))
    found = nearest_table(3, sets, values, scales).largest_error
    return difference(found, twin.dense_optimum(3, sets, values, scales))


def uniform_tables() -> float:
    from consilience.estimators.published.uniform import Uniform

    twin = twins("estimators/test_fourier.py")
    fitted = Uniform().fit(twin.measured(2, 1e-12))
    return difference(fitted.marginal("a", "b"), np.full((2, 2), twin.TRUTH.sum() / 4))


def learning_polynomial() -> float:
    """No record's weight is farther from the cell's indicator than γ, and cells are its sums over all records."""
    twin = twins("estimators/test_learning.py")
    method = Learning(3, 1 / 4)
    fitted = method.fit(twin.marginals(range(method.polynomial.degree + 1)))
    values, names = method.polynomial.values, ("d", "a", "c")
    found, table = fitted.marginal(*names), twin.exact(*names)
    told = np.zeros(found.shape)
    for cell in np.ndindex(found.shape):
        told[cell] = sum(values[np.not_equal(cell, other).sum()] * table[other] for other in np.ndindex(table.shape))
    indicator = np.eye(1, len(values))[0]
    return max(difference(found, told), beyond(np.abs(np.asarray(values) - indicator).max(), 1 / 4))


def cubes_of_nine_flags() -> float:
    """The full table, and nothing else, as the paper says."""
    found = price(flags(9), DataCube(ways=2), epsilon=1).rows()
    return float(len(found) != 1 or found[0]["answers"] != 2**9)


def eigen_strategy() -> float:
    """The expected error of the strategy, by dense algebra, against trace(W A⁺ A⁺ᵀ Wᵀ)."""
    gram = expected_errors.marginal_workload_gram([2] * 4, 2)
    strategy = eigen_design(gram)
    inverse = np.linalg.pinv(strategy)
    dense = 2 * np.trace(inverse.T @ gram @ inverse) * np.abs(strategy).sum(axis=0).max() ** 2 / math.comb(4, 2)
    return abs(expected_errors.expected_marginal_error([2] * 4, 2, strategy="eigen") / dense - 1)


def rounds_of_mwem() -> float:
    return difference(expected_errors.marginal_rounds(9), 15)


def markov_chains() -> float:
    """Shares of ones after each number of ones among the last i, against 0.5 + (1 − 2s/i)/4, within four deviations."""
    order, records = 2, markov_chain(2, rows=4000)
    bits = records.columns
    before = bits[10 : 10 + order].sum(axis=0)
    after, excess = bits[10 + order], 0.0
    for s in range(order + 1):
        share, chosen = 0.5 + (1 - 2 * s / order) / 4, before == s
        excess = max(excess, beyond(abs(after[chosen].mean() - share), 4 * math.sqrt(0.25 / chosen.sum())))
    return excess


STAND_INS = "Kosarak is resampled from a part of it, and the set of AOL's size is generated."
PRINTED, DENSE, LP = "the printed numbers", "dense algebra", "linear programme (HiGHS)"
ERRORS, MARGINALS = "benchmarks.reproduce.qardaji2014.expected_errors", "consilience.marginals"
PLANS, PUBLISHED = "consilience.plans", "consilience.estimators.published"

PAPER = Paper(
    "Qardaji, Yang and Li (2014): PriView",
    (
        Item("Equation (1) (Jensen–Shannon)", "benchmarks.reproduce.qardaji2014.errors.divergences", "scipy",
             divergence, 1e-9),
        Item("Error distance (section 2)", "benchmarks.reproduce.qardaji2014.errors.distances", "its formula",
             error_distance, 1e-12),
        Item("Equation (2)", f"{ERRORS}.unit_variance", "numerical integral", laplace_variance, 1e-6),
        Item("Equation (3) (Flat)", f"{ERRORS}.flat_error", "the plan's own noise, summed up", flat_errors, 1e-6),
        Item("Equation (4) (Direct)", f"{ERRORS}.direct_error", "the plan's own noise, summed up", direct_errors, 1e-6),
        Item("Table of section 3.2 (Direct better than Flat)", f"{ERRORS}.direct_beats_flat_from", PRINTED,
             direct_beats_flat, 0.0),
        Item("Section 3.3, number of coefficients", f"{PLANS}.published.marginals.fourier_coefficients", "its sum",
             fourier_coefficients, 0.0),
        Item("Section 3.3, error of Fourier", f"{ERRORS}.fourier_error", DENSE, fourier_error, 1e-9,
             "the paper divides Direct's error by 2^k, which leaves out the coefficients of fewer than k attributes; "
             "here "
             "all of them are counted."),
        Item("Section 4.1, example d = 16, k = 2", f"{ERRORS}.expected_squared_error", PRINTED, middle_ground, 1e-12,
             "2² · 6² · 2⁶ is 9,216; the paper prints 9,126."),
        Item("Step 2 (noisy views)", f"{PLANS}.Views", "w/ε", noise_of_views, 1e-6),
        Item("Linear programming (section 4.3)", f"{MARGINALS}.reconstruction.linear_programme_table", LP,
             by_linear_programme, 1e-6),
        Item("Least squares (section 4.3)", f"{MARGINALS}.reconstruction.least_squares_table", "active sets (nnls)",
             by_least_squares, 1e-6),
        Item("Maximum entropy (section 4.3)", f"{MARGINALS}.reconstruction.greatest_entropy_table",
             "convex solver (scipy)", by_entropy, 1e-6),
        Item("Definition 2 (view consistency)", f"{MARGINALS}.consistency.ViewConsistency", "all pairs of views",
             views_agree, 1e-9),
        Item("Worked example of section 4.4", f"{MARGINALS}.consistency.ViewConsistency", PRINTED, worked_example,
             1e-12),
        Item("Lemma 1", f"{MARGINALS}.consistency.ViewConsistency", "mutual consistency, written out", lemma_1, 1e-9),
        Item("Overall consistency", f"{MARGINALS}.consistency.ViewConsistency", "step by step over the closure",
             overall_consistency, 1e-9),
        Item("Any topological order gives the same", f"{MARGINALS}.consistency.ViewConsistency", "another order",
             any_topological_order, 1e-9),
        Item("Ripple", f"{MARGINALS}.nonnegativity.ripple", "its definition, cell by cell", lambda: ripples((2,) * 6),
             1e-9),
        Item("Ripple for categorical attributes (section 4.7)", f"{MARGINALS}.nonnegativity.ripple",
             "its definition, cell by cell",
             lambda: ripples((2, 3, 4)), 1e-9),
        Item("Consistency + Ripple + Consistency", f"{MARGINALS}.nonnegativity.nonnegative_views", "the three steps",
             ripple_between_consistency, 1e-9),
        Item("None, Simple, Global (section 5.3)", f"{MARGINALS}.nonnegativity.without_negatives",
             "clipping and projection",
             other_corrections, 1e-9),
        Item("Definition 3 (covering design)", "consilience.coverings.designs.covering", "all sets, one by one",
             designs_cover, 0.0),
        Item("Sizes of the designs that the paper names", "consilience.coverings.designs.covering_size", PRINTED,
             design_sizes, 0.0,
             "of triples of 45 attributes 333 views here, 326 in the repository that the paper took them from."),
        Item("Table of ℓ (section 4.5)", f"{ERRORS}.block_criterion", PRINTED, block_sizes, 1e-3),
        Item("Equation (5) and the table for Kosarak", f"{ERRORS}.view_noise_error",
             "its formula, and the printed numbers", noise_error, 1e-12,
             "0.00047 as in the paper's table; its text says 0.00045."),
        Item("Table of s for categorical attributes (section 4.7)", f"{PLANS}.views.choose_design", "the formula",
             categorical_sizes, 0.0),
        Item("Flat", f"{PLANS}.Flat", "equation (3)", flat_errors, 1e-6),
        Item("Direct", f"{PLANS}.Marginals", "equation (4)", direct_errors, 1e-6),
        Item("Fourier", f"{PUBLISHED}.fourier.Fourier", "exact marginals, without noise", fourier_reconstruction, 1e-6),
        Item("FourierLP", f"{PUBLISHED}.fourier.nearest_table", LP, fourier_linear_programme, 1e-6),
        Item("Data cubes", f"{PLANS}.DataCube", "the full table, as the paper says", cubes_of_nine_flags, 0.0),
        Item("Matrix mechanism, approximated as in Li and Miklau",
             "consilience.strategies.attribute_strategies.eigen_design", DENSE, eigen_strategy, 1e-6),
        Item("MWEM, number of rounds", f"{ERRORS}.marginal_rounds", PRINTED, rounds_of_mwem, 0.0),
        Item("Learning", f"{PUBLISHED}.learning.Learning", "its polynomial, summed over all records",
             learning_polynomial, 1e-6),
        Item("Uniform", f"{PUBLISHED}.uniform.Uniform", "equal cells", uniform_tables, 1e-6),
        Item("MCHAIN", "benchmarks.problems.flags.markov_chain", "its formula, within four deviations", markov_chains,
             1e-9),
        Reproduced("Table of section 3.2", "qardaji2014-table-flat-direct"),
        Reproduced("Table of section 4.5", "qardaji2014-table-views"),
        Reproduced("Table of section 4.6 (times)", "qardaji2014-table-times", differs=STAND_INS),
        Reproduced("Figure 1", "qardaji2014-figure-1"),
        Reproduced("Figure 2, L2 error", "qardaji2014-figure-2", differs=STAND_INS),
        Reproduced("Figure 2, divergence", "qardaji2014-figure-2-divergence", differs=STAND_INS),
        Reproduced("Figure 3", "qardaji2014-figure-3", differs=STAND_INS),
        Reproduced("Figure 4", "qardaji2014-figure-4", differs=STAND_INS),
        Reproduced("Figure 5", "qardaji2014-figure-5", differs="the number of records is ours."),
        Reproduced("Figure 6", "qardaji2014-figure-6", differs=STAND_INS),
    ),
)  # fmt: skip


@checked(PAPER)
def test_every_item_is_where_it_is_said_to_be_and_equals_its_twin(item: Item) -> None:
    assert_true(item)
