"""Pseudo-random numbers inside kernels: the generator "splitmix64", whose stream is a function of its state alone.

Kernels cannot take a `Generator`; they take an array with one word of state, which `chance_state` derives from a seed.
"""

import numba
import numpy as np
from numpy.typing import NDArray

from consilience.errors import DeclarationError


def chance_state(seed: int) -> NDArray[np.uint64]:
    """The state from which kernels draw; kernels change it in place.

    It comes from the seed by arithmetic alone, so that a search gives the same blocks under every version of numpy.
    """
    if seed < 0:
        raise DeclarationError(f"the seed is {seed}; a seed is a non-negative integer: give one, such as 0")
    return np.array([(seed + 1) * 0xD1342543DE82EF95 % (1 << 64)], dtype=np.uint64)


@numba.njit(nogil=True, cache=True)
def chance(state):  # pragma: no cover - compiled
    """A number in [0, 1) with 53 random bits."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    word = state[0]
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word = word ^ (word >> np.uint64(31))
    return np.float64(word >> np.uint64(11)) / 9007199254740992.0


@numba.njit(nogil=True, cache=True)
def chance_below(state, bound):  # pragma: no cover - compiled
    """A whole number in 0..bound−1."""
    return np.int64(chance(state) * bound)
