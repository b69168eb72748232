"""`Table` against a dense reference: the same objective and the same fitted answers, on random domains and queries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from consilience.domain import Attribute, Domain, Query, factors
from consilience.domain.constraints import ImpossibleCells
from consilience.domain.public_facts import PublicFacts
from consilience.estimators import Table
from consilience.measurements import Gaussian, Laplace, Measurement, MeasurementSet, PrivacyStatement
from consilience.solvers.fit import Status

FACTORS = st.sampled_from(
    [factors.Identity(), factors.Prefix(), factors.Haar(), factors.Tree(2), factors.AllRanges(), factors.Total()]
)


@st.composite
def problems(draw) -> MeasurementSet:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    attributes = tuple(Attribute.categorical(f"x{i}", [str(v) for v in range(size)]) for i, size in enumerate(sizes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rules = ()
    if draw(st.booleans()) and len(sizes) > 1:
        rules = (ImpossibleCells((("x0", (0,)), ("x1", (0,)))),)
    total = float(draw(st.integers(1, 50))) if draw(st.booleans()) else None
    if rules and sizes[0] == sizes[1] == 1:
        rules = ()
    domain = Domain("random", attributes, rules, PublicFacts(total))
    measurements = []
    for _ in range(draw(st.integers(1, 4))):
        names = draw(st.lists(st.sampled_from(domain.names), unique=True, max_size=len(sizes)))
        query = Query(tuple((name, draw(FACTORS)) for name in names))
        law = draw(st.sampled_from([Laplace(0.7), Gaussian(2.5), Laplace(10.0)]))
        values = rng.normal(3, 6, query.bind(domain).size)
        measurements.append(Measurement(query=query, values=values, noise=law))
    return MeasurementSet(domain, tuple(measurements), PrivacyStatement(neighbours="add-remove"), {}, private=False)


def dense(measured: MeasurementSet) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The weighted matrix on allowed cells, the weighted values, and the allowed cells."""
    domain = measured.domain
    allowed = domain.allowed_cells()
    keep = np.arange(domain.cells) if allowed is None else np.flatnonzero(allowed)
    rows, values = [], []
    for each in measured:
        bound = each.query.bind(domain)
        weight = 1 / np.sqrt(each.noise.variance)
        units = np.eye(domain.cells)[keep].reshape(-1, *domain.shape)
        rows.append(weight * np.array([bound.answer_full(unit).ravel() for unit in units]).T)
        values.append(weight * each.values)
    return np.concatenate(rows), np.concatenate(values), keep


def reference(matrix: np.ndarray, values: np.ndarray, total: float | None) -> np.ndarray:
    """Non-negative least squares; a fixed total by adding it as a row of growing weight."""
    if total is None:
        return nnls(matrix, values, maxiter=10_000)[0]
    heavy = 1e5 * max(1.0, np.abs(matrix).max())
    solved = nnls(
        np.vstack([matrix, heavy * np.ones(matrix.shape[1])]), np.append(values, heavy * total), maxiter=10_000
    )[0]
    return solved * (total / solved.sum())


def told_total(measured: MeasurementSet) -> float | None:
    """The total by inverse variance, of every query whose rows the pseudo-inverse combines to the sum of all cells."""
    domain, found = measured.domain, []
    for each in measured:
        units = np.eye(domain.cells).reshape(-1, *domain.shape)
        columns = np.array([each.query.bind(domain).answer_full(unit).ravel() for unit in units])
        combination = np.linalg.pinv(columns) @ np.ones(domain.cells)
        if np.allclose(columns @ combination, 1.0):
            found.append((combination @ each.values, each.noise.variance * combination @ combination))
    if not found:
        return None
    return max(0.0, sum(total / variance for total, variance in found) / sum(1 / variance for _, variance in found))


@settings(max_examples=40, deadline=None)
@given(measured=problems(), held=st.booleans())
def test_table_agrees_with_a_dense_solver(measured: MeasurementSet, held: bool) -> None:
    matrix, values, keep = dense(measured)
    estimate = Table(tolerance=1e-10, hold_total=held).fit(measured)
    mine = estimate.marginal(*measured.domain.names).ravel()
    total = measured.domain.public.total
    if held and total is None:
        total = told_total(measured)
    if total is not None and total < 1e-6:
        assert mine.sum() == pytest.approx(total, abs=1e-6)
        return
    best = reference(matrix, values, total)
    energy = lambda x: 0.5 * np.sum((matrix @ x - values) ** 2)  # noqa: E731
    scale = max(1.0, 0.5 * values @ values)
    assert mine.min() >= 0
    assert np.delete(mine, keep).sum() == 0
    assert energy(mine[keep]) <= energy(best) + 1e-6 * scale
    assert np.abs(matrix @ mine[keep] - matrix @ best).max() <= 2e-3 * np.sqrt(scale)
    if estimate.status is Status.CONVERGED:
        assert energy(best) >= energy(mine[keep]) - float(estimate.stats["gap"]) - 1e-6 * scale
    if total is not None:
        assert mine.sum() == pytest.approx(total, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(measured=problems(), factor=st.floats(0.01, 100))
def test_table_scales_with_counts_and_noise(measured: MeasurementSet, factor: float) -> None:
    domain = measured.domain
    if domain.public.total is not None:
        return
    scaled = MeasurementSet(
        domain,
        tuple(
            Measurement(query=m.query, values=m.values * factor, noise=type(m.noise)(m.noise.scale_parameter * factor))
            for m in measured
        ),
        measured.privacy,
        {},
        private=False,
    )
    one, two = Table(tolerance=1e-10).fit(measured), Table(tolerance=1e-10).fit(scaled)
    for m in measured:
        size = max(1.0, np.abs(m.values).max())
        assert np.allclose(two.answer(m.query), factor * one.answer(m.query), atol=2e-3 * size * factor)
