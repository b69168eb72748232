"""Private selection: the index of a good candidate, by exact samplers on integer scores.

Scores are whole numbers on a public lattice, one per candidate, and Δ is their sensitivity: no score moves by
more than Δ between neighbouring tables. Each selector adds independent noise of one scale b to every score and
returns the index of the greatest, ties broken uniformly at random:

    exponential        Gumbel noise: P(i) ∝ exp(scoreᵢ/b)              (McSherry, Talwar 2007)
    permute-and-flip   exponential noise; its expected score is never
                       below the exponential mechanism's               (McKenna, Sheldon 2020; Ding et al. 2021)
    report-noisy-max   discrete Laplace noise                          (Dwork, Roth 2014, section 3.3)

With b = 2Δ/ε each of the three is ε-differentially private. Scores are *monotonic* when one record moves all of
them in the same direction (counts under add-remove are; differences of counts are not); then b = Δ/ε suffices.

Why this holds for discrete noise with ties. Fix candidate i and the noise of the others. Let M be the greatest
noisy score of the others, m the number of others that attain it, and t = M − scoreᵢ. Then i is chosen with
probability f(t, m) = P(Z > t) + P(Z = t)/(m + 1), which falls in t and in m, and f(t − 1, ·) ≥ P(Z ≥ t) ≥ f(t, ·)
whatever the ties. Over to a neighbouring table M grows by at most Δ and scoreᵢ falls by at most Δ, so t grows
by at most k = 2Δ, and when M grows by all of Δ, the others that attain it already attained M: m does not grow. Hence
the new probability is at least f(t + k, m) ≥ exp(−k/b) f(t, m), for the discrete Laplace law loses at most a
factor exp(−1/b) per step. Monotonic scores rise together (then scoreᵢ does not fall) or fall together
(then M does not grow, and if it stays, so do its ties): k = Δ. A uniform choice among ties is part of this argument;
it also makes the result independent of the candidates' order.
"""

import math
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError
from consilience.privacy.noise import NoiseSource, SelectionLaw

Selector = Literal["exponential", "permute-and-flip", "report-noisy-max"]

NOISE_OF_SELECTOR: dict[Selector, SelectionLaw] = {
    "exponential": "gumbel",
    "permute-and-flip": "exponential",
    "report-noisy-max": "laplace",
}

# Scores leave `lattice_scores` well inside int64, so that noise has room on both sides.
_GREATEST_LATTICE_SCORE = 2**62

_MOST_BITS = 52


def select(
    scores: NDArray[np.int64],
    *,
    sensitivity: float,
    epsilon: float,
    selector: Selector = "permute-and-flip",
    monotonic: bool = False,
    noise: NoiseSource,
) -> int:
    """The index of a candidate, chosen with epsilon-differential privacy in favour of high scores.

    `sensitivity` bounds, in lattice units, how far any one score moves between neighbouring tables; `monotonic`
    promises that all scores then move in the same direction, and halves the noise.

    >>> from consilience.privacy.noise import SimulatedNoise
    >>> select(np.array([0, 90, 3]), sensitivity=1, epsilon=1.0, noise=SimulatedNoise(0))
    1
    """
    known_selector(selector)
    values = integer_scores(scores)
    scale = selection_scale(sensitivity=sensitivity, epsilon=epsilon, monotonic=monotonic)
    return noise.noisy_argmax(values, scale, law=NOISE_OF_SELECTOR[selector])


def selection_scale(*, sensitivity: float, epsilon: float, monotonic: bool = False) -> float:
    """The least float that is no smaller than 2Δ/ε, or Δ/ε for monotonic scores: the scale of every selector.

    >>> selection_scale(sensitivity=1, epsilon=0.5), selection_scale(sensitivity=1, epsilon=0.5, monotonic=True)
    (4.0, 2.0)
    """
    reach = _positive("sensitivity", sensitivity) * (1 if monotonic else 2)
    scale = _rounded_up(reach / _positive("epsilon", epsilon))
    if scale == math.inf:
        raise DeclarationError(
            f"no finite noise gives epsilon {epsilon!r} at sensitivity {sensitivity!r}; "
            "ask for a larger epsilon or use a coarser lattice"
        )
    return scale


