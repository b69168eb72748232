"""Fits that stop where their estimated error is least."""

import itertools
import math

import numpy as np
import pytest

from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, Kronecker, PrefixMap, SumMap
from consilience.marginals.least_squares import NoisyProduct, one_way_shares, summing_combination
from consilience.models.fitting.least_risk import (
    LeastRiskFit,
    estimated_risk,
    fit_least_risk,
    free_numbers,
    risk_of_optimum,
)
from consilience.models.fitting.objective import MeasuredQuery, MeasuredRows
from consilience.models.junction_trees import junction_tree
from consilience.models.model import independent_marginals, independent_potentials
from consilience.models.oracle import MarginalOracle

SIZES = (3, 4, 5, 4)
SCOPES = ((0, 1, 2), (1, 2, 3))
LAWS = {
    "laplace": lambda rng, size: rng.laplace(0.0, np.sqrt(0.5), size),
    "gaussian": lambda rng, size: rng.normal(0.0, 1.0, size),
}


def problem(total: float, seed: int = 0, strength: float = 1.0) -> tuple[MarginalOracle, np.ndarray]:
    """An oracle and the marginals of a model whose attributes depend on each other."""
    rng = np.random.default_rng(seed)
    oracle = MarginalOracle(junction_tree(SIZES, SCOPES), SCOPES, total=total)
    return oracle, oracle.marginals(strength * rng.normal(size=oracle.layout.size)).values.copy()


def whole(oracle: MarginalOracle, weight: float) -> MeasuredRows:
    layout = oracle.layout
    queries = [
        MeasuredQuery(k, axes, np.full(int(np.prod([SIZES[a] for a in axes])), weight))
        for k, axes in enumerate(layout.axes)
    ]
    return MeasuredRows(layout, queries)


@pytest.mark.parametrize(("law", "accepted"), [("laplace", True), ("gaussian", False)])
def test_the_identity_behind_kappa_holds_for_its_own_law_alone(law: str, accepted: bool) -> None:
    noise = LAWS[law](np.random.default_rng(1), 2_000_000)
    for move, slope in ((np.tanh, lambda x: 1 / np.cosh(x) ** 2), (lambda x: x**3, lambda x: 3 * x**2)):
        terms = noise * move(noise) - (0.5 + np.abs(noise) / np.sqrt(2.0)) * slope(noise)
        assert (abs(terms.mean()) < 4 * terms.std() / np.sqrt(noise.size)) == accepted


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("fit", ["shrunk", "cut off", "even"])
def test_the_estimated_risk_is_the_error_on_average(law: str, fit: str) -> None:
    rules = {
        "shrunk": lambda c: 0.4 * c,
        "cut off": lambda c: np.sign(c) * np.maximum(np.abs(c) - 1.0, 0.0),
        "even": lambda c: 0.8 * c + 0.2 * c.mean(),
    }
    rng = np.random.default_rng(2)
    truth = np.where(rng.random(4_000) < 0.8, 0.0, 5.0)
    differences = {"own": [], "other": []}
    for _ in range(60):
        noise = LAWS[law](rng, truth.size)
        nudge = 0.05 * rng.choice([-1.0, 1.0], truth.size)
        fitted = rules[fit](truth + noise)
        move = rules[fit](truth + noise + nudge) - fitted
        error = float(np.sum((fitted - truth) ** 2))
        # ‖ε‖² − n has mean 0 and only adds to the spread, so it is taken out.
        constant = float(noise @ noise) - noise.size
        for name, laplace in (("own", law == "laplace"), ("other", law != "laplace")):
            marks = np.full(truth.size, laplace)
            risk, _ = estimated_risk(truth + noise - fitted, marks, [nudge], [move])
            differences[name].append((risk - constant) / error - 1.0)
    assert abs(np.mean(differences["own"])) < 0.1
    if fit == "cut off":
        assert abs(np.mean(differences["other"])) > 0.15, differences["other"][:5]


