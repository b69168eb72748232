"""Discrete noise on exact integers: exact samplers for real data, a seeded twin for simulation.

The two laws, for a whole number z:

    discrete Laplace    P(Z = z) = (1 − q)/(1 + q) · q^|z|,  q = exp(−1/scale)     (Ghosh et al. 2012)
    discrete Gaussian   P(Z = z) ∝ exp(−z² / (2 stddev²))                          (Canonne et al. 2020)

On integers with L1 sensitivity Δ the first is Δ/scale-differentially private; on integers with L2
sensitivity Δ the second is Δ²/(2 stddev²)-zCDP. All numbers here are in units of the public lattice on which
the query was rounded: one unit is one record for a count.

`SecureNoise` has no seed. It takes the operating system's entropy and exact arithmetic, because floating-point
noise leaks through its low bits (Mironov 2012): OpenDP's samplers for up to `CHUNK` values, and `exact_draws`, which
has the same laws and is some forty times as fast, for more. `SimulatedNoise` has a seed, floats, and `private = False`.
Both saturate at the ends of int64 instead of failing: no value in the data can raise an error here, and
no text of an error is taken from the data.
"""

import math
import os
import re
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.errors import ConsilienceError, DeclarationError
from consilience.kernels.rng import generator
from consilience.privacy.exact_draws import LARGEST_SCALE, LEAST_SCALE, DiscreteLaw

if TYPE_CHECKING:
    from opendp.mod import Measurement

Integers = NDArray[np.int64]
SelectionLaw = Literal["exponential", "gumbel", "laplace"]

SELECTION_LAWS: tuple[SelectionLaw, ...] = ("exponential", "gumbel", "laplace")

CHUNK = 16_384
"""Up to so many values are drawn at once by OpenDP. More are drawn in chunks of as many, a thread's turn each."""

_LARGEST = np.iinfo(np.int64).max
_SMALLEST = np.iinfo(np.int64).min
_LARGEST_FINITE = np.finfo(np.float64).max


class NoiseSource(Protocol):
    """Where noise comes from: the one seam between a real measurement and a simulated one."""

    @property
    def private(self) -> bool:
        """Whether the noise protects anyone: true exactly when nobody can repeat it."""
        ...

    def laplace(self, exact: Integers, scale: float) -> Integers:
        """The exact values plus independent discrete Laplace noise, saturated at int64."""
        ...

    def gaussian(self, exact: Integers, stddev: float) -> Integers:
        """The exact values plus independent discrete Gaussian noise, saturated at int64."""
        ...

    def noisy_argmax(self, scores: Integers, scale: float, *, law: SelectionLaw) -> int:
        """The index of the greatest score after noise of the law; ties are broken uniformly at random."""
        ...


class SecureNoise:
    """Exact samples with the operating system's entropy: the only noise for real data.

    A draw of OpenDP's takes five to ten microseconds. Of many, each takes about a sixth of one, on all processors.

    >>> SecureNoise().laplace(np.array([[10, 20], [30, 40]]), 2.0).shape
    (2, 2)
    """

    def __init__(self) -> None:
        from importlib.metadata import version

        _refuse_biased_samplers(version("opendp"))

    @property
    def private(self) -> bool:
        """True: the noise cannot be repeated."""
        return True

    def laplace(self, exact: Integers, scale: float) -> Integers:
        """The exact values plus independent discrete Laplace noise, saturated at int64."""
        return _drawn(DiscreteLaw("laplace", _positive("noise scale", scale)), _integers(exact))

    def gaussian(self, exact: Integers, stddev: float) -> Integers:
        """The exact values plus independent discrete Gaussian noise, saturated at int64."""
        return _drawn(DiscreteLaw("gaussian", _positive("noise stddev", stddev)), _integers(exact))

    def noisy_argmax(self, scores: Integers, scale: float, *, law: SelectionLaw) -> int:
        """The index of the greatest score after noise of the law; ties are broken uniformly at random.

        Exponential noise is drawn as permute-and-flip (the two choose alike: Ding et al. 2021), Gumbel noise
        as the exponential mechanism; OpenDP does both without floating point.
        """
        candidates = _candidates(scores, scale, law)
        if law == "laplace":
            return _uniform_argmax(self.laplace(candidates, scale), secrets.randbelow)
        chosen = _invoke(partial(_noisy_max_measurement, float(scale), law), candidates)
        if chosen is None:
            raise ConsilienceError(_SAMPLER_FAILED)
        return int(chosen)


