"""Finite fields GF(q), q a prime power, as tables of sums and products of the numbers 0..q−1."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError

LARGEST_FIELD = 128


@dataclass(frozen=True, eq=False)
class FiniteField:
    """GF(q): the element with base-p digits (a₀, a₁, …) is the polynomial a₀ + a₁x + … modulo a primitive one."""

    order: int
    sums: NDArray[np.int64]
    products: NDArray[np.int64]

    def power(self, element: int, exponent: int) -> int:
        """The element multiplied by itself `exponent` times.

        >>> finite_field(9).power(2, 8)
        1
        """
        result = 1
        for _ in range(exponent):
            result = int(self.products[result, element])
        return result

    def combinations(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """All vectors Σᵢ cᵢ·rowᵢ, one for each choice of the coefficients."""
        vectors = np.zeros((1, rows.shape[1]), dtype=np.int64)
        for row in rows:
            multiples = self.products[np.arange(self.order)[:, None], row[None, :]]
            vectors = self.sums[vectors[:, None, :], multiples[None, :, :]].reshape(-1, rows.shape[1])
        return vectors


def prime_power(order: int) -> tuple[int, int]:
    """The prime p and the exponent n with pⁿ = order.

    >>> prime_power(49)
    (7, 2)
    """
    for prime in range(2, order + 1):
        if order % prime == 0:
            exponent, left = 0, order
            while left % prime == 0:
                left //= prime
                exponent += 1
            if left == 1:
                return prime, exponent
            break
    raise DeclarationError(f"a finite field has a prime power of elements, and {order} is none: give one, such as 8")


@lru_cache(maxsize=32)
def finite_field(order: int) -> FiniteField:
    """The field with this many elements.

    >>> finite_field(4).products.tolist()
    [[0, 0, 0, 0], [0, 1, 2, 3], [0, 2, 3, 1], [0, 3, 1, 2]]
    """
    if order > LARGEST_FIELD:
        raise DeclarationError(f"a field of {order} elements was asked for; at most {LARGEST_FIELD} are built")
    prime, degree = prime_power(order)
    digits = np.array(list(product(range(prime), repeat=degree)), dtype=np.int64)[:, ::-1]
    weights = prime ** np.arange(degree)
    sums = ((digits[:, None, :] + digits[None, :, :]) % prime) @ weights
    return FiniteField(order, sums, _products(prime, degree, order))


def _products(prime: int, degree: int, order: int) -> NDArray[np.int64]:
    """Products by logarithms to the base of a generator: x itself modulo the first polynomial for which x is one."""
    for tail in range(order):
        for generator in range(1, prime) if degree == 1 else (prime,):
            powers = _powers(prime, degree, order, tail, generator)
            if len(set(powers)) == order - 1 and 0 not in powers:
                logarithms = np.zeros(order, dtype=np.int64)
                logarithms[powers] = np.arange(order - 1)
                table = np.array(powers)[(logarithms[:, None] + logarithms[None, :]) % (order - 1)]
                table[0, :] = table[:, 0] = 0
                return table
    raise DeclarationError(f"no field of {order} elements was found")


def _powers(prime: int, degree: int, order: int, tail: int, generator: int) -> list[int]:
    """The powers 1, g, g², … of a generator, where x^degree = −(the polynomial with the digits of `tail`)."""
    powers = [1]
    while len(powers) < order - 1:
        last = powers[-1]
        if degree == 1:
            powers.append(last * generator % prime)
            continue
        top, shifted = divmod(last * prime, order)
        powers.append(_less_multiple(shifted, top, tail, prime, degree))
    return powers


def _less_multiple(number: int, times: int, other: int, prime: int, degree: int) -> int:
    """number − times·other, digit by digit modulo the prime."""
    result = 0
    for place in range(degree):
        weight = prime**place
        digit = (number // weight - times * (other // weight)) % prime
        result += digit * weight
    return result