def test_the_fit_of_least_risk_is_closer_to_the_truth_than_the_optimum() -> None:
    oracle, truth = problem(300.0, seed=3, strength=0.5)
    rows, weight = whole(oracle, 0.2), 0.2
    stopped, optimal = [], []
    for seed in range(6):
        observed = truth * weight + np.random.default_rng(seed).laplace(0, np.sqrt(0.5), truth.size)
        shares = one_way_shares(
            [
                NoisyProduct(
                    oracle.layout.axes[k],
                    tuple(IdentityMap(SIZES[a]) for a in oracle.layout.axes[k]),
                    observed[part] / weight,
                    25.0,
                )
                for k, part in enumerate(oracle.layout.slices)
            ]
        )
        start = independent_potentials(oracle.layout, shares)
        fit = fit_least_risk(oracle, rows, observed, np.ones(truth.size, dtype=bool), start=start)
        assert not fit.limited
        assert 0 <= fit.best_step <= fit.steps
        stopped.append(np.sum((fit.marginals - truth) ** 2))
        potentials = np.zeros(oracle.layout.size)
        for _ in range(600):
            gradient = rows.adjoint(rows.apply(oracle.marginals(potentials).values) - observed)
            potentials = potentials - 0.02 * gradient
        optimal.append(np.sum((oracle.marginals(potentials).values - truth) ** 2))
    assert np.mean(stopped) < 0.95 * np.mean(optimal)


def shrinking(observed: np.ndarray, fitted: np.ndarray, share: float) -> LeastRiskFit:
    """A fit whose rows are a share of the optimum's, `fitted`, as 16 twins judge it; their projection has rank 40."""
    nothing = np.zeros(1)
    residual, noise = observed - share * fitted, np.random.default_rng(3).normal(0.0, 1.0, 16)
    followed = tuple(share * (40.0 + noise))
    risk = float(residual @ residual) - residual.size + 2.0 * share * 40.0
    return LeastRiskFit(nothing, nothing, risk, share * 40.0, 1, 1, 1.0, 1, 0.0, False, False, followed)


@pytest.mark.parametrize(("strength", "optimum_wins"), [(0.0, False), (0.3, False), (4.0, True)])
def test_the_optimum_is_preferred_where_there_is_more_to_learn_than_noise(strength: float, optimum_wins: bool) -> None:
    rng = np.random.default_rng(4)
    basis = np.linalg.qr(rng.normal(size=(400, 40)))[0]
    truth, gaussian = basis @ np.full(40, strength), np.zeros(400, dtype=bool)
    wins, differences = [], []
    for _ in range(20):
        observed = truth + rng.normal(size=400)
        fitted = basis @ (basis.T @ observed)
        fit = shrinking(observed, fitted, 0.5)
        risk = risk_of_optimum(fit, fitted, lambda moved: basis @ (basis.T @ moved), observed, gaussian)
        wins.append(risk < fit.risk)
        differences.append(risk - fit.risk - np.sum((fitted - truth) ** 2) + np.sum((0.5 * fitted - truth) ** 2))
    assert np.mean(wins) == optimum_wins
    assert abs(np.mean(differences)) < 20.0


def test_the_error_of_an_optimum_that_was_not_found_is_unknown() -> None:
    observed = np.zeros(400)
    fit = shrinking(observed, observed, 0.5)
    assert math.isnan(risk_of_optimum(fit, observed, lambda _: None, observed, np.zeros(400, dtype=bool)))


@pytest.mark.parametrize(
    "scopes", [[(0,)], [(0, 1, 2), (1, 2, 3)], [(0, 1), (1, 2), (0, 2), (3,)], [(2, 0), (0, 2), (0,), (1, 3)]]
)
def test_free_numbers_are_the_rank_of_all_marginals_without_the_total(scopes: list[tuple[int, ...]]) -> None:
    cells = np.eye(math.prod(SIZES)).reshape(*SIZES, -1)
    rows = [cells.sum(tuple(set(range(4)) - set(scope))).reshape(-1, cells.shape[-1]) for scope in scopes]
    assert free_numbers(scopes, SIZES) == np.linalg.matrix_rank(np.concatenate(rows)) - 1