def rho_of_selection(epsilon: float, selector: Selector) -> float:
    """The rho for which one epsilon-private selection is rho-zCDP, rounded up.

    The exponential mechanism's privacy loss has a *range* of ε, so it is ε²/8-zCDP (Cesar, Rogers 2021; Rogers,
    Steinke 2021). For the others there is the rule for all ε-private mechanisms: ε²/2 (Bun, Steinke 2016, Prop. 1.4).

    >>> rho_of_selection(1.0, "exponential"), rho_of_selection(1.0, "permute-and-flip")
    (0.125, 0.5)
    """
    return _rounded_up(_positive("epsilon", epsilon) ** 2 / _rho_divisor(selector))


def epsilon_for_rho(rho: float, selector: Selector) -> float:
    """The greatest epsilon whose selection is still rho-zCDP: the inverse of `rho_of_selection`, rounded down.

    >>> epsilon_for_rho(0.125, "exponential"), epsilon_for_rho(0.125, "report-noisy-max")
    (1.0, 0.5)
    """
    square = _positive("rho", rho) * _rho_divisor(selector)
    epsilon = math.sqrt(rho) * math.sqrt(_rho_divisor(selector))
    while Fraction(epsilon) ** 2 <= square:
        epsilon = math.nextafter(epsilon, math.inf)
    while Fraction(epsilon) ** 2 > square:
        epsilon = math.nextafter(epsilon, 0.0)
    return epsilon


def lattice_scores(values: NDArray[np.float64], *, bits: int) -> NDArray[np.int64]:
    """Real scores as whole multiples of 2^-bits, each within half a unit of the truth.

    Rounding moves each of the two scores that a sensitivity compares by up to half a unit, so in lattice units
    the sensitivity becomes Δ·2^bits + 1: see `lattice_sensitivity`. Scores beyond ±2^62 units are clipped there,
    which brings no two of them further apart. The Δ of the *computed* scores counts: where a score is a
    floating-point sum of records, Δ must include its rounding errors, or the sum be made of integers.

    >>> lattice_scores(np.array([0.5, -1.26]), bits=2).tolist()
    [2, -5]
    """
    _known_bits(bits)
    real = np.asarray(values, dtype=np.float64)
    if not np.isfinite(real).all():
        raise DeclarationError("a score is not a finite number; make the score function finite for every table")
    limit = math.ldexp(_GREATEST_LATTICE_SCORE, -bits)
    return np.rint(np.ldexp(np.clip(real, -limit, limit), bits)).astype(np.int64)


def lattice_sensitivity(sensitivity: float, *, bits: int) -> float:
    """The sensitivity of `lattice_scores` in lattice units: Δ·2^bits + 1, rounded up.

    >>> lattice_sensitivity(0.75, bits=3)
    7.0
    """
    _known_bits(bits)
    return _rounded_up(_positive("sensitivity", sensitivity) * 2**bits + 1)


def _rho_divisor(selector: Selector) -> int:
    return 8 if known_selector(selector) == "exponential" else 2


def known_selector(selector: Selector) -> Selector:
    if selector not in NOISE_OF_SELECTOR:
        raise DeclarationError(f"the selector is {selector!r}; choose one of {', '.join(NOISE_OF_SELECTOR)}")
    return selector


def _known_bits(bits: int) -> None:
    if not 0 <= bits <= _MOST_BITS:
        raise DeclarationError(f"the lattice has {bits!r} bits; choose a whole number from 0 to {_MOST_BITS}")


def integer_scores(scores: NDArray[np.int64]) -> NDArray[np.int64]:
    values = np.asarray(scores)
    if not np.can_cast(values.dtype, np.int64, casting="safe"):
        raise DeclarationError(
            f"selection needs scores of type int64, these are {values.dtype}; round them with lattice_scores first"
        )
    if values.ndim != 1 or values.size == 0:
        raise DeclarationError(
            f"the scores have shape {values.shape}; selection needs one score for each of at least one candidate"
        )
    return values.astype(np.int64, copy=False)


def _positive(name: str, value: float) -> Fraction:
    if not (math.isfinite(value) and value > 0):
        raise DeclarationError(f"the {name} is {value!r}; it must be positive and finite: give such a number")
    return Fraction(int(value)) if isinstance(value, int | np.integer) else Fraction(float(value))


def _rounded_up(exact: Fraction) -> float:
    """The least float that is no smaller than the exact number; infinity beyond the greatest finite one."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)
