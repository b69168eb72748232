"""A fit that stops where its estimated error is least, which needs no truth.

The optimum of the loss fits noise: along the way to it the error first falls and then rises again (McKenna, Sheldon and
Miklau 2019, appendix D.1). With rows scaled so that their noise ε has variance 1, c = Bμ* + ε, the error of a fit μ(c)
as its rows see it is

    E‖Bμ − Bμ*‖² = E‖Bμ − c‖² − n + 2 Σ_i E[ε_i (Bμ)_i],      E[ε_i f(c_i)] = E[κ(ε_i) f′(c_i)],

where κ = 1 for Gaussian noise (Stein 1981, Ann. Statist. 9). For Laplace noise with density p, scale b and so variance
2b² = 1, x·p(x) = −b·d/dx[(b + |x|)·p(x)], and integration by parts gives κ(x) = b² + b|x| = ½ + ½|x|/E|x|: a value
far out moves a fit more than its share, which the Gaussian formula does not see. In κ the residual stands for ε_i, and
the mean size of residuals for E|x|, so that neither a fit that is still far off nor one that is too close misleads it.

The derivatives are those of a fit to values moved by a little in random directions, ±δ each (Ramani, Blu and Unser
2008, IEEE Trans. Image Process. 17): a twin takes the same steps, and Σ κ_i ∂(Bμ)_i/∂c_i ≈ Σ κ_i z_i (Bμ′ − Bμ)_i/δ.
A start that was found from the same values has taken in noise as well: then a twin begins at the start of its own.

The way is accelerated entropic mirror descent from a centre of choice (Tseng 2008; the steps of Algorithm 2 with a line
search). A step is as long as the quadratic loss allows the fit and its twins: ½(a/A)²‖B(ν′ − ν)‖² ≤ KL(ν′, ν)/A. What
is judged is the running average x of the models' marginals ν, which is less noisy than they are. It lies in the
marginal polytope but is no model yet; `matching.py` finds the model with these marginals.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from consilience.kernels.rng import generator
from consilience.marginals.table_stacks import Scope
from consilience.models.fitting.objective import MeasuredRows
from consilience.models.oracle import Oracle
from consilience.solvers.tables.table_problem import inner

# ----------------------------------------------------------------------------------------------------------------------
# The model whose marginals are given: of all distributions with these marginals x the one of greatest entropy.
#
# It minimises the convex log Z(θ) − θᵀx/N. In the variables θ·√(x/N) the second derivatives are about 1 within a scope;
# a direction that is a function of one attribute alone, added to all scopes that have the attribute, is curved by as
# many as these are. So a step along the gradient is safe up to one part in so many where it moves no potential far, and
# from a start that is near, a few such steps do. Otherwise a minimiser that learns the curvature takes over (L-BFGS).


Array = NDArray[np.float64]

LEAST_SHARE = 1e-6
"""Cells with a smaller share of the records are scaled as if they had this one."""
FAST = 0.5
"""A step along the gradient that leaves more than this of the squared distance is the last one."""
FAR = 1.0
"""A step that moves a potential by more than this is too long for its second derivatives to say anything."""


def match_marginals(
    oracle: Oracle, rows: MeasuredRows, target: Array, *, start: Array, enough: float, max_calls: int = 200
) -> tuple[Array, int]:
    """The potentials whose marginals have the rows of the target up to a squared distance of `enough`, and the calls.

    The target must lie in the marginal polytope.
    """
    search = _Matching(oracle, rows, target, start)
    search.step_down(enough, max_calls)
    if search.distance > enough:
        search.minimise(enough, max_calls)
    return search.nearest, search.calls


class _Matching:
    """The tries so far: how many, and the one whose rows are nearest to those of the target."""

    def __init__(self, oracle: Oracle, rows: MeasuredRows, target: Array, start: Array) -> None:
        self.oracle, self.rows, self.target = oracle, rows, target
        self.step = 1.0 / (
            most_scopes_of_an_attribute(oracle.layout.scopes) * np.maximum(target / oracle.total, LEAST_SHARE)
        )
        self.calls, self.distance, self.nearest = 0, np.inf, start
        self.value, self.gradient = self.try_out(start)

    def try_out(self, potentials: Array) -> tuple[float, Array]:
        """log Z(θ) − θᵀx/N and its gradient."""
        here = self.oracle.marginals(potentials)
        self.calls += 1
        over = here.values - self.target
        missing = self.rows.apply(over)
        distance, total = float(missing @ missing), self.oracle.total
        value, gradient = here.log_partition - float(potentials @ self.target) / total, over / total
        if distance < self.distance:
            self.distance, self.nearest, self.value, self.gradient = distance, potentials, value, gradient
        return value, gradient

    def step_down(self, enough: float, max_calls: int) -> None:
        """Steps down the gradient, while they are short and each leaves little of the distance."""
        before = np.inf
        while enough < self.distance <= FAST * before and self.calls < max_calls:
            move = self.step * self.gradient
            if np.abs(move).max(initial=0.0) > FAR:
                break
            before = self.distance
            self.try_out(self.nearest - move)

    def minimise(self, enough: float, max_calls: int) -> None:
        """L-BFGS from the nearest try, in units of a step down from there, as it begins with a step of length 1."""
        from scipy.optimize import minimize

        left = max_calls - self.calls
        length, farthest = np.sqrt(np.sum(self.gradient**2 * self.step)), np.abs(self.step * self.gradient).max()
        if left < 1 or not farthest > 0.0:
            return
        unit = length * min(1.0, FAR / farthest) * np.sqrt(self.step)
        known = [(self.value, self.gradient * unit)]

        def in_units(scaled: Array) -> tuple[float, Array]:
            if known:
                return known.pop()
            value, gradient = self.try_out(scaled * unit)
            return value, gradient * unit

        def done(_: Array) -> None:
            if self.distance <= enough:
                raise StopIteration

        settings = {"maxfun": left, "maxiter": left, "maxcor": 3, "ftol": 0.0, "gtol": 0.0}
        minimize(in_units, self.nearest / unit, jac=True, method="L-BFGS-B", callback=done, options=settings)


def most_scopes_of_an_attribute(scopes: Sequence[Scope]) -> int:
    """The largest number of scopes that share one attribute.

    >>> most_scopes_of_an_attribute([(0, 1), (1, 2), (2, 3), (1,)])
    3
    """
    return max(Counter(attribute for scope in scopes for attribute in scope).values(), default=1)


# ----------------------------------------------------------------------------------------------------------------------
# A fit that stops where its estimated error is least, which needs no truth.


Progress = Callable[[int, float, float], None]

PERTURBATION = 0.2
"""δ, in standard deviations of the noise."""
ROWS_FOR_ONE_TWIN = 4_000
MOST_TWINS = 16
"""With few rows one twin says little; their derivatives are averaged over several."""
PATIENCE, LEAST_PATIENCE = 1.5, 12
"""The search ends when this many times the steps to the best fit have passed, and a few more, without a better one."""
RISEN, LITTLE_PATIENCE = 0.15, 8
"""It also ends, after a few steps, once the estimated error has risen by this share of what noise adds to it."""
WORTH_IT = 0.005
"""A fit counts as better when it lowers the estimated error by this share of what noise adds to it."""
EASIER = 0.9
"""Each step first tries a curvature this much smaller than that of the step before."""
ROUNDING = 1e-14
ALLOWANCE = 5.0
"""A fit of least estimated error costs at most what noise does, but for so many times the root of that: three standard
deviations of Laplace noise. Beyond it the search has ended too early, and the optimum itself is found."""
TWINS_OF_OPTIMUM = 2
"""They are compared with the same twins of another fit, which needs fewer of them."""
MOST_SUBSETS = 100_000
"""Sets of attributes that are worth counting one by one."""
LINE_SEARCH_LIMIT = 100
"""Steps that are still too long after so many halvings have met the limits of rounding: the search ends."""
MATCHED = 0.05
"""How far the model may be from the marginals judged best, in units of the noise they hold."""


@dataclass(frozen=True, eq=False)
class LeastRiskFit:
    """The potentials of least estimated error, and what is known of them."""

    potentials: Array
    marginals: Array
    risk: float
    """The estimated squared error of the rows, in units of one row's noise."""
    freedom: float
    """How many rows' worth of noise the fit has taken in."""
    steps: int
    best_step: int
    effort: float
    """How far the best fit had gone: the lengths of its steps, added up."""
    oracle_calls: int
    seconds: float
    limited: bool
    """Whether steps or time ran out first."""
    full: bool
    """Whether it ended because it has taken in as much noise as a model can: it was on its way to the optimum."""
    followed: tuple[float, ...]
    """The freedom as each twin tells it."""


