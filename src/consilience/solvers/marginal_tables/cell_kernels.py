"""Kernels of the interior point: one pass over the cells for each thing that an iteration needs to know.

A cell with noisy value y, slope a and curvature q costs a|x − y| + q(x − y)². It is split into parts that are linear or
quadratic where they can be, each with its own multipliers:

    over    x = p              cost c·p + q·p²,   p ≥ 0      where y ≤ 0 or a = 0: then c = a − 2qy
    both    x = p + v          cost a·p + q·p² + a·m + q·m²,   p ≥ 0, 0 ≤ v ≤ y, m = y − v
    free    x = p + y − m      the same without v ≥ 0, where x may be negative
    fixed   x = 0

Splitting a convex cost into the way up and the way down changes no optimum, since a part of the way up is never taken
together with a part of the way down. With s = Φᵀλ the optimum satisfies

    c + 2q·p − s − z_p = 0         p·z_p = 0
   −a − 2q·m − s − z_v + z_m = 0   v·z_v = 0   m·z_m = 0.

Newton's method on these, with right-hand sides κ in place of the products, moves

    p by dp = D_p (ds − r_p + κ_p / p),                      D_p = 1 / (2q + z_p / p),
    v by dv = D_v (ds − r_v + κ_v / v − κ_m / m),  dm = −dv,  D_v = 1 / (2q + z_v / v + z_m / m),

r being the left-hand sides above; so dx = (D_p + D_v) ds + e, and ds = Φᵀdλ solves Φ(D_p + D_v)Φᵀ dλ = b − Φx − Φe.
Everything but dλ is local to a cell and is computed again in each pass rather than stored.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

FIXED, OVER, BOTH, FREE = 0, 1, 2, 3


class Costs(NamedTuple):
    """What each cell costs, by its kind."""

    kind: NDArray[np.int8]
    c: NDArray[np.float64]
    a: NDArray[np.float64]
    q: NDArray[np.float64]


class Parts(NamedTuple):
    """Where the parts of each cell stand, and their multipliers."""

    p: NDArray[np.float64]
    zp: NDArray[np.float64]
    m: NDArray[np.float64]
    zm: NDArray[np.float64]
    v: NDArray[np.float64]
    zv: NDArray[np.float64]


@numba.njit(nogil=True, cache=True, error_model="numpy")
def predictor_terms(costs, parts, s, scaling, shift):  # pragma: no cover - compiled
    """D and e of the step that aims at products of 0; returns the sum of the products and their number."""
    products, count = 0.0, 0
    for i in range(s.shape[0]):
        scaling[i] = 0.0
        shift[i] = 0.0
        if costs.kind[i] == FIXED:
            continue
        products += parts.p[i] * parts.zp[i]
        count += 1
        scaling[i] = 1.0 / (2.0 * costs.q[i] + parts.zp[i] / parts.p[i])
        shift[i], _ = _way_up(costs, parts, i, s[i], 0.0, -parts.p[i] * parts.zp[i])
        if costs.kind[i] == OVER:
            continue
        products += parts.m[i] * parts.zm[i] + parts.v[i] * parts.zv[i]
        count += 2 if costs.kind[i] == BOTH else 1
        stiffness = 2.0 * costs.q[i] + parts.zm[i] / parts.m[i]
        if costs.kind[i] == BOTH:
            stiffness += parts.zv[i] / parts.v[i]
        scaling[i] += 1.0 / stiffness
        dv, _, _ = _way_down(costs, parts, i, s[i], 0.0, -parts.m[i] * parts.zm[i], -parts.v[i] * parts.zv[i])
        shift[i] += dv
    return products, count


@numba.njit(nogil=True, cache=True, error_model="numpy")
def predicted_products(costs, parts, s, ds):  # pragma: no cover - compiled
    """The longest steps of the predictor, at most 1, and the products' sum as terms in α, β and αβ.

    With primal step α and dual step β the sum of (p + α dp)(z + β dz) is that of p·z + α z·dp + β p·dz + αβ dp·dz.
    """
    primal, dual = 1.0, 1.0
    in_primal, in_dual, in_both = 0.0, 0.0, 0.0
    for i in range(s.shape[0]):
        if costs.kind[i] == FIXED:
            continue
        p, z = parts.p[i], parts.zp[i]
        dp, dz = _way_up(costs, parts, i, s[i], ds[i], -p * z)
        if p + primal * dp < 0.0:
            primal = -p / dp
        if z + dual * dz < 0.0:
            dual = -z / dz
        in_primal += dp * z
        in_dual += p * dz
        in_both += dp * dz
        if costs.kind[i] == OVER:
            continue
        m, t, v, z = parts.m[i], parts.zm[i], parts.v[i], parts.zv[i]
        dv, dt, dz = _way_down(costs, parts, i, s[i], ds[i], -m * t, -v * z)
        if m - primal * dv < 0.0:
            primal = m / dv
        if t + dual * dt < 0.0:
            dual = -t / dt
        if costs.kind[i] == BOTH:
            if v + primal * dv < 0.0:
                primal = -v / dv
            if z + dual * dz < 0.0:
                dual = -z / dz
        in_primal += dv * (z - t)
        in_dual += m * dt + v * dz
        in_both += dv * (dz - dt)
    return primal, dual, in_primal, in_dual, in_both


@numba.njit(nogil=True, cache=True, error_model="numpy")
def corrector_shift(costs, parts, s, ds, centre, shift):  # pragma: no cover - compiled
    """e of the step that aims at the corrector's products."""
    for i in range(s.shape[0]):
        if costs.kind[i] == FIXED:
            continue
        kappa_p, kappa_m, kappa_v = _targets(costs, parts, i, s[i], ds[i], centre)
        shift[i], _ = _way_up(costs, parts, i, s[i], 0.0, kappa_p)
        if costs.kind[i] != OVER:
            dv, _, _ = _way_down(costs, parts, i, s[i], 0.0, kappa_m, kappa_v)
            shift[i] += dv


