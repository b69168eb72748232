"""Answers whose tables are larger than the memory allowed: found in parts, or refused one by one."""

import numpy as np
import pytest
import scipy.sparse as sp

from consilience.errors import TooLarge
from consilience.kernels.linear_maps import IdentityMap, SparseMap
from consilience.models import elimination_plans
from consilience.models.elimination import CalibratedModel
from consilience.models.factored_queries import FactoredQuery, answer, answer_many
from consilience.models.model import GraphicalModel

SIZES = (6, 5, 7, 6)
LITTLE = 3_000
"""Bytes: enough for the messages of a chain, not for the tables between its ends."""


@pytest.fixture(scope="module", params=[1.0, 400.0])
def model(request) -> GraphicalModel:
    rng = np.random.default_rng(3)
    scopes = [(0, 1), (1, 2), (2, 3)]
    tables = [request.param * rng.normal(size=[SIZES[axis] for axis in scope]) for scope in scopes]
    return GraphicalModel.of(SIZES, scopes, tables, total=50.0)


@pytest.mark.parametrize("axes", [(0, 3), (3, 0), (0, 2), (3, 1)])
def test_a_marginal_too_large_for_memory_is_found_in_parts(model, axes):
    whole = CalibratedModel(model).marginal(axes)
    np.testing.assert_allclose(CalibratedModel(model, memory_limit=LITTLE).marginal(axes), whole, atol=1e-12)


def test_maps_are_carried_out_in_parts_too(model):
    rng = np.random.default_rng(4)
    query = FactoredQuery.of({0: IdentityMap(6), 3: SparseMap(sp.csr_array(rng.normal(size=(4, 6))))})
    small = CalibratedModel(model, memory_limit=LITTLE)
    np.testing.assert_allclose(answer(small, query), answer(CalibratedModel(model), query), atol=1e-12)


def test_what_would_take_hours_is_refused(model, monkeypatch):
    monkeypatch.setattr(elimination_plans, "ELIMINATION", elimination_plans.EliminationSettings(most_work=100))
    with pytest.raises(TooLarge, match="a query over 2 attributes needs a table of"):
        CalibratedModel(model, memory_limit=LITTLE).marginal((0, 3))


def test_one_query_too_large_leaves_the_others_their_answers(model):
    queries = [FactoredQuery.of({axis: IdentityMap(SIZES[axis]) for axis in axes}) for axes in ((0,), (0, 1, 2), (3,))]
    first, refused, last = answer_many(CalibratedModel(model, memory_limit=LITTLE), queries)
    assert isinstance(refused, TooLarge)
    whole = answer_many(CalibratedModel(model), queries)
    np.testing.assert_allclose(first, whole[0], atol=1e-12)
    np.testing.assert_allclose(last, whole[2], atol=1e-12)
