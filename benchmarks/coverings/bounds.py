"""A bound that no covering design goes below."""


def schonheim_bound(points: int, block: int, strength: int) -> int:
    """⌈v/ℓ · ⌈(v−1)/(ℓ−1) · … ⌈(v−t+1)/(ℓ−t+1)⌉ … ⌉⌉ (Schönheim 1964).

    >>> schonheim_bound(32, 8, 2), schonheim_bound(64, 8, 2)
    (20, 72)
    """
    if block >= points:
        return 1
    bound = 1
    for i in range(strength - 1, -1, -1):
        bound = -(-(points - i) * bound // (block - i))
    return bound
