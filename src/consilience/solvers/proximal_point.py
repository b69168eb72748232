"""The proximal point method with relative entropy as its distance, for any costs of rows of a table or a model.

Stage by stage, around a centre x̄ and with growing ρ and shrinking κ, it solves

    min over x of Σ φ(Bx − c) + KL(x, x̄)/ρ       through its dual, over duals ν, split into components,
    min over ν of Σ ½·softness·ν² + cᵀν + L(ν)/ρ − κ Σ (log(high − ν) + log(ν − low)),      x ∝ x̄·exp(−ρBᵀν),

and moves the centre to x (Censor & Zenios 1992, J. Optim. Theory Appl. 73). L is Σx for tables of any total and
N·log Z where the total N is fixed. The dual's gradient is softness·ν − r with r = Bx − c, and what κ adds; its Hessian
is diag(softness) + ρBCBᵀ, with C the covariance of cells at x. Exact rows are components without ends or softness.

*The barrier.* κ keeps the duals of absolute values inside their intervals and costs at most κ for each in the end. As
in primal-dual interior points (Wright 1997), the multipliers of the two ends, κ/(high − ν) and κ/(ν − low), are
variables of their own, so that κ can fall fivefold from stage to stage.

*Components of one row* have the same column of Bᵀ. With stiffnesses h_k and gradients g_k they are eliminated: d_k =
(−g_k − s)/h_k, where s = ρBCBᵀΣd. The rows' equations then have stiffness 1/Σ(1/h_k).

What tables and models do not share is here abstract: how x follows from duals (cell by cell, or by an oracle of
marginals), how Newton's equations are solved (factored, by conjugate gradients, through the oracle), the line search,
and what proves a bound. A line search over a table needs no product with B, one over a model an oracle call a step.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from consilience.solvers.fit import Status
from consilience.solvers.tables.row_costs import SETTINGS as ROWS
from consilience.solvers.tables.row_costs import Components, RowCosts

Array = NDArray[np.float64]


class Step(Enum):
    """What came of an attempt at a Newton step."""

    TAKEN = auto()
    NOT_NEEDED = auto()
    """The stage is solved as well as the next one can use."""
    FAILED = auto()


@dataclass(frozen=True)
class Settings:
    """What tunes the method for one kind of problem; all are pure numbers.

    None is tuned finely. On fourteen small fits (2-way marginals and prefix sums of tables, chains of seven attributes;
    squares, absolute values, elastic nets, exact rows) all reach their gap with half and with five times the growth, σ
    from 0.1 to 0.8, accepted slopes from 0.1 to 0.9, steps back from 0.003 to 1, a first approximation to 10⁻³ or 10⁻¹,
    and shares of the gap from 0.02 to 0.3. Each of these changes the work, in products with the operator or calls of
    the oracle, by −8 % to +12 % on average.
    """

    stage_accuracy: float
    """σ: what a stage may lack, in units of KL(x, x̄)/ρ (Solodov & Svaiter 2000, Math. Oper. Res. 25)."""
    share_of_gap: float
    """What a stage may lack at least, in units of the gap that is asked for."""
    newton_limit: int
    """Newton steps in a stage."""
    line_search_limit: int
    """Steps tried along one direction."""
    accepted_slope: float = 0.3
    """The share of a direction's first slope that may be left at the end of a step."""
    growth: float = 5.0
    """Of ρ and 1/κ from stage to stage, as a rule."""
    idle_stages: int = 12
    """Stages without a gap that is a tenth smaller, after which rounding has taken over."""
    roughly: float = 1e-2
    """The relative gap at which squares have served as a first approximation of other costs."""
    step_back: float = 0.03
    """Other costs begin with this share of the ρ at which their first approximation ended."""
    met: float = 1e-9
    """Exact rows that are missed by this share of the largest are met; searches for them aim at a tenth of it."""
    nearly_met: float = 1e-6
    """Exact rows that are missed by less than this share are worth restoring."""
    far_from_met: float = 1e-2
    """The same, where the cost is already good enough."""
    unmeasured: float = 1e12
    """How much stiffer than all others the rows are that were not measured. By trial; no figure kept."""


