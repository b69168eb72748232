"""`DualQueryModel`: the graphical model under which the draws of a run of DualQuery are most likely.

The published account of a run is its synthetic records. But every draw also tells how wrong these records were, in a
way that depends on the data through known probabilities, and the model of greatest likelihood reads all of them
(McKenna, Sheldon, Miklau 2019, §4 and appendix C.3). `Graphical` fits it with the loss of `dual_query_loss`; the model
is over the marginals of the workload.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Query
from consilience.errors import DeclarationError, MeasurementError, ModelTooLarge
from consilience.estimators.base import Estimate, MarginalLoss, Progress, SavedModel, Suitability
from consilience.estimators.graphical import Graphical
from consilience.estimators.graphical_fitting import LARGEST_TREE, OptimiserName
from consilience.estimators.graphical_model import GraphicalEstimate
from consilience.estimators.published.dual_query import DualQueryRun, run_or_reason, run_total
from consilience.kernels.kernel_cache import njit
from consilience.kernels.rng import Generator
from consilience.measurements import Gaussian, Measurement, MeasurementSet

# ----------------------------------------------------------------------------------------------------------------------
# The loops of `signed_choices`: compiled, and imported only when they are used.
#
# Rows are taken in blocks that stay in the processor's nearest cache, and within a block round after round, so that
# many rows are multiplied at once.


Floats = NDArray[np.float64]

BLOCK = 512


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def add_weights(met: NDArray[np.uint8], fall: Floats, rise: float, sums: Floats) -> None:
    """Add e^v + e^−v of every row to the sum of each round."""
    steps, rows = met.shape
    up = np.empty(BLOCK)
    gain = rise - 1.0
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        down_by = fall[start : start + size]
        up[:size] = 1.0
        for t in range(steps):
            here = met[t, start : start + size]
            total = 0.0
            for q in range(size):
                weight = up[q] * down_by[q] * (1.0 + gain * here[q])
                up[q] = weight
                total += weight + 1.0 / weight
            sums[t] += total


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def add_slopes(met: NDArray[np.uint8], fall: Floats, rise: float, weights: Floats, slopes: Floats) -> None:
    """Add Σ_t weight_t·(e^v − e^−v) to the slope of each row."""
    steps, rows = met.shape
    up = np.empty(BLOCK)
    gain = rise - 1.0
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        down_by = fall[start : start + size]
        slope = slopes[start : start + size]
        up[:size] = 1.0
        for t in range(steps):
            here = met[t, start : start + size]
            for q in range(size):
                weight = up[q] * down_by[q] * (1.0 + gain * here[q])
                up[q] = weight
                slope[q] += weights[t] * (weight - 1.0 / weight)


# ----------------------------------------------------------------------------------------------------------------------
# The likelihood of signed choices: rows drawn round by round, by weights that grow where a history outruns a share.
#
# In round t a row q and a sign ± are drawn s times with probability exp(±v_q(t)) / Z_t, where
#
#     v_q(t) = rate·(h_q(t) − k_t·y_q),    Z_t = Σ_q 2 cosh v_q(t),    k_t = t − 1,
#
# h_q(t) counts how often the row was met in the k_t steps before the round, and y_q is the unknown share. It is the law
# of DualQuery's draws given the answers y. With n_q(t) the number of draws of +q less those of −q in round t, the
# negative log-likelihood and its gradient are
#
#     L(y)    = Σ_t [ s log Z_t − Σ_q n_q(t) v_q(t) ],
#     ∂L/∂y_q = Σ_t rate·k_t [ n_q(t) − s (e^{v_q(t)} − e^{−v_q(t)}) / Z_t ].
#
# L is convex: a sum of log-sum-exps of affine functions, and of affine ones. The draws enter by their sums alone, a_q =
# rate Σ_t k_t n_q(t) and the constant rate Σ_t Σ_q n_q(t) h_q(t). The first round, with k = 0, is the same for all y
# and is left out.
#
# The kernel goes over rows and within a row over rounds: e^v changes by a factor e^(−rate·y_q) a step, times e^rate
# where the row was met, so that no round needs an exponential. That is exact to rounding as long as no |v| exceeds 600;
# beyond, the formulas above are evaluated as they stand.


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
    def _linear(self) -> tuple[Floats, float]:
        """a, and the constant that the drawn rows' histories add to the log-likelihood."""
        steps, rows = self.met.shape
        signs = np.where(self.drawn < rows, 1.0, -1.0)
        places = self.drawn % rows
        linear, constant = np.zeros(rows), 0.0
        for t in range(steps):
            np.add.at(linear, places[t], self.rate * (t + 1) * signs[t])
            history = self.met[: t + 1, places[t]].sum(axis=0, dtype=np.float64)
            constant += self.rate * float(signs[t] @ history)
        return linear, constant

    def loss_and_gradient(self, shares: Floats) -> tuple[float, Floats]:
        """L and ∂L/∂y at the shares y."""
        linear, constant = self._linear
        reach = self.rate * self.met.shape[0] * max(1.0, float(np.abs(shares).max()) + 1.0)
        if reach <= LARGEST_EXPONENT:
            logs, slopes = self._by_kernel(shares)
        else:
            logs, slopes = self._by_formula(shares)
        loss = self.draws * float(logs.sum()) - constant + float(linear @ shares)
        return loss, linear - self.draws * slopes

    def _by_kernel(self, shares: Floats) -> tuple[Floats, Floats]:

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


