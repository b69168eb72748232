"""Estimates fitted again to other noise."""

import numpy as np
import pytest

from consilience.domain import Domain, Query
from consilience.estimators import Graphical
from consilience.estimators.base import Estimate
from consilience.estimators.graphical_model import GraphicalEstimate
from consilience.kernels.rng import generator
from consilience.measurements import Gaussian, MeasurementSet
from consilience.publication.drawn_errors import Refits, noisy_answers, refit, simulated
from consilience.solvers.fit import Status

DOMAIN = Domain.from_sizes({"a": 3, "b": 4, "c": 3})
SCOPES = (("a", "b"), ("b", "c"), ("a", "c"))


def fitted(scale: float) -> GraphicalEstimate:
    rng = generator(5)
    table = rng.gamma(0.1, size=DOMAIN.shape)
    table *= 2_000 / table.sum()
    axes = {"a": 0, "b": 1, "c": 2}
    tables: dict[str | tuple[str, ...], np.ndarray] = {}
    for scope in SCOPES:
        exact = table.sum(axis=tuple(axes[name] for name in axes if name not in scope))
        tables[scope] = exact + rng.normal(0.0, scale, exact.shape)
    measured = MeasurementSet.from_marginals(DOMAIN, tables, noise=Gaussian(scale), private=False)
    return Graphical(loss="l2").fit(measured)


QUERIES = [Query.marginal(*scope) for scope in SCOPES]


def answers(estimate: Estimate) -> np.ndarray:
    return flat(estimate.answers(QUERIES))


def flat(found: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ravel(each) for each in found])


@pytest.mark.parametrize(
    ("scale", "status", "allowed"), [(0.5, Status.CONVERGED, 0.05), (10.0, Status.LEAST_RISK, 0.6)]
)
def test_refits_move_with_the_noise_whether_a_fit_stopped_early_or_not(
    scale: float, status: Status, allowed: float
) -> None:
    """With little noise the search for the least risk gives way to the optimum: refits must go there too."""
    estimate = fitted(scale)
    assert estimate.status is status
    shared = Refits.of(estimate, QUERIES)
    assert (shared.account is estimate) == (status is Status.CONVERGED)
    for seed in range(3):
        other = simulated(estimate.measurements, shared.exact, generator(seed))
        stop = "converged" if status is Status.CONVERGED else "least-risk"
        again, anew = shared.again(other), Graphical(loss="l2", stop=stop).fit(other)
        moved = np.linalg.norm(answers(anew) - answers(shared.account))
        assert np.linalg.norm(answers(again) - answers(anew)) < allowed * moved


def test_the_way_known_before_changes_refits_by_little() -> None:
    estimate = fitted(10.0)
    shared = Refits.of(estimate, QUERIES)
    for seed in range(3):
        along = shared.draw(generator(seed))
        other = simulated(estimate.measurements, noisy_answers(shared.account), generator(seed))
        searched = refit(estimate, other)
        moved = np.linalg.norm(answers(searched) - answers(shared.account))
        assert np.linalg.norm(flat(along) - answers(searched)) < 0.3 * moved
