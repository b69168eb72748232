"""Cells behind noisy answers to the rows of a matrix, against a simplex and an interior-point solver in the same run.

Dense: random signs, as in the matrix mechanism's worst case. Sparse: Haar wavelets, a hierarchy of sums, and two that
overlap (the second is moved by a third of the cells), which is no tree. Cells are a sparse histogram; the noise is
Laplace, of the scale that ε = 1 asks for. What a peer found is clipped at 0 before it is judged. The targets are ratios
for the L1 loss: a factor for 1024 × 1024 random signs, and no slower than either peer for sparse strategies.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.peers import clarabel_solver, ortools_glop
from benchmarks.speed.timing import PEER_LIMIT, Peer, Solve, own_time, peer_row
from consilience.solvers.losses import Loss
from consilience.solvers.matrices.matrix_fit import fit_matrix

SEED = 16
JUDGED, RATIO = 1024, 5
JUDGED_SPARSE, RATIO_SPARSE = 4096, 1


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows for dense and for sparse strategies."""
    dense, sparse = (256, 256) if quick else (JUDGED, 4096)
    judged = {"glop": RATIO_SPARSE, "clarabel": RATIO_SPARSE} if sparse == JUDGED_SPARSE else {}
    signs = np.random.default_rng(SEED).choice([-1.0, 1.0], (dense, dense))
    return [
        *compare(f"matrix, L1, {dense} x {dense} random signs", signs, glop=RATIO if dense == JUDGED else None),
        *compare(f"matrix, L1, Haar wavelets over {sparse} cells", haar(sparse), **judged),
        *compare(f"matrix, L1, binary hierarchy over {sparse} cells", hierarchy(sparse), **judged),
        *compare(f"matrix, L1, two overlapping hierarchies over {sparse} cells", overlapping(sparse), **judged),
    ]


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


def compare(
    problem: str, strategy: Any, *, glop: float | None = None, clarabel: float | None = None
) -> list[dict[str, Any]]:
    """Us and the peers, with the ratios that are asked for, if any."""
    rng = np.random.default_rng(SEED)
    rows, cells = strategy.shape
    scale = float(abs(strategy).sum(axis=0).max())
    counts = np.where(rng.random(cells) < 0.1, np.minimum(rng.zipf(1.6, cells), 1500), 0).astype(np.float64)
    noisy, weights = strategy @ counts + rng.laplace(0, scale, rows), np.full(rows, 1.0 / scale)
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
