"""Checks of declared noise laws that hold whatever the data is.

spread   The root mean square of the contrasts is 1 if the noise is as declared. It is ranked among simulated ones.
shape    The quantiles of the contrasts against those of simulated noise: the largest distance in units of its own
         spread, ranked among the simulations.
zeros    No truth x makes a value hit 0 more often than the most likely noise does: P(x + n = 0) ≤ max P(n = k). And of
         discrete Laplace noise a value that is 0 or below is 0 with the probability 1 − q for every x ≥ 0, because the
         law has no memory. Values below 0 that were set to 0 break both.
depth    How far below 0 values fall is known, too: of Laplace noise −y given y < 0 has the same law for every x ≥ 0
         (exactly), and of Gaussian noise it is at most what it is for x = 0.

Where the noise law is the one declared, each p-value is at most α with a probability of about α or less, also for an α
of one in a million: where ranks end, an exponential tail goes on. No noise that is declared here has a heavier one: a
root mean square and a quantile of Laplace noise have just that tail far out, and those of Gaussian noise a lighter one.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.fft import dctn
from scipy.special import betainc, gammainc, gammaincc, gammaincinv

from consilience.domain import Domain
from consilience.domain.factors import (
    AllRanges,
    Buckets,
    Equal,
    Identity,
    Intervals,
    Prefix,
    Range,
    Subset,
    Total,
    Tree,
    Value,
)
from consilience.estimators.base import Progress
from consilience.kernels.rng import Generator
from consilience.measurements import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Measurement,
    MeasurementSet,
    NoiseLaw,
)

# ----------------------------------------------------------------------------------------------------------------------
# Contrasts: combinations of noisy values from which the data cancels, so that noise alone is left.
#
# Two measurements that imply the same number differ by noise, whatever that number is. With y = A x + n, every row c
# with c A = 0 gives c y = c n, whose law is known. A fit is not needed, and what a fit absorbs of the noise does not
# matter.
#
# Of marginals all contrasts are at hand in closed form. The orthonormal cosine transform of a marginal over the
# attributes S has a block for every T ⊆ S: the coordinates that vary along T alone. Multiplied by √Π_{i∈S∖T} nᵢ that
# block is the same for every marginal that holds T, but for noise of the variance σ²_S Π_{i∈S∖T} nᵢ in each coordinate.
# So k marginals that hold T give k − 1 independent differences a coordinate.
#
# Of other queries the contrasts are the left null space of A, found by a decomposition where it is small.


Floats = NDArray[np.float64]

LARGEST_MATRIX = 2_500
"""Queries other than marginals are compared where they have no more answers, and no more cells, than this."""


@dataclass(frozen=True, eq=False)
class Contrasts:
    """What of some measurements is noise alone, in units of its standard deviation."""

    measurements: tuple[Measurement, ...]
    """Those that are compared."""
    size: int
    """How many contrasts there are."""
    standardise: Callable[[Sequence[Floats]], Floats]
    """From values, an array (draws, answers) for each measurement, to contrasts, an array (draws, size)."""

    def observed(self) -> Floats:
        """The contrasts of the noisy values themselves; each has mean 0 and variance 1 if the noise is as declared."""
        return self.standardise([each.values[None, :] for each in self.measurements])[0]


def contrasts(measured: MeasurementSet) -> Contrasts | None:
    """The contrasts between measurements, or None where they imply no number twice.

    Clipped and censored values are left out, because their noise has another law.
    """
    usable = tuple(each for each in measured if is_plain(each))
    marginals = tuple(each for each in usable if _is_marginal(each))
    found = None if len(marginals) == len(usable) else _of_queries(usable, measured.domain)
    found = found or _of_marginals(marginals, measured.domain)
    return found if found.size else None


def is_plain(measurement: Measurement) -> bool:
    """Whether the values are answers plus noise, and nothing was done to them."""
    return measurement.kind == "linear" and not measurement.clipped and measurement.threshold is None


def _is_marginal(measurement: Measurement) -> bool:
    return all(isinstance(factor, Identity | Total) for _, factor in measurement.query.factors)


Scope = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Block:
    """Where the coordinates of one set of attributes lie in the transform of one marginal."""

    measurement: int
    where: tuple[slice | int, ...]
    factor: float
    variance: float


def _of_marginals(marginals: Sequence[Measurement], domain: Domain) -> Contrasts:
    scopes = [_scope(each, domain) for each in marginals]
    blocks: dict[Scope, list[_Block]] = {}
    for number, (each, scope) in enumerate(zip(marginals, scopes, strict=True)):
        for part in itertools.chain.from_iterable(itertools.combinations(scope, k) for k in range(len(scope) + 1)):
            blocks.setdefault(part, []).append(_block(number, each, scope, part, domain))
    shared = {part: _differences(found) for part, found in blocks.items() if len(found) > 1}
    size = sum(len(matrix) * math.prod(n - 1 for n in domain.sizes(part)) for part, matrix in shared.items())
    axes = [_to_domain_order(each, domain) for each in marginals]

    def standardise(values: Sequence[Floats]) -> Floats:
        tables = [_transformed(array, *axis) for array, axis in zip(values, axes, strict=True)]
        draws = len(values[0])
        parts = [
            np.einsum("dk,knc->ndc", matrix, _coordinates(tables, blocks[part])).reshape(draws, -1)
            for part, matrix in shared.items()
            if len(matrix)
        ]
        return np.concatenate(parts, axis=1)

    return Contrasts(tuple(marginals), size, standardise)


def _scope(measurement: Measurement, domain: Domain) -> Scope:
    """The attributes that vary, in the domain's order; those of one value do not."""
    named = (name for name, factor in measurement.query.factors if isinstance(factor, Identity))
    return domain.ordered(name for name in named if domain[name].size > 1)


