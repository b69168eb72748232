"""The vector work of one step of `retraced_fits`, in as few passes as possible."""

import numba


@numba.njit(nogil=True, cache=True)
def follow(average, marginals, share, next_share, middle):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """The average goes a share of the way to the marginals; from there the middle is the next share of the way."""
    for i in range(average.size):
        value = average[i] + share * (marginals[i] - average[i])
        average[i] = value
        middle[i] = value + next_share * (marginals[i] - value)


@numba.njit(nogil=True, cache=True)
def descend(potentials, gradient, marginals, curvature, length, mean, share):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """potentials −= length·gradient/(1 + length·share·curvature·marginals); their mean goes a share of the way."""
    slowed = length * share
    for i in range(potentials.size):
        value = potentials[i] - length * gradient[i] / (1.0 + slowed * curvature[i] * marginals[i])
        potentials[i] = value
        mean[i] += share * (value - mean[i])
