"""Stand-in while the real solver is being finished."""

import time
from typing import Any

import numpy as np

from consilience.numerics.fit import Fit, Status


def predicted_bytes(cells: int) -> int:
    return 8 * 8 * cells


def fit_nonnegative_least_squares(operator: Any, observed: Any, *, start: Any = None, total: Any = None, allowed: Any = None, cover: Any = None, tolerance: float = 1e-6, noise_energy: Any = None, max_steps: int = 2000, time_limit: Any = None, progress: Any = None) -> Fit:
    t0 = time.perf_counter()
    x = np.full(operator.shape_in, 1.0)
    if allowed is not None:
        x = x * allowed

    def proj(z):
        if allowed is not None:
            z = np.where(allowed, z, -np.inf)
        if total is None:
            return np.maximum(z, 0)
        v = np.sort(z[np.isfinite(z)].ravel())[::-1]
        c = (np.cumsum(v) - total) / np.arange(1, v.size + 1)
        k = np.flatnonzero(v > c)[-1] if total > 0 else 0
        return np.maximum(z - c[k], 0)

    L = 1.0
    v = np.random.default_rng(0).random(operator.shape_in)  # noqa
    for _ in range(30):
        v = operator.adjoint(operator.apply(v))
        L = np.linalg.norm(v)
        if L == 0:
            L = 1.0
            break
        v /= L
    L *= 1.02
    x = proj(x)
    z, t = x, 1.0
    gap = np.inf
    for step in range(max_steps):
        r = operator.apply(z) - observed
        xn = proj(z - operator.adjoint(r) / L)
        if np.sum((z - xn) * (xn - x)) > 0:
            t = 1.0
        tn = (1 + np.sqrt(1 + 4 * t * t)) / 2
        z = xn + (t - 1) / tn * (xn - x)
        x, t = xn, tn
        if step % 20 == 0:
            r = operator.apply(x) - observed
            g = operator.adjoint(r)
            obj = 0.5 * r @ r
            if total is not None:
                gg = g if allowed is None else g[allowed]
                gap = float(np.sum(g * x) - total * gg.min())
            elif cover is not None:
                bv = operator.adjoint(cover)
                m = bv > 1e-12
                tt = max(0.0, float((-g[m] / bv[m]).max())) if m.any() else 0.0
                nu = r + tt * cover
                gap = float(obj + 0.5 * nu @ nu + observed @ nu)
            if gap <= tolerance * max(obj, noise_energy or 0, 1e-300):
                break
    return Fit(x, float(obj), gap, Status.CONVERGED if gap <= tolerance * max(obj, noise_energy or 0, 1e-300) else Status.STEP_LIMIT, {"steps": step, "seconds": time.perf_counter() - t0})
