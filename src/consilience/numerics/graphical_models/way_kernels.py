"""The vector work of one step of `retraced_fits`, in as few passes as possible."""

import numba


@numba.njit(nogil=True, cache=True)
def between(first, second, share, found):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """found ← first + share·(second − first)."""
    for i in range(first.size):
        found[i] = first[i] + share * (second[i] - first[i])


@numba.njit(nogil=True, cache=True)
def descend(potentials, gradient, length, mean, share):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """potentials −= length·gradient, and their mean goes a share of the way to them."""
    for i in range(potentials.size):
        value = potentials[i] - length * gradient[i]
        potentials[i] = value
        mean[i] += share * (value - mean[i])
