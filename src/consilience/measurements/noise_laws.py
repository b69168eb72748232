"""Noise laws: how a noisy value scatters around the exact one; here those of the noise that this library draws.

    discrete Laplace   P(r) = exp(−|r|/b) / Σ_k exp(−|kh|/b),      r = kh, k ∈ ℤ       (Ghosh et al. 2012)
    discrete Gaussian  P(r) = exp(−r²/2σ²) / Σ_k exp(−(kh)²/2σ²),  r = kh, k ∈ ℤ       (Canonne et al. 2020)

b is the scale and σ the stddev, in the units of the values, also on a lattice with step h. The laws are public and
describe noise that was drawn elsewhere; `simulate` is for simulation and bootstrap, and its draws protect nobody. The
laws of other tools' noise, of public facts and of selections are in `further_laws`.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from consilience.errors import MeasurementError
from consilience.kernels.rng import Generator

Floats = NDArray[np.float64]
Size = int | tuple[int, ...]

LARGEST_SCALE = 1e50
"""Scales and steps, and one over them, stay below this: powers of their ratios are then ordinary numbers."""

FARTHEST = 1e200
"""No noise of any allowed scale comes this many steps far: infinite arguments are taken for it."""


class NoiseLaw(ABC):
    """A law of noise; of noise on answers, symmetric around zero."""

    law: ClassVar[str]
    """The name by which files know the law."""
    discrete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in self._parameters:
            object.__setattr__(self, name, _checked(self, name, getattr(self, name)))

    @property
    def _parameters(self) -> tuple[str, ...]:
        return tuple(each.name for each in fields(self))  # pyright: ignore[reportArgumentType]

    @property
    def scale_parameter(self) -> float:
        """The law's own parameter: the scale of a Laplace law, the stddev of a Gaussian one, 0 when exact."""
        return getattr(self, self._parameters[0]) if self._parameters else 0.0

    @property
    def lattice_step(self) -> float | None:
        """The distance between possible values, or None where every real number is possible."""
        return None

    @property
    @abstractmethod
    def variance(self) -> float:
        """The variance of the noise itself, which for a discrete law is not that of its continuous namesake."""

    @property
    def stddev_of_noise(self) -> float:
        """The standard deviation of the noise itself."""
        return math.sqrt(self.variance)

    @abstractmethod
    def log_density(self, residuals: ArrayLike) -> Floats:
        """The log density at each residual; of a discrete law, the log probability.

        Between the points of a lattice the formula of the log probability is continued as it stands, so that a
        likelihood can be climbed over real-valued estimates.
        """

    @abstractmethod
    def cdf(self, x: ArrayLike) -> Floats:
        """The probability that the noise is at most x."""

    @abstractmethod
    def quantile(self, p: ArrayLike) -> Floats:
        """The least x with cdf(x) ≥ p; −∞ and ∞ at p = 0 and p = 1."""

    @abstractmethod
    def simulate(self, size: Size, rng: Generator) -> Floats:
        """Draws from the law, for simulation and bootstrap only: a seed can take them away again."""

    def to_json(self) -> dict[str, Any]:
        """The law as plain data; `measurements.noise_law_from_json` reads it back."""
        step = {} if self.lattice_step is None else {"step": self.lattice_step}
        return {"law": self.law, "scale": self.scale_parameter} | step

    def describe(self) -> str:
        """The law in words.

        >>> DiscreteLaplace(2.0).describe(), DiscreteGaussian(3.0, step=0.5).describe()
        ('discrete-laplace noise of scale 2', 'discrete-gaussian noise of stddev 3 in steps of 0.5')
        """
        parameter = "stddev" if "gaussian" in self.law else "scale"
        words = f"{self.law} noise of {parameter} {self.scale_parameter:g}"
        return words if self.lattice_step in (None, 1.0) else f"{words} in steps of {self.lattice_step:g}"


