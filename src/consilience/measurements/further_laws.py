"""Laws of noise that this library does not draw: of other tools' noise, of public facts, and of selections.

    Laplace            f(r) = exp(−|r|/b) / 2b                                         b is the scale
    Gaussian           f(r) = exp(−r²/2σ²) / σ√2π                                      σ is the stddev
    exact              r = 0: a public fact from outside
    Gumbel             P(R ≤ r) = exp(−exp(−r/b))                                      of selections alone

What these mean and what they have in common with the laws on a lattice is in `noise_laws`.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from consilience.kernels.rng import Generator
from consilience.measurements.noise_laws import Floats, NoiseLaw, Size, floats, probabilities


@dataclass(frozen=True)
class Laplace(NoiseLaw):
    """Continuous Laplace noise with density exp(−|r|/scale) / (2 scale).

    >>> Laplace(3.0).variance
    18.0
    """

    scale: float
    law: ClassVar[str] = "laplace"

    @property
    def variance(self) -> float:
        return 2 * self.scale**2

    def log_density(self, residuals: ArrayLike) -> Floats:
        return np.asarray(-np.abs(floats(residuals)) / self.scale - math.log(2 * self.scale))

    def cdf(self, x: ArrayLike) -> Floats:
        t = floats(x) / self.scale
        tail = 0.5 * np.exp(-np.abs(t))
        return np.where(t < 0, tail, 1 - tail)

    def quantile(self, p: ArrayLike) -> Floats:
        p = probabilities(p)
        with np.errstate(divide="ignore"):
            return self.scale * np.where(p < 0.5, np.log(2 * p), -np.log(2 * (1 - p)))

    def simulate(self, size: Size, rng: Generator) -> Floats:
        return np.asarray(rng.laplace(0.0, self.scale, size))


@dataclass(frozen=True)
class Gaussian(NoiseLaw):
    """Continuous Gaussian noise with density exp(−r²/2 stddev²) / (stddev √2π).

    >>> Gaussian(3.0).variance
    9.0
    """

    stddev: float
    law: ClassVar[str] = "gaussian"

    @property
    def variance(self) -> float:
        return self.stddev**2

    def log_density(self, residuals: ArrayLike) -> Floats:
        return np.asarray(-0.5 * (floats(residuals) / self.stddev) ** 2 - math.log(self.stddev * math.sqrt(2 * np.pi)))

    def cdf(self, x: ArrayLike) -> Floats:
        return np.asarray(ndtr(floats(x) / self.stddev))

    def quantile(self, p: ArrayLike) -> Floats:
        return np.asarray(self.stddev * ndtri(probabilities(p)))

    def simulate(self, size: Size, rng: Generator) -> Floats:
        return np.asarray(rng.normal(0.0, self.stddev, size))


@dataclass(frozen=True)
class Exact(NoiseLaw):
    """No noise: a fact that is public from outside. No measurement of confidential data has this law."""

    law: ClassVar[str] = "exact"

    @property
    def variance(self) -> float:
        return 0.0

    def log_density(self, residuals: ArrayLike) -> Floats:
        return np.where(floats(residuals) == 0, 0.0, -np.inf)

    def cdf(self, x: ArrayLike) -> Floats:
        return np.where(floats(x) >= 0, 1.0, 0.0)

    def quantile(self, p: ArrayLike) -> Floats:
        return np.zeros_like(probabilities(p))

    def simulate(self, size: Size, rng: Generator) -> Floats:
        return np.zeros(size)

    def describe(self) -> str:
        return "exact, known from outside"


@dataclass(frozen=True)
class Gumbel(NoiseLaw):
    """The noise of a selection: the greatest of scores with independent Gumbel noise is what was chosen.

    That is the exponential mechanism: candidate i has the probability exp(scoreᵢ/scale) / Σ_j exp(score_j/scale). The
    scale is in the units of the scores. The law is not symmetric and its mean is not 0; no answer is measured with it.

    >>> round(Gumbel(3.0).variance, 4)
    14.8044
    """

    scale: float
    law: ClassVar[str] = "gumbel"

    @property
    def variance(self) -> float:
        return math.pi**2 / 6 * self.scale**2

    def log_density(self, residuals: ArrayLike) -> Floats:
        t = floats(residuals) / self.scale
        with np.errstate(over="ignore"):
            return np.asarray(-t - np.exp(-t) - math.log(self.scale))

    def cdf(self, x: ArrayLike) -> Floats:
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(-np.exp(-floats(x) / self.scale)))

    def quantile(self, p: ArrayLike) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(-self.scale * np.log(-np.log(probabilities(p))))

    def simulate(self, size: Size, rng: Generator) -> Floats:
        return np.asarray(rng.gumbel(0.0, self.scale, size))
