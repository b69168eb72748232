"""The likelihood of signed choices: rows drawn round by round, by weights that grow where a history outruns a share.

In round t a row q and a sign ± are drawn s times with probability exp(±v_q(t)) / Z_t, where

    v_q(t) = rate·(h_q(t) − k_t·y_q),    Z_t = Σ_q 2 cosh v_q(t),    k_t = t − 1,

h_q(t) counts how often the row was met in the k_t steps before the round, and y_q is the unknown share. It is the law
of DualQuery's draws given the answers y. With n_q(t) the number of draws of +q less those of −q in round t, the
negative log-likelihood and its gradient are

    L(y)    = Σ_t [ s log Z_t − Σ_q n_q(t) v_q(t) ],
    ∂L/∂y_q = Σ_t rate·k_t [ n_q(t) − s (e^{v_q(t)} − e^{−v_q(t)}) / Z_t ].

L is convex: a sum of log-sum-exps of affine functions, and of affine ones. The draws enter by their sums alone,
a_q = rate Σ_t k_t n_q(t) and the constant rate Σ_t Σ_q n_q(t) h_q(t). The first round, with k = 0, is the same for all
y and is left out.

The kernel goes over rows and within a row over rounds: e^v changes by a factor e^(−rate·y_q) a step, times e^rate where
the row was met, so that no round needs an exponential. That is exact to rounding as long as no |v| exceeds 600; beyond,
the formulas above are evaluated as they stand.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError

Floats = NDArray[np.float64]

LARGEST_EXPONENT = 600.0
"""exp of this, summed over all rows, is an ordinary number."""


@dataclass(frozen=True, eq=False)
class SignedChoices:
    """What was drawn: `met[t, q]` says whether step t met row q, `drawn[t]` which candidates round t + 2 drew.

    Candidates are rows, and from the number of rows on the rows with a minus sign. There are as many rounds as steps.
    """

    met: NDArray[np.uint8]
    drawn: NDArray[np.int64]
    rate: float

    def __post_init__(self) -> None:
        steps, rows = self.met.shape
        if self.drawn.ndim != 2 or self.drawn.shape[0] != steps or not steps:
            raise DeclarationError(f"{steps} steps go with as many rounds of draws, found the shape {self.drawn.shape}")
        if self.drawn.size and not 0 <= self.drawn.min() <= self.drawn.max() < 2 * rows:
            raise DeclarationError(f"a draw is none of the {2 * rows} signed rows")
        if not 0.0 < self.rate < np.inf:
            raise DeclarationError(f"the rate is {self.rate}; give a finite number above 0")

    @property
    def draws(self) -> int:
        """s: the draws of each round."""
        return self.drawn.shape[1]

    @cached_property
    def _pull(self) -> tuple[Floats, float]:
        """a, and the constant that the drawn rows' histories add to the log-likelihood."""
        steps, rows = self.met.shape
        signs = np.where(self.drawn < rows, 1.0, -1.0)
        places = self.drawn % rows
        pull, constant = np.zeros(rows), 0.0
        for t in range(steps):
            np.add.at(pull, places[t], self.rate * (t + 1) * signs[t])
            history = self.met[: t + 1, places[t]].sum(axis=0, dtype=np.float64)
            constant += self.rate * float(signs[t] @ history)
        return pull, constant

    def loss_and_gradient(self, shares: Floats) -> tuple[float, Floats]:
        """L and ∂L/∂y at the shares y."""
        pull, constant = self._pull
        reach = self.rate * self.met.shape[0] * max(1.0, float(np.abs(shares).max()) + 1.0)
        if reach <= LARGEST_EXPONENT:
            logs, slopes = self._by_kernel(shares)
        else:
            logs, slopes = self._by_formula(shares)
        loss = self.draws * float(logs.sum()) - constant + float(pull @ shares)
        return loss, pull - self.draws * slopes

    def _by_kernel(self, shares: Floats) -> tuple[Floats, Floats]:
        from consilience.estimators.published.signed_choice_kernels import add_slopes, add_weights

        fall = np.exp(-self.rate * shares)
        sums = np.zeros(self.met.shape[0])
        add_weights(self.met, fall, float(np.exp(self.rate)), sums)
        slopes = np.zeros(shares.size)
        add_slopes(self.met, fall, float(np.exp(self.rate)), self.rate * np.arange(1, sums.size + 1) / sums, slopes)
        return np.log(sums), slopes

    def _by_formula(self, shares: Floats) -> tuple[Floats, Floats]:
        """log Z_t for each round, and Σ_t rate·k_t·(e^v − e^−v)/Z_t for each row."""
        steps = self.met.shape[0]
        logs, slopes, history = np.empty(steps), np.zeros(shares.size), np.zeros(shares.size)
        for t in range(steps):
            history += self.met[t]
            exponents = self.rate * (history - (t + 1) * shares)
            top = float(np.abs(exponents).max())
            up, down = np.exp(exponents - top), np.exp(-exponents - top)
            total = float(up.sum() + down.sum())
            logs[t] = top + np.log(total)
            slopes += self.rate * (t + 1) * (up - down) / total
        return logs, slopes
