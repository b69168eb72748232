"""Seeded randomness for everything that is not privacy noise: samples, chains, bootstraps, simulations.

A seed makes a computation repeatable, and anyone who knows it can take the randomness away again. That is
harmless after the noise has been drawn, and fatal before: noise on real data comes from `privacy.noise`.
"""

import numpy as np
from numpy.random import Generator

from consilience.errors import DeclarationError

__all__ = ["Generator", "generator"]


def generator(seed: int, *path: int) -> Generator:
    """A generator whose stream is a function of the seed alone, or of the seed and the numbers that follow it.

    >>> bool((generator(7).random(3) == generator(7).random(3)).all())
    True
    >>> bool((generator(7, 0).random(3) == generator(7, 1).random(3)).any())
    False
    """
    if seed < 0:
        raise DeclarationError(f"the seed is {seed}; a seed is a non-negative integer: give one, such as 0")
    return np.random.default_rng([seed, *path] if path else seed)
