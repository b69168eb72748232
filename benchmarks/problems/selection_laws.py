"""The probabilities with which private selection returns each candidate: NON-PRIVATE, as confidential as the scores.

`privacy/scores.py` draws; these are the laws that its draws follow, in closed form.
"""

import math
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from consilience.errors import TooLarge
from consilience.privacy.noise import gaps_below_greatest, integer_scores
from consilience.privacy.scores import Selector, known_selector, selection_scale

MOST_TERMS = 10_000_000


def selection_probabilities(
    scores: NDArray[np.int64],
    *,
    sensitivity: float,
    epsilon: float,
    selector: Selector,
) -> NDArray[np.float64]:
    """The probability with which `select` returns each index: a reference, and as confidential as the scores.

    >>> scores = np.array([0, 1])
    >>> selection_probabilities(scores, sensitivity=1, epsilon=1.0, selector="exponential").round(4).tolist()
    [0.3775, 0.6225]
    """
    known_selector(selector)
    gaps = gaps_below_greatest(integer_scores(scores)).astype(np.float64)
    scale = selection_scale(sensitivity=sensitivity, epsilon=epsilon)
    match selector:
        case "exponential":
            weights = _exponential_decay(gaps, scale)
            return weights / weights.sum()
        case "permute-and-flip":
            return _permute_and_flip_probabilities(gaps, scale)
        case "report-noisy-max":
            return _report_noisy_max_probabilities(gaps, scale)
        case _:
            assert_never(selector)


def _permute_and_flip_probabilities(gaps: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """The law of the greatest score after exponential noise.

    With aᵢ = exp(−gapᵢ/b), and t the probability that the noise on the greatest score carries it beyond a level,

        P(i) = aᵢ ∫₀¹ ∏_{j≠i} (1 − aⱼ t) dt.

    The integrand is a polynomial of degree n − 1 with positive values: Gauss–Legendre with ⌈n/2⌉ nodes is exact.
    """
    weights = _exponential_decay(gaps, scale)
    nodes, lengths = _unit_quadrature(gaps.size)
    return weights * (_products_of_others(1.0 - np.outer(weights, nodes)) @ lengths)


def _report_noisy_max_probabilities(gaps: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """The law of the greatest score after discrete Laplace noise with uniform ties.

    Let pⱼ(v) be the probability that noisy score j equals v, and Fⱼ(v) that it is at most v. One of m + 1 tied
    candidates is chosen with probability 1/(m + 1) = ∫₀¹ x^m dx, therefore

        P(i) = Σ_v pᵢ(v) ∫₀¹ ∏_{j≠i} (Fⱼ(v − 1) + x pⱼ(v)) dx,

    with an inner polynomial of degree n − 1. Levels v more than 40 scales from the greatest score are left out:
    together they have less than 10^-16.
    """
    reach = 40.0 * scale + 1.0
    if gaps.size * (2.0 * reach + 1.0) > MOST_TERMS:
        raise TooLarge(
            f"the reference law of report-noisy-max sums about {gaps.size * (2 * reach + 1):.2g} terms and "
            f"{MOST_TERMS:.0e} are allowed; use fewer scores, a coarser lattice or a larger epsilon"
        )
    levels = np.arange(-math.ceil(reach), math.ceil(reach) + 1, dtype=np.float64)
    noise = levels + gaps[:, None]
    ratio = math.exp(-1.0 / scale)
    equal = (1.0 - ratio) / (1.0 + ratio) * _exponential_decay(np.abs(noise), scale)
    tail = _exponential_decay(np.where(noise > 0, noise, 1.0 - noise), scale) / (1.0 + ratio)
    below = np.where(noise > 0, 1.0 - tail, tail)
    chances = np.zeros(gaps.size)
    for node, length in zip(*_unit_quadrature(gaps.size), strict=True):
        chances += length * (equal * _products_of_others(below + node * equal)).sum(axis=1)
    return chances


def _unit_quadrature(candidates: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes and weights on [0, 1], exact for polynomials of a degree below the number of candidates."""
    nodes, weights = np.polynomial.legendre.leggauss((candidates + 1) // 2)
    return (nodes + 1.0) / 2.0, weights / 2.0


def _products_of_others(factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """In each row the product of all other rows, without division, so that zeros are no exception."""
    before = np.ones_like(factors)
    before[1:] = np.cumprod(factors[:-1], axis=0)
    after = np.ones_like(factors)
    after[:-1] = np.cumprod(factors[:0:-1], axis=0)[::-1]
    return before * after


def _exponential_decay(distances: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # exp(−∞) is 0, as it should be
        return np.exp(-(distances / scale))
