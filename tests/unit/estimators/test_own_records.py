"""Algorithms of one's own: the chain knows them by their statistic, as it knows the built-in ones."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.speed.iterates import gradient
from consilience.domain import Attribute, Domain
from consilience.errors import MeasurementError
from consilience.estimators import Iterates, own_records
from consilience.iterates.chain import Chain, ChainSettings
from consilience.iterates.chain_kernels import OWN
from consilience.iterates.problems import NoisyGradients, logistic_problem
from consilience.kernels.record_functions import RecordFunction
from consilience.kernels.regions import Region
from consilience.kernels.rng import generator
from consilience.measurements import MeasurementSet
from consilience.measuring import measure
from consilience.plans import OwnRounds
from consilience.source import open_table

DOMAIN = Domain("line", (Attribute.continuous("x", (0, 10)), Attribute.continuous("y", (0, 10))))


def moments(theta, record, found):
    found[0] = record[0] - theta[0, 0]
    found[1] = record[1] - theta[0, 1]


def moved(theta, records, sums):
    return np.clip(theta + sums / records, -1, 1)


MOMENTS = RecordFunction("moments", moments, size=2, clip=4.0)
PLAN = OwnRounds(MOMENTS, [[0.0, 0.0]], moved, rounds=4)


def measured(*, epsilon=2.0, seed=0, rows=2000) -> MeasurementSet:
    points = np.random.default_rng(seed).normal((3, 6), 1.0, (rows, 2)).clip(0, 10)
    source = open_table(pa.table({"x": points[:, 0], "y": points[:, 1]}), DOMAIN)
    return measure(source, PLAN, epsilon=epsilon, simulate=seed)


@pytest.mark.parametrize("clip", [0.8, 20.0])
def test_a_built_in_statistic_that_a_user_writes_makes_the_same_chain(clip: float) -> None:
    rng = generator(0)
    thetas, scales = rng.normal(0, 1, (4, 3)), np.full(4, 20.0)
    rounds = NoisyGradients(
        thetas, np.full(4, 1e3), rng.normal(0, 90, (4, 3)), scales, scales, laplace=True, clip=clip, clip_norm=1,
        region=Region("box", 2),
    )  # fmt: skip
    problem = logistic_problem(rounds)
    asked = RecordFunction("gradient", gradient, size=3, clip=clip)
    target = problem.target._replace(kind=OWN, thetas=thetas[:, None].copy(), own=asked.compiled)
    settings = ChainSettings(size=20, steps=400, burn_in=0, tune=False, walk_share=0.3, transfer_share=0.3)
    one, other = (Chain(each, settings, generator(1)) for each in (problem, replace(problem, target=target)))
    np.testing.assert_allclose(one.state.sums, other.state.sums, rtol=1e-9)
    np.testing.assert_allclose(one.take(400), other.take(400), rtol=1e-6)


def test_records_explain_all_rounds() -> None:
    found = own_records(measured(), MOMENTS, Iterates(steps=6000, chains=2))
    assert found.attributes == ("x", "y")
    assert not found.private
    assert found.weights.sum() == pytest.approx(2000, rel=0.1)
    mean = np.average(found.in_original_units(), axis=0, weights=found.weights)
    np.testing.assert_allclose(mean, (3, 6), atol=0.3)
    assert len(found.draws) == 200
    sums = sum(
        weight * np.array([x + 0.2, y - 0.1]) for (x, y), weight in zip(found.points, found.weights, strict=True)
    )
    np.testing.assert_allclose(found.sums([[-0.2, 0.1]]), sums, rtol=1e-6, atol=1e-6)
    middle = np.average(found.points, axis=0, weights=found.weights)
    np.testing.assert_allclose(found.follow([[0.0, 0.0]], moved), [middle], atol=1e-6)


@pytest.mark.parametrize("rows", [0, 1])
def test_few_records_and_much_noise_have_a_defined_result(rows: int) -> None:
    found = own_records(measured(epsilon=0.01, rows=rows), MOMENTS, Iterates(steps=300, chains=1))
    assert np.isfinite(found.points).all()
    assert (found.weights >= 0).all()


def test_another_statistic_and_other_measurements_are_refused() -> None:
    rounds = measured()
    for other in (replace(MOMENTS, clip=5.0), RecordFunction("moments", gradient, size=2, clip=4.0)):
        with pytest.raises(MeasurementError, match="another statistic"):
            own_records(rounds, other)
    with pytest.raises(MeasurementError, match="do not fit a statistic of 3"):
        own_records(rounds, replace(MOMENTS, size=3))
    with pytest.raises(MeasurementError, match=r"plans\.OwnRounds"):
        own_records(replace(rounds, measurements=()), MOMENTS)