class ProximalPoint(ABC):
    """Where the method is; derived classes say what x is and how its equations are solved."""

    settings: ClassVar[Settings]
    costs: RowCosts
    rho: float
    barrier: float
    """κ."""
    stages: int
    newton_steps: int
    multipliers: tuple[Array, Array]
    """Those of the upper and the lower ends of the components' intervals."""
    slack: float = np.inf
    """By how much complementary slackness is violated: what the cells leave of the gap."""

    def split_duals(self) -> None:
        """Sets out the components of the costs' duals."""
        self.parts: Components = self.costs.components()
        self.confined = self.parts.confined
        self.unmeasured = ~np.isin(np.arange(self.parts.rows), self.parts.row)
        # Squares of all rows: every row is one component, and components are in the order of rows.
        self.plain = not (self.confined or self.costs.exact.any() or self.unmeasured.any())

    def run(self) -> Status:
        """Stages until the gap is small enough, or why there is none any more."""
        settings, status = self.settings, self.judge()
        least, idle = np.inf, 0
        while status is None:
            self.stages += 1
            steps, status = self._stage()
            if status is None:
                status = self.end_stage()
            idle = 0 if self.progress_gap < 0.9 * least else idle + 1
            least = min(least, self.progress_gap)
            if status is None and idle >= settings.idle_stages:
                status = Status.STALLED
            if status is not None:
                break
            if steps == settings.newton_limit and self.has_lost_ground():
                self.return_to_centre()
                self.rho /= settings.growth**2
            else:
                self.move_centre()
                self._tighten(steps)
        return status

    def _stage(self) -> tuple[int, Status | None]:
        """Newton steps to the minimum of the stage; how many, and a status if it is time to stop."""
        self.begin_stage()
        for steps in range(1, self.settings.newton_limit + 1):
            self.newton_steps += 1
            status = self.judge()
            if status is not None:
                return steps, status
            taken = self.newton_step()
            if taken is Step.NOT_NEEDED:
                return steps, None
            if taken is Step.FAILED:
                break
        return self.settings.newton_limit, None

    def _tighten(self, steps: int) -> None:
        """A larger ρ and a smaller κ for the next stage, the fewer Newton steps this one took.

        ρ need not grow where the cells leave little of the gap.
        """
        share, usual = self.settings.share_of_gap, self.settings.growth
        if self.confined:
            growth = usual if steps <= 3 else usual**0.5 if steps <= 6 else 1.0 if steps <= 11 else 1.0 / usual
            least = 2.0 * share * self.enough / self.parts.row.size
            self.barrier = max(self.barrier / (usual if steps <= 7 else 2.0), least)
        else:
            limits = zip(self.steps_of_squares, (usual**2, usual, usual**0.5), strict=True)
            growth = next((growth for most, growth in limits if steps <= most), 1.0)
        if self.slack > 2.0 * share * self.enough or growth < 1.0:
            self.rho *= growth

    def of_rows(self, parts: Array) -> Array:
        """The dual of each row."""
        return parts if self.plain else self.parts.of_rows(parts)

    def of_parts(self, rows: Array) -> Array:
        """What belongs to the row of each component."""
        return rows if self.plain else rows[self.parts.row]

    def gradient(self, duals: Array, residual: Array) -> Array:
        """The gradient of the dual, where x has this residual."""
        found = self.parts.gradient(duals, self.barrier) if self.confined else self.parts.softness * duals
        found -= self.of_parts(residual)
        return found

    def stiffness(self, duals: Array) -> Array:
        """Softness and, for components with ends, the multiplier there over the slack."""
        if not self.confined:
            return self.parts.softness
        up, down = self.parts.slacks(duals)
        return self.parts.softness + self.multipliers[0] / up + self.multipliers[1] / down

    def direction(self, duals: Array, gradient: Array, room: float = 0.0) -> Array:
        """Newton's direction for all components, at duals where the dual has this gradient.

        Where a caller knows what its stage may lack, `room`, the equations need be no more accurate than that.
        """
        stiffness = self.stiffness(duals)
        if self.plain:
            return self.solve(stiffness, -gradient, room)
        parts, stiff = self.parts, stiffness > 0
        compliance = np.divide(1.0, stiffness, out=np.zeros(stiffness.shape), where=stiff)
        row_compliance = parts.of_rows(compliance)
        row_stiffness = np.divide(1.0, row_compliance, out=np.zeros(row_compliance.shape), where=row_compliance > 0)
        # Exact rows have one component and no stiffness; all others have some.
        target = -np.where(
            row_compliance > 0, row_stiffness * parts.of_rows(gradient * compliance), parts.of_rows(gradient)
        )
        row_stiffness[self.unmeasured] = self.settings.unmeasured * (1.0 + float(row_stiffness.max()))
        rows = self.solve(row_stiffness, target, room)
        coupling = (target - row_stiffness * rows)[parts.row]
        return np.where(stiff, -(gradient + coupling) * compliance, rows[parts.row])

    def step_inside(self, duals: Array, direction: Array) -> float:
        """The step, 1 or what stays inside all intervals, after the multipliers of the ends have taken theirs."""
        if not self.confined:
            return 1.0
        self.multipliers = self.parts.moved_multipliers(duals, direction, self.multipliers, self.barrier)
        return min(1.0, ROWS.inside_interval * self.parts.longest_step(duals, direction))

    @property
    @abstractmethod
    def enough(self) -> float:
        """The gap at which to stop."""

    @property
    @abstractmethod
    def progress_gap(self) -> float:
        """The gap by which progress is judged."""

    @property
    @abstractmethod
    def steps_of_squares(self) -> tuple[int, int, int]:
        """Newton steps of a stage of squares up to which ρ then grows by `growth`², `growth` and its root."""

    @abstractmethod
    def solve(self, stiffness: Array, target: Array, room: float) -> Array:
        """d with (diag(stiffness) + ρBCBᵀ) d = target, between rows."""

    @abstractmethod
    def judge(self) -> Status | None:
        """Takes note of x; a status if it is time to stop."""

    @abstractmethod
    def begin_stage(self) -> None:
        """The first step of a stage, from the centre."""

    @abstractmethod
    def newton_step(self) -> Step:
        """One step of Newton's method, where the stage needs one."""

    @abstractmethod
    def end_stage(self) -> Status | None:
        """Takes note of what the duals prove; a status if it is time to stop."""

    @abstractmethod
    def has_lost_ground(self) -> bool:
        """Whether x is worse than the centre, because rounding spoils Newton's equations."""

    @abstractmethod
    def return_to_centre(self) -> None:
        """x becomes the centre that it came from."""

    @abstractmethod
    def move_centre(self) -> None:
        """The centre becomes x."""
