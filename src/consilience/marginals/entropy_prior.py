"""Noisy residuals drawn toward what the smaller marginals imply, as far as noise explains the difference.

Before a marginal is measured, the best guess of it is the table of greatest entropy with the known smaller marginals:
for a pair, independence. The residual ẑ of a measured scope differs from the residual b of that guess e by noise of
variance v and by what the data have of their own. Taking the latter as normal with variance t·e in each cell (large
cells can deviate further than small ones), the expected residual is

    z = b + δ,    δ minimises ‖δ − (ẑ − b)‖²/v + Σ δ²/(t·e)    over tables whose sums along every axis are 0.

t is found from the differences themselves, by the moments E (ẑ − b)² = t·e + v: an empirical Bayes rule (Efron and
Morris 1973). Little noise leaves ẑ as it is; much noise leaves the guess. Residuals with fewer than three degrees of
freedom stay as measured: from so few numbers t cannot be learnt.
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST_FREEDOM = 3
MOMENT_PASSES = 20
CENTRING_PASSES = 30


def drawn_to_prior(residuals: Array, guesses: Array, variances: Array) -> Array:
    """The expected residuals of many tables of one shape, given their noisy residuals and the guessed tables.

    `variances` has one number for each table: 0 keeps the residual, infinity gives the guess's.
    """
    shape = residuals.shape[1:]
    freedom = math.prod(size - 1 for size in shape)
    axes = tuple(range(1, residuals.ndim))
    guessed = _centred(np.array(guesses))
    measured = np.isfinite(variances)
    drawn = measured & (variances > 0) & (freedom >= LEAST_FREEDOM)
    result = np.where(measured.reshape(-1, *[1] * len(axes)), residuals, guessed)
    if not drawn.any():
        return result
    noise = variances[drawn].reshape(-1, *[1] * len(axes))
    differences = residuals[drawn] - guessed[drawn]
    spread = guesses[drawn] / np.maximum(guesses[drawn].mean(axis=axes, keepdims=True), np.finfo(float).tiny)
    scale = _strength(differences, spread, noise * freedom / math.prod(shape))
    signal = scale * spread
    result[drawn] = guessed[drawn] + _posterior(differences, signal / (signal + noise))
    return result


def _strength(differences: Array, spread: Array, noise: Array) -> Array:
    """t, up to the scale of `spread`: a fixed point of the moments weighted by their own precision."""
    axes = tuple(range(1, differences.ndim))
    excess = differences**2 - noise
    strength = np.maximum(excess.mean(axis=axes, keepdims=True), 0.0)
    for _ in range(MOMENT_PASSES):
        weights = spread / (strength * spread + noise) ** 2
        found = (weights * excess).sum(axis=axes, keepdims=True)
        base = (weights * spread).sum(axis=axes, keepdims=True)
        strength = np.maximum(np.divide(found, base, out=np.zeros_like(found), where=base > 0), 0.0)
    return strength


def _posterior(differences: Array, shares: Array) -> Array:
    """δ = shares · (differences + multipliers), the multipliers such that all sums along axes are 0."""
    found = shares * differences
    size = float(np.abs(found).max(initial=0.0))
    for _ in range(CENTRING_PASSES):
        moved = 0.0
        for axis in range(1, found.ndim):
            short, room = found.sum(axis=axis, keepdims=True), shares.sum(axis=axis, keepdims=True)
            change = shares * np.divide(short, room, out=np.zeros_like(short), where=room > 0)
            found -= change
            moved = max(moved, float(np.abs(change).max(initial=0.0)))
        if moved <= 1e-6 * size:
            break
    return _centred(found)


def _centred(tables: Array) -> Array:
    for axis in range(1, tables.ndim):
        tables -= tables.mean(axis=axis, keepdims=True)
    return tables
