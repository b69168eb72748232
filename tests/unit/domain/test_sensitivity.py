"""Sensitivities equal brute force over all neighbouring tables."""

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pytest

from consilience.domain import Attribute, BoundQuery, Domain, Neighbours, Query, factors, sensitivity
from consilience.domain.factors import Factor
from consilience.domain.sensitivity import Sensitivity, check_neighbours
from consilience.errors import DeclarationError

Norm = Literal[1, 2]
CASES: list[tuple[Norm, Neighbours]] = [(1, "add-remove"), (2, "add-remove"), (1, "replace-one"), (2, "replace-one")]


def brute_force(
    queries: Sequence[BoundQuery], norm: Norm, neighbours: Neighbours, weights: Sequence[float] | None = None
) -> float:
    """The largest change of the stacked, weighted answers over all pairs of neighbours of one table."""
    domain = queries[0].domain
    scales = [1.0] * len(queries) if weights is None else weights

    def answers(table: np.ndarray) -> np.ndarray:
        parts = [scale * np.ravel(query.answer_full(table)) for query, scale in zip(queries, scales, strict=True)]
        return np.concatenate(parts)

    base = np.random.default_rng(0).integers(1, 5, domain.shape)
    tables = []
    for cell in np.ndindex(*domain.shape):
        added = base.copy()
        added[cell] += 1
        tables.append(answers(added))
    moves = [np.array(tables) - answers(base)]
    if neighbours == "replace-one":  # by a record in another cell, or by one that the domain drops
        moves += [np.array(tables) - before for before in tables]
    return float(np.linalg.norm(np.concatenate(moves), norm, axis=1).max(initial=0.0))


def random_domain(rng: np.random.Generator) -> Domain:
    attributes = []
    for name in "abc"[: rng.integers(1, 4)]:
        edges = np.cumsum(rng.integers(1, 4, rng.integers(2, 6)))
        missing = "none" if rng.random() < 0.2 else None
        attributes.append(Attribute.numeric(name, edges.tolist(), missing=missing))
    return Domain("random", tuple(attributes))


