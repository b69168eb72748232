"""Cells behind noisy answers to the rows of a matrix, against a simplex and an interior-point solver in the same run.

Dense: random signs, as in the matrix mechanism's worst case. Sparse: Haar wavelets of one attribute and of two, a
hierarchy of sums, two that overlap (the second is moved by a third of the cells, which makes it no tree), a hierarchy
of two attributes, sums of 32 neighbours, and cells with their differences or with random signed sums. Cells are a
sparse histogram, for which the settings of `solvers.matrices` were tuned, or a smooth one, for which they were not; the
noise is Laplace, of the scale that ε = 1 asks for. What a peer found is clipped at 0 before it is judged. The targets
are ratios for the L1 loss: a factor for 1024 × 1024 random signs, and no slower than either peer for sparse strategies.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.peers import clarabel_solver, ortools_glop
from benchmarks.speed.timing import PEER_LIMIT, Peer, Solve, own_time, peer_row
from consilience.solvers.fit import Loss
from consilience.solvers.matrices.matrix_fit import fit_matrix

SEED = 16
JUDGED, RATIO = 1024, 5
JUDGED_SPARSE, RATIO_SPARSE = 4096, 1
SIZES = {"Haar wavelets": (256, 1024, 4096, 16384), "Haar wavelets of two attributes": (1024, 4096)}
"""Where there is more than one."""


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows for dense and for sparse strategies."""
    dense, most = (256, 256) if quick else (JUDGED, JUDGED_SPARSE)
    signs = np.random.default_rng(SEED).choice([-1.0, 1.0], (dense, dense))
    rows = compare(f"matrix, L1, {dense} x {dense} random signs", signs, glop=RATIO if dense == JUDGED else None)
    for name, strategy in STRATEGIES.items():
        for cells in (most,) if quick else SIZES.get(name, (most,)):
            rows += _compare_sparse(f"{name} over {cells} cells", strategy(cells), "sparse")
        rows += _compare_sparse(f"{name} over {most} cells, smooth counts", strategy(most), "smooth")
    return rows


def _compare_sparse(problem: str, strategy: Any, counts: str) -> list[dict[str, Any]]:
    ratio = RATIO_SPARSE if strategy.shape[1] >= JUDGED_SPARSE else None
    return compare(f"matrix, L1, {problem}", strategy, counts=counts, glop=ratio, clarabel=ratio)


def haar(cells: int) -> Any:
    """The total, and for each half, quarter, … the difference between its two halves."""
    blocks: list[Any] = [sp.csr_matrix(np.ones((1, cells)))]
    width = cells
    while width > 1:
        sign = np.repeat([[1.0, -1.0]], width // 2, axis=1)
        blocks.append(sp.kron(sp.identity(cells // width), sign, format="csr"))
        width //= 2
    return sp.csr_matrix(sp.vstack(blocks))


def hierarchy(cells: int) -> Any:
    """The total, and the sums of each half, quarter, …, down to single cells."""
    blocks: list[Any] = []
    width = cells
    while width >= 1:
        blocks.append(sp.kron(sp.identity(cells // width), np.ones((1, width)), format="csr"))
        width //= 2
    return sp.csr_matrix(sp.vstack(blocks))


def overlapping(cells: int) -> Any:
    """A hierarchy, and another one whose cells are counted from a third of the way on, and round the end."""
    places = (np.arange(cells) + cells // 3) % cells
    return sp.csr_matrix(sp.vstack([hierarchy(cells), hierarchy(cells).tocsc()[:, places]]))


def of_two_attributes(strategy: Callable[[int], Any], cells: int) -> Any:
    """All products of a row for one attribute and a row for another of the same size."""
    one = strategy(math.isqrt(cells))
    return sp.csr_matrix(sp.kron(one, one, format="csr"))


def sums_of_neighbours(cells: int) -> Any:
    """From each cell on, the sum of 32 cells, or of those that there are."""
    return sp.csr_matrix(sum(sp.eye(cells, cells, k=distance) for distance in range(32)))


def with_differences(cells: int) -> Any:
    """Each cell, and each less the next."""
    differences = sp.eye(cells - 1, cells) - sp.eye(cells - 1, cells, k=1)
    return sp.csr_matrix(sp.vstack([sp.identity(cells), differences]))


def with_signed_sums(cells: int) -> Any:
    """Each cell, and half as many sums of eight random ones with random signs."""
    rng = np.random.default_rng(SEED)
    rows = cells // 2
    chosen = np.concatenate([rng.choice(cells, 8, replace=False) for _ in range(rows)])
    sums = sp.csr_matrix((rng.choice([-1.0, 1.0], 8 * rows), (np.repeat(np.arange(rows), 8), chosen)), (rows, cells))
    return sp.csr_matrix(sp.vstack([sp.identity(cells), sums]))


STRATEGIES: dict[str, Callable[[int], Any]] = {
    "Haar wavelets": haar,
    "binary hierarchy": hierarchy,
    "two overlapping hierarchies": overlapping,
    "Haar wavelets of two attributes": partial(of_two_attributes, haar),
    "hierarchies of two attributes": partial(of_two_attributes, hierarchy),
    "sums of 32 neighbours": sums_of_neighbours,
    "differences of neighbours": with_differences,
    "random signed sums": with_signed_sums,
}


def compare(
    problem: str, strategy: Any, *, counts: str = "sparse", glop: float | None = None, clarabel: float | None = None
) -> list[dict[str, Any]]:
    """Us and the peers, with the ratios that are asked for, if any."""
    rng = np.random.default_rng(SEED)
    rows, cells = strategy.shape
    scale = float(abs(strategy).sum(axis=0).max())
    if counts == "sparse":
        exact = np.where(rng.random(cells) < 0.1, np.minimum(rng.zipf(1.6, cells), 1500), 0)
    else:
        exact = rng.poisson(200.0 * np.exp(-((np.linspace(-2.0, 3.0, cells)) ** 2)))
    noisy, weights = strategy @ exact.astype(np.float64) + rng.laplace(0, scale, rows), np.full(rows, 1.0 / scale)
    fit_matrix(haar(8), np.arange(8.0), loss="l1")
    own = own_time(problem, lambda: fit_matrix(strategy, noisy, loss="l1", weights=weights))

    def objective(found: np.ndarray) -> float:
        return Loss.named("l1").value(strategy @ np.maximum(found, 0.0), noisy, weights)

    found: list[dict[str, Any]] = [own.row()]
    for peer in _peers(strategy, noisy / scale, scale, glop, clarabel):
        found.append(peer_row(own, peer, objective))
    return found


def _peers(strategy: Any, units: np.ndarray, scale: float, glop: float | None, clarabel: float | None) -> list[Peer]:
    """Who else can do it, with answers in units of the noise."""

    def rescaled(write_down: Callable[..., Solve]) -> Callable[[], Solve]:
        def written() -> Solve:
            solve = write_down(strategy, units, np.ones(len(units)), time_limit=PEER_LIMIT)
            return lambda: None if (found := solve()) is None else found * scale

        return written

    return [
        Peer(ortools_glop.NAME, "ortools", rescaled(ortools_glop.least_absolute_answers), glop),
        Peer(clarabel_solver.NAME, "clarabel", rescaled(clarabel_solver.least_absolute_answers), clarabel),
    ]
