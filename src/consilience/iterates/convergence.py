"""How much a chain's draws are worth, and whether several chains tell the same story.

Effective sample size: n draws whose autocorrelations are ρ_k tell as much about their mean as n/τ independent ones,

    τ = −1 + 2 Σ_{j ≥ 0} Γ_j,      Γ_j = ρ_{2j} + ρ_{2j+1}.

For a reversible chain Γ_j is positive, decreasing and convex in truth. The sum stops before the first estimate that is
not positive, and each Γ_j is lowered to the least of those before it: the initial monotone sequence estimator (Geyer
1992, Stat. Sci. 7). Several chains share one variance, of all draws together, so that chains at different places are
worth little (Gelman et al. 2013, Bayesian Data Analysis, §11.5).

Split R̂: each chain is cut into halves, and R̂ = √((W (h − 1)/h + B/h) / W) with W the mean variance within the halves of
length h, and B/h the variance of their means. Near 1 the halves agree; from about 1.1 up they do not.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def effective_sample_size(chains: ArrayLike) -> float:
    """The number of independent draws that the draws of these chains are worth; a row for each chain.

    Draws that are all equal tell nothing new: they are worth one.

    >>> bool(effective_sample_size([[1.0, -1.0] * 50]) > 100)  # each draw makes good for the one before it
    True
    """
    draws = np.atleast_2d(np.asarray(chains, dtype=np.float64))
    length = draws.shape[1]
    if length < 4:
        return float(draws.size)
    centred = draws - draws.mean(axis=1, keepdims=True)
    within = _autocovariances(centred).mean(axis=0)
    between = draws.mean(axis=1).var(ddof=1) if len(draws) > 1 else 0.0
    whole = within[0] + between
    if not whole > 1e-300:
        return 1.0
    correlations = 1.0 - (within[0] - within) / whole
    pairs = correlations[: length // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0)
    used = pairs[: negative[0]] if negative.size else pairs
    inefficiency = -1.0 + 2.0 * float(np.minimum.accumulate(used).sum()) if used.size else 1.0
    return draws.size / max(inefficiency, 1.0 / np.log10(max(draws.size, 10)))


def split_rhat(chains: ArrayLike) -> float:
    """R̂ of the halves of all chains; 1 where nothing moves, and NaN where a half has less than two draws.

    >>> round(split_rhat([[0.0, 1.0, 0.0, 1.0], [5.0, 6.0, 5.0, 6.0]]), 1)
    4.1
    """
    draws = np.atleast_2d(np.asarray(chains, dtype=np.float64))
    half = draws.shape[1] // 2
    if half < 2:
        return float("nan")
    halves = np.concatenate([draws[:, :half], draws[:, -half:]])
    within = float(halves.var(axis=1, ddof=1).mean())
    between = float(halves.mean(axis=1).var(ddof=1))
    if within <= 0:
        return 1.0 if between <= 0 else float("inf")
    return float(np.sqrt((within * (half - 1) / half + between) / within))


def _autocovariances(centred: Array) -> Array:
    """Σ_i x_i x_{i+k} / n of each row for k = 0 … n − 1, by the Fourier transform of the row padded with zeros."""
    length = centred.shape[1]
    padded = 1 << (2 * length - 1).bit_length()
    spectrum = np.fft.rfft(centred, padded, axis=1)
    return np.fft.irfft(spectrum * np.conj(spectrum), padded, axis=1)[:, :length] / length
