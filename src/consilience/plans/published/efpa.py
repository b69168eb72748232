"""EFPA: a histogram through as many low frequencies as are worth their noise (Acs, Castelluccia, Chen 2012)."""

import math
from dataclasses import dataclass
from typing import Any

from consilience.domain.factors import Fourier
from consilience.domain.queries import Query
from consilience.errors import DeclarationError
from consilience.kernels.transforms import most_frequencies, rows_of
from consilience.plans.budget_parts import check_share, in_two_parts
from consilience.privacy.budgets import Budget
from consilience.privacy.gate import Gate
from consilience.privacy.network_scores import SpectralTail


@dataclass(frozen=True)
class Efpa:
    """The Fourier coefficients of one attribute's counts, up to a frequency that is chosen privately.

    With the counts' coefficients c₀, c₁, … in an orthonormal basis, keeping the first k leaves out the norm of the
    others and adds the norm of the noise. A share of the budget selects the number of frequencies by

        ‖(c_k, c_{k+1}, …)‖₂ + √(k · variance of one coefficient's noise),

    the rest measures the coefficients kept (paper, section IV). Two things are better than as published:

    - *The noise.* The paper takes the L1 sensitivity of k coefficients to be √k, by ‖·‖₁ ≤ √k ‖·‖₂ and the L2
      sensitivity 1 of the whole histogram. A column of the first k rows has the squared L2 norm k/n, so that its L1
      norm is at most k/√n ≤ √k. The gate takes the largest column norm of the rows as they are, rounded to their
      lattice, which is at most that up to the rounding. For k much smaller than n, where EFPA is used, this is less
      noise by √(n/k).
    - *The selection.* Candidates end with `largest` frequencies, and what lies beyond counts for none of them: it is
      lost whichever is chosen, so no choice should depend on it. They begin with frequencies 0 and 1, because frequency
      0 alone is nothing but the total.
    """

    attribute: str
    selection_share: float = 0.5
    largest: int = 2048

    def __post_init__(self) -> None:
        check_share(self.selection_share, "the selection")
        if self.largest < 2:
            raise DeclarationError(f"at most {self.largest} frequencies were asked for; allow 2 or more")

    def run(self, gate: Gate) -> None:
        size = gate.domain[self.attribute].size
        fewest = min(2, most_frequencies(size))
        candidates = range(fewest, max(fewest, min(most_frequencies(size), self.largest)) + 1)
        selection, rest = in_two_parts(gate.budget, self.selection_share)
        penalties = tuple(noise_norm(size, frequencies, rest) for frequencies in candidates)
        # In zCDP the exponential mechanism costs a quarter of what permute-and-flip does at the same ε.
        selector = "permute-and-flip" if gate.budget.additive_unit == "epsilon" else "exponential"
        chosen = gate.select(SpectralTail(self.attribute, size, penalties, fewest), selection, selector=selector)
        gate.measure(Query.of({self.attribute: Fourier(chosen)}), rest)

    def to_json(self) -> dict[str, Any]:
        return {
            "plan": "efpa",
            "attribute": self.attribute,
            "selection_share": self.selection_share,
            "largest": self.largest,
        }


def noise_norm(size: int, frequencies: int, budget: Budget) -> float:
    """The expected norm (root of the mean square) of the noise on the counts that these frequencies bring.

    With k rows of squared norm n, equal noise of variance v on each puts a squared norm of k·v/n on the counts. Under
    ρ the L2 sensitivity is √k and v = k/(2ρ). Under ε it is v = 2(S/ε)², with S ≈ 1 + (4√2/π) · pairs: the mean of
    √2(|cos| + |sin|) over all angles. One record per unit and add-remove are taken for granted; the choice is public
    either way, and other units scale all candidates alike.

    >>> from consilience.privacy.budgets import budget
    >>> noise_norm(2, 1, budget(epsilon=2)), noise_norm(64, 5, budget(rho=0.5))
    (0.5, 1.125)
    """
    rows = rows_of(size, frequencies)
    amount = float(budget.amount)
    if budget.additive_unit == "rho":
        return math.sqrt(rows * rows / (2 * amount) / size)
    sensitivity = 1 + 4 * math.sqrt(2) / math.pi * (rows - 1) / 2
    return math.sqrt(2 * rows / size) * sensitivity / amount
