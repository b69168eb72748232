"""One table over all attributes of a small problem, so that every marginal is a sum of it.

Locally non-negative marginals need not belong to any table at all. Where the joint table is small it is fitted as
well: its measured residuals as wished before, the others as in the table of greatest entropy with the local marginals.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from consilience.marginals.decomposition import Decomposition
from consilience.marginals.level_fits import LocalProblem, empty_cells, firm_weights, without_negatives
from consilience.marginals.nonnegative_marginals import NonnegativeFit, NonnegativeProblem, fit_nonnegative
from consilience.marginals.proportional_fitting import Margin, greatest_entropy
from consilience.marginals.scopes import Scope, stored_order
from consilience.solvers.fit import Status

Array = NDArray[np.float64]


def fit_joint_table(
    problem: LocalProblem,
    local: NonnegativeFit,
    attributes: Sequence[int],
    *,
    tolerance: float,
    max_steps: int,
    time_limit: float | None,
) -> tuple[NonnegativeFit, Decomposition]:
    """The non-negative table over the attributes nearest to the local marginals, in a decomposition of its own."""
    sizes = problem.decomposition.residuals.sizes
    scope = stored_order(sizes, attributes)
    joint = Decomposition(sizes, [scope])
    stack = joint.residuals
    guess = greatest_entropy_table(problem.decomposition, local.marginals, scope)
    wished = joint.adjoint(guess.ravel()) / stack.spread(joint.precisions({scope: 1.0}))
    precisions = dict.fromkeys(stack.scopes, 0.0)
    for part in problem.decomposition.residuals.scopes:
        stack.table(wished, part)[...] = problem.decomposition.residuals.table(local.residuals, part)
        precisions[part] = problem.precisions[part]
    weights = stack.spread(firm_weights(precisions))
    fit = fit_nonnegative(
        NonnegativeProblem(joint, wished, weights, empty_cells(joint, problem.empty)),
        tolerance=tolerance,
        max_steps=max_steps,
        time_limit=time_limit,
    )
    fit = without_negatives(fit, joint, problem.empty)
    if fit.status is Status.CONVERGED and local.status is not Status.CONVERGED:
        fit = replace(fit, gap=local.gap, status=local.status)
    return fit, joint


def greatest_entropy_table(decomposition: Decomposition, marginals: Array, scope: Scope) -> Array:
    """The table of greatest entropy over a scope with the tables of a decomposition as marginals."""
    stack = decomposition.tables
    margins: list[Margin] = []
    for part in stack.scopes:
        # Both orders are the stored one, so the axes ascend.
        axes = tuple(scope.index(attribute) for attribute in part)
        margins.append((axes, np.asarray(stack.table(marginals, part))[None]))
    shape = tuple(stack.sizes[attribute] for attribute in scope)
    return greatest_entropy(np.ones((1, *shape)), margins).tables[0]
