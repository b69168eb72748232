"""The predicted size of a model is never below that of the model that is fitted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.domain import Domain, Query
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.public_facts import PublicFacts, PublicMargin
from consilience.estimators.graphical import Graphical
from consilience.measurements import Gaussian, Measurement, MeasurementSet
from consilience.plans.answering import ModelSizes

PLAIN = Domain.from_sizes({"a": 2, "b": 3, "c": 4, "d": 5, "e": 2})
RULED = Domain(
    "ruled",
    PLAIN.attributes,
    (ImpossibleCells((("a", (0,)), ("d", (1,)))),),
    PublicFacts(margins=(PublicMargin(("b", "e"), (3, 1, 4, 1, 5, 9)),)),
)
sets = st.lists(st.sets(st.sampled_from("abcde"), min_size=1, max_size=3).map(lambda s: tuple(sorted(s))), min_size=1)


@pytest.mark.parametrize("domain", [PLAIN, RULED])
@given(sets, st.sets(st.sampled_from("abcde"), min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_the_size_is_that_of_the_fitted_model_and_with_one_more_at_most(domain, measured, more) -> None:
    sizes = ModelSizes(domain)
    sizes.add(measured)
    assert sizes.cells == _fitted_cells(domain, measured)
    names = tuple(sorted(more))
    assert sizes.cells_with(names) >= _fitted_cells(domain, [*measured, names])
    assert sizes.cells_with(measured[0]) == sizes.cells


def _fitted_cells(domain: Domain, marginals) -> int:
    made = [
        Measurement(Query.marginal(*names), np.ones(int(np.prod(domain.sizes(names)))), Gaussian(1.0))
        for names in marginals
    ]
    method = Graphical(total=23.0)
    problem = method._problem(MeasurementSet(domain, tuple(made), private=False))
    return method._tree(problem).cells


def test_huge_models_are_predicted_without_being_made() -> None:
    wide = Domain.from_sizes({f"x{i}": 1000 for i in range(12)})
    sizes = ModelSizes(wide)
    assert sizes.cells_with(wide.names) == 1000**12


def test_a_marginal_that_makes_a_question_take_hours_is_not_allowed() -> None:
    domain = Domain.from_sizes({"a": 3000, "b": 3000, "c": 3000, "d": 3000})
    sizes = ModelSizes(domain, [("a", "b", "c")])
    sizes.add([("a", "d"), ("b", "d")])
    assert not sizes.allows(("c", "d"), 10**8)
    assert sizes.cells_with(("c", "d")) <= 10**8
    assert ModelSizes(domain, [("a", "b")]).allows(("c", "d"), 10**8)