class SimulatedNoise:
    """The same laws from a seeded generator: repeatable, in floating point, and therefore not private.

    >>> zeros = np.zeros(9, dtype=np.int64)
    >>> np.array_equal(SimulatedNoise(1).laplace(zeros, 5.0), SimulatedNoise(1).laplace(zeros, 5.0))
    True
    """

    def __init__(self, seed: int) -> None:
        self._rng = generator(seed)

    @property
    def private(self) -> bool:
        """False: whoever has the seed can subtract the noise."""
        return False

    def laplace(self, exact: Integers, scale: float) -> Integers:
        """The exact values plus independent discrete Laplace noise, saturated at int64."""
        values = _integers(exact)
        noise = self._discrete_laplace(_positive("noise scale", scale), values.size)
        return _saturating_sum(values, noise.reshape(values.shape))

    def gaussian(self, exact: Integers, stddev: float) -> Integers:
        """The exact values plus independent discrete Gaussian noise, saturated at int64."""
        values = _integers(exact)
        noise = self._discrete_gaussian(_positive("noise stddev", stddev), values.size)
        return _saturating_sum(values, noise.reshape(values.shape))

    def noisy_argmax(self, scores: Integers, scale: float, *, law: SelectionLaw) -> int:
        """The index of the greatest score after noise of the law; ties are broken uniformly at random."""
        candidates = _candidates(scores, scale, law)
        if law == "laplace":
            return _uniform_argmax(self.laplace(candidates, scale), self._randbelow)
        with np.errstate(over="ignore"):  # a score too far below the greatest is at −∞ and never chosen
            handicaps = gaps_below_greatest(candidates) / scale
        if law == "gumbel":  # the greatest after Gumbel noise is i with probability ∝ exp(−handicapᵢ): one draw will do
            chances = np.cumsum(np.exp(-handicaps))
            return int(np.searchsorted(chances, self._rng.random() * chances[-1], side="right"))
        return int(np.argmax(self._rng.exponential(size=candidates.size) - handicaps))

    def _randbelow(self, bound: int) -> int:
        return int(self._rng.integers(bound))

    def _discrete_laplace(self, scale: float, count: int) -> Integers:
        """Draws of the discrete Laplace law.

        The law is that of the difference of two geometric variables with success 1 − q. Equivalently: zero with
        probability (1 − q)/(1 + q), else a fair sign times a geometric variable on 1, 2, … The second form
        saturates with the right sign where the first would cancel (scales beyond 10^17).
        """
        success = -math.expm1(-1.0 / scale)
        is_zero = self._rng.random(count) < success / (2.0 - success)
        signs = 2 * self._rng.integers(2, size=count) - 1
        return np.where(is_zero, 0, signs * self._rng.geometric(success, size=count))

    def _discrete_gaussian(self, stddev: float, count: int) -> Integers:
        """Draws of the discrete Gaussian law, by rejection (Canonne, Kamath, Steinke 2020, Algorithm 3).

        With t = ⌊σ⌋ + 1, a discrete Laplace draw Y of scale t is kept with probability
        exp(−(|Y| − σ²/t)² / (2σ²)); what is kept has density ∝ exp(−Y²/(2σ²)). At least a third is kept.
        """
        spread = float(math.floor(stddev) + 1)
        noise = np.zeros(count, dtype=np.int64)
        pending = np.arange(count)
        while pending.size:
            proposal = self._discrete_laplace(spread, pending.size)
            with np.errstate(over="ignore"):  # a proposal too far out for its square is kept with probability 0
                distance = np.abs(proposal) / stddev - stddev / spread
                kept = self._rng.random(pending.size) < np.exp(-0.5 * distance * distance)
            noise[pending[kept]] = proposal[kept]
            pending = pending[~kept]
        return noise


