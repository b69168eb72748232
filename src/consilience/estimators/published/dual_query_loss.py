"""The negative log-likelihood of DualQuery's draws as a loss of marginals (McKenna et al. 2019, Algorithm 5).

Given the records found so far, a draw depends on the data through the answers to the workload alone, and these are
linear in the marginals μ: y = Wμ/N. `signed_choices` has the likelihood as a function of y and its gradient; by the
chain rule the gradient in μ is Wᵀ(∂L/∂y)/N. The loss is convex.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.estimators.marginal_loss import MarginalLoss
from consilience.estimators.published.dual_query_run import DualQueryRun
from consilience.estimators.published.signed_choices import SignedChoices

Array = NDArray[np.float64]


def draws_loss(run: DualQueryRun) -> MarginalLoss:
    """The loss of the draws of a run, a function of the marginals that its workload is about."""
    met = np.stack([run.sets.holding(codes) for codes in run.found[:-1]])
    choices = SignedChoices(met, run.drawn, run.rate)
    order = _orders(run)
    scopes = tuple(dict.fromkeys(names for names, _ in order))

    def evaluate(tables: Sequence[Array]) -> tuple[float, list[Array]]:
        given = dict(zip(scopes, tables, strict=True))
        turned = [given[names].transpose(axes) for names, axes in order]
        loss, slopes = choices.loss_and_gradient(run.sets.answers(turned) / run.records)
        gradients = {names: np.zeros(table.shape) for names, table in given.items()}
        for (names, axes), part in zip(order, run.sets.adjoint(slopes / run.records), strict=True):
            gradients[names] += part.transpose(np.argsort(axes))
        return loss, [gradients[names] for names in scopes]

    return MarginalLoss(scopes, evaluate)


def _orders(run: DualQueryRun) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """For each marginal of the workload its attributes in the domain's order, and its own order of their axes."""
    found = []
    for names in run.sets.marginals:
        ordered = run.sets.domain.ordered(names)
        found.append((ordered, tuple(ordered.index(name) for name in names)))
    return found