def _block(number: int, measurement: Measurement, scope: Scope, part: Scope, domain: Domain) -> _Block:
    away = math.prod(domain.sizes(name for name in scope if name not in part))
    where = tuple(slice(1, None) if name in part else 0 for name in scope)
    return _Block(number, where, math.sqrt(away), measurement.noise.variance * away)


def _differences(blocks: Sequence[_Block]) -> Floats:
    """A matrix from k equal numbers with noise to as many independent, standardised differences as there are."""
    variances = np.array([block.variance for block in blocks])
    exact = np.flatnonzero(variances == 0)
    if len(exact):
        noisy = np.flatnonzero(variances > 0)
        matrix = np.zeros((len(noisy), len(blocks)))
        matrix[np.arange(len(noisy)), noisy] = 1.0 / np.sqrt(variances[noisy])
        matrix[:, exact[0]] = -matrix.sum(axis=1)
        return matrix
    weights = 1.0 / np.sqrt(variances)
    return scipy.linalg.null_space(weights[None, :]).T * weights


def _to_domain_order(measurement: Measurement, domain: Domain) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of the values over the attributes that vary, and the order that makes it the domain's."""
    named = [name for name, factor in measurement.query.factors if isinstance(factor, Identity)]
    varying = [name for name in named if domain[name].size > 1]
    ordered = domain.ordered(varying)
    return domain.sizes(varying), tuple(varying.index(name) for name in ordered)


def _transformed(values: Floats, shape: tuple[int, ...], order: tuple[int, ...]) -> Floats:
    table = values.reshape(len(values), *shape).transpose(0, *(1 + axis for axis in order))
    return np.asarray(dctn(table, axes=range(1, table.ndim), norm="ortho"), np.float64) if order else table


def _coordinates(tables: Sequence[Floats], blocks: Sequence[_Block]) -> Floats:
    """An array (measurement, draw, coordinate) of numbers that are equal but for noise."""
    found = [block.factor * tables[block.measurement][(slice(None), *block.where)] for block in blocks]
    return np.stack([each.reshape(len(each), -1) for each in found])


def _of_queries(usable: Sequence[Measurement], domain: Domain) -> Contrasts | None:
    """The left null space of the stacked queries, whitened; None where they are too large for that."""
    names = domain.ordered({name for each in usable for name in each.query.attributes})
    rows = sum(each.values.size for each in usable)
    if rows > LARGEST_MATRIX or math.prod(domain.sizes(names)) > LARGEST_MATRIX:
        return None
    matrix = np.concatenate([each.query.bind(domain).written_out(names) for each in usable])
    deviations = np.concatenate([np.full(each.values.size, each.noise.stddev_of_noise) for each in usable])
    empty = scipy.linalg.null_space(matrix.T).T
    spread = empty * deviations
    variances, directions = scipy.linalg.eigh(spread @ spread.T) if len(empty) else (np.zeros(0), np.zeros((0, 0)))
    kept = variances > 1e-9 * max(variances.max(initial=0.0), 1e-300)
    whitened = (directions[:, kept] / np.sqrt(variances[kept])).T @ empty

    def standardise(values: Sequence[Floats]) -> Floats:
        return np.concatenate(values, axis=1) @ whitened.T

    return Contrasts(tuple(usable), len(whitened), standardise)