@lru_cache(maxsize=4096)
def laplace_scale(epsilon: float, sensitivity: float) -> float:
    """The least scale at which discrete Laplace noise is epsilon-private for this L1 sensitivity.

    In real numbers this is Δ/ε. In floating point it is the least float whose loss, as OpenDP computes it with
    every rounding upwards, does not exceed epsilon. Lattice values move by whole units, so Δ is rounded up.

    >>> laplace_scale(0.5, 1)
    2.0
    """
    budget = _positive("epsilon", epsilon)
    _positive("L1 sensitivity", sensitivity)
    units = int(sensitivity) if isinstance(sensitivity, int | np.integer) else math.ceil(sensitivity)
    if units > _LARGEST:
        raise DeclarationError(
            f"the L1 sensitivity is {sensitivity!r} lattice units and at most {_LARGEST} fit; use a coarser lattice"
        )
    return _least_scale(
        units / budget,
        lambda scale: _laplace_measurement(scale).map(units) <= budget,
        f"epsilon {epsilon!r} at L1 sensitivity {sensitivity!r}",
    )


def gaps_below_greatest(scores: Integers) -> NDArray[np.uint64]:
    """How far each score lies below the greatest, exactly, for any scores in int64.

    >>> gaps_below_greatest(np.array([3, 5, -2])).tolist()
    [2, 0, 7]
    """
    # Differences of two int64 numbers fit in 64 bits without sign, and arithmetic modulo 2^64 finds them.
    wrapped = scores.astype(np.uint64)
    return wrapped[np.argmax(scores)] - wrapped


_SAMPLER_FAILED = (
    "the noise sampler failed and nothing was released; its message is withheld because it may quote the data. "
    "Check that the operating system provides entropy, then repeat the request under the same id"
)


def _refuse_biased_samplers(installed: str) -> None:
    """Refuses OpenDP before 0.14.2: the samplers of 0.14.0 and 0.14.1 are biased, older ones were never tested here."""
    release = tuple(int(number) for number in re.findall(r"\d+", installed)[:3])
    if release < (0, 14, 2) or (release == (0, 14, 2) and installed != "0.14.2"):  # the last: pre-releases
        raise ConsilienceError(
            f"opendp {installed} is installed, whose noise may miss the law that protects people; at least 0.14.2 is "
            "needed, and nothing was spent: run pip install 'opendp>=0.14.2'"
        )


def _opendp_features() -> None:
    """OpenDP's samplers carry the flag "contrib", and nothing else is switched on."""
    from opendp.mod import enable_features

    enable_features("contrib")


def _laplace_measurement(scale: float) -> "Measurement":
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_laplace
    from opendp.metrics import l1_distance

    _opendp_features()
    return make_laplace(vector_domain(atom_domain(T="i64")), l1_distance(T="i64"), scale)


def _gaussian_measurement(stddev: float) -> "Measurement":
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance

    _opendp_features()
    return make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T="f64"), stddev)


def _noisy_max_measurement(scale: float, law: SelectionLaw) -> "Measurement":
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_noisy_max
    from opendp.measures import max_divergence, zero_concentrated_divergence
    from opendp.metrics import linf_distance

    _opendp_features()
    measure = max_divergence() if law == "exponential" else zero_concentrated_divergence()
    return make_noisy_max(vector_domain(atom_domain(T="i64")), linf_distance(T="i64"), measure, scale)


def _invoke(make: Callable[[], "Measurement"], exact: Integers) -> Any:
    """What the measurement releases, or None if it failed: an exception of OpenDP's may quote its argument."""
    try:
        return make()(exact)
    except Exception:
        return None


