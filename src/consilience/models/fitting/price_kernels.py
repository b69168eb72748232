"""The vector work of conjugate gradients in as few passes as possible; see `price_equations`."""

import numba


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def curve(product, rho, stiffness, search):  # pragma: no cover - compiled
    """product ← ρ·product + stiffness·search; its inner product with the search direction."""
    bend = 0.0
    for i in range(product.size):
        value = rho * product[i] + stiffness[i] * search[i]
        product[i] = value
        bend += value * search[i]
    return bend


@numba.njit(nogil=True, cache=True)
def advance(length, search, curved, solution, remainder):  # pragma: no cover - compiled
    """solution += length·search, remainder −= length·curved."""
    for i in range(search.size):
        solution[i] += length * search[i]
        remainder[i] -= length * curved[i]


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def settle(lifted, lift, remainder, inverse):  # pragma: no cover - compiled
    """lifted ← lift·lifted + inverse·remainder; its inner product with the remainder."""
    slope = 0.0
    for i in range(lifted.size):
        value = lift[i] * lifted[i] + inverse[i] * remainder[i]
        lifted[i] = value
        slope += value * remainder[i]
    return slope


@numba.njit(nogil=True, cache=True)
def turn(search, share, scaled):  # pragma: no cover - compiled
    """search ← scaled + share·search."""
    for i in range(search.size):
        search[i] = scaled[i] + share * search[i]


# h is the stiffness of a row, w its weight, μ its cell, v its variance under the model. With own = h/w² and models = ρμ
# the row moves as freely as f = models/(own + models) says; stuck is 1 − f.
@numba.njit(nogil=True, cache=True)
def prepare(
    stiffness, weights, cells, variances, rho, ridge, lift, inverse, freedom, stuck
):  # pragma: no cover - compiled
    """Fill in f/w, 1/(h + ρv), f and 1 − f for every row."""
    for i in range(stiffness.size):
        firm = rho * variances[i]
        diagonal = stiffness[i] + firm
        inverse[i] = 1.0 / diagonal if diagonal > 0.0 else 0.0
        own = max(stiffness[i], ridge * firm) / (weights[i] * weights[i])
        models = rho * cells[i]
        if models > 0.0:
            freedom[i] = models / (own + models)
            stuck[i] = own / (own + models)
        else:
            freedom[i] = 0.0
            stuck[i] = 1.0
        lift[i] = freedom[i] / weights[i]
