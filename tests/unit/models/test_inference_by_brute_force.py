"""Marginals, factored queries and conditionals equal sums over the whole table, on random models of every shape."""

import itertools
import math
from dataclasses import dataclass, field

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings

from consilience.errors import DeclarationError, TooLarge
from consilience.kernels.linear_maps import AllRangesMap, IdentityMap, LinearMap, PrefixMap, SparseMap, SumMap
from consilience.kernels.transforms import FourierMap
from consilience.models import tables as scaled_tables
from consilience.models.elimination import CalibratedModel
from consilience.models.factored_queries import (
    FactoredQuery,
    answer,
    answer_many,
    conditional,
)
from consilience.models.model import GraphicalModel
from consilience.models.tables import ScaledTable

EXAMPLES = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Case:
    """A model, and the whole table it stands for."""

    model: GraphicalModel
    joint: np.ndarray = field(repr=False)
    log_partition: float
    rng: np.random.Generator

    def some_attributes(self, most: int = 99) -> tuple[int, ...]:
        d = len(self.model.sizes)
        return tuple(self.rng.permutation(d)[: self.rng.integers(0, min(d, most) + 1)].tolist())

    def marginal(self, attributes: tuple[int, ...]) -> np.ndarray:
        summed = self.joint.sum(axis=tuple(a for a in range(self.joint.ndim) if a not in attributes))
        return summed.transpose([sorted(attributes).index(a) for a in attributes])

    def answers(self, query: FactoredQuery) -> np.ndarray:
        table = self.marginal(query.attributes)
        for axis, each in enumerate(query.maps):
            table = np.moveaxis(np.tensordot(each.dense(), table, axes=(1, axis)), 0, axis)
        return table

    def log_potential(self, record: tuple[int, ...]) -> float:
        return sum(float(table[tuple(record[a] for a in scope)]) for scope, table in self.model.logs())


def brute_force(model: GraphicalModel, rng: np.random.Generator) -> Case:
    logs = np.zeros(model.sizes)
    for scope, table in model.logs():
        shape = [model.sizes[a] if a in scope else 1 for a in range(len(model.sizes))]
        logs = logs + table.transpose(np.argsort(scope)).reshape(shape)
    peak = logs.max()
    joint = np.exp(logs - peak)
    return Case(model, joint * (model.total / joint.sum()), float(peak + math.log(joint.sum())), rng)


