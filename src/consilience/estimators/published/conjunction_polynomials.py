"""Polynomials that tell whether a conjunction holds from how many of its literals fail.

A record satisfies a conjunction of k literals if z, the number of literals that it misses, is 0. A polynomial g of
degree D < k with g(0) = 1 and |g(z)| ≤ γ for z = 1, …, k tells nearly the same and needs to look at D literals at a
time only. With y = k − z the number of literals matched, Newton's formula writes it by binomials, in either number:

    g = Σ_{j≤D} b_j C(z, j),   b_j = (Δ^j g)(0);          g = Σ_{j≤D} c_j C(y, j),   c_j = (Δ^j h)(0), h(y) = g(k − y),

and C(y, j) counts the sets T of j literals that the record matches all of, C(z, j) those that it misses all of. Summed
over records these are Σ_{|T|=j} n_T, with n_T the number of records that match (miss) all literals of T: cells of
marginals of j attributes. For D = k, where g(z) = 0 for all z > 0, the weights c are (0, …, 0, 1), the cell itself, and
the b are inclusion and exclusion, (−1)^j.

*The best g of a degree.* The values g(0), …, g(k) are those of a polynomial of degree D where all differences of order
D + 1 vanish. The linear programme over them,

    minimise E   with |g(z)| ≤ E for z = 1, …, k,   g(0) = 1,   (Δ^{D+1} g)(z) = 0 for z = 0, …, k − D − 1,

is the best uniform approximation on these points. (Chebyshev polynomials give E of the order exp(−D/√k) on the whole
interval [1, k].) Without the condition at 0, |g(0) − 1| ≤ E takes its place: then the constant ½ has E = ½.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from consilience.errors import DeclarationError

Array = NDArray[np.float64]

MOST_LITERALS = 16
"""Differences of more values lose too many digits."""

SLACK = 1e-9
"""Errors this little above γ are its rounding: linear polynomials for two literals have E = 1/3 exactly."""

NO_WEIGHT = 1e-7
"""Weights below this share of the largest are rounding, too."""


@dataclass(frozen=True, eq=False)
class ConjunctionPolynomial:
    """g by its values at 0, …, k, and the largest |g(z) − [z = 0]| there."""

    values: Array
    degree: int
    error: float

    @property
    def literals(self) -> int:
        """k."""
        return self.values.size - 1

    def matched_weights(self, literals: int | None = None) -> Array:
        """c_0, …, c_D for conjunctions of so many literals, k unless given, and at most k; the same g for all.

        >>> least_polynomial(2, 1 / 3).matched_weights().round(6) + 0.0
        array([-0.333333,  0.666667])
        """
        count = self.literals if literals is None else literals
        if not 0 <= count <= self.literals:
            raise DeclarationError(
                f"conjunctions of {count} literals were asked for; this is for up to {self.literals}"
            )
        return _differences(self.values[count::-1] if count else self.values[:1], self.degree)

    def missed_weights(self) -> Array:
        """b_0, …, b_D, the same for all numbers of literals up to k."""
        return _differences(self.values, self.degree)


def _differences(values: Array, degree: int) -> Array:
    """(Δ^j h)(0) for j = 0, …, degree, or as far as there are values; what is rounding is 0."""
    found = []
    for _ in range(min(degree + 1, values.size)):
        found.append(float(values[0]))
        values = np.diff(values)
    weights = np.array(found)
    return np.where(np.abs(weights) > NO_WEIGHT * np.abs(weights).max(), weights, 0.0)


def least_polynomial(literals: int, gamma: float, *, exact_at_zero: bool = True) -> ConjunctionPolynomial:
    """The polynomial of least degree whose error is at most γ, and of that degree the one with the least error.

    >>> [least_polynomial(4, gamma).degree for gamma in (1 / 2, 1 / 4, 1 / 8)]
    [2, 2, 3]
    """
    if not 0 < gamma < 1:
        raise DeclarationError(f"gamma is {gamma}; give the largest error of a conjunction, between 0 and 1, as 1/4")
    for degree in range(literals + 1):
        found = best_polynomial(literals, degree, exact_at_zero=exact_at_zero)
        if found.error <= gamma + SLACK:
            return found
    return best_polynomial(literals, literals)


@lru_cache(maxsize=256)
def best_polynomial(literals: int, degree: int, *, exact_at_zero: bool = True) -> ConjunctionPolynomial:
    """The polynomial of a degree with the least error on 0, …, k.

    >>> round(best_polynomial(2, 1).error, 6), round(best_polynomial(2, 1, exact_at_zero=False).error, 6)
    (0.333333, 0.25)
    """
    if not 1 <= literals <= MOST_LITERALS or not 0 <= degree <= literals:
        raise DeclarationError(
            f"a polynomial of degree {degree} for conjunctions of {literals} literals was asked for; give 1 to "
            f"{MOST_LITERALS} literals and a degree of at most that"
        )
    target = np.zeros(literals + 1)
    target[0] = 1.0
    if degree == literals:
        return ConjunctionPolynomial(target, degree, 0.0)
    points = literals + 1
    signs = [(-1.0) ** (degree + 1 - j) * math.comb(degree + 1, j) for j in range(degree + 2)]
    vanishing = np.array([np.roll([*signs, *[0.0] * (points - len(signs))], z) for z in range(literals - degree)])
    near, reach = np.eye(points), -np.ones((points, 1))
    if exact_at_zero:
        reach[0] = 0.0
    found = scipy.optimize.linprog(
        np.eye(1, points + 1, points).ravel(),
        A_ub=np.block([[near, reach], [-near, reach]]),
        b_ub=np.concatenate([target, -target]),
        A_eq=np.hstack([vanishing, np.zeros((len(vanishing), 1))]),
        b_eq=np.zeros(len(vanishing)),
        bounds=[(None, None)] * points + [(0, None)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if found.x is None:
        raise DeclarationError(f"no polynomial of degree {degree} was found for {literals} literals: {found.message}")
    values = np.array(found.x[:points], dtype=np.float64)
    values.setflags(write=False)
    return ConjunctionPolynomial(values, degree, float(np.abs(values - target).max()))
