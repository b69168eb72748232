"""Synthetic records in the form of scikit-learn's datasets."""

import numpy as np
import pytest

from consilience.domain import Attribute, Domain
from consilience.errors import DeclarationError
from consilience.estimators import estimate
from consilience.measurements import DiscreteLaplace, MeasurementSet
from consilience.publication import synthesize
from consilience.publication.teaching import as_dataset

DOMAIN = Domain(
    "town",
    (
        Attribute.numeric("age", [0, 18, 65, 100]),
        Attribute.categorical("sex", ["F", "M"]),
        Attribute.categorical("job", ["nurse", "smith"], missing="none"),
        Attribute.categorical("shoes", ["37", "43"]),
    ),
)


def fitted(*, private: bool = True):
    noisy = {("age", "sex"): [[30, 20], [50, 60], [9, 7]], "job": [80.0, 70.0, 26.0]}
    return estimate(MeasurementSet.from_marginals(DOMAIN, noisy, noise=DiscreteLaplace(2.0), private=private))


def test_numbers_are_those_of_the_records() -> None:
    found, records = as_dataset(fitted(), target="sex", rows=300, seed=4), synthesize(fitted(), 300, seed=4)
    assert found.feature_names == ["age", "job"]
    assert found.frame.equals(records)
    assert found.data[:, 0].tolist() == records.column("age").to_pylist()
    assert [found.target_names[int(code)] for code in found.target] == records.column("sex").to_pylist()
    jobs = [None if np.isnan(code) else found.categories["job"][int(code)] for code in found.data[:, 1]]
    assert jobs == records.column("job").to_pylist()
    assert None in jobs


def test_a_target_of_numbers_has_no_names() -> None:
    found = as_dataset(fitted(), target="age", rows=10)
    assert found.target_names is None
    assert found["target"].min() >= 0
    assert {"data", "DESCR"} <= set(dir(found))


def test_without_rows_there_is_nothing_in_it() -> None:
    assert as_dataset(fitted(), target="sex", rows=0).data.shape == (0, 2)


def test_the_description_says_what_it_stands_on() -> None:
    said = as_dataset(fitted(), target="sex", rows=10).DESCR
    assert "Nobody in these records exists" in said
    assert "age, sex | job" in said
    assert "NOT PRIVATE" not in said
    assert as_dataset(fitted(private=False), target="sex", rows=10).DESCR.startswith("NOT PRIVATE")


@pytest.mark.parametrize(
    ("target", "error"), [("sax", "did you mean 'sex'"), ("shoes", "was not measured.*choose one of age, sex, job")]
)
def test_a_target_that_is_not_there_is_refused(target: str, error: str) -> None:
    with pytest.raises(DeclarationError, match=error):
        as_dataset(fitted(), target=target)


def test_what_it_has_not_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="did you mean 'target'"):
        as_dataset(fitted(), target="sex", rows=1).targets  # noqa: B018