def random_factor(rng: np.random.Generator, attribute: Attribute) -> Factor:
    labels = attribute.labels
    chosen = [label for label in labels if rng.random() < 0.5] or [labels[0]]
    first, last = sorted(int(i) for i in rng.integers(0, len(attribute.ordinary_labels), 2))
    split = int(rng.integers(1, len(chosen) + 1))
    groups = {"one": chosen[:split], "two": chosen[split:]}
    choices: list[Callable[[], Factor]] = [
        factors.Identity,
        factors.Total,
        lambda: factors.Value(chosen[0]),
        lambda: factors.Subset(tuple(chosen)),
        lambda: factors.Range(labels[first], labels[last]),
        factors.Prefix,
        factors.AllRanges,
        lambda: factors.Buckets.of(groups),
        lambda: factors.Level(None, factors.Subset(tuple(chosen))),
        factors.Mean,
        lambda: factors.Moments(2),
        lambda: factors.Tree(int(rng.integers(2, 4))),
        lambda: factors.Tree(2, level=0),
        factors.Haar,
        lambda: factors.Matrix.of(rng.integers(-3, 4, (rng.integers(1, 4), attribute.size))),
        lambda: factors.Matrix.of(rng.normal(size=(2, attribute.size))),
        lambda: factors.Intervals(tuple(labels[: first + 1])),
        factors.Nominal,
        lambda: factors.Fourier(int(rng.integers(1, attribute.size // 2 + 2))),
    ]
    return choices[int(rng.integers(len(choices)))]()


def random_query(rng: np.random.Generator, domain: Domain) -> BoundQuery:
    names = [name for name in domain.names if rng.random() < 0.7]
    rng.shuffle(names)
    joint = Query(())
    if len(names) > 1 and rng.random() < 0.4:
        together = [names.pop() for _ in range(rng.integers(2, len(names) + 1))]
        joint = random_joint_query(rng, domain, together)
    others = Query.of({name: random_factor(rng, domain[name]) for name in names})
    return Query((*joint.factors, *others.factors)).bind(domain)


def random_joint_query(rng: np.random.Generator, domain: Domain, names: list[str]) -> Query:
    if rng.random() < 0.5 and set.intersection(*(set(domain[name].labels) for name in names)):
        return Query.equal(*names)
    return Query.matrix(names, rng.integers(-2, 3, (rng.integers(1, 4), *domain.sizes(names))))


def random_stack(seed: int) -> tuple[list[BoundQuery], list[float]]:
    rng = np.random.default_rng(seed)
    domain = random_domain(rng)
    queries = [random_query(rng, domain) for _ in range(rng.integers(1, 4))]
    return queries, rng.uniform(0.1, 3, len(queries)).tolist()


@pytest.mark.parametrize(
    "seed", [*range(100), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(100, 200))]
)
def test_sensitivities_equal_brute_force_over_all_neighbours(seed: int) -> None:
    queries, weights = random_stack(seed)
    for (norm, neighbours), scales in itertools.product(CASES, [None, weights]):
        found = sensitivity(queries, norm=norm, neighbours=neighbours, weights=scales)
        assert found.exact
        assert found.value == pytest.approx(brute_force(queries, norm, neighbours, scales), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("limit", [0, 5, 50, 500])
@pytest.mark.parametrize("seed", range(30))
def test_beyond_the_limit_a_value_is_exact_or_a_flagged_upper_bound(
    seed: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["consilience.domain.sensitivity"], "LARGEST_ENUMERATION", limit)
    queries, weights = random_stack(seed)
    for norm, neighbours in CASES:
        found = sensitivity(queries, norm=norm, neighbours=neighbours, weights=weights)
        true = brute_force(queries, norm, neighbours, weights)
        if found.exact:
            assert found.value == pytest.approx(true, rel=1e-9, abs=1e-9)
        else:
            assert found.value >= true * (1 - 1e-9)
        if limit == 0 and true > 0:
            assert not found.exact


def test_every_kind_of_factor_is_among_the_random_queries() -> None:
    found = {
        type(factor) for seed in range(200) for bound in random_stack(seed)[0] for _, factor in bound.query.factors
    }
    assert found == set(factors.FACTORS.values())


def test_prefixes_by_groups_do_not_factor_under_replace_one() -> None:
    domain = Domain.from_sizes({"a": 4, "b": 2})
    bound = Query.of({"a": factors.Prefix(), "b": factors.Identity()}).bind(domain)
    assert sensitivity([bound], norm=1, neighbours="replace-one") == Sensitivity(8.0, True)
    assert sensitivity([bound], norm=1, neighbours="add-remove").value == 4.0


def test_disjoint_queries_compose_in_parallel() -> None:
    domain = Domain(
        "people",
        (
            Attribute.categorical("sex", ["F", "M"]),
            Attribute.numeric("age", [0, 18, 65, 120]),
            Attribute.categorical("race", ["A", "B", "C"]),
        ),
    )
    women, men = Query.parse("sex=F by age").bind(domain), Query.parse("sex=M by race").bind(domain)
    for norm in (1, 2):
        assert sensitivity([women, men], norm=norm).value == 1.0
        assert sensitivity([women, women], norm=norm).value == pytest.approx(2 ** (1 / norm))
    assert sensitivity([women, men], norm=1, neighbours="replace-one").value == 2.0


def test_marginals_of_large_domains_are_exact_under_both_relations() -> None:
    domain = Domain.from_sizes({f"a{i}": 50 for i in range(10)} | {"constant": 1})
    pairs = [Query.marginal(*names).bind(domain) for names in itertools.combinations(domain.names[:10], 2)]
    same_for_all = [Query.marginal(), Query.of({"a0": factors.Total()}), Query.marginal("constant")]
    stacked = pairs + [query.bind(domain) for query in same_for_all]
    assert sensitivity(stacked, norm=1) == Sensitivity(48.0, True)
    assert sensitivity(stacked, norm=1, neighbours="replace-one") == Sensitivity(90.0, True)
    squared = sensitivity(stacked, norm=2, neighbours="replace-one")
    assert squared.exact
    assert squared.value == pytest.approx(math.sqrt(90))


def test_large_prefixes_get_a_bound_that_is_said_to_be_one() -> None:
    domain = Domain.from_sizes({"a": 5000})
    prefix = Query.of({"a": factors.Prefix()}).bind(domain)
    assert sensitivity([prefix], norm=1) == Sensitivity(5000.0, True)
    assert sensitivity([prefix], norm=1, neighbours="replace-one") == Sensitivity(10_000.0, False)
    squared = sensitivity([prefix], norm=2, neighbours="replace-one")
    assert squared.value == pytest.approx(math.sqrt(2 * 5000))
    assert not squared.exact


def test_the_tighter_bound_is_not_used_where_entries_are_negative() -> None:
    domain = Domain.from_sizes({"a": 20_000})
    signs = factors.Matrix.of(np.where(np.arange(20_000) % 2, 1.0, -1.0))
    found = sensitivity([Query.of({"a": signs}).bind(domain)], norm=2, neighbours="replace-one")
    assert found == Sensitivity(2.0, False)


def test_the_total_changes_when_a_record_is_replaced_by_one_that_is_dropped() -> None:
    domain = Domain.from_sizes({"a": 3})
    for query in (Query.marginal(), Query.of({"a": factors.Total()})):
        assert sensitivity([query.bind(domain)], norm=1, neighbours="replace-one").value == 1.0
        assert sensitivity([query.bind(domain)], norm=1, neighbours="add-remove").value == 1.0


def test_no_queries_have_no_sensitivity() -> None:
    for norm, neighbours in CASES:
        assert sensitivity([], norm=norm, neighbours=neighbours) == Sensitivity(0.0, True)


def test_a_wide_table_with_few_rows_is_enumerated_in_little_memory() -> None:
    domain = Domain.from_sizes({"a": 14_000})
    one = Query.of({"a": factors.Value("7")}).bind(domain)
    assert sensitivity([one], norm=1, neighbours="replace-one") == Sensitivity(1.0, True)


def test_many_queries_over_a_long_attribute_are_stacked_in_little_memory() -> None:
    domain = Domain.from_sizes({"a": 1500, **{f"b{i}": 2 for i in range(60)}})
    queries = [Query.of({"a": factors.Prefix(), f"b{i}": factors.Identity()}).bind(domain) for i in range(60)]
    assert sensitivity(queries, norm=1) == Sensitivity(60 * 1500.0, True)


def test_weights_must_fit_the_queries() -> None:
    domain = Domain.from_sizes({"a": 3})
    bound = Query.marginal("a").bind(domain)
    with pytest.raises(DeclarationError, match="1 queries were given 2 weights"):
        sensitivity([bound], norm=1, weights=[1, 2])
    for weight in (-1.0, math.nan, math.inf):
        with pytest.raises(DeclarationError, match="weight"):
            sensitivity([bound], norm=1, weights=[weight])


def test_queries_of_different_domains_are_refused() -> None:
    first, second = Domain.from_sizes({"a": 3}, name="first"), Domain.from_sizes({"a": 4}, name="second")
    with pytest.raises(DeclarationError, match="'first' and 'second'"):
        sensitivity([Query.marginal("a").bind(each) for each in (first, second)], norm=1)


def test_unknown_neighbour_relations_are_refused() -> None:
    with pytest.raises(DeclarationError, match="'adjacent' is not known; use 'add-remove' or 'replace-one'"):
        check_neighbours("adjacent")
    assert check_neighbours("replace-one") == "replace-one"