class LatticeLaw(NoiseLaw):
    """A law on step·ℤ, which computes in whole steps k."""

    discrete: ClassVar[bool] = True
    step: float

    @property
    def lattice_step(self) -> float:
        return self.step

    @abstractmethod
    def _cdf_in_steps(self, k: Floats) -> Floats:
        """P(noise ≤ k steps) for whole, finite k; never decreasing in k."""

    @abstractmethod
    def _quantile_guess(self, p: Floats) -> Floats:
        """A whole number of steps near the quantile, for 0 < p < 1."""

    def cdf(self, x: ArrayLike) -> Floats:
        steps = np.clip(floats(x) / self.step, -FARTHEST, FARTHEST)
        nearest = np.round(steps)
        # 0.3 / 0.1 is 2.9999999999999996: a value that was meant to lie on the lattice counts as lying there.
        on_lattice = np.abs(steps - nearest) <= 1e-9 * np.maximum(1.0, np.abs(nearest))
        return self._cdf_in_steps(np.where(on_lattice, nearest, np.floor(steps)))

    def quantile(self, p: ArrayLike) -> Floats:
        p = probabilities(p)
        inside = (p > 0) & (p < 1)
        within = np.where(inside, p, 0.5)
        # The guess is at most one or two steps away; where steps are too small for floats to tell, it stands.
        k = self._quantile_guess(within)
        for _ in range(2):
            k = k + (self._cdf_in_steps(k) < within)
        for _ in range(3):
            k = k - (self._cdf_in_steps(k - 1) >= within)
        return np.where(inside, k * self.step + 0.0, np.where(p > 0, np.inf, -np.inf))


@dataclass(frozen=True)
class DiscreteLaplace(LatticeLaw):
    """Laplace noise on the lattice step·ℤ: P(k·step) ∝ exp(−|k|·step/scale).

    With q = exp(−step/scale):  P(k·step) = (1 − q)/(1 + q) q^|k|,  variance = step²·2q/(1 − q)².

    >>> round(DiscreteLaplace(1.0).variance, 6)  # Laplace(1.0) has 2
    1.841347
    """

    scale: float
    step: float = 1.0
    law: ClassVar[str] = "discrete-laplace"

    @property
    def _decay(self) -> float:
        """step/scale, so that q = exp(−decay)."""
        return self.step / self.scale

    @property
    def variance(self) -> float:
        reach = self.step / -math.expm1(-self._decay)
        return 2 * math.exp(-self._decay) * reach * reach

    def log_density(self, residuals: ArrayLike) -> Floats:
        # (1 − q)/(1 + q) = tanh(decay/2)
        log_mass_at_zero = math.log(math.tanh(self._decay / 2))
        return np.asarray(log_mass_at_zero - np.abs(floats(residuals)) / self.scale)

    def _cdf_in_steps(self, k: Floats) -> Floats:
        # P(≤ k) = q^−k / (1 + q) for k < 0 and 1 − q^(k+1) / (1 + q) from 0 up.
        tail = np.exp(-np.where(k < 0, -k, k + 1) * self._decay) / (1 + math.exp(-self._decay))
        return np.where(k < 0, tail, 1 - tail)

    def _quantile_guess(self, p: Floats) -> Floats:
        whole = 1 + math.exp(-self._decay)
        below = np.ceil(np.log(p * whole) / self._decay)
        above = np.ceil(-np.log((1 - p) * whole) / self._decay) - 1
        return np.where(below < 0, below, np.maximum(above, 0.0))

    def simulate(self, size: Size, rng: Generator) -> Floats:
        # The whole part of an exponential variable is geometric, and the difference of two geometric ones is this law.
        first, second = (np.floor(rng.standard_exponential(size) / self._decay) for _ in range(2))
        return np.asarray((first - second) * self.step)


