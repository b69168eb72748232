"""One budget in two parts that sum to the whole, to the last digit."""

from consilience.errors import DeclarationError
from consilience.privacy.budgets import Budget, budget, exact_difference


def in_two_parts(whole: Budget, share: float) -> tuple[Budget, Budget]:
    """A part of about `share` of the budget, and all the rest of it.

    >>> from consilience.privacy.budgets import budget
    >>> [part.describe() for part in in_two_parts(budget(epsilon=1), 0.3)]
    ['epsilon 0.3', 'epsilon 0.7']
    """
    first = whole.scaled(share)
    rest = exact_difference(whole.amount, first.amount)
    return first, budget(epsilon=rest) if whole.additive_unit == "epsilon" else budget(rho=rest)


def check_share(share: float, what: str) -> None:
    """Refuse a share that leaves nothing for one of the two parts."""
    if not 0 < share < 1:
        raise DeclarationError(f"the share of the budget for {what} is {share}; it lies between 0 and 1, such as 0.25")
