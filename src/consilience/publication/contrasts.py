"""Contrasts: combinations of noisy values from which the data cancels, so that noise alone is left.

Two measurements that imply the same number differ by noise, whatever that number is. With y = A x + n, every row c with
c A = 0 gives c y = c n, whose law is known. A fit is not needed, and what a fit absorbs of the noise does not matter.

Of marginals all contrasts are at hand in closed form. The orthonormal cosine transform of a marginal over the
attributes S has a block for every T ⊆ S: the coordinates that vary along T alone. Multiplied by √Π_{i∈S∖T} nᵢ that
block is the same for every marginal that holds T, but for noise of the variance σ²_S Π_{i∈S∖T} nᵢ in each coordinate.
So k marginals that hold T give k − 1 independent differences a coordinate.

Of other queries the contrasts are the left null space of A, found by a decomposition where it is small.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.fft import dctn

from consilience.domain import Domain
from consilience.domain.factors import Identity, Total
from consilience.measurements import Measurement, MeasurementSet

Floats = NDArray[np.float64]

LARGEST_MATRIX = 2_500
"""Queries other than marginals are compared where they have no more answers, and no more cells, than this."""


@dataclass(frozen=True, eq=False)
class Contrasts:
    """What of some measurements is noise alone, in units of its standard deviation."""

    measurements: tuple[Measurement, ...]
    """Those that are compared."""
    size: int
    """How many contrasts there are."""
    standardise: Callable[[Sequence[Floats]], Floats]
    """From values, an array (draws, answers) for each measurement, to contrasts, an array (draws, size)."""

    def observed(self) -> Floats:
        """The contrasts of the noisy values themselves; each has mean 0 and variance 1 if the noise is as declared."""
        return self.standardise([each.values[None, :] for each in self.measurements])[0]


def contrasts(measured: MeasurementSet) -> Contrasts | None:
    """The contrasts between measurements, or None where they imply no number twice.

    Clipped and censored values are left out, because their noise has another law.
    """
    usable = tuple(each for each in measured if is_plain(each))
    marginals = tuple(each for each in usable if _is_marginal(each))
    found = None if len(marginals) == len(usable) else _of_queries(usable, measured.domain)
    found = found or _of_marginals(marginals, measured.domain)
    return found if found.size else None


def is_plain(measurement: Measurement) -> bool:
    """Whether the values are answers plus noise, and nothing was done to them."""
    return measurement.kind == "linear" and not measurement.clipped and measurement.threshold is None


def _is_marginal(measurement: Measurement) -> bool:
    return all(isinstance(factor, Identity | Total) for _, factor in measurement.query.factors)


Scope = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Block:
    """Where the coordinates of one set of attributes lie in the transform of one marginal."""

    measurement: int
    where: tuple[slice | int, ...]
    factor: float
    variance: float


def _of_marginals(marginals: Sequence[Measurement], domain: Domain) -> Contrasts:
    scopes = [_scope(each, domain) for each in marginals]
    blocks: dict[Scope, list[_Block]] = {}
    for number, (each, scope) in enumerate(zip(marginals, scopes, strict=True)):
        for part in itertools.chain.from_iterable(itertools.combinations(scope, k) for k in range(len(scope) + 1)):
            blocks.setdefault(part, []).append(_block(number, each, scope, part, domain))
    shared = {part: _differences(found) for part, found in blocks.items() if len(found) > 1}
    size = sum(len(matrix) * math.prod(n - 1 for n in domain.sizes(part)) for part, matrix in shared.items())
    axes = [_to_domain_order(each, domain) for each in marginals]

    def standardise(values: Sequence[Floats]) -> Floats:
        tables = [_transformed(array, *axis) for array, axis in zip(values, axes, strict=True)]
        draws = len(values[0])
        parts = [
            np.einsum("dk,knc->ndc", matrix, _coordinates(tables, blocks[part])).reshape(draws, -1)
            for part, matrix in shared.items()
            if len(matrix)
        ]
        return np.concatenate(parts, axis=1)

    return Contrasts(tuple(marginals), size, standardise)


def _scope(measurement: Measurement, domain: Domain) -> Scope:
    """The attributes that vary, in the domain's order; those of one value do not."""
    named = (name for name, factor in measurement.query.factors if isinstance(factor, Identity))
    return domain.ordered(name for name in named if domain[name].size > 1)


def _block(number: int, measurement: Measurement, scope: Scope, part: Scope, domain: Domain) -> _Block:
    away = math.prod(domain.sizes(name for name in scope if name not in part))
    where = tuple(slice(1, None) if name in part else 0 for name in scope)
    return _Block(number, where, math.sqrt(away), measurement.noise.variance * away)


def _differences(blocks: Sequence[_Block]) -> Floats:
    """A matrix from k equal numbers with noise to as many independent, standardised differences as there are."""
    variances = np.array([block.variance for block in blocks])
    exact = np.flatnonzero(variances == 0)
    if len(exact):
        noisy = np.flatnonzero(variances > 0)
        matrix = np.zeros((len(noisy), len(blocks)))
        matrix[np.arange(len(noisy)), noisy] = 1.0 / np.sqrt(variances[noisy])
        matrix[:, exact[0]] = -matrix.sum(axis=1)
        return matrix
    weights = 1.0 / np.sqrt(variances)
    return scipy.linalg.null_space(weights[None, :]).T * weights


def _to_domain_order(measurement: Measurement, domain: Domain) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of the values over the attributes that vary, and the order that makes it the domain's."""
    named = [name for name, factor in measurement.query.factors if isinstance(factor, Identity)]
    varying = [name for name in named if domain[name].size > 1]
    ordered = domain.ordered(varying)
    return domain.sizes(varying), tuple(varying.index(name) for name in ordered)


def _transformed(values: Floats, shape: tuple[int, ...], order: tuple[int, ...]) -> Floats:
    table = values.reshape(len(values), *shape).transpose(0, *(1 + axis for axis in order))
    return np.asarray(dctn(table, axes=range(1, table.ndim), norm="ortho"), np.float64) if order else table


def _coordinates(tables: Sequence[Floats], blocks: Sequence[_Block]) -> Floats:
    """An array (measurement, draw, coordinate) of numbers that are equal but for noise."""
    found = [block.factor * tables[block.measurement][(slice(None), *block.where)] for block in blocks]
    return np.stack([each.reshape(len(each), -1) for each in found])


def _of_queries(usable: Sequence[Measurement], domain: Domain) -> Contrasts | None:
    """The left null space of the stacked queries, whitened; None where they are too large for that."""
    names = domain.ordered({name for each in usable for name in each.query.attributes})
    rows = sum(each.values.size for each in usable)
    if rows > LARGEST_MATRIX or math.prod(domain.sizes(names)) > LARGEST_MATRIX:
        return None
    matrix = np.concatenate([each.query.bind(domain).written_out(names) for each in usable])
    deviations = np.concatenate([np.full(each.values.size, each.noise.stddev_of_noise) for each in usable])
    empty = scipy.linalg.null_space(matrix.T).T
    spread = empty * deviations
    variances, directions = scipy.linalg.eigh(spread @ spread.T) if len(empty) else (np.zeros(0), np.zeros((0, 0)))
    kept = variances > 1e-9 * max(variances.max(initial=0.0), 1e-300)
    whitened = (directions[:, kept] / np.sqrt(variances[kept])).T @ empty

    def standardise(values: Sequence[Floats]) -> Floats:
        return np.concatenate(values, axis=1) @ whitened.T

    return Contrasts(tuple(usable), len(whitened), standardise)