def _drawn(law: DiscreteLaw, exact: Integers) -> Integers:
    """A noisy copy, drawn chunk by chunk on all processors; each of OpenDP's chunks has a measurement of its own."""
    values = np.ascontiguousarray(exact).reshape(-1)
    noisy = np.empty(values.size, dtype=np.int64)
    of_opendp = _laplace_measurement if law.name == "laplace" else _gaussian_measurement
    own = values.size > CHUNK and LEAST_SCALE <= law.scale <= LARGEST_SCALE

    def draw(start: int) -> bool:
        chunk = values[start : start + CHUNK]
        released = _plus_noise(law, chunk) if own else _invoke(partial(of_opendp, law.scale), chunk)
        if released is not None:
            noisy[start : start + CHUNK] = released
        return released is not None

    starts = range(0, values.size, CHUNK)
    with ThreadPoolExecutor(min(os.cpu_count() or 1, len(starts))) if len(starts) > 1 else nullcontext() as pool:
        drawn = map(draw, starts) if pool is None else pool.map(draw, starts)
        if not all(drawn):
            raise ConsilienceError(_SAMPLER_FAILED)
    return noisy.reshape(exact.shape)


def _plus_noise(law: DiscreteLaw, exact: Integers) -> Integers | None:
    """The values with noise of the law, or None where the operating system gives no entropy."""
    try:
        return _saturating_sum(exact, law.draw(exact.size))
    except OSError:
        return None


def _saturating_sum(left: Integers, right: Integers) -> Integers:
    """left + right where int64 can hold it, else the nearest end of int64."""
    wrapped = left + right
    overflowed = ((left ^ wrapped) & (right ^ wrapped)) < 0  # both terms have the sign that the sum has lost
    return np.where(overflowed, np.where(left < 0, _SMALLEST, _LARGEST), wrapped)


def _uniform_argmax(scores: Integers, randbelow: Callable[[int], int]) -> int:
    greatest = np.flatnonzero(scores == scores.max())
    return int(greatest[randbelow(greatest.size)])


def _least_scale(guess: float, suffices: Callable[[float], bool], request: str) -> float:
    """The least positive float that suffices, where every greater one suffices too; found from a near guess.

    Positive floats are ordered as the integers that share their bits, so the search gallops away from the guess
    in steps of 1, 2, 4, … floats, then bisects.
    """
    last = _bits(_LARGEST_FINITE)
    high = min(max(_bits(guess), 1), last)
    step = 1
    while not suffices(_float_of(high)):
        if high == last:
            raise DeclarationError(f"no finite noise gives {request}; ask for a larger budget or a coarser lattice")
        high, step = min(high + step, last), 2 * step
    low, step = high - 1, 1
    while low > 0 and suffices(_float_of(low)):
        high, low, step = low, max(low - step, 0), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(_float_of(middle)) else (middle, high)
    return _float_of(high)


def _bits(value: float) -> int:
    return int(np.float64(value).view(np.int64))


def _float_of(bits: int) -> float:
    return float(np.int64(bits).view(np.float64))


def _positive(name: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise DeclarationError(f"the {name} is {value!r}; it must be positive and finite: give such a number")
    return float(value)


def _integers(exact: Integers) -> Integers:
    values = np.asarray(exact)
    if not np.can_cast(values.dtype, np.int64, casting="safe"):
        raise DeclarationError(
            f"noise is drawn for values of type int64, these are {values.dtype}; round the query or the score to a "
            "lattice first"
        )
    return values.astype(np.int64, copy=False)


def _candidates(scores: Integers, scale: float, law: SelectionLaw) -> Integers:
    _positive("noise scale", scale)
    if law not in SELECTION_LAWS:
        raise DeclarationError(f"the selection law is {law!r}; choose one of {', '.join(SELECTION_LAWS)}")
    return integer_scores(scores)


def integer_scores(scores: Integers) -> Integers:
    """The scores of at least one candidate, refused where they are no list of whole numbers."""
    values = _integers(scores)
    if values.ndim != 1 or values.size == 0:
        raise DeclarationError(
            f"the scores have shape {values.shape}; selection needs one score for each of at least one candidate"
        )
    return values
