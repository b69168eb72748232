"""What is asked of a release is checked before it is paid for."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import consilience as cs
from consilience.domain import Domain, Query
from consilience.errors import TooLarge, Unanswered
from consilience.estimators.base import FullTableEstimate
from consilience.estimators.choose import check_answers, choose
from consilience.measurements import Laplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.solvers.fit import Status

WIDE = Domain.from_sizes({f"x{i}": 50 for i in range(8)}, name="wide")


def measured(domain: Domain, *sets: tuple[str, ...]) -> MeasurementSet:
    tables: dict[str | tuple[str, ...], Any] = {names: np.ones(domain.sizes(names)) for names in sets}
    return MeasurementSet.from_marginals(domain, tables, noise=Laplace(1.0), private=False)


def test_queries_that_no_estimate_could_answer_are_refused_by_name() -> None:
    example = measured(WIDE, ("x0", "x1"), ("x1", "x2"))
    asked = [Query.marginal("x0", "x2"), Query.marginal(*(f"x{i}" for i in range(6)))]
    with pytest.raises(TooLarge, match=r"1 of 2 queries.*15,625,000,000 cells.*Nothing was spent"):
        check_answers(example, "auto", asked)
    check_answers(example, "auto", asked[:1])


def test_a_model_is_asked_about_many_attributes_where_the_answers_are_few() -> None:
    example = measured(WIDE, ("x0", "x1"), ("x1", "x2"))
    asked = [Query.parse(", ".join(f"x{i}=1" for i in range(6)))]
    check_answers(example, "graphical", asked)
    with pytest.raises(TooLarge, match="1 answers about"):
        check_answers(example, "residual", asked)


def test_one_query_that_is_too_large_does_not_take_the_answers_to_the_others(monkeypatch) -> None:
    domain = Domain.from_sizes({"a": 2, "b": 3})
    estimate = FullTableEstimate(measured(domain, ("a", "b")), {}, Status.CONVERGED, {}, np.ones((2, 3)))
    whole = FullTableEstimate.marginal

    def refusing(self, *names: str):
        if names == ("a", "b"):
            raise TooLarge("too many cells")
        return whole(self, *names)

    monkeypatch.setattr(FullTableEstimate, "marginal", refusing)
    with pytest.raises(Unanswered, match="1 of 3 queries have no answer") as raised:
        estimate.answers(["a", "a, b", "b"])
    assert raised.value.reasons == {1: "too many cells"}
    first, second, third = raised.value.answers
    assert (first.tolist(), second, third.tolist()) == ([3.0, 3.0], None, [2.0, 2.0, 2.0])


def test_differences_of_flags_are_fitted_as_the_tables_that_they_are_of() -> None:
    domain = Domain.from_sizes({"a": 2, "b": 3, "c": 2, "d": 4})
    sign, total = cs.factors.Matrix.of([[1.0, -1.0]]), Measurement(Query.marginal(), [90.0], cs.Gaussian(2.0))
    pairs = [
        Measurement(Query((("a", sign), ("b", cs.factors.Identity()))), [3.0, -2.0, 5.0], cs.Gaussian(2.0)),
        Measurement(Query.marginal("b"), [30.0, 25.0, 35.0], cs.Gaussian(2.0)),
        Measurement(Query.marginal("c", "d"), [11.0] * 8, cs.Gaussian(2.0)),
    ]
    given = MeasurementSet(domain, (total, *pairs), PrivacyStatement(), {}, private=False)
    assert choose(given).estimator.name == "graphical"
    prefix = Measurement(Query.parse("prefix(d)"), [20.0, 40.0, 60.0, 90.0], cs.Gaussian(2.0))
    assert choose(replace(given, measurements=(*given.measurements, prefix))).estimator.name == "table"