# ----------------------------------------------------------------------------------------------------------------------
# Checks of declared noise laws that hold whatever the data is.


SUMS = (Identity, Total, Value, Subset, Equal, Range, Prefix, AllRanges, Buckets, Intervals, Tree)
"""Factors whose answers are sums of counts, and therefore not negative."""

MOST_POINTS = 99
FEWEST_NEGATIVES = 20
FEWEST_CONTRASTS = 5
FEWEST_FOR_TAILS = 100
"""Of fewer simulations than these no tail is made out, and no p-value is smaller than ranks can make it."""
MOST_SIMULATED = 200_000_000
"""No more values than these are simulated; of larger problems there are fewer simulations, and never less than 39."""


@dataclass(frozen=True, eq=False)
class QuantilePlot:
    """Observed quantiles beside those of simulated noise, and the band that holds 95 % of the simulated ones."""

    what: str
    expected: Floats
    observed: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class NoiseCheck:
    """One check: how likely what is seen would be, or worse, if the noise were as declared."""

    name: str
    """ "spread", "shape", "zeros" or "depth"."""
    p_value: float
    count: int
    """How many numbers it rests on."""
    ratio: float | None = None
    """The size of the noise, in parts of what was declared."""
    found: str = ""
    """What was seen, in words."""


def check_contrasts(
    found: Contrasts, *, simulations: int, rng: Generator, progress: Progress | None = None
) -> tuple[list[NoiseCheck], QuantilePlot]:
    """The checks of spread and shape, and the plot that shows both."""
    levels = _levels(found.size)
    squares, quantiles = _simulated(found, levels, simulations, rng, progress)
    observed = found.observed()
    square, own = float(np.mean(observed**2)), np.quantile(observed, levels)
    plot = QuantilePlot(
        f"{found.size:,} differences between measurements that imply the same number",
        quantiles.mean(axis=0),
        own,
        *np.quantile(quantiles, [0.025, 0.975], axis=0),
    )
    gaussian = all(_is_gaussian(each.noise) for each in found.measurements)
    return [_spread(square, squares, found.size, gaussian=gaussian), _shape(own, quantiles, found.size)], plot


def _levels(count: int) -> Floats:
    points = min(count, MOST_POINTS)
    return (np.arange(points) + 0.5) / points


