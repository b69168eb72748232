"""OPT_HDMM: the strategy of least expected error among products, unions of them and marginals (McKenna et al. 2018).

The expected total squared error is the noise's variance times the cost tr(WᵀW (AᵀA)⁺) of a strategy of sensitivity 1:
2/ε² for Laplace noise, 1/(2ρ) for Gaussian noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from consilience.errors import DeclarationError, TooLarge
from consilience.strategies.attribute_strategies import AttributeStrategy
from consilience.strategies.expected_error import Norm
from consilience.strategies.marginal_strategies import MOST_ATTRIBUTES, marginal_strategy
from consilience.strategies.product_strategies import ProductStrategy, product_strategy, union_strategy
from consilience.strategies.product_workloads import ProductWorkload

Operator = Literal["product", "union", "marginals"]
OPERATORS: tuple[Operator, ...] = get_args(Operator)


@dataclass(frozen=True, eq=False)
class ChosenStrategy:
    """Products to measure together, their shares of the budget, and the error to expect."""

    operator: Operator
    parts: tuple[ProductStrategy, ...]
    shares: tuple[float, ...]
    """Of ε or of ρ."""
    error: float
    """The expected total squared error at ε = 1, or at ρ = ½; of a union, a bound on it."""
    considered: tuple[tuple[Operator, float], ...] = ()
    """The error of the best strategy of each kind that can be measured."""


def best_strategy(
    workload: ProductWorkload,
    *,
    norm: Norm,
    operators: Sequence[Operator] = OPERATORS,
    most_cells: int = 10**6,
    restarts: int = 1,
    seed: int = 0,
) -> ChosenStrategy:
    """The strategy of least expected error; none asks for a table of more than `most_cells` cells.

    `norm` is 1 for Laplace and 2 for Gaussian noise.
    """
    for operator in operators:
        if operator not in OPERATORS:
            raise DeclarationError(f"the operator {operator!r} is not known; use some of {', '.join(OPERATORS)}")
    _refuse_large(workload, most_cells)
    tried = [_tried(operator, workload, norm, most_cells, restarts, seed) for operator in dict.fromkeys(operators)]
    found = [each for each in tried if each is not None]
    if not found:
        raise TooLarge(
            f"no strategy of the kinds {', '.join(operators)} answers a workload over {len(workload.scope)} attributes "
            f"with {workload.cells:,} cells from tables of up to {most_cells:,}; allow the operator 'union'"
        )
    best = min(found, key=lambda each: each.error)
    considered: tuple[tuple[Operator, float], ...] = tuple((each.operator, each.error) for each in found)
    return ChosenStrategy(best.operator, best.parts, best.shares, best.error, considered)


def _tried(
    operator: Operator, workload: ProductWorkload, norm: Norm, most_cells: int, restarts: int, seed: int
) -> ChosenStrategy | None:
    """The best strategy of one kind; None where it cannot be measured."""
    unit = 2.0 if norm == 1 else 1.0
    if operator == "product":
        if workload.cells > most_cells:
            return None
        found = product_strategy(workload, norm=norm, restarts=restarts, seed=seed)
        return ChosenStrategy(operator, (found,), (1.0,), unit * found.cost(workload))
    if operator == "union":
        union = union_strategy(workload, norm=norm, most_cells=most_cells, restarts=restarts, seed=seed)
        return ChosenStrategy(operator, union.parts, union.shares, unit * union.cost)
    if len(workload.scope) > MOST_ATTRIBUTES:
        return None
    marginals = marginal_strategy(workload, norm=norm, most_cells=most_cells, restarts=restarts, seed=seed)
    if marginals is None:
        return None
    parts = tuple(
        ProductStrategy({place: AttributeStrategy(workload.sizes[place]) for place in scope})
        for scope in marginals.scopes
    )
    return ChosenStrategy(operator, parts, tuple(weight**norm for weight in marginals.weights), unit * marginals.cost)


def _refuse_large(workload: ProductWorkload, most_cells: int) -> None:
    for term in workload.terms:
        if workload.cells_of(term.scope) > most_cells:
            raise TooLarge(
                f"a query of the workload tells {len(term.scope)} attributes apart, with "
                f"{workload.cells_of(term.scope):,} cells; {most_cells:,} are allowed: use coarser attributes, "
                "or raise most_cells"
            )
