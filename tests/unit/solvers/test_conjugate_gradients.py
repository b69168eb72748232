"""Conjugate gradients against factorisations, and where they stop."""

import numpy as np
import pytest

from consilience.solvers.conjugate_gradients import conjugate_gradients, unpreconditioned


def equations(rng, size):
    factor = rng.normal(size=(size, size))
    return factor @ factor.T + np.eye(size), rng.normal(size=size)


def product_of(matrix):
    return lambda direction, out: float(direction @ np.matmul(matrix, direction, out=out))


def never(_at):
    return False


@pytest.mark.parametrize("size", [1, 3, 20])
@pytest.mark.parametrize("start", [None, "elsewhere"])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_solution_is_that_of_a_factorisation(size, start, preconditioned):
    rng = np.random.default_rng(size)
    matrix, right = equations(rng, size)
    first = None if start is None else rng.normal(size=size)
    residual = right if first is None else right - matrix @ first
    kept = residual.copy()

    def scaled(residual, out):
        return float(residual @ np.divide(residual, np.diag(matrix), out=out))

    found = conjugate_gradients(
        product_of(matrix),
        residual,
        scaled if preconditioned else unpreconditioned,
        lambda at: at.energy <= 1e-28 * at.first_energy,
        most_steps=10 * size + 10,
        start=first,
    )

    np.testing.assert_allclose(found.solution, np.linalg.solve(matrix, right), rtol=1e-8)
    np.testing.assert_allclose(found.residual, right - matrix @ found.solution, atol=1e-8)
    np.testing.assert_array_equal(residual, kept)


def test_the_caller_decides_when_to_stop():
    matrix, right = equations(np.random.default_rng(0), 20)
    seen = []

    def stop(at):
        seen.append((at.steps, at.solution.copy()))
        return at.steps == 3

    found = conjugate_gradients(product_of(matrix), right, unpreconditioned, stop, most_steps=100)

    assert [steps for steps, _ in seen] == [0, 1, 2, 3]
    np.testing.assert_array_equal(found.solution, seen[-1][1])
    assert conjugate_gradients(product_of(matrix), right, unpreconditioned, never, most_steps=2).steps == 2


def test_equations_without_curvature_end_where_they_began():
    found = conjugate_gradients(product_of(np.zeros((2, 2))), np.ones(2), unpreconditioned, never, most_steps=9)

    assert found.steps == 0
    np.testing.assert_array_equal(found.solution, [0.0, 0.0])
