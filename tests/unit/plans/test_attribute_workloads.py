"""Workloads about one attribute."""

import numpy as np
import pytest

from benchmarks.problems.random_workloads import random_predicates, random_signs
from consilience.domain import Domain
from consilience.errors import DeclarationError
from consilience.plans.matrix_mechanism import named_workload

DOMAIN = Domain.from_sizes({"a": 40, "b": 2}, name="d")


def matrix_of(workload) -> np.ndarray:
    return workload.queries[0].bind(DOMAIN).maps[0].dense()


def test_named_workloads_have_as_many_answers_as_they_should() -> None:
    sizes = {name: named_workload(name, "a").queries[0].bind(DOMAIN).size for name in ("identity", "prefix", "ranges")}
    assert sizes == {"identity": 40, "prefix": 40, "ranges": 820}
    with pytest.raises(DeclarationError, match="'range'"):
        named_workload("range", "a")


def test_random_workloads_are_what_their_seed_says() -> None:
    predicates = matrix_of(random_predicates(DOMAIN, "a", queries=50, seed=1))
    signs = matrix_of(random_signs(DOMAIN, "a", queries=50, seed=1))
    assert set(np.unique(predicates)) == {0.0, 1.0}
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert abs(predicates.mean() - 0.5) < 0.05
    assert abs(signs.mean()) < 0.1
    assert random_signs(DOMAIN, "a", queries=5, seed=1) == random_signs(DOMAIN, "a", queries=5, seed=1)
    assert random_signs(DOMAIN, "a", queries=5, seed=1) != random_signs(DOMAIN, "a", queries=5, seed=2)
    with pytest.raises(DeclarationError):
        random_signs(DOMAIN, "a", queries=0, seed=1)