def test_free_numbers_of_very_many_attributes_are_bounded_without_counting_all_sets() -> None:
    scopes = list(itertools.combinations(range(22), 21))
    assert free_numbers(scopes, (2,) * 22) == 22 * 2**21


def test_a_search_ends_where_all_the_noise_there_is_has_been_taken_in() -> None:
    oracle, truth = problem(1e6)
    rows = whole(oracle, 1.0)
    observed = truth + np.random.default_rng(0).normal(size=truth.size)
    gaussian, start = np.zeros(truth.size, dtype=bool), np.zeros(oracle.layout.size)
    most = free_numbers(SCOPES, SIZES)
    fit = fit_least_risk(oracle, rows, observed, gaussian, start=start, most=0.5 * most)
    assert fit.full
    assert fit.freedom >= 0.5 * most
    assert not fit_least_risk(oracle, rows, observed, gaussian, start=start, max_steps=20).full


def test_a_fit_is_the_same_with_the_same_seed_and_says_when_it_ran_out_of_steps() -> None:
    oracle, truth = problem(200.0)
    rows = whole(oracle, 1.0)
    observed = truth + np.random.default_rng(0).normal(size=truth.size)
    gaussian = np.zeros(truth.size, dtype=bool)
    start = np.zeros(oracle.layout.size)
    told: list[int] = []
    first, second = (
        fit_least_risk(
            oracle, rows, observed, gaussian, start=start, max_steps=3, progress=lambda done, *_: told.append(done)
        )
        for _ in range(2)
    )
    assert np.array_equal(first.potentials, second.potentials)
    assert first.limited
    assert first.steps == 3
    assert told == [1, 2, 3] * 2


def test_one_way_counts_are_unbiased_for_every_kind_of_factor() -> None:
    rng = np.random.default_rng(5)
    table = rng.poisson(40.0, (3, 4, 5)).astype(float)
    maps = (PrefixMap(3), AllRangesMap(4), IdentityMap(5))
    exact = Kronecker(maps).apply(table)
    shares = one_way_shares([NoisyProduct((7, 2, 4), maps, exact.ravel(), 1e-12)])
    for place, attribute in enumerate((7, 2, 4)):
        counts = table.sum(axis=tuple(axis for axis in range(3) if axis != place))
        assert shares[attribute] == pytest.approx(counts / counts.sum())


def test_one_way_counts_are_averaged_by_precision_and_stay_positive() -> None:
    exact = NoisyProduct((0,), (IdentityMap(2),), np.array([30.0, -10.0]), 1.0)
    vague = NoisyProduct((0,), (IdentityMap(2),), np.array([1e6, 1e6]), 1e16)
    shares = one_way_shares([exact, vague])[0]
    assert shares.min() > 0
    assert shares == pytest.approx([30 / 30.2, 0.2 / 30.2], rel=1e-3)


def test_answers_that_do_not_tell_the_counts_are_left_out() -> None:
    assert summing_combination(SumMap(4)) is not None
    product = NoisyProduct((0, 1), (IdentityMap(2), SumMap(3)), np.array([3.0, 5.0]), 1.0)
    assert set(one_way_shares([product])) == {0}


@pytest.mark.parametrize("told", [(0, 1, 2, 3), (1, 3), ()])
def test_the_independent_model_has_the_given_shares_and_is_uniform_otherwise(told: tuple[int, ...]) -> None:
    oracle, _ = problem(60.0)
    rng = np.random.default_rng(0)
    every = {a: rng.dirichlet(np.ones(size)) if a in told else np.full(size, 1 / size) for a, size in enumerate(SIZES)}
    shares = {a: every[a] for a in told}
    from_potentials = oracle.marginals(independent_potentials(oracle.layout, shares)).values
    for flat in (from_potentials, independent_marginals(oracle.layout, shares, 60.0)):
        for scope, table in zip(SCOPES, oracle.layout.unpack(flat), strict=True):
            expected = 60.0 * np.einsum("i,j,k->ijk", *(every[a] for a in scope))
            assert table == pytest.approx(expected)
