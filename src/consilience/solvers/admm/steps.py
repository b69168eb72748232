"""The two iterations: splitting in two blocks with over-relaxation, and the algorithms as Lee et al. printed them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from consilience.solvers.admm.problem import Normal, Problem, Setting
from consilience.solvers.fit import Loss
from consilience.solvers.projections.affine import Affine, OnCells, SquareSolver
from consilience.solvers.projections.cells import Array, Box, ConvexSet, SeparableSet

# ----------------------------------------------------------------------------------------------------------------------
# Anderson's extrapolation of a fixed-point iteration, for iterations that spiral slowly into their limit.


@dataclass(frozen=True)
class ExtrapolationSettings:
    """What tunes Anderson's extrapolation; by trial, no figures kept."""

    most_steps: int = 20
    """Steps that are remembered."""
    most_bytes: int = 2**28
    """What they may take; with large problems fewer are remembered."""
    regularisation: float = 1e-8
    """What is added to the diagonal of the changes' Gram matrix, in units of its trace."""
    farthest: float = 1e6
    """Proposals farther away than this many times the last residual are not made: they come from rounding."""
    every: int = 10
    """Steps from one proposal to the next."""


SETTINGS = ExtrapolationSettings()


# Near its limit a fixed-point map T is almost affine. If the last steps took s_j to T(s_j) with residuals
# f_j = T(s_j) − s_j, the combination Σ c_j f_j with Σ c_j = 1 of least length tells which combination of the points is
# nearest to a fixed point; the proposal is Σ c_j T(s_j) (Anderson 1965; Walker and Ni 2011). In differences:
# γ = argmin ‖f_last − Σ γ_j Δf_j‖, proposal = T(s_last) − Σ γ_j ΔT_j.
class Extrapolation:
    """Proposes where a fixed-point iteration is heading, from the steps it remembers."""

    def __init__(self, size: int) -> None:
        self.memory = max(2, min(SETTINGS.most_steps, SETTINGS.most_bytes // (16 * max(size, 1))))
        self._arrivals: list[Array] = []
        self._residuals: list[Array] = []

    def forget(self) -> None:
        """Start anew: the map has changed, or the steps misled."""
        self._arrivals.clear()
        self._residuals.clear()

    def remember(self, departure: Array, arrival: Array) -> None:
        self._arrivals.append(arrival)
        self._residuals.append(arrival - departure)
        if len(self._arrivals) > self.memory + 1:
            del self._arrivals[0], self._residuals[0]

    def propose(self) -> Array | None:
        """The extrapolated point; None while too few steps are known."""
        if len(self._arrivals) < 3:
            return None
        last = self._residuals[-1]
        changes = np.array([(b - a).ravel() for a, b in zip(self._residuals, self._residuals[1:], strict=False)])
        gram = changes @ changes.T
        energy = float(np.trace(gram))
        if not energy > 0:
            return None
        gram /= energy
        gram[np.diag_indices_from(gram)] += SETTINGS.regularisation
        shares = np.linalg.solve(gram, changes @ last.ravel() / energy)
        moves = zip(shares, self._arrivals, self._arrivals[1:], strict=False)
        jump = sum((share * (b - a) for share, a, b in moves), np.zeros_like(last))
        if np.linalg.norm(jump) > SETTINGS.farthest * np.linalg.norm(last):
            return None
        return self._arrivals[-1] - jump


# ----------------------------------------------------------------------------------------------------------------------
# The two iterations: splitting in two blocks with over-relaxation, and the algorithms as Lee et al. printed them.


# An iteration has a penalty `rho`, stands at `point`, and advances by a step; `primal` and `dual` are then the norms of
# its residuals, and `normals` a normal of each set that is not a bound on single cells, from the last step.


# The loss with the bounds has one copy of the cells, each set but the first has one more, and the first set holds the
# centre c on which all copies must agree. With scaled dual variables u_i (Boyd et al. 2011, §3.1, §5):
#
#     x_0 = argmin F(x) + ρ/2‖x − (c − u_0)‖²,     x_i = Π_i(c − u_i)
#     h_i = κ x_i + (1 − κ) c                       over-relaxation (Eckstein and Bertsekas 1992)
#     c⁺  = Π_1(mean(h_i + u_i)),                   u_i⁺ = u_i + h_i − c⁺
#
# With one set these are two blocks, the loss against the set. The state s_i = c + u_i, from which c = Π_1(mean s)
# follows, makes it a fixed-point iteration, s_i⁺ = s_i + κ(x_i − c), that can be extrapolated. An extrapolated state is
# kept only if the residual ‖x − c‖ there is no larger than it was before. The normals that the projections give away
# are ρ M (mean(s) − c) for the first set, with M copies, and ρ(c − u_i − x_i) for the others.
class TwoBlocks:
    """The default iteration."""

    def __init__(self, problem: Problem, *, rho: float, relaxation: float, start: Array, extrapolate: bool) -> None:
        self.problem, self.rho, self.relaxation = problem, rho, relaxation
        self.first, self.others = problem.sets[0], problem.sets[1:]
        self.state = np.stack([start] * len(problem.sets))
        self.centre = self.first.project(start)
        self.extrapolation = Extrapolation(self.state.size) if extrapolate else None
        self.steps = 0
        self.primal = self.dual = np.inf
        self._fallback: tuple[Array, float] | None = None

    @property
    def point(self) -> Array:
        return self.centre

    def advance(self) -> None:
        self.steps += 1
        aims, copies, primal = self._visit()
        if self._fallback is not None:
            state, before = self._fallback
            self._fallback = None
            if primal > before:
                self._forget()
                self._go_to(state)
                aims, copies, primal = self._visit()
        departure, centre = self.state, self.centre
        self._go_to(departure + self.relaxation * (copies - centre))
        self.primal, self._last = primal, (aims, copies)
        self.dual = self.rho * float(np.sqrt(len(copies)) * np.linalg.norm(self.centre - centre))
        self._extrapolate(departure)

    def _visit(self) -> tuple[Array, Array, float]:
        """Where the copies aim, where they land, and how far that is from the centre."""
        aims = 2.0 * self.centre - self.state
        landed = [each.project(aim) for each, aim in zip(self.others, aims[1:], strict=True)]
        copies = np.stack([self.problem.proximal(aims[0], self.rho), *landed])
        return aims, copies, float(np.linalg.norm(copies - self.centre))

    def _go_to(self, state: Array) -> None:
        self.state = state
        self.centre = self.first.project(state.mean(axis=0))

    def _extrapolate(self, departure: Array) -> None:
        if self.extrapolation is None:
            return
        self.extrapolation.remember(departure, self.state)
        if self.steps % SETTINGS.every == SETTINGS.every // 2:
            proposal = self.extrapolation.propose()
            if proposal is not None:
                self._fallback = self.state, self.primal
                self._go_to(proposal)

    def _forget(self) -> None:
        self._fallback = None
        if self.extrapolation is not None:
            self.extrapolation.forget()

    def normals(self) -> list[Normal]:
        aims, copies = self._last
        dual = self.rho * len(self.state) * (self.state.mean(axis=0) - self.centre)
        found = [Normal(self.first, dual, float(np.vdot(dual, self.centre)))]
        for each, aim, copy in zip(self.others, aims[1:], copies[1:], strict=True):
            dual = self.rho * (aim - copy)
            found.append(Normal(each, dual, float(np.vdot(dual, copy))))
        return found

    def change_rho(self, rho: float) -> None:
        """Go on with another penalty from the same point and the same (unscaled) dual variables."""
        self.state = self.centre + (self.rho / rho) * (self.state - self.centre)
        self.rho = rho
        self._forget()


# Lee et al., Algorithms 1–4, in one form. B is the strategy (the identity without one), K x = b are the equations that
# are given as such, and every other set has a copy of the cells:
#
#     y⁺  = Θ(B x − ỹ + μ)                           line 4 of each algorithm
#     z_i⁺ = Π_i(x + ν_i)                             line 5 (and 6 of Algorithm 3)
#     x⁺  = (BᵀB + m I + KᵀK)⁻¹ ( Bᵀ(y⁺ + ỹ − μ) + Σ(z_i⁺ − ν_i) + Kᵀ(b − η) )
#     μ⁺  = μ + B x⁺ − ỹ − y⁺,   ν_i⁺ = ν_i + x⁺ − z_i⁺,   η⁺ = η + K x⁺ − b
#
# Algorithm 4 writes −y for y, which changes nothing else; its line 6 must use the z of the same step. Section 4.6 takes
# ½‖y‖² for the loss "l2"; its equation (25) is the y-update, with the factor ρ/(1 + ρ).
class AsPrinted:
    """The iteration of the paper: a copy for everything, one penalty, no relaxation."""

    def __init__(self, setting: Setting, sets: Sequence[ConvexSet], *, rho: float, start: Array, halved: bool) -> None:
        self.setting, self.rho, self.x = setting, rho, start
        problem = setting.problem
        answers = slice(None) if setting.graph is None else slice(setting.shape[0], None)
        self.noisy, self.weights = problem.noisy[answers], problem.weights[answers]
        self.strategy = None if setting.graph is None else setting.graph.matrix
        self.share = 0.5 if halved else 1.0
        self.loss = Loss(problem.loss.linear * self.share, problem.loss.square * self.share)
        self.equations = [each for each in sets if isinstance(each, Affine)]
        self.copied: list[ConvexSet] = [each for each in sets if not isinstance(each, Affine)]
        if not self.copied and self.strategy is not None:
            self.copied.append(Box(-np.inf, np.inf))
        self.mu = np.zeros_like(self.noisy)
        self.nus = [np.zeros_like(start) for _ in self.copied]
        self.etas = [np.zeros_like(each.values) for each in self.equations]
        self.primal = self.dual = np.inf
        self._copies = len(self.copied) + (self.strategy is None)
        self._solver = self._factor()

    def _factor(self) -> SquareSolver | None:
        stacked = [each.matrix for each in self.equations]
        stacked += [] if self.strategy is None else [self.strategy]
        if not stacked:
            return None
        together = sp.csr_array(sp.vstack(stacked)) if all(map(sp.issparse, stacked)) else _dense_stack(stacked)
        return SquareSolver(together, float(self._copies))

    @property
    def point(self) -> Array:
        return self.setting.point(self.x)

    def _answers(self, cells: Array) -> Array:
        return cells if self.strategy is None else self.strategy @ cells

    def advance(self) -> None:
        aim = self._answers(self.x) - self.noisy + self.mu
        y = self.loss.prox(aim, np.zeros_like(aim), self.weights, step=1.0 / self.rho)
        aims = [self.x + nu for nu in self.nus]
        copies = [each.project(at) for each, at in zip(self.copied, aims, strict=True)]
        x = self._agree(y + self.noisy - self.mu, [z - nu for z, nu in zip(copies, self.nus, strict=True)])
        residuals = [self._answers(x) - self.noisy - y, *(x - z for z in copies)]
        residuals += [each.matrix @ x.ravel() - each.values for each in self.equations]
        for dual, residual in zip([self.mu, *self.nus, *self.etas], residuals, strict=True):
            dual += residual
        self._last = aim - y, aims, copies
        self.primal = max(float(np.linalg.norm(residual)) for residual in residuals)
        self.dual = self.rho * float(np.linalg.norm(x - self.x))
        self.x = x

    def _agree(self, answers: Array, copies: Sequence[Array]) -> Array:
        """The x-update: the cells that fit the answers, the copies and the equations best."""
        right = np.sum(copies, axis=0) if copies else np.zeros_like(self.x)
        right = right + (answers if self.strategy is None else self.strategy.T @ answers)
        if self._solver is None:
            return right / self._copies
        flat = right.ravel()
        for each, eta in zip(self.equations, self.etas, strict=True):
            flat = flat + each.matrix.T @ (each.values - eta)
        return self._solver.solve(flat).reshape(self.x.shape)

    def normals(self) -> list[Normal]:
        dual, aims, copies = self._last
        unit = self.rho / self.share
        found = []
        if self.setting.graph is not None:
            found.append(Normal(self.setting.graph, self.setting.graph.normal(-unit * dual), 0.0))
        for each, aim, copy in zip(self.copied, aims, copies, strict=True):
            if not isinstance(each, SeparableSet):
                direction = unit * (aim - copy)
                found.append(self._normal(each, direction, float(np.vdot(direction, copy))))
        for each, eta in zip(self.equations, self.etas, strict=True):
            direction = (unit * (each.matrix.T @ eta)).reshape(self.x.shape)
            found.append(self._normal(each, direction, unit * float(np.dot(eta, each.values))))
        return found

    def _normal(self, of: ConvexSet, direction: Array, support: float) -> Normal:
        if self.setting.graph is None:
            return Normal(of, direction, support)
        beside_answers = np.concatenate([direction, np.zeros_like(self.noisy)])
        return Normal(OnCells(of, direction.size, 1.0), beside_answers, support)


def _dense_stack(matrices: Sequence[Any]) -> Array:
    return np.vstack([each.toarray() if sp.issparse(each) else each for each in matrices])