@dataclass(frozen=True, eq=False)
class _Iterate:
    """Potentials θ, log Z, the rows of their marginals ν, and the rows of the running average x."""

    potentials: Array
    log_partition: float
    fitted: Array
    average: Array


@dataclass(frozen=True, eq=False)
class _Judged:
    near: Array
    """Potentials whose marginals are near the average."""
    average: Array
    risk: float
    freedom: float
    step: int
    effort: float
    loss: float
    followed: tuple[float, ...]


def fit_least_risk(
    oracle: Oracle,
    rows: MeasuredRows,
    observed: Array,
    laplace: NDArray[np.bool_],
    *,
    start: Array,
    moved_start: Callable[[Array], Array] | None = None,
    most: float = np.inf,
    max_steps: int = 2_000,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> LeastRiskFit:
    """The model of least estimated error on the way from `start` to the least-squares optimum.

    `observed` has noise of variance 1 in every row, Laplace where `laplace` says so. `moved_start` has the start for
    rows moved by a perturbation, where it depends on them. `most` is how many rows' worth of noise a model can take in,
    where that is known: a fit that has taken in all of it goes no farther. Costs two calls of the oracle for each step,
    more for a few rows; the steps are the fewer the sooner noise sets in.
    """
    began = time.monotonic()
    perturbations = _perturbations(observed.size)
    starts = [start, *(start if moved_start is None else moved_start(perturbation) for perturbation in perturbations)]
    search = Search(oracle, rows, observed, laplace, starts, perturbations)
    while True:
        search.step()
        if progress is not None:
            progress(search.steps, search.loss, search.best.risk)
        late = time_limit is not None and time.monotonic() - began > time_limit
        limited = late or search.steps >= max_steps
        full = search.steps > LITTLE_PATIENCE and search.best.freedom >= most
        if limited or full or search.stuck or search.is_over:
            break
    best = search.best
    enough = MATCHED * max(best.freedom, 1.0)
    potentials, calls = match_marginals(oracle, rows, best.average, start=best.near, enough=enough)
    return LeastRiskFit(
        potentials,
        oracle.marginals(potentials).values.copy(),
        best.risk,
        best.freedom,
        search.steps,
        best.step,
        best.effort,
        search.calls + calls + 1,
        time.monotonic() - began,
        limited,
        full,
        best.followed,
    )


def risk_of_optimum(
    fit: LeastRiskFit,
    fitted: Array,
    optimal: Callable[[Array], Array | None],
    observed: Array,
    laplace: NDArray[np.bool_],
) -> float:
    """The estimated squared error of the rows `fitted` of the optimum, to be compared with that of `fit`.

    `optimal` has the rows of the optimum for other observed values; where it has none the error is not a number. Two
    twins do: what they follow more closely than the same twins of `fit`, added to what all its twins say of `fit`.
    """
    perturbations, moves = _perturbations(observed.size)[:TWINS_OF_OPTIMUM], []
    for perturbation in perturbations:
        twin = optimal(observed + perturbation)
        if twin is None:
            return math.nan
        moves.append(twin - fitted)
    risk, followed = estimated_risk(observed - fitted, laplace, perturbations, moves)
    return risk + 2.0 * (fit.freedom - float(np.mean(fit.followed[: followed.size])))


def free_numbers(scopes: Sequence[Scope], sizes: Sequence[int]) -> int:
    """How many numbers, the total aside, make up consistent marginals of these scopes; at most, where they are many.

    A set of attributes in some scope has Π (size − 1) of its own, what it tells beyond its subsets.

    >>> free_numbers([(0, 1), (1, 2)], (2, 3, 4))
    14
    """
    if sum(2 ** len(scope) for scope in scopes) > MOST_SUBSETS:
        return sum(math.prod(sizes[attribute] for attribute in scope) for scope in scopes)
    subsets = {each for scope in scopes for size in range(len(scope)) for each in combinations(sorted(scope), size + 1)}
    return sum(math.prod(sizes[attribute] - 1 for attribute in each) for each in subsets)


def is_beyond_noise(cost: float, expected: float) -> bool:
    """Whether a fit costs more than noise explains, which costs what is expected on average."""
    return cost > expected + ALLOWANCE * math.sqrt(expected)


def _perturbations(rows: int) -> list[Array]:
    """By how much the twins' values are moved."""
    rng = generator(0)
    twins = min(MOST_TWINS, max(1, ROWS_FOR_ONE_TWIN // max(rows, 1)))
    return [np.where(rng.integers(0, 2, rows) > 0, PERTURBATION, -PERTURBATION) for _ in range(twins)]


def estimated_risk(
    residual: Array, laplace: NDArray[np.bool_], perturbations: Sequence[Array], moves: Sequence[Array]
) -> tuple[float, Array]:
    """The estimated squared error of fitted rows, and the rows' worth of noise in them as each twin tells it.

    `moves` are the changes of the fitted rows when the observed ones change by `perturbations`, of entries of one
    size each.
    """
    far = np.abs(residual)
    usual = float(far.mean(where=laplace)) if laplace.any() else 0.0
    kappa = np.where(laplace, 0.5 + 0.5 * far / usual, 1.0) if usual > 0.0 else np.ones(far.size)
    followed = np.array(
        [np.sum(kappa * move / perturbation) for perturbation, move in zip(perturbations, moves, strict=True)]
    )
    return float(residual @ residual) - residual.size + 2.0 * float(followed.mean()), followed


class Search:
    """The way from the start towards the optimum, step by step; with perturbations also that of twins, and verdicts."""

    def __init__(
        self,
        oracle: Oracle,
        rows: MeasuredRows,
        observed: Array,
        laplace: NDArray[np.bool_],
        starts: Sequence[Array],
        perturbations: Sequence[Array],
    ) -> None:
        self.oracle, self.rows, self.laplace = oracle, rows, laplace
        self.perturbations = perturbations
        self.observed = [observed, *(observed + perturbation for perturbation in perturbations)]
        self.fits: list[_Iterate] = []
        for start in starts:
            found = oracle.marginals(start)
            fitted = rows.apply(found.values)
            if not self.fits:  # of the fit itself, the averages of its marginals and of its potentials are kept as well
                self.marginals, self.mean_potentials = found.values.copy(), start.copy()
            self.fits.append(_Iterate(start, found.log_partition, fitted, fitted))
        self.weight = 0.0  # A: the sum of the step lengths so far
        self.steps, self.calls = 0, len(self.fits)
        self.stuck = False
        steepest = float(np.abs(rows.adjoint(self.fits[0].fitted - observed)).max(initial=0.0))
        self.curvature = steepest if steepest > 0.0 else 1.0  # a first step that moves no potential by more than 1
        if perturbations:
            self.best = self._judged()
            self.best_worth_it, self._risk_worth_it = 0, self.best.risk
            self.risk = self.best.risk

    def step(self) -> None:
        """One step of the fit and its twins, and a judgement."""
        self.advance()
        if self.stuck:
            return
        found = self._judged()
        self.risk = found.risk
        if found.risk < self.best.risk:
            self.best = found
        if found.risk < self._risk_worth_it - WORTH_IT * max(found.freedom, 1.0):
            self.best_worth_it, self._risk_worth_it = self.steps, found.risk

    def advance(self, *, farthest: float = np.inf) -> None:
        """One step of the fit and its twins, as long as the loss allows, and no farther in all than this."""
        for _ in range(LINE_SEARCH_LIMIT):
            step = (1.0 + np.sqrt(1.0 + 4.0 * self.curvature * self.weight)) / (2.0 * self.curvature)
            step = min(step, farthest - self.weight)
            moved = self._moved(step)
            if moved is not None:
                break
            self.curvature *= 2.0
        else:
            self.stuck = True
            return
        self.fits, marginals = moved
        self.weight += step
        share = step / self.weight
        for average, newest in ((self.marginals, marginals), (self.mean_potentials, self.fits[0].potentials)):
            average *= 1.0 - share
            average += share * newest
        self.steps += 1
        self.curvature *= EASIER

    @property
    def is_over(self) -> bool:
        """Whether nothing better is to be expected."""
        since = self.steps - self.best.step
        # Accelerated steps make waves: where the loss itself has risen it will fall again, and noise is not the reason.
        # With much more than noise in the loss, though, waves say that the way is long, and other methods are faster.
        noisier = self.loss <= self.best.loss or is_beyond_noise(self.best.loss, 0.5 * self.observed[0].size)
        risen = noisier and self.risk > self.best.risk + RISEN * max(self.best.freedom, 1.0)
        return self.steps > PATIENCE * self.best_worth_it + LEAST_PATIENCE or (risen and since > LITTLE_PATIENCE)

    def _moved(self, step: float) -> tuple[list[_Iterate], Array] | None:
        """The fit and its twins after a step of this length, and the fit's marginals; None where it is too long."""
        moved, marginals = [], []
        for fit, observed in zip(self.fits, self.observed, strict=True):
            following = self._try(fit, observed, step)
            if following is None:
                return None
            moved.append(following[0])
            marginals.append(following[1])
        return moved, marginals[0]

    def _try(self, fit: _Iterate, observed: Array, step: float) -> tuple[_Iterate, Array] | None:
        whole, total = self.weight + step, self.oracle.total
        share = step / whole
        middle = fit.fitted - fit.average
        middle *= share
        middle += fit.average
        middle -= observed
        gradient = self.rows.adjoint(middle)
        potentials = gradient * -step
        potentials += fit.potentials
        found = self.oracle.marginals(potentials)
        self.calls += 1
        slope = step * inner(gradient, found.values)
        divergence = -slope - total * (found.log_partition - fit.log_partition)
        rounding = ROUNDING * (total * (abs(found.log_partition) + abs(fit.log_partition)) + abs(slope))
        fitted = self.rows.apply(found.values)
        change = np.subtract(fitted, fit.fitted, out=middle)
        if 0.5 * share**2 * inner(change, change) > (divergence + rounding) / whole:
            return None
        average = np.subtract(fitted, fit.average)
        average *= share
        average += fit.average
        return _Iterate(potentials, found.log_partition, fitted, average), found.values

    def _judged(self) -> _Judged:
        fitted, *perturbed = (fit.average for fit in self.fits)
        residual = self.observed[0] - fitted
        self.loss = 0.5 * inner(residual, residual)
        risk, followed = estimated_risk(
            residual, self.laplace, self.perturbations, [twin - fitted for twin in perturbed]
        )
        if self.steps and risk >= self.best.risk:
            near, average = self.best.near, self.best.average
        else:
            near, average = self.mean_potentials.copy(), self.marginals.copy()
        told = tuple(followed.tolist())
        return _Judged(near, average, risk, float(followed.mean()), self.steps, self.weight, self.loss, told)