@dataclass(frozen=True)
class DiscreteGaussian(LatticeLaw):
    """Gaussian noise on the lattice step·ℤ: P(k·step) ∝ exp(−(k·step)²/2 stddev²).

    Its variance is a little below stddev², and far below where stddev is small against the step.

    >>> round(DiscreteGaussian(0.5).variance, 6)  # Gaussian(0.5) has 0.25
    0.215013
    """

    stddev: float
    step: float = 1.0
    law: ClassVar[str] = "discrete-gaussian"

    @property
    def _width(self) -> float:
        """stddev in steps: the σ of the formulas below."""
        return self.stddev / self.step

    # Z(σ) = Σ_k exp(−k²/2σ²) converges fast for small σ, and by Poisson summation so does
    #     Z(σ) = σ√2π Σ_m exp(−2π²σ²m²)
    # for large σ. Differentiating −log Z in 1/2σ² gives the variance, from either form:
    #     Σ_k k² exp(−k²/2σ²) / Z   =   σ² − 4π²σ⁴ Σ_m m² exp(−2π²σ²m²) / Σ_m exp(−2π²σ²m²).
    # From σ = 1 either way leaves out less than the last digit after a handful of terms.
    @cached_property
    def _moments(self) -> tuple[float, float]:
        """log Z(σ) and the variance in squared steps."""
        width = self._width
        if width <= 1:
            mass, second = _gaussian_sums(0.5 / width / width)
            return math.log(mass), second / mass
        mass, second = _gaussian_sums(2 * math.pi**2 * width * width)
        correction = 0.0 if second == 0 else (2 * math.pi * width) ** 2 * second / mass
        return math.log(width * math.sqrt(2 * math.pi)) + math.log(mass), width * width * (1 - correction)

    @property
    def variance(self) -> float:
        return self._moments[1] * self.step * self.step

    def log_density(self, residuals: ArrayLike) -> Floats:
        return np.asarray(-0.5 * (floats(residuals) / self.stddev) ** 2 - self._moments[0])

    @cached_property
    def _upper_tails(self) -> Floats:
        """P(noise ≥ k steps) for k = 0, 1, … until it vanishes, summed from the far end to keep small ones exact."""
        k = np.arange(math.ceil(39 * self._width) + 2, dtype=np.float64)
        weights = np.exp(-0.5 * (k / self._width) ** 2)
        sums = np.cumsum(weights[::-1])[::-1]
        return sums / (2 * sums[0] - 1)

    def _cdf_in_steps(self, k: Floats) -> Floats:
        # P(≤ k) is P(≥ −k) for k < 0 and 1 − P(≥ k + 1) from 0 up.
        tail = self._tail(np.where(k < 0, -k, k + 1))
        return np.where(k < 0, tail, 1 - tail)

    def _tail(self, k: Floats) -> Floats:
        """P(noise ≥ k steps) for k ≥ 1: summed, or for wide laws by Euler–Maclaurin at the midpoint k − ½.

        Σ_{j ≥ k} f(j) = ∫_{k−½}^∞ f + f'(k − ½)/24 − 7 f'''(k − ½)/5760 + …, where with z = (k − ½)/σ and f the normal
        density f' = −z f/σ and f''' = (3z − z³) f/σ³. The next term is below 10⁻¹⁸ for σ above 1000.
        """
        if self._width <= 1000:
            tails = self._upper_tails
            return np.where(k < len(tails), tails[np.minimum(k, len(tails) - 1).astype(np.intp)], 0.0)
        z = np.minimum((k - 0.5) / self._width, 40.0)
        density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) / self._width
        first, third = -z / self._width, (3 * z - z**3) / self._width**3
        return np.maximum(ndtr(-z) + density * (first / 24 - 7 * third / 5760), 0.0)

    def _quantile_guess(self, p: Floats) -> Floats:
        return np.ceil(ndtri(p) * self._width - 0.5)

    def simulate(self, size: Size, rng: Generator) -> Floats:
        return self.quantile(np.maximum(rng.random(size), 2.0**-54))


def _checked(law: NoiseLaw, parameter: str, value: object) -> float:
    """The parameter as a float, refused where no noise has it."""
    if isinstance(value, bool | str | bytes):
        number = math.nan
    else:
        try:
            number = float(value)  # pyright: ignore[reportArgumentType]
        except (TypeError, ValueError, OverflowError):
            number = math.nan
    if not 1 / LARGEST_SCALE <= number <= LARGEST_SCALE:
        hint = "for values known without noise use Exact()" if number == 0 else "give the one the noise was drawn with"
        raise MeasurementError(
            f"{law.law} noise was given the {parameter} {value!r}; it must be a number above 0 "
            f"(from {1 / LARGEST_SCALE:g} to {LARGEST_SCALE:g}): {hint}"
        )
    return number


def floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def probabilities(p: ArrayLike) -> Floats:
    found = floats(p)
    wrong = ~((found >= 0) & (found <= 1))
    if np.any(wrong):
        raise MeasurementError(f"{found[wrong].flat[0]} is not a probability; give numbers from 0 to 1")
    return found


def _gaussian_sums(rate: float) -> tuple[float, float]:
    """Σ_m exp(−rate·m²) and Σ_m m² exp(−rate·m²) over all whole m, until the terms no longer count."""
    mass, second = 1.0, 0.0
    m = 1
    while (term := 2 * math.exp(-rate * m * m)) > 0 and m * m * term > 1e-18 * second:
        mass += term
        second += m * m * term
        m += 1
    return mass, second


def what_to_write(noise: object) -> str:
    """What stands for a law of noise, for who gave something else.

    >>> what_to_write(20.0).split(", ")[0]
    'write Laplace(20.0) for Laplace noise of this scale'
    """
    if isinstance(noise, bool) or not isinstance(noise, int | float):
        return "write a law of noise, such as Laplace(2.0)"
    return (
        f"write Laplace({noise}) for Laplace noise of this scale, Gaussian({noise}) for normal noise of this standard "
        "deviation, or DiscreteLaplace or DiscreteGaussian where counts stayed whole numbers"
    )