def _simulated(
    found: Contrasts, levels: Floats, simulations: int, rng: Generator, progress: Progress | None
) -> tuple[Floats, Floats]:
    """The mean squares and the quantiles of contrasts of noise drawn from the declared laws."""
    values = sum(each.values.size for each in found.measurements)
    count = max(39, min(simulations, MOST_SIMULATED // max(values, 1)))
    batch = max(1, min(count, 2_000_000 // max(values, 1)))
    squares, quantiles = np.empty(count), np.empty((count, len(levels)))
    for start in range(0, count, batch):
        stop = min(start + batch, count)
        noise = [each.noise.simulate((stop - start, each.values.size), rng) for each in found.measurements]
        drawn = found.standardise(noise)
        squares[start:stop] = np.mean(drawn**2, axis=1)
        quantiles[start:stop] = np.quantile(drawn, levels, axis=1).T
        if progress is not None:
            progress("simulating noise", stop, count)
    return squares, quantiles


def _spread(square: float, simulated: Floats, count: int, *, gaussian: bool) -> NoiseCheck:
    # A mean of squares with the mean 1 and the variance v is taken for a χ² of 2/v degrees of freedom over them: a
    # gamma law with the shape 1/v and the scale v. Of Gaussian noise it is one, with v = 2/n.
    shape = count / 2 if gaussian else 1.0 / max(float(simulated.var(ddof=1)), 1e-300)
    low, high = (math.sqrt(square * shape / float(gammaincinv(shape, level))) for level in (0.975, 0.025))
    ratio, drawn = math.sqrt(square), np.sqrt(simulated)
    tails = [_at_least_as_far(ratio, drawn), _at_least_as_far(-ratio, -drawn)]
    if gaussian:
        tails = [float(gammainc(shape, square * shape)), float(gammaincc(shape, square * shape))]
    words = f"the noise is {ratio:.3g} times as large as declared (95 % interval {low:.3g} to {high:.3g})"
    return NoiseCheck("spread", min(1.0, 2.0 * min(tails)), count, ratio, words)


def _is_gaussian(law: NoiseLaw) -> bool:
    """Whether sums of such noise have the normal law; noise much below its own step is often 0, and has not."""
    return isinstance(law, Gaussian) or (isinstance(law, DiscreteGaussian) and law.stddev >= law.step)


def _at_least_as_far(value: float, simulated: Floats) -> float:
    """The probability of this value or a larger one: its rank, and beyond all simulations an exponential tail.

    The tail has the mean excess of the largest tenth over its own threshold, and two standard errors more.
    """
    rank = 1 + int(np.sum(simulated >= value))
    if rank > 1 or len(simulated) < FEWEST_FOR_TAILS:
        return rank / (len(simulated) + 1)
    largest = np.sort(simulated)[-(len(simulated) // 10) :]
    threshold, excess = float(largest[0]), float(np.mean(largest[1:] - largest[0]))
    excess *= 1 + 2 / math.sqrt(len(largest) - 1)
    tail = len(largest) / (len(simulated) + 1) * math.exp(-(value - threshold) / max(excess, 1e-300))
    return min(tail, 1 / (len(simulated) + 1))


def _shape(observed: Floats, simulated: Floats, count: int) -> NoiseCheck:
    """The rank, among simulations and observation together, of the largest standardised distance from their mean."""
    everything = np.vstack([observed, simulated])
    spread = np.maximum(everything.std(axis=0), 1e-12)
    distances = (np.abs(everything - everything.mean(axis=0)) / spread).max(axis=1)
    p_value = _at_least_as_far(float(distances[0]), distances[1:])
    words = f"the farthest quantile is {distances[0]:.1f} of its own standard deviations away from its mean"
    return NoiseCheck("shape", p_value, count, found=words)


def check_zeros(measurements: Sequence[Measurement]) -> NoiseCheck | None:
    """Whether more values are exactly 0 than noise allows: the trace that clipping leaves."""
    noisy = [each for each in measurements if is_plain(each) and each.noise.variance > 0]
    if not noisy:
        return None
    zeros = [int((each.values == 0).sum()) for each in noisy]
    sizes = [each.values.size for each in noisy]
    p_values = [_at_least(sum(zeros), sizes, [_most_likely(each) for each in noisy])]
    below = [int((each.values < 0).sum()) for each in noisy]
    memoryless = [i for i, each in enumerate(noisy) if isinstance(each.noise, DiscreteLaplace) and is_of_sums(each)]
    if memoryless:
        sizes_below = [zeros[i] + below[i] for i in memoryless]
        laws = [noisy[i].noise for i in memoryless]
        chances = [-math.expm1(-float(law.lattice_step or 0.0) / law.scale_parameter) for law in laws]
        p_values.append(_at_least(sum(zeros[i] for i in memoryless), sizes_below, chances))
    total, negative = sum(sizes), sum(below)
    words = f"{sum(zeros):,} of {total:,} values are exactly 0, and {negative:,} are below"
    return NoiseCheck("zeros", min(1.0, len(p_values) * min(p_values)), total, found=words)


def _most_likely(measurement: Measurement) -> float:
    """The largest probability of a single value; of continuous noise that someone rounded, that of a whole number."""
    law = measurement.noise
    if law.discrete:
        return float(np.exp(law.log_density(0.0)))
    if np.all(measurement.values == np.round(measurement.values)):
        return float(law.cdf(0.5) - law.cdf(-0.5))
    return 0.0


def _at_least(count: int, sizes: Sequence[int], chances: Sequence[float]) -> float:
    """A bound of P(at least so many hits) of independent trials.

    Above the mean by 1 or more, the tail is largest where all trials have the mean chance (Hoeffding 1956, theorem 4).
    """
    trials = sum(sizes)
    mean = math.fsum(size * chance for size, chance in zip(sizes, chances, strict=True))
    if trials == 0 or count < mean + 1:
        return 1.0
    return float(betainc(count, trials - count + 1, mean / trials))


def check_depth(measurements: Sequence[Measurement]) -> tuple[NoiseCheck, QuantilePlot] | None:
    """How far values fall below 0, against the declared law; None where too few of them do."""
    usable = [each for each in measurements if is_plain(each) and each.noise.variance > 0 and is_of_sums(each)]
    below = [(-each.values[each.values < 0], each.noise) for each in usable]
    count = sum(len(values) for values, _ in below)
    if count < FEWEST_NEGATIVES:
        return None
    laws = [_below_zero(law) for _, law in below]
    relative = np.concatenate([values / mean for (values, _), (mean, _) in zip(below, laws, strict=True)])
    pairs = zip(below, laws, strict=True)
    variance = math.fsum(len(values) * var / mean**2 for (values, _), (mean, var) in pairs) / count**2
    ratio = float(relative.mean())
    upper = float(gammaincc(1 / variance, ratio / variance))
    two_sided = all(isinstance(law, Laplace | DiscreteLaplace) for _, law in below)
    p_value = min(1.0, 2 * min(upper, 1 - upper)) if two_sided else upper
    words = f"{count:,} values lie below 0, {ratio:.3g} times as far as declared noise would put them there"
    return NoiseCheck("depth", p_value, count, ratio, words), _depth_plot(relative, below, laws)


def _depth_plot(
    relative: Floats, below: Sequence[tuple[Floats, NoiseLaw]], laws: Sequence[tuple[float, float]]
) -> QuantilePlot:
    """Quantiles of the depths against those of the law; the band is that of order statistics."""
    count, levels = len(relative), _levels(len(relative))
    tight, loose = (np.clip(levels + sign * 1.96 * np.sqrt(levels * (1 - levels) / count), 0, 1) for sign in (-1, 1))
    largest = max(range(len(below)), key=lambda i: len(below[i][0]))
    law, mean = below[largest][1], laws[largest][0]
    nothing = float(law.cdf(0.0)) if not law.discrete else float(law.cdf(-float(law.lattice_step or 1.0)))

    def depth(level: Floats) -> Floats:
        # P(−y ≤ d | y < 0) = level at d = −quantile((1 − level) P(y < 0)).
        return -law.quantile(np.clip((1 - level) * nothing, 1e-12, nothing)) / mean

    words = f"how far {count:,} noisy values lie below 0"
    return QuantilePlot(words, depth(levels), np.quantile(relative, levels), depth(tight), depth(loose))


def is_of_sums(measurement: Measurement) -> bool:
    """Whether the exact answers are sums of counts, and so never below 0."""
    return all(isinstance(factor, SUMS) for _, factor in measurement.query.factors)


def _below_zero(law: NoiseLaw) -> tuple[float, float]:
    """The mean of −y given y < 0, for x = 0, and the variance of a gamma law of that mean with no lighter a tail.

    A gamma law with the mean m and the variance v falls like exp(−d m/v). Depths of Laplace noise fall like exp(−d/b),
    so that v = m b. Those of Gaussian noise fall faster than their own v says, but for steps that are wide beside the
    noise: from the first step on each is less likely than the one before by exp(−1.5 step²/σ²) or more.
    """
    if isinstance(law, Laplace):
        return law.scale, law.scale**2
    if isinstance(law, DiscreteLaplace):
        mean = law.step / -math.expm1(-law.step / law.scale)
        return mean, mean * law.scale
    if isinstance(law, DiscreteGaussian) and law.stddev < 50 * law.step:
        k = np.arange(1.0, 12 * law.stddev / law.step + 8)
        chances = np.exp(-0.5 * (k * law.step / law.stddev) ** 2)
        mean = float(k @ chances / chances.sum())
        variance = float(k**2 @ chances / chances.sum()) - mean**2
        falls = min(1.0, (law.stddev / law.step) ** 2 / 1.5)
        return law.step * mean, law.step**2 * max(variance, mean * falls)
    deviation = law.stddev if isinstance(law, Gaussian | DiscreteGaussian) else law.stddev_of_noise
    return deviation * math.sqrt(2 / math.pi), deviation**2 * (1 - 2 / math.pi)
