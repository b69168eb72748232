"""Strategies for products: dense algebra, published errors, and what each kind of strategy is good for."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.strategy_errors import strategy_error
from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.linear_maps import AllRangesMap, PrefixMap
from consilience.strategies.attribute_strategies import (
    AttributeStrategy,
    ProductTerm,
    ProductWorkload,
    attribute_strategy,
    column_norm,
    gram_matrix,
)
from consilience.strategies.high_dimensional import (
    ProductStrategy,
    _Problem,
    best_strategy,
    energies,
    marginal_strategy,
    product_strategy,
    union_strategy,
)
from consilience.strategies.residual_noise import residual_noise

# Root mean squared errors under Gaussian noise at ρ = ½ that the authors of HDMM give with their software, n = 256: the
# cells, the binary tree, the Haar wavelet, their optimised strategy, and the lower bound by singular values.
PUBLISHED = {
    "ranges": (AllRangesMap, 256 * 257 / 2, [9.273618, 3.835364, 3.505013], 2.902169, 2.876359),
    "prefix": (PrefixMap, 256, [11.335784, 3.102237, 3.085060], 2.528223, 2.471446),
}


def tree(size: int) -> np.ndarray:
    widths = [2**k for k in range(size.bit_length())]
    return np.concatenate([np.kron(np.eye(size // width), np.ones(width)) for width in widths])


def haar(size: int) -> np.ndarray:
    widths = [2**k for k in range(1, size.bit_length())]
    halves = [np.kron(np.eye(size // width), np.repeat([1.0, -1.0], width // 2)) for width in widths]
    return np.concatenate([np.ones((1, size)), *halves])


def one_attribute(gram: np.ndarray) -> ProductWorkload:
    return ProductWorkload((len(gram),), (ProductTerm(1.0, {0: gram}),))


def marginals(sizes, ways: int) -> ProductWorkload:
    scopes = itertools.combinations(range(len(sizes)), ways)
    return ProductWorkload(
        tuple(sizes), tuple(ProductTerm(1.0, {i: np.eye(sizes[i]) for i in scope}) for scope in scopes)
    )


def mixed() -> ProductWorkload:
    prefix, ranges = gram_matrix(PrefixMap(4)), gram_matrix(AllRangesMap(3))
    terms = [
        ProductTerm(1.0, {0: prefix, 1: np.eye(3)}),
        ProductTerm(2.0, {1: ranges}),
        ProductTerm(0.5, {2: np.eye(2)}),
    ]
    return ProductWorkload((4, 3, 2), tuple(terms))


def dense_gram(workload: ProductWorkload) -> np.ndarray:
    found = 0.0
    for term in workload.terms:
        product = np.array([[term.weight]])
        for place, size in enumerate(workload.sizes):
            product = np.kron(product, term.grams.get(place, np.ones((size, size))))
        found = found + product
    return np.asarray(found)


def dense_strategy(strategy: ProductStrategy, sizes) -> np.ndarray:
    found = np.ones((1, 1))
    for place, size in enumerate(sizes):
        each = strategy.strategies.get(place)
        found = np.kron(found, np.ones((1, size)) if each is None else each.dense())
    return found


def dense_stack(chosen, sizes, norm: int) -> np.ndarray:
    """The parts one below the other, each divided by the size of its noise."""
    weights = [share if norm == 1 else math.sqrt(share) for share in chosen.shares]
    return np.concatenate([w * dense_strategy(part, sizes) for w, part in zip(weights, chosen.parts, strict=True)])


@pytest.mark.parametrize("name", PUBLISHED)
def test_errors_for_256_values_are_those_published(name: str) -> None:
    make, queries, textbook, optimised, bound = PUBLISHED[name]
    gram = gram_matrix(make(256))
    for strategy, error in zip((np.eye(256), tree(256), haar(256)), textbook, strict=True):
        assert math.sqrt(strategy_error(gram, strategy, norm=2) / queries) == pytest.approx(error, abs=1e-6)
    ours = math.sqrt(best_strategy(one_attribute(gram), norm=2).error / queries)
    singular = np.sqrt(np.maximum(np.linalg.eigvalsh(gram), 0.0)).sum() ** 2 / 256
    assert math.sqrt(singular / queries) == pytest.approx(bound, abs=1e-6)
    assert bound < ours <= optimised


def _laplace_ratios(make, size: int) -> list[float]:
    """How many times the error of OPT₀ the cells, the tree and the wavelet have."""
    gram = gram_matrix(make(size))
    ours = best_strategy(one_attribute(gram), norm=1, operators=("product",)).error
    return [math.sqrt(strategy_error(gram, each, norm=1) / ours) for each in (np.eye(size), tree(size), haar(size))]


def test_optimised_strategies_beat_textbook_ones_under_laplace_noise() -> None:
    assert min(_laplace_ratios(PrefixMap, 64)) > 1.3
    cells, binary, wavelet = _laplace_ratios(AllRangesMap, 128)
    assert cells == pytest.approx(1.38, abs=0.01)
    assert min(binary, wavelet) > 1.8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "least"), [(AllRangesMap, (1.62, 2.0, 1.84)), (PrefixMap, (2.18, 1.79, 1.78))], ids=["ranges", "prefix"]
)
def test_optimised_strategies_beat_textbook_ones_at_256_values(make, least) -> None:
    assert all(found >= wanted for found, wanted in zip(_laplace_ratios(make, 256), least, strict=True))


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("make", [PrefixMap, AllRangesMap])
def test_attribute_strategies_have_sensitivity_one_and_the_dense_cost(make, norm) -> None:
    gram = gram_matrix(make(12))
    found = attribute_strategy(gram, norm=norm)
    matrix = found.dense()
    assert column_norm(matrix, norm=norm) == pytest.approx(1.0)
    assert found.cost(gram) * (2 if norm == 1 else 1) == pytest.approx(strategy_error(gram, matrix, norm=norm))
    assert found.cost(None) == pytest.approx(np.linalg.inv(matrix.T @ matrix).sum())
    assert found.cost(gram) <= np.trace(gram)  # few values may be best told one by one


def test_a_total_cannot_answer_for_cells() -> None:
    total = AttributeStrategy(3, is_total=True)
    assert total.cost(None) == 1.0
    assert total.cost(2.0 * np.ones((3, 3))) == 2.0
    assert total.cost(np.eye(3)) == math.inf


@pytest.mark.parametrize("norm", [1, 2])
def test_products_cost_what_dense_algebra_says(norm) -> None:
    workload = mixed()
    found = product_strategy(workload, norm=norm)
    strategy = dense_strategy(found, workload.sizes)
    assert column_norm(strategy, norm=norm) == pytest.approx(1.0)
    expected = strategy_error(dense_gram(workload), strategy, norm=norm)
    assert found.cost(workload) * (2 if norm == 1 else 1) == pytest.approx(expected)
    cells = ProductStrategy({place: AttributeStrategy(size) for place, size in enumerate(workload.sizes)})
    assert found.cost(workload) <= cells.cost(workload)


def test_one_product_is_optimised_attribute_by_attribute() -> None:
    prefix, ranges = gram_matrix(PrefixMap(16)), gram_matrix(AllRangesMap(8))
    workload = ProductWorkload((16, 8), (ProductTerm(3.0, {0: prefix, 1: ranges}),))
    alone = [attribute_strategy(gram, norm=1).cost(gram) for gram in (prefix, ranges)]
    assert product_strategy(workload, norm=1).cost(workload) == pytest.approx(3.0 * alone[0] * alone[1])


@pytest.mark.parametrize("norm", [1, 2])
def test_shares_of_a_union_are_the_best_ones(norm) -> None:
    prefix = gram_matrix(PrefixMap(6))
    workload = ProductWorkload((6, 5), (ProductTerm(1.0, {0: prefix}), ProductTerm(9.0, {1: np.eye(5)})))
    found = union_strategy(workload, norm=norm, most_cells=1)
    costs = [part.cost(group) for part, group in zip(found.parts, workload.by_scope(), strict=True)]
    power = 2 if norm == 1 else 1

    def error(share: float) -> float:
        return costs[0] / share**power + costs[1] / (1 - share) ** power

    unit = 2 if norm == 1 else 1
    assert found.error == pytest.approx(unit * error(found.shares[0]))
    assert found.error <= unit * min(error(share) for share in np.linspace(0.01, 0.99, 99)) * (1 + 1e-9)


@pytest.mark.parametrize("norm", [1, 2])
def test_groups_are_joined_where_that_is_better(norm) -> None:
    """The cells of a pair tell the pair and its parts; measured apart, they share the budget."""
    nested = ProductWorkload(
        (3, 3), (ProductTerm(1.0, {0: np.eye(3), 1: np.eye(3)}), ProductTerm(1e-3, {0: np.eye(3)}))
    )
    joined = union_strategy(nested, norm=norm, most_cells=100)
    apart = union_strategy(nested, norm=norm, most_cells=8)
    assert len(joined.parts) == 1
    assert len(apart.parts) == 2
    assert joined.error < apart.error


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("operator", ["product", "union", "marginals"])
@pytest.mark.parametrize("make", [mixed, lambda: marginals((3, 2, 4), 2)], ids=["mixed", "pairs"])
def test_every_kind_has_the_error_of_dense_least_squares(make, operator, norm) -> None:
    workload = make()
    found = best_strategy(workload, norm=norm, operators=(operator,))
    stacked = dense_stack(found, workload.sizes, norm)
    assert column_norm(stacked, norm=norm) == pytest.approx(1.0)
    error = strategy_error(dense_gram(workload), stacked, norm=norm)
    if operator == "union":
        assert error <= found.error * (1 + 1e-9)
    else:
        assert error == pytest.approx(found.error, rel=1e-6)


def test_the_best_of_all_kinds_is_taken() -> None:
    workload = mixed()
    found = best_strategy(workload, norm=1)
    assert found.error == min(error for _, error in found.considered)
    assert {operator for operator, _ in found.considered} == {"product", "union", "marginals"}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(2, 4), min_size=1, max_size=3), st.sampled_from([1, 2]), st.integers(0, 99))
def test_weighted_marginals_cost_what_dense_algebra_says(sizes, norm, seed) -> None:
    rng = np.random.default_rng(seed)
    masks = list(itertools.product([False, True], repeat=len(sizes)))
    grams = [rng.normal(size=(2, size)) for size in sizes]
    terms = (
        ProductTerm(1.5, {place: rows.T @ rows for place, rows in enumerate(grams)}),
        ProductTerm(0.5, {0: np.eye(sizes[0])}),
    )
    workload = ProductWorkload(tuple(sizes), terms)
    problem = _Problem(sizes, energies(workload), norm, 10**6)
    theta = rng.random(len(masks)) + 0.1
    rows = []
    for number in range(len(masks)):
        kept = {bit: AttributeStrategy(size) for bit, size in enumerate(sizes) if number >> bit & 1}
        rows.append(theta[number] * dense_strategy(ProductStrategy(kept), sizes))
    error = strategy_error(dense_gram(workload), np.concatenate(rows), norm=norm)
    assert problem.cost(theta) * (2 if norm == 1 else 1) == pytest.approx(error)
    value, gradient = problem.objective(theta)
    for place in range(len(theta)):
        step = np.zeros_like(theta)
        step[place] = 1e-6
        slope = (problem.objective(theta + step)[0] - problem.objective(theta - step)[0]) / 2e-6
        assert gradient[place] == pytest.approx(slope, rel=1e-4, abs=1e-5 * value)


@pytest.mark.parametrize(("sizes", "ways"), [((2,) * 6, 2), ((10,) * 4, 2), ((2, 3, 4, 5), 3)])
def test_weighted_marginals_lie_between_the_best_mechanism_and_equal_noise(sizes, ways) -> None:
    """Of all strategies that are marginals, none beats ResidualPlanner, and the best is no worse than equal shares."""
    workload = marginals(sizes, ways)
    found = marginal_strategy(workload, norm=2, most_cells=10**6)
    assert found is not None
    scopes = {term.scope: 1.0 for term in workload.terms}
    least = residual_noise(sizes, scopes).objective
    equal = len(scopes) * sum(math.prod(sizes[place] for place in scope) for scope in scopes)
    assert least * (1 - 1e-9) <= found.error <= equal


def test_nine_flags_are_best_told_by_the_full_table_under_laplace_noise() -> None:
    found = best_strategy(marginals((2,) * 9, 2), norm=1, operators=("marginals",))
    assert found.error == pytest.approx(36 * 2 * 2**9)
    assert len(found.parts) == 1


def test_tables_stay_within_the_cells_allowed() -> None:
    workload = marginals((10, 10, 10), 2)
    found = best_strategy(workload, norm=1, most_cells=100)
    assert all(math.prod(each.size for each in part.strategies.values()) <= 100 for part in found.parts)
    with pytest.raises(TooLarge):
        best_strategy(workload, norm=1, most_cells=99)
    with pytest.raises(TooLarge):
        best_strategy(workload, norm=1, most_cells=100, operators=("product",))


def test_what_is_no_workload_or_operator_is_refused() -> None:
    with pytest.raises(DeclarationError):
        ProductWorkload((2,), ())
    with pytest.raises(DeclarationError):
        best_strategy(marginals((2, 2), 1), norm=1, operators=("best",))  # type: ignore[arg-type]
    assert marginal_strategy(marginals((2,) * 13, 1), norm=1, most_cells=10**6) is None


def test_the_total_alone_is_a_workload() -> None:
    found = best_strategy(ProductWorkload((3, 4), (ProductTerm(1.0, {}),)), norm=1)
    assert found.error == pytest.approx(2.0)
