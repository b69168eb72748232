"""What a run may spend, and what it has spent of it."""

from decimal import Decimal

from consilience.errors import BudgetExceeded
from consilience.privacy.budgets import Budget, exact_difference, exact_sum


class RunAccount:
    """The account of one run; it refuses a step that would exceed the run's budget.

    >>> from consilience.privacy.budgets import budget
    >>> account = RunAccount(budget(epsilon=1))
    >>> account.charge(budget(epsilon=0.75))
    >>> account.spent
    Decimal('0.75')
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.spent = Decimal(0)

    def charge(self, cost: Budget) -> None:
        """Take the cost of a step off what is left, or refuse it."""
        amount = cost.cost_in(self.budget.unit)
        remaining = exact_difference(self.budget.amount, self.spent)
        if amount > remaining:
            raise BudgetExceeded(
                f"the plan asked for {cost.describe()}, {remaining} of its {self.budget.describe()} remains; "
                "its steps must sum to what the run was given"
            )
        self.spent = exact_sum([self.spent, amount])