@numba.njit(nogil=True, cache=True, error_model="numpy")
def longest_steps(costs, parts, s, ds, change, centre):  # pragma: no cover - compiled
    """The longest steps of the corrector, whose own Φᵀdλ is `change`, that keep all parts and multipliers ≥ 0."""
    primal, dual = np.inf, np.inf
    for i in range(s.shape[0]):
        if costs.kind[i] == FIXED:
            continue
        kappa_p, kappa_m, kappa_v = _targets(costs, parts, i, s[i], ds[i], centre)
        dp, dz = _way_up(costs, parts, i, s[i], change[i], kappa_p)
        if dp < 0.0:
            primal = min(primal, -parts.p[i] / dp)
        if dz < 0.0:
            dual = min(dual, -parts.zp[i] / dz)
        if costs.kind[i] == OVER:
            continue
        dv, dt, dz = _way_down(costs, parts, i, s[i], change[i], kappa_m, kappa_v)
        if dv > 0.0:
            primal = min(primal, parts.m[i] / dv)
        if dt < 0.0:
            dual = min(dual, -parts.zm[i] / dt)
        if costs.kind[i] == BOTH:
            if dv < 0.0:
                primal = min(primal, -parts.v[i] / dv)
            if dz < 0.0:
                dual = min(dual, -parts.zv[i] / dz)
    return primal, dual


@numba.njit(nogil=True, cache=True, error_model="numpy")
def take_step(costs, parts, s, ds, change, centre, primal, dual):  # pragma: no cover - compiled
    """Move every part by `primal` and every multiplier by `dual` of the corrector's step; s itself stays."""
    for i in range(s.shape[0]):
        if costs.kind[i] == FIXED:
            continue
        kappa_p, kappa_m, kappa_v = _targets(costs, parts, i, s[i], ds[i], centre)
        dp, dzp = _way_up(costs, parts, i, s[i], change[i], kappa_p)
        if costs.kind[i] != OVER:
            dv, dzm, dzv = _way_down(costs, parts, i, s[i], change[i], kappa_m, kappa_v)
            parts.m[i] -= primal * dv
            parts.v[i] += primal * dv
            parts.zm[i] += dual * dzm
            parts.zv[i] += dual * dzv
        parts.p[i] += primal * dp
        parts.zp[i] += dual * dzp


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _way_up(costs, parts, i, s, ds, kappa):  # pragma: no cover - compiled
    """The steps of p and of its multiplier."""
    q, p, z = costs.q[i], parts.p[i], parts.zp[i]
    residual = costs.c[i] + 2.0 * q * p - s - z
    dp = (ds - residual + kappa / p) / (2.0 * q + z / p)
    return dp, (kappa - z * dp) / p


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _way_down(costs, parts, i, s, ds, kappa_m, kappa_v):  # pragma: no cover - compiled
    """The step of v, which is that of −m, and those of the multipliers of m and v."""
    q, m, t, v, z = costs.q[i], parts.m[i], parts.zm[i], parts.v[i], parts.zv[i]
    stiffness = 2.0 * q + t / m
    force = ds + costs.a[i] + 2.0 * q * m + s + z - t - kappa_m / m
    if costs.kind[i] == BOTH:
        dv = (force + kappa_v / v) / (stiffness + z / v)
        return dv, (kappa_m + t * dv) / m, (kappa_v - z * dv) / v
    dv = force / stiffness
    return dv, (kappa_m + t * dv) / m, 0.0


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _targets(costs, parts, i, s, ds, centre):  # pragma: no cover - compiled
    """The corrector's right-hand sides (Mehrotra 1992): centre − product − change that the predictor overlooked."""
    p, z = parts.p[i], parts.zp[i]
    dp, dz = _way_up(costs, parts, i, s, ds, -p * z)
    kappa_p = centre - p * z - dp * dz
    if costs.kind[i] == OVER:
        return kappa_p, 0.0, 0.0
    m, t, v, z = parts.m[i], parts.zm[i], parts.v[i], parts.zv[i]
    dv, dt, dz = _way_down(costs, parts, i, s, ds, -m * t, -v * z)
    return kappa_p, centre - m * t + dv * dt, centre - v * z - dv * dz