# ----------------------------------------------------------------------------------------------------------------------
# The negative log-likelihood of DualQuery's draws as a loss of marginals (McKenna et al. 2019, Algorithm 5).
#
# Given the records found so far, a draw depends on the data through the answers to the workload alone, and these are
# linear in the marginals μ: y = Wμ/N. `signed_choices` has the likelihood as a function of y and its gradient; by the
# chain rule the gradient in μ is Wᵀ(∂L/∂y)/N. The loss is convex.


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


# ----------------------------------------------------------------------------------------------------------------------
# `DualQueryModel`: the graphical model under which the draws of a run of DualQuery are most likely.


@dataclass(frozen=True)
class DualQueryModel:
    """The graphical model of greatest likelihood; the options are those of `Graphical`.

    The search begins at the uniform model. `max_steps` ends it early on purpose: the last units of likelihood fit the
    chance of single draws, and the error has stopped falling by then. The status says so, and the gap how far the
    optimum is; `tolerance` is that gap in parts of the objective.
    """

    tolerance: float = 1e-3
    max_steps: int = 500
    time_limit: float | None = None
    optimiser: OptimiserName = "accelerated"
    largest_tree: int = LARGEST_TREE
    memory_limit: int = 4_000_000_000

    name: ClassVar[str] = "dual-query-model"

    def suitability(self, measured: MeasurementSet) -> Suitability:
        run = run_or_reason(measured)
        if isinstance(run, str):
            return Suitability(False, run)
        return self._sized(run).suitability(_carrier(measured, run))

    def fit(self, measured: MeasurementSet, *, progress: Progress | None = None) -> "DualQueryModelEstimate":
        suitable = self.suitability(measured)
        if not suitable.possible:
            error = ModelTooLarge if suitable.predicted_bytes else MeasurementError
            raise error(f"dual-query-model cannot fit these measurements: {suitable.reason}; use dual-query")
        run = DualQueryRun.of(measured)
        settings = replace(self._sized(run), loss=draws_loss(run), total=run_total(measured, run))
        model = settings.fit(_carrier(measured, run), progress=progress)
        method = {**model.method, "method": self.name, "loss": "dual-query draws"}
        stats = {**model.stats, "draws": run.drawn.size, "rate": run.rate}
        return DualQueryModelEstimate(measured, method, model.status, stats, model)

    def _sized(self, run: DualQueryRun) -> Graphical:
        """The estimator with the scopes of the workload, before the loss is at hand."""
        return Graphical(
            stop="converged",
            optimiser=self.optimiser,
            also=run.sets.marginals,
            total=float(run.records),
            tolerance=self.tolerance,
            max_steps=self.max_steps,
            time_limit=self.time_limit,
            largest_tree=self.largest_tree,
            memory_limit=self.memory_limit,
        )


@dataclass(frozen=True, eq=False)
class DualQueryModelEstimate(Estimate):
    """A graphical model of the data behind a run of DualQuery."""

    model: GraphicalEstimate

    @property
    def total(self) -> float:
        return self.model.total

    def marginal(self, *attributes: str) -> Array:
        return self.model.marginal(*attributes)

    def answer(self, query: Query | str) -> Array:
        return self.model.answer(query)

    def answers(self, queries: Sequence[Query | str]) -> list[Array]:
        return self.model.answers(queries)

    def draw(self, rows: int, rng: Generator) -> NDArray[np.int64]:
        return self.model.sample(rows, rng)

    def arrays(self) -> Mapping[str, Array]:
        return self.model.arrays()

    @classmethod
    def restore(cls, saved: SavedModel, measured: MeasurementSet) -> "DualQueryModelEstimate":
        carrier = _carrier(measured, DualQueryRun.of(measured))
        return cls(measured, saved.method, saved.status, saved.stats, GraphicalEstimate.restore(saved, carrier))


def _carrier(measured: MeasurementSet, run: DualQueryRun) -> MeasurementSet:
    """The linear measurements beside the draws, or the total in their place: what `Graphical` takes the cells from.

    Their answers play no part: the loss of the draws stands in their place.
    """
    linear: tuple[Measurement, ...] = tuple(each for each in measured if each.kind == "linear")
    if not linear:
        linear = (Measurement(Query(()), np.array([run_total(measured, run)]), Gaussian(1.0)),)
    provenance: dict[str, Any] = {}
    return MeasurementSet(measured.domain, linear, measured.privacy, provenance, measured.private)
