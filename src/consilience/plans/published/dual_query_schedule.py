"""How a run of DualQuery divides its budget, and what its draws cost by each rule of composition.

With N records, s draws in each of T rounds and the learning rate η, a draw of round t is an exponential mechanism with

    ε_t = 2η(t − 1)/N

(privacy/query_scores.py: with k = t − 1 records found, no score N·h − k·n moves by more than k, and the weights are
exp(η·score/N)). The first round costs nothing. All of them together are

    basic       Σ s·ε_t = ηsT(T − 1)/N                                  pure ε  (Gaboardi et al. 2014)
    advanced    ε_T (√(2s(T−1) ln(1/δ)) + s(T−1)(exp(ε_T) − 1))         (ε, δ)  (the same; Dwork, Rothblum, Vadhan 2010)
    zCDP        Σ s·ε_t²/8 = sη²(T−1)T(2T−1)/12N²                       ρ       (Cesar, Rogers 2021)

and the run is charged in the unit that its budget has: the basic sum for pure ε, the last one for ρ and for (ε, δ). It
is the least of the three for (ε, δ) wherever T is not tiny.

Given s and T the whole budget buys a certain η, and that is the one taken. Otherwise T is as large as the budget allows
at a rate of at least 2, the rate of the public implementation by McKenna et al., who draw s = 50. With less data fewer
draws serve better: an error A/√s of finding a record from s draws beside B/T of following T of them, with the T that
the budget leaves at a fixed rate, is least at s ∝ (N√ρ)^(4/5), or for pure ε at s ∝ √(Nε). The constants, about 5 draws
for a thousand records and 50 for fifty thousand at ε = 1, were set by trying a few on the four tables of the benchmark.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from consilience.privacy.budgets import Budget, epsilon_from_rho

USUAL_RATE = 2.0
FEWEST_DRAWS, MOST_DRAWS = 5, 50
MOST_ROUNDS = 500
"""More rounds take longer than they gain; a budget for more is left over in part."""


@dataclass(frozen=True)
class Schedule:
    """So many draws in each of so many rounds, and the share of the budget that all of them take together."""

    draws: int
    rounds: int
    pure: bool
    share: Fraction

    def share_of_draw(self, found: int) -> Fraction:
        """The share of one draw after so many records were found; ε grows with their number, ρ with its square."""
        return self.share * self._part(found) / (self.draws * sum(map(self._part, range(1, self.rounds))))

    def _part(self, found: int) -> int:
        return found if self.pure else found * found


def schedule(
    budget: Budget,
    *,
    records: int,
    share: Fraction = Fraction(1),
    draws: int | None = None,
    rounds: int | None = None,
    rate: float = USUAL_RATE,
    rows_per_unit: int = 1,
) -> Schedule:
    """The draws and rounds for a share of a budget; those that are given stay as they are.

    >>> from consilience.privacy.budgets import budget
    >>> found = schedule(budget(epsilon=1, delta=0.001), records=48842)
    >>> found.draws, found.rounds
    (50, 162)
    """
    pure = budget.additive_unit == "epsilon"
    amount = float(budget.amount) * float(share)
    units = max(1.0, records / rows_per_unit)
    if draws is None:
        usual = math.sqrt(units * amount) / 5 if pure else (units * math.sqrt(amount)) ** 0.8 / 20
        draws = min(MOST_DRAWS, max(FEWEST_DRAWS, round(usual)))
    if rounds is not None:
        return Schedule(draws, rounds, pure, share)
    rounds = 2
    while rounds < MOST_ROUNDS and bought_rate(amount, draws, rounds + 1, units, pure=pure) >= rate:
        rounds += 1
    bought = bought_rate(amount, draws, rounds, units, pure=pure)
    if rounds < MOST_ROUNDS or bought <= rate:
        return Schedule(draws, rounds, pure, share)
    return Schedule(draws, rounds, pure, share * Fraction((rate / bought) ** (1 if pure else 2)))


def bought_rate(amount: float, draws: int, rounds: int, units: float, *, pure: bool) -> float:
    """η for an amount of ε, or of ρ; `units` is the number of records in units of what is protected.

    >>> round(bought_rate(1.0, 10, 11, 1000.0, pure=True), 4)
    0.9091
    """
    found = rounds - 1
    if pure:
        return units * amount / (draws * found * (found + 1))
    return units * math.sqrt(12.0 * amount / (draws * found * (found + 1) * (2 * found + 1)))


@dataclass(frozen=True)
class DrawCosts:
    """What the draws of a run cost by three rules; `advanced` and `from_zcdp` are ε at one δ."""

    basic: float
    advanced: float
    rho: float
    from_zcdp: float


def draw_costs(*, draws: int, rounds: int, rate: float, units: float, delta: float) -> DrawCosts:
    """The cost of all draws by basic and advanced composition and by zCDP, for a reader; the ledger has exact numbers.

    >>> costs = draw_costs(draws=50, rounds=162, rate=2.0, units=48842, delta=0.001)
    >>> round(costs.basic, 2), round(costs.advanced, 2), round(costs.rho, 4), round(costs.from_zcdp, 2)
    (53.4, 5.81, 0.0589, 0.99)
    """
    found = rounds - 1
    last = 2.0 * rate * found / units
    many = draws * found
    advanced = last * (math.sqrt(2.0 * many * math.log(1.0 / delta)) + many * math.expm1(last))
    rho = draws * rate**2 * found * (found + 1) * (2 * found + 1) / (12.0 * units**2)
    return DrawCosts(
        basic=rate * draws * rounds * found / units,
        advanced=advanced,
        rho=rho,
        from_zcdp=float(epsilon_from_rho(rho, delta)),
    )
