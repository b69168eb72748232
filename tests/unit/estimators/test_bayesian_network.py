"""The network of noisy marginals: its product, its records, and what it refuses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.public_facts import PublicFacts
from consilience.errors import ConsilienceError, DeclarationError, FileFormatError, TooLarge
from consilience.estimators.base import SavedModel
from consilience.estimators.published.bayesian_network import (
    BayesianNetwork,
    BayesianNetworkEstimate,
    Conditional,
    Network,
    conditional_of_counts,
)
from consilience.kernels.rng import generator
from consilience.measurements import Laplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.models.elimination import CalibratedModel

DOMAIN = Domain.from_sizes({"a": 2, "b": 3, "c": 4, "d": 2}, name="network")
RNG = np.random.default_rng(0)
CHAIN = np.einsum(
    "a,ab,bc,bd->abcd", RNG.dirichlet([1, 1]), *(RNG.dirichlet(np.ones(n), m) for m, n in ((2, 3), (3, 4), (3, 2)))
)
FAMILIES = [("b",), ("b", "a"), ("b", "c"), ("d", "b")]


def measured(families, *, truth=CHAIN, total=1000.0, scale=1e-9, domain=DOMAIN) -> MeasurementSet:
    rng = np.random.default_rng(1)
    found = []
    for names in families:
        query = Query.marginal(*names)
        exact = total * query.bind(DOMAIN).answer_full(truth)
        noisy = exact.ravel() + rng.laplace(0, scale, exact.size)
        found.append(Measurement(query=query, values=noisy, noise=Laplace(scale)))
    return MeasurementSet(domain, tuple(found), PrivacyStatement(), {}, private=False)


def test_exact_families_of_a_network_give_its_table_back() -> None:
    fitted = BayesianNetwork().fit(measured(FAMILIES))
    assert fitted.marginal("a", "b", "c", "d") == pytest.approx(1000 * CHAIN, abs=1e-5)
    assert fitted.total == pytest.approx(1000)
    assert fitted.answer(Query.of({"c": factors.Prefix()})) == pytest.approx(
        1000 * CHAIN.sum(axis=(0, 1, 3)).cumsum(), abs=1e-5
    )


def test_a_first_table_of_several_attributes_is_taken_whole() -> None:
    fitted = BayesianNetwork().fit(measured([("c", "b"), ("b", "d"), ("b", "a"), ("c", "d")]))
    assert fitted.marginal("a", "b", "c", "d") == pytest.approx(1000 * CHAIN, abs=1e-5)
    assert fitted.stats["unused_tables"] == 1


def slow_product(found: MeasurementSet) -> np.ndarray:
    """The published recipe over the full table: clip, divide, multiply."""
    product = np.ones(DOMAIN.shape)
    seen: list[str] = []
    for each in found:
        names = each.query.attributes
        table = np.maximum(each.values, 0).reshape(DOMAIN.sizes(names))
        fresh = tuple(axis for axis, name in enumerate(names) if name not in seen)
        shares = table / table.sum(axis=fresh, keepdims=True)
        letters = [DOMAIN.names.index(name) for name in names]
        product = np.einsum(product, range(4), shares, letters, range(4))
        seen += [name for name in names if name not in seen]
    return product


def test_noisy_tables_are_clipped_divided_and_multiplied() -> None:
    found = measured(FAMILIES, scale=30.0)
    fitted = BayesianNetwork().fit(found)
    full = fitted.marginal("a", "b", "c", "d")
    assert full.min() >= 0
    assert full / fitted.total == pytest.approx(slow_product(found), abs=1e-12)
    assert fitted.marginal("d", "a") == pytest.approx(full.sum(axis=(1, 2)).T)


def test_the_total_is_public_or_that_of_all_tables() -> None:
    assert BayesianNetwork().fit(measured(FAMILIES).with_public(total=900)).total == 900
    two = MeasurementSet(
        DOMAIN,
        (
            Measurement(query=Query(()), values=[50.0], noise=Laplace(0.001)),
            Measurement(query=Query.marginal("a"), values=[100.0, 0.0], noise=Laplace(50.0)),
        ),
        PrivacyStatement(),
        {},
        private=False,
    )
    assert BayesianNetwork().fit(two).total == pytest.approx(50.0, abs=1e-3)


def test_drawn_records_answer_nearly_like_the_product() -> None:
    found = measured(FAMILIES, scale=3.0, total=50_000.0)
    exact, drawn = (
        BayesianNetwork(marginals="exact").fit(found),
        BayesianNetwork(marginals="sampled", seed=4).fit(found),
    )
    difference = drawn.marginal("c", "d") - exact.marginal("c", "d")
    assert 0 < np.abs(difference).max() < 6 * np.sqrt(exact.marginal("c", "d").max())
    assert drawn.marginal("c", "d").sum() == pytest.approx(exact.total)
    assert drawn.marginal("c", "d").sum(axis=1) == pytest.approx(drawn.marginal("c"))
    other = BayesianNetwork(marginals="sampled", seed=5).fit(found)
    assert not np.array_equal(other.marginal("c", "d"), drawn.marginal("c", "d"))


def test_large_trees_are_answered_from_drawn_records() -> None:
    found = measured(FAMILIES, scale=3.0)
    small = BayesianNetwork(largest_tree=5)
    assert small.fit(found).method["marginals"] == "sampled"
    with pytest.raises(TooLarge, match="draw records"):
        BayesianNetwork(marginals="exact", largest_tree=5).fit(found)


def test_attributes_never_measured_are_even() -> None:
    fitted = BayesianNetwork().fit(measured([("a", "b")]))
    assert np.ptp(fitted.marginal("c")) < 1e-9
    rows = BayesianNetwork(marginals="sampled").fit(measured([("a", "b")], total=40_000.0)).marginal("c")
    assert np.ptp(rows) < 1000


def ruled(*rules: ImpossibleCells) -> Domain:
    return Domain("network", DOMAIN.attributes, rules)


def test_impossible_cells_stay_empty_in_tables_and_across_them() -> None:
    within = ruled(ImpossibleCells((("b", (0,)), ("c", (1, 2)))))
    across = ruled(ImpossibleCells((("a", (0,)), ("c", (1, 2)))))
    for domain, first in ((within, "b"), (across, "a")):
        found = measured(FAMILIES, scale=20.0, domain=domain)
        fitted = BayesianNetwork().fit(found)
        assert not fitted.marginal(first, "c")[0, 1:3].any()
        rows = fitted.sample(2000, generator(0))
        assert rows.shape == (2000, 4)
        assert not ((rows[:, "abcd".index(first)] == 0) & np.isin(rows[:, 2], [1, 2])).any()
    BayesianNetwork(marginals="sampled").fit(measured(FAMILIES, domain=within))
    with pytest.raises(TooLarge, match="impossible cells of several tables"):
        BayesianNetwork(marginals="sampled").fit(measured(FAMILIES, domain=across))


def test_synthetic_rows_follow_the_seed_and_the_model() -> None:
    fitted = BayesianNetwork().fit(measured(FAMILIES))
    rows = fitted.sample(20_000, generator(2))
    assert np.array_equal(rows, fitted.sample(20_000, generator(2)))
    counts = np.bincount(rows[:, 2], minlength=4)
    assert np.abs(counts - 20 * fitted.marginal("c")).max() < 5 * np.sqrt(20_000)
    assert fitted.sample(0, generator(0)).shape == (0, 4)


@pytest.mark.parametrize("way", ["exact", "sampled"])
def test_a_saved_network_answers_the_same(way) -> None:
    fitted = BayesianNetwork(marginals=way, seed=3).fit(measured(FAMILIES, scale=10.0))
    saved = SavedModel(fitted.method, fitted.status, fitted.stats, fitted.arrays())
    again = BayesianNetworkEstimate.restore(saved, fitted.measurements)
    assert np.array_equal(again.marginal("a", "d"), fitted.marginal("a", "d"))
    broken = {name: table for name, table in fitted.arrays().items() if name != "conditional 1"}
    with pytest.raises(FileFormatError, match="conditional 1"):
        BayesianNetworkEstimate.restore(SavedModel(saved.method, saved.status, saved.stats, broken), again.measurements)
    turned = {name: table.T for name, table in fitted.arrays().items()}
    with pytest.raises(FileFormatError, match="shape"):
        BayesianNetworkEstimate.restore(SavedModel(saved.method, saved.status, saved.stats, turned), again.measurements)


def test_what_is_no_table_of_a_network_is_refused() -> None:
    prefix = Query.of({"c": factors.Prefix()})
    found = MeasurementSet(
        DOMAIN,
        (Measurement(query=prefix, values=np.ones(4), noise=Laplace(1.0)),),
        PrivacyStatement(),
        {},
        private=False,
    )
    with pytest.raises(ConsilienceError, match="no whole marginal"):
        BayesianNetwork().fit(found)
    with pytest.raises(ConsilienceError, match="known exactly"):
        BayesianNetwork().fit(measured(FAMILIES).with_public(margins={"b": 1000 * CHAIN.sum(axis=(0, 2, 3))}))
    clipped = Measurement(query=Query.marginal("a"), values=[0.0, 3.0], noise=Laplace(1.0), clipped=True)
    with pytest.raises(ConsilienceError, match="no whole marginal"):
        BayesianNetwork().fit(MeasurementSet(DOMAIN, (clipped,), PrivacyStatement(), {}, private=False))
    with pytest.raises(DeclarationError, match="auto, exact, sampled"):
        BayesianNetwork(marginals="mean")  # type: ignore[arg-type]


def test_marginals_of_unknown_or_repeated_attributes_are_refused() -> None:
    fitted = BayesianNetwork().fit(measured(FAMILIES))
    for names in (("z",), ("a", "a")):
        with pytest.raises(DeclarationError):
            fitted.marginal(*names)


def test_one_value_attributes_and_no_records_are_fitted() -> None:
    domain = Domain("one", (Attribute.categorical("only", ["x"]), Attribute.categorical("b", ["0", "1"])))
    found = MeasurementSet.from_marginals(domain, {"only": [5.0], "b": [3.0, 2.0]}, noise=Laplace(0.1), private=False)
    assert BayesianNetwork().fit(found).marginal("only", "b") == pytest.approx(np.array([[3.0, 2.0]]), abs=0.01)
    empty = Domain("network", DOMAIN.attributes, public=PublicFacts(total=0))
    nothing = BayesianNetwork().fit(measured(FAMILIES, total=0.0, scale=2.0, domain=empty))
    assert nothing.total == 0
    assert not nothing.marginal("a", "b").any()


# ----------------------------------------------------------------------------------------------------------------------
# Conditional tables and what is drawn from them, against the full product.


@given(st.lists(st.floats(-1e6, 1e6), min_size=12, max_size=12), st.integers(0, 2**12 - 1))
def test_rows_sum_to_one_and_forbidden_cells_stay_empty(values: list[float], mask: int) -> None:
    allowed = np.array([(mask >> i) & 1 for i in range(12)], dtype=np.bool_).reshape(2, 2, 3)
    shares = conditional_of_counts(np.array(values).reshape(2, 2, 3), [4, 7], [1], allowed).shares
    assert shares.min() >= 0
    assert shares.sum(axis=2) == pytest.approx(np.ones((2, 2)))
    possible_rows = allowed.any(axis=2)
    assert not shares[possible_rows][~allowed[possible_rows]].any()


def test_rows_without_counts_are_like_the_others_and_the_rest_is_even() -> None:
    found = conditional_of_counts(np.array([[6.0, 2.0], [-1.0, 0.0], [1.0, 3.0]]), [0], [1])
    assert found.shares == pytest.approx(np.array([[0.75, 0.25], [7 / 12, 5 / 12], [0.25, 0.75]]))
    assert conditional_of_counts(np.array([-1.0, -2.0]), [], [0]).shares.tolist() == [0.5, 0.5]
    tiny = conditional_of_counts(np.array([5e-324, 0.0]), [], [0]).shares
    assert tiny.tolist() == [1.0, 0.0]


def network() -> tuple[Network, np.ndarray]:
    rng = np.random.default_rng(3)
    first = rng.dirichlet(np.ones(6)).reshape(2, 3)
    second = rng.dirichlet(np.ones(4), (3, 2))
    second[1, 0] = [0.0, 1.0, 0.0, 0.0]
    tables = (Conditional((), (1, 0), first), Conditional((0, 1), (2,), second))
    joint = np.einsum("ba,abc->abc", first, second)
    return Network((3, 2, 4, 5), tables), np.repeat(joint[..., None] / 5, 5, axis=3)


def test_marginals_are_those_of_the_product() -> None:
    made, joint = network()
    model = CalibratedModel(made.model(50.0))
    assert model.marginal([2, 0]) == pytest.approx(50 * joint.sum(axis=(1, 3)).T)
    assert model.marginal([3, 1]) == pytest.approx(50 * joint.sum(axis=(0, 2)).T)


def test_drawn_records_follow_the_product() -> None:
    made, joint = network()
    rows = made.sample(200_000, generator(0))
    counts = np.zeros(joint.shape)
    np.add.at(counts, tuple(rows.T), 1)
    deviation = (counts - 200_000 * joint) / np.sqrt(np.maximum(200_000 * joint, 1.0))
    assert np.abs(deviation).max() < 5
    assert not counts[joint == 0].any()
    assert np.array_equal(rows[:100], made.sample(200_000, generator(0))[:100])
    assert made.sample(0, generator(0)).shape == (0, 4)