def random_scopes(shape: str, d: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Scopes of the shape that is named, each with its attributes in random order."""
    if shape == "tree":
        scopes = [(child, int(rng.integers(0, child))) for child in range(1, d)]
    elif shape == "cycle":
        scopes = [(a, (a + 1) % d) for a in range(d)] if d > 2 else [(0,)]
    elif shape == "disconnected":
        scopes = [tuple(range(d // 2)), tuple(range(d // 2, d))]
    elif shape == "singletons":
        scopes = [(a,) for a in range(d) if rng.random() < 0.7]
    elif shape == "nested":
        whole = tuple(rng.permutation(d)[:3].tolist())
        scopes = [whole[:k] for k in range(1, len(whole) + 1)] + [tuple(range(d))[-2:]]
    else:
        scopes = [tuple(rng.permutation(d)[: rng.integers(1, 4)].tolist()) for _ in range(rng.integers(0, 6))]
    distinct = {frozenset(scope): scope for scope in scopes if scope}
    return [tuple(rng.permutation(scope).tolist()) for scope in distinct.values()]


SHAPES = ("tree", "cycle", "disconnected", "singletons", "nested", "any")


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=6))
    scopes = random_scopes(draw(st.sampled_from(SHAPES)), len(sizes), rng)
    spread = draw(st.sampled_from([0.3, 3.0, 200.0, 5000.0]))
    tables = [spread * rng.normal(size=[sizes[a] for a in scope]) for scope in scopes]
    if draw(st.booleans()):
        for table in tables:
            table[rng.random(table.shape) < 0.2] = -np.inf
            table.flat[0] = 0.0
    allowed = []
    if scopes and draw(st.booleans()):
        possible = rng.random([sizes[a] for a in scopes[0]]) < 0.7
        possible.flat[0] = True
        allowed = [(scopes[0], possible)]
    total = draw(st.sampled_from([1.0, 48842.0]))
    return brute_force(GraphicalModel.of(sizes, scopes, tables, total=total, allowed=allowed), rng)


def random_map(size: int, rng: np.random.Generator) -> LinearMap:
    matrix = rng.normal(size=(int(rng.integers(1, 5)), size)) * (rng.random((1, size)) < 0.8)
    buckets = np.zeros((2, size))
    buckets[rng.integers(0, 2, size), np.arange(size)] = 1.0
    moments = np.arange(size) ** np.arange(1, 4)[:, None]
    one = np.zeros((1, size))
    one[0, rng.integers(0, size)] = 1.0
    explicit = [matrix, buckets, moments.astype(float), one, rng.random((1, size))]
    choices = [IdentityMap(size), SumMap(size), PrefixMap(size), AllRangesMap(size)]
    choices += [SparseMap(sp.csr_array(each)) for each in explicit]
    return choices[int(rng.integers(len(choices)))]


def random_query(case: Case, most: int = 99) -> FactoredQuery:
    return FactoredQuery.of({a: random_map(case.model.sizes[a], case.rng) for a in case.some_attributes(most)})


def close(found: np.ndarray, expected: np.ndarray, scale: float) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * scale)


@EXAMPLES
@given(cases())
def test_every_marginal_is_the_sum_over_the_whole_table(case: Case) -> None:
    calibrated = CalibratedModel(case.model)
    uniform = sum(math.log(case.model.sizes[a]) for a in case.model.unmodelled)
    assert calibrated.log_partition + uniform == pytest.approx(case.log_partition, rel=1e-12, abs=1e-9)
    for attributes in [(), *[case.some_attributes() for _ in range(6)], tuple(range(len(case.model.sizes)))]:
        close(calibrated.marginal(attributes), case.marginal(attributes), case.model.total)


@EXAMPLES
@given(cases())
def test_factored_queries_are_answered_as_on_the_whole_table(case: Case) -> None:
    calibrated = CalibratedModel(case.model)
    queries = [random_query(case) for _ in range(6)]
    together = answer_many(calibrated, queries)
    for query, shared in zip(queries, together, strict=True):
        expected = case.answers(query)
        largest = case.model.total * math.prod(max(each.largest_entry, float(each.rows)) for each in query.maps)
        close(answer(calibrated, query), expected, largest)
        close(shared, expected, largest)


@EXAMPLES
@given(cases())
def test_conditionals_are_ratios_of_sums_over_the_whole_table(case: Case) -> None:
    calibrated = CalibratedModel(case.model)
    query = random_query(case, most=3)
    sizes = case.model.sizes
    subset = {a: case.rng.random((1, sizes[a])) < 0.6 for a in case.some_attributes(2)}
    condition = FactoredQuery.of({a: SparseMap(sp.csr_array(row.astype(float))) for a, row in subset.items()})
    weighted = case.joint.copy()
    for a, row in subset.items():
        weighted *= row.reshape([-1 if axis == a else 1 for axis in range(len(sizes))])
    probability = weighted.sum()
    found = conditional(calibrated, query, condition, impossible="nan")
    if probability < 1e-200:
        # The sum over the whole table underflows here; the model's own answer may still be known.
        assert found.shape == query.shape
    else:
        expected = Case(case.model, weighted / probability, 0.0, case.rng).answers(query)
        largest = math.prod(max(each.largest_entry, float(each.rows)) for each in query.maps)
        close(found, expected, largest)


@EXAMPLES
@given(cases())
def test_log_probabilities_are_the_logarithms_of_the_cells(case: Case) -> None:
    calibrated = CalibratedModel(case.model)
    records = np.array(list(itertools.product(*map(range, case.model.sizes))))
    picked = records[case.rng.integers(0, len(records), 50)]
    expected = np.array([case.log_potential(tuple(record)) for record in picked]) - case.log_partition
    np.testing.assert_allclose(calibrated.log_probabilities(picked), expected, rtol=1e-9, atol=1e-8)
    assert calibrated.log_likelihood(picked) == pytest.approx(float(expected.sum()), rel=1e-9, abs=1e-7)


@settings(EXAMPLES, max_examples=40)
@given(cases())
def test_plain_numbers_and_logarithms_give_the_same_answers(case: Case) -> None:
    queries = [random_query(case, most=4) for _ in range(4)]
    plain = answer_many(CalibratedModel(case.model), queries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaled_tables, "LINEAR_SPAN", -1.0)
        in_logs = CalibratedModel(case.model)
        for query, expected in zip(queries, plain, strict=True):
            largest = case.model.total * math.prod(max(each.largest_entry, float(each.rows)) for each in query.maps)
            close(answer(in_logs, query), expected, largest)


def chain(length: int, size: int, spread: float = 1.0, seed: int = 0) -> GraphicalModel:
    rng = np.random.default_rng(seed)
    scopes = [(a, a + 1) for a in range(length - 1)]
    return GraphicalModel.of([size] * length, scopes, [spread * rng.normal(size=(size, size)) for _ in scopes])


def evidence_of(values: dict[int, int], sizes: tuple[int, ...]) -> FactoredQuery:
    """The query whose one answer is the expected number of records in which these attributes have these values."""
    return FactoredQuery.of({a: SparseMap(sp.csr_array(np.eye(sizes[a])[[value]])) for a, value in values.items()})


@pytest.mark.slow
def test_the_evidence_of_a_thousand_attributes_has_a_log_probability() -> None:
    model = chain(1000, 4, spread=2.0)
    record = np.random.default_rng(1).integers(0, 4, (1, 1000))
    calibrated = CalibratedModel(model)
    values = [ScaledTable.of_values((axis,), np.eye(4)[value]) for axis, value in enumerate(record[0])]
    found = calibrated.project((), evidence=values)
    assert found.log_scale < -800
    assert found.log_scale == pytest.approx(calibrated.log_probabilities(record)[0], rel=1e-11)
    assert answer(calibrated, evidence_of(dict(enumerate(record[0].tolist())), model.sizes)) == 0.0
    rest = FactoredQuery((0,), (IdentityMap(4),))
    given_rest = evidence_of(dict(enumerate(record[0, 1:].tolist(), start=1)), model.sizes)
    first = model.potentials[0][:, record[0, 1]]
    expected = np.exp(first - first.max())
    np.testing.assert_allclose(conditional(calibrated, rest, given_rest), expected / expected.sum(), rtol=1e-9)


def test_the_ends_of_a_chain_of_200_are_a_product_of_its_matrices() -> None:
    model = chain(200, 5, spread=300.0, seed=3)
    matrix = model.potentials[0]
    for table in model.potentials[1:]:
        matrix = np.logaddexp.reduce(matrix[:, :, None] + table[None], axis=1)
    expected = np.exp(matrix - np.logaddexp.reduce(matrix.ravel()))
    np.testing.assert_allclose(CalibratedModel(model).marginal((0, 199)), expected, rtol=1e-8, atol=1e-12)


def test_potentials_whose_peaks_exclude_each_other_leave_no_nan() -> None:
    steep = np.array([0.0, -2000.0, -1000.0])
    model = GraphicalModel.of([3, 2], [(0,), (0, 1)], [steep, (steep[::-1] * 1.0)[:, None] + np.array([0.0, 1.0])])
    logs = steep + steep[::-1]
    expected = np.exp(logs - np.logaddexp.reduce(logs))
    np.testing.assert_allclose(CalibratedModel(model).marginal((0,)), expected, rtol=1e-12)
    prefix = FactoredQuery((0, 1), (PrefixMap(3), SparseMap(sp.csr_array([[1.0, -1.0]]))))
    signed = np.exp([0.0, 1.0]) / np.exp([0.0, 1.0]).sum() @ [1.0, -1.0]
    np.testing.assert_allclose(answer(CalibratedModel(model), prefix)[:, 0], np.cumsum(expected) * signed, rtol=1e-12)


def test_a_star_with_many_leaves_has_short_paths_between_them() -> None:
    rng = np.random.default_rng(5)
    model = GraphicalModel.of([3] * 300, [(0, a) for a in range(1, 300)], list(rng.normal(size=(299, 3, 3))))
    calibrated = CalibratedModel(model)
    assert len(calibrated.forest.region({5, 290})) < 10
    leaf = [np.exp(table) for table in model.potentials]
    hub = np.prod([table.sum(axis=1) / 3 for table in leaf], axis=0)
    hub /= hub.sum()
    given_hub = [table / table.sum(axis=1, keepdims=True) for table in leaf]
    expected = np.einsum("h,ha,hb->ab", hub, given_hub[4], given_hub[289])
    np.testing.assert_allclose(calibrated.marginal((5, 290)), expected, rtol=1e-10)


def test_all_pairs_of_a_chain_share_their_work() -> None:
    calibrated = CalibratedModel(chain(40, 3))
    pairs = list(itertools.combinations(range(40), 2))
    together = answer_many(calibrated, [FactoredQuery(pair, (IdentityMap(3),) * 2) for pair in pairs])
    for pair, found in zip(pairs[::37], together[::37], strict=True):
        np.testing.assert_allclose(found, calibrated.marginal(pair), rtol=1e-10)


def test_queries_on_one_set_of_attributes_agree_with_each_alone() -> None:
    calibrated = CalibratedModel(chain(6, 7))
    queries = [
        FactoredQuery((0, 3, 5), maps)
        for maps in itertools.product([PrefixMap(7), IdentityMap(7)], [SumMap(7), AllRangesMap(7)], [PrefixMap(7)])
    ]
    queries.append(FactoredQuery((3, 5), (PrefixMap(7), PrefixMap(7))))
    for query, found in zip(queries, answer_many(calibrated, queries), strict=True):
        np.testing.assert_allclose(found, answer(calibrated, query), rtol=1e-10)


def test_fourier_coefficients_are_answered_like_any_map() -> None:
    sizes, rng = (5, 4), np.random.default_rng(2)
    model = GraphicalModel.of(sizes, [(0, 1)], [rng.normal(size=sizes)])
    case = brute_force(model, rng)
    query = FactoredQuery((1, 0), (PrefixMap(4), FourierMap.on_lattice(5, 3, 20)))
    np.testing.assert_allclose(answer(CalibratedModel(model), query), case.answers(query), atol=1e-9)


def test_a_marginal_that_cannot_fit_is_refused_with_both_numbers() -> None:
    calibrated = CalibratedModel(chain(60, 10))
    with pytest.raises(TooLarge, match=r"100,000,000,000 cells.*limit is 4 GB.*raise\s+memory_limit"):
        calibrated.marginal(tuple(range(0, 55, 5)))
    with pytest.raises(TooLarge, match="answers"):
        answer(calibrated, FactoredQuery.of({a: IdentityMap(10) for a in range(12)}))


def test_a_query_of_few_rows_fits_where_its_marginal_does_not() -> None:
    model = chain(60, 10)
    some = tuple(range(0, 55, 5))
    halves = SparseMap(sp.csr_array(np.repeat(np.eye(2), 5, axis=1)))
    found = answer(CalibratedModel(model), FactoredQuery(some, (halves,) * len(some)))
    assert found.shape == (2,) * 11
    assert found.sum() == pytest.approx(1.0, rel=1e-10)
    rest = found.sum(axis=tuple(range(2, 11)))
    expected = CalibratedModel(model).marginal((0, 5)).reshape(2, 5, 2, 5).sum(axis=(1, 3))
    np.testing.assert_allclose(rest, expected, rtol=1e-9)


def test_messages_that_cannot_fit_are_refused() -> None:
    scopes = list(itertools.combinations(range(9), 2))
    model = GraphicalModel.of([20] * 9, scopes, [np.zeros((20, 20))] * len(scopes))
    with pytest.raises(TooLarge, match="messages"):
        CalibratedModel(model)


def test_an_impossible_event_has_the_answer_zero_whatever_the_scale() -> None:
    tables = [np.array([0.0, -3000.0, -np.inf]), np.array([[-3000.0], [0.0], [0.0]]) + np.zeros(2)]
    calibrated = CalibratedModel(GraphicalModel.of([3, 2], [(0,), (0, 1)], tables))
    event = evidence_of({0: 2, 1: 0}, (3, 2))
    assert answer(calibrated, event) == 0.0


def test_an_impossible_condition_is_refused_or_answered_by_nan() -> None:
    model = GraphicalModel.of([2, 3], [(0, 1)], [np.array([[0.0, 1.0, -np.inf], [0.0, 0.0, -np.inf]])])
    calibrated = CalibratedModel(model)
    first = FactoredQuery((0,), (IdentityMap(2),))
    with pytest.raises(DeclarationError, match="probability 0"):
        conditional(calibrated, first, evidence_of({1: 2}, model.sizes))
    by_value = conditional(calibrated, first, FactoredQuery((1,), (IdentityMap(3),)), impossible="nan")
    assert np.isnan(by_value[:, 2]).all()
    np.testing.assert_allclose(by_value[:, :2].sum(axis=0), 1.0)
    assert calibrated.log_probabilities(np.array([[0, 2]]))[0] == -np.inf


def test_an_attribute_may_be_asked_for_and_restricted_at_once() -> None:
    model = chain(3, 4)
    calibrated = CalibratedModel(model)
    upper = FactoredQuery((0,), (SparseMap(sp.csr_array([[0.0, 0.0, 1.0, 1.0]])),))
    found = conditional(calibrated, FactoredQuery((0,), (PrefixMap(4),)), upper)
    own = calibrated.marginal((0,))[2:]
    np.testing.assert_allclose(found, [0.0, 0.0, own[0] / own.sum(), 1.0], atol=1e-12)
    with pytest.raises(DeclarationError, match="both asked for and given"):
        conditional(calibrated, FactoredQuery((0,), (PrefixMap(4),)), FactoredQuery((0,), (IdentityMap(4),)))


@pytest.mark.parametrize(
    ("scopes", "tables", "options", "message"),
    [
        ([(0, 1)], [np.zeros((2, 3))], {}, "shape"),
        ([(0,)], [[np.nan, 0.0]], {}, "NaN"),
        ([(0,)], [], {}, "one for each"),
        ([], [], {"total": -1.0}, "total"),
        ([], [], {"allowed": [((1,), [True])]}, "shape"),
    ],
)
def test_tables_that_do_not_fit_are_refused(scopes: list, tables: list, options: dict, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        GraphicalModel.of([2, 2], scopes, tables, **options)


def test_a_model_without_possible_records_is_refused() -> None:
    nothing = [np.array([0.0, -np.inf]), np.array([-np.inf, 0.0])]
    with pytest.raises(DeclarationError, match="possible"):
        CalibratedModel(GraphicalModel.of([2, 2], [(0,), (0, 1)], [nothing[0], nothing[1][:, None] + np.zeros(2)]))


def test_wrong_attributes_maps_and_codes_are_refused() -> None:
    calibrated = CalibratedModel(chain(3, 2))
    with pytest.raises(DeclarationError, match="name each once"):
        calibrated.marginal((0, 0))
    with pytest.raises(DeclarationError, match="3 columns"):
        answer(calibrated, FactoredQuery((0,), (PrefixMap(3),)))
    with pytest.raises(DeclarationError, match="codes"):
        calibrated.log_probabilities(np.array([[0, 0, 2]]))
