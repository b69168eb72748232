"""`Queries`: whatever is named is measured as it stands, at its own price, and answered from the account."""

import numpy as np
import pyarrow as pa
import pytest

import consilience as cs
from consilience.domain import Domain, Query, Workload
from consilience.errors import DeclarationError
from consilience.plans import Queries

PLACES = ("north", "south", "east")
DOMAIN = Domain.from_declaration(
    {
        "name": "commuters",
        "attributes": {
            "home": {"kind": "categorical", "values": list(PLACES)},
            "work": {"kind": "categorical", "values": list(PLACES)},
            "sex": {"kind": "categorical", "values": ["f", "m"]},
        },
    }
)


def _commuters() -> pa.Table:
    rng = np.random.default_rng(5)
    home, work = rng.integers(0, 3, 4_000), rng.integers(0, 3, 4_000)
    work[:2_500] = home[:2_500]
    texts = np.array(PLACES)
    return pa.table({"home": texts[home], "work": texts[work], "sex": np.array(["f", "m"])[rng.integers(0, 2, 4_000)]})


def test_queries_that_compare_attributes_are_measured_and_answered() -> None:
    plan = Queries(Workload.of(["home==work by sex", "by home", "by work"]))
    measured = cs.measure(cs.open_table(_commuters(), DOMAIN), plan, epsilon=30, simulate=1)
    assert [each.query for each in measured] == list(plan.workload.queries)
    exact = _commuters().to_pandas().query("home == work").groupby("sex").size()
    found = cs.estimate(measured).answer(Query.parse("home==work by sex"))
    np.testing.assert_allclose(np.ravel(found), exact.to_numpy(), atol=5)


def test_each_query_is_paid_for_with_its_share() -> None:
    """Disjoint counts of one record: scale 1/(share ε), and the shares of a workload's two queries add up to 1."""
    plan = Queries(Workload.of(["by home", "by work"]), shares=[0.25, 0.75])
    measured = cs.measure(cs.open_table(_commuters(), DOMAIN), plan, epsilon=1, simulate=1)
    scales = [each.noise.stddev_of_noise for each in measured]
    exact = [cs.DiscreteLaplace(scale).stddev_of_noise for scale in (4.0, 4.0 / 3.0)]
    assert scales == pytest.approx(exact)


def test_no_queries_are_refused() -> None:
    with pytest.raises(DeclarationError, match="name at least one"):
        Queries(Workload.of([]))
