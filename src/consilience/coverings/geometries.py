"""Finite fields GF(q), q a prime power, as tables of sums and products of the numbers 0..q−1."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from consilience.coverings.sets import Block
from consilience.errors import DeclarationError, TooLarge

LARGEST_FIELD = 128
"""Elements of the largest field that is built."""


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


# ----------------------------------------------------------------------------------------------------------------------
# Designs from finite geometries: flats of affine and projective spaces, inversive planes, and the octads of Witt.
#
# Any k+1 points lie in a k-flat, so the k-flats of AG(n, q) cover all (k+1)-sets of qⁿ points by blocks of q^k. The
# circles of the inversive plane of order q are a 3-(q²+1, q+1, 1) design. The octads are the Steiner system S(5, 8,
# 24).


MOST_FLATS = 200_000
"""Flats of the largest geometry that is listed."""


def gaussian_binomial(dimension: int, part: int, order: int) -> int:
    """The number of subspaces of a given dimension: Πᵢ (q^(n−i) − 1) / (q^(i+1) − 1).

    >>> gaussian_binomial(5, 3, 2)
    155
    """
    above = below = 1
    for i in range(part):
        above *= order ** (dimension - i) - 1
        below *= order ** (i + 1) - 1
    return above // below


@lru_cache(maxsize=32)
def affine_flats(dimension: int, order: int, flat: int) -> tuple[Block, ...]:
    """The `flat`-dimensional flats of AG(dimension, order); a point's coordinates are the base-q digits of its number.

    >>> len(affine_flats(2, 4, 1)), affine_flats(2, 2, 1)[:2]
    (20, ((0, 1), (0, 2)))
    """
    _refuse_many(order ** (dimension - flat) * gaussian_binomial(dimension, flat, order))
    field = finite_field(order)
    weights = order ** np.arange(dimension - 1, -1, -1)
    everything = np.arange(order**dimension)
    coordinates = everything[:, None] // weights % order
    blocks: set[Block] = set()
    for basis in _echelon_bases(dimension, flat, field):
        space = field.combinations(basis)
        numbers = field.sums[coordinates[:, None, :], space[None, :, :]] @ weights
        numbers.sort(axis=1)
        blocks.update(map(tuple, numbers[numbers[:, 0] == everything].tolist()))
    return tuple(sorted(blocks))


@lru_cache(maxsize=32)
def projective_flats(dimension: int, order: int, flat: int) -> tuple[Block, ...]:
    """The `flat`-dimensional flats of PG(dimension, order).

    >>> projective_flats(2, 2, 1)[0], len(projective_flats(2, 7, 1))
    ((0, 1, 2), 57)
    """
    _refuse_many(gaussian_binomial(dimension + 1, flat + 1, order))
    field = finite_field(order)
    weights = order ** np.arange(dimension, -1, -1)
    points = np.concatenate([field_row @ weights for field_row in _normalised(dimension + 1, order)])
    number_of = np.full(order ** (dimension + 1), -1)
    number_of[np.sort(points)] = np.arange(points.size)
    blocks = []
    for basis in _echelon_bases(dimension + 1, flat + 1, field):
        numbers = number_of[field.combinations(basis) @ weights]
        blocks.append(tuple(sorted(numbers[numbers >= 0].tolist())))
    return tuple(sorted(blocks))


@lru_cache(maxsize=16)
def inversive_plane(order: int) -> tuple[Block, ...]:
    """The circles of the Miquelian inversive plane: any three of the q²+1 points lie in exactly one of q³+q circles.

    The points are those of PG(1, q²); a circle is the set of zeros of a Hermitian form that is not degenerate,

        a·x·x̄ + b·x̄·y + b̄·x·ȳ + c·y·ȳ = 0,   x̄ = x^q,   a, c ∈ GF(q),   b·b̄ ≠ a·c.

    >>> len(inversive_plane(3)), {len(circle) for circle in inversive_plane(3)}
    (30, {4})
    """
    field = finite_field(order * order)
    times, plus = field.products, field.sums
    elements = np.arange(order * order)
    conjugate = np.array([field.power(int(x), order) for x in elements])
    real = elements[conjugate == elements]
    x, y = np.append(elements, 1), np.append(np.ones_like(elements), 0)
    norms = times[x, conjugate[x]], times[conjugate[x], y], times[x, conjugate[y]], times[y, conjugate[y]]
    circles = set()
    for a, c in product(real, real):
        for b in elements:
            if times[b, conjugate[b]] == times[a, c]:
                continue
            value = plus[times[a, norms[0]], times[b, norms[1]]]
            value = plus[plus[value, times[conjugate[b], norms[2]]], times[c, norms[3]]]
            circles.add(tuple(np.flatnonzero(value == 0).tolist()))
    return tuple(sorted(circles))


@lru_cache(maxsize=1)
def octads() -> tuple[Block, ...]:
    """The 759 octads: the words of weight 8 of the extended binary Golay code, a 5-(24, 8, 1) design.

    The code is spanned by the shifts of the quadratic residues modulo 23, each with a parity point behind.

    >>> len(octads())
    759
    """
    residues = {i * i % 23 for i in range(1, 23)}
    words: set[int] = {0}
    for shift in range(23):
        word = sum(1 << ((residue + shift) % 23) for residue in residues) | (len(residues) % 2) << 23
        words = words if word in words else words | {word ^ other for other in words}
    return tuple(sorted(tuple(i for i in range(24) if word >> i & 1) for word in words if word.bit_count() == 8))


def _echelon_bases(dimension: int, part: int, field: FiniteField) -> Iterator[NDArray[np.int64]]:
    """One basis in reduced echelon form for each subspace."""
    for pivots in combinations(range(dimension), part):
        free = [
            (row, column)
            for row, pivot in enumerate(pivots)
            for column in range(pivot + 1, dimension)
            if column not in pivots
        ]
        for entries in product(range(field.order), repeat=len(free)):
            basis = np.zeros((part, dimension), dtype=np.int64)
            basis[range(part), pivots] = 1
            for (row, column), entry in zip(free, entries, strict=True):
                basis[row, column] = entry
            yield basis


def _normalised(length: int, order: int) -> Iterator[NDArray[np.int64]]:
    """The vectors whose first entry other than 0 is 1, by the place of that entry."""
    for pivot in range(length):
        tails = list(product(range(order), repeat=length - pivot - 1))
        vectors = np.zeros((len(tails), length), dtype=np.int64)
        vectors[:, pivot] = 1
        vectors[:, pivot + 1 :] = np.array(tails, dtype=np.int64).reshape(len(tails), -1)
        yield vectors


def _refuse_many(flats: int) -> None:
    if flats > MOST_FLATS:
        raise TooLarge(f"the geometry has {flats:,} flats and at most {MOST_FLATS:,} are listed: take a smaller one")
