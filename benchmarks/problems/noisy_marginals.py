"""Sets of noisy marginals from which a graphical model is estimated, named and seeded.

`chain`: attributes of ten values, each dependent on the one before, measured on adjacent triples (McKenna et al. 2019,
§5.2). `star`: attributes of 2 to 50 values that depend on one, each measured with it. `adult_fine`: the 15 triples of
the same paper's experiments on Adult, 62,876 cells. `random_triples`: 15 triples of columns drawn at random.
"""

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems.records import ADULT_FINE, NamedRecords, drawn, named_records

Array = NDArray[np.float64]
Law = Literal["gaussian", "laplace"]
Scope = tuple[int, ...]

ADULT_TRIPLES = (
    ("occupation", "race", "capital-loss"),
    ("occupation", "sex", "native-country"),
    ("marital-status", "relationship", "income>50K"),
    ("age", "education-num", "sex"),
    ("workclass", "education-num", "occupation"),
    ("marital-status", "occupation", "income>50K"),
    ("race", "native-country", "income>50K"),
    ("occupation", "capital-gain", "income>50K"),
    ("marital-status", "hours-per-week", "income>50K"),
    ("workclass", "race", "capital-gain"),
    ("marital-status", "relationship", "capital-gain"),
    ("workclass", "education-num", "capital-gain"),
    ("education-num", "relationship", "race"),
    ("fnlwgt", "hours-per-week", "income>50K"),
    ("workclass", "sex", "native-country"),
)


@dataclass(frozen=True, eq=False)
class NoisyMarginals:
    """Marginals of some records, exact and with independent noise of one law and scale on every cell."""

    name: str
    sizes: tuple[int, ...]
    scopes: tuple[Scope, ...]
    exact: tuple[Array, ...]
    noisy: tuple[Array, ...]
    law: Law
    scale: float
    total: float
    """How many records there are: taken as known."""

    @property
    def cells(self) -> int:
        """How many cells were measured."""
        return sum(table.size for table in self.noisy)

    def loss(self, marginals: Sequence[Array]) -> float:
        """The negative log-likelihood but for a constant: ½Σ(r/σ)² of Gaussian noise, Σ|r|/b of Laplace noise."""
        pairs = zip(marginals, self.noisy, strict=True)
        residuals = (np.ravel((table - noisy) / self.scale) for table, noisy in pairs)
        if self.law == "gaussian":
            return float(sum(0.5 * (residual @ residual) for residual in residuals))
        return float(sum(np.abs(residual).sum() for residual in residuals))

    def error(self, marginals: Sequence[Array]) -> float:
        """The mean over the marginals of the total variation distance to the exact ones: L1 / 2N."""
        pairs = zip(marginals, self.exact, strict=True)
        return float(np.mean([np.abs(table - exact).sum() / (2.0 * self.total) for table, exact in pairs]))

    def save(self, path: Path) -> None:
        """Write everything to one file, from which a process of its own reads it."""
        facts = json.dumps([self.name, self.sizes, self.scopes, self.law, self.scale, self.total])
        tables: dict[str, Any] = {f"exact{k}": table for k, table in enumerate(self.exact)}
        tables |= {f"noisy{k}": table for k, table in enumerate(self.noisy)}
        np.savez(path, facts=np.array(facts), **tables)

    @staticmethod
    def load(path: Path | str) -> "NoisyMarginals":
        """What `save` wrote."""
        with np.load(path) as file:
            name, sizes, scopes, law, scale, total = json.loads(str(file["facts"]))
            exact = tuple(file[f"exact{k}"] for k in range(len(scopes)))
            noisy = tuple(file[f"noisy{k}"] for k in range(len(scopes)))
        return NoisyMarginals(name, tuple(sizes), tuple(map(tuple, scopes)), exact, noisy, law, scale, total)


def measured(records: NamedRecords, scopes: Sequence[Scope], *, law: Law, scale: float, seed: int) -> NoisyMarginals:
    """The marginals of the records with noise drawn from the seed. There is nobody to protect here."""
    rng = np.random.default_rng(seed)
    draw = rng.normal if law == "gaussian" else rng.laplace
    exact = tuple(records.counts(scope) for scope in scopes)
    noisy = tuple(table + draw(0.0, scale, table.shape) for table in exact)
    total = float(len(records.codes))
    return NoisyMarginals(records.name, records.sizes, tuple(scopes), exact, noisy, law, scale, total)


def chain(attributes: int, *, values: int = 10, rows: int = 100_000, seed: int = 0) -> NoisyMarginals:
    """Every attribute depends on the one before; adjacent triples with Gaussian noise, σ = 10."""
    rng = np.random.default_rng(seed)
    codes = np.empty((rows, attributes), dtype=np.int64)
    codes[:, 0] = rng.integers(0, values, rows)
    for j in range(1, attributes):
        codes[:, j] = drawn(rng.dirichlet(np.full(values, 0.3), values)[codes[:, j - 1]], rng)
    records = NamedRecords(f"chain of {attributes}", (values,) * attributes, codes)
    scopes = [(j, j + 1, j + 2) for j in range(attributes - 2)]
    return measured(records, scopes, law="gaussian", scale=10.0, seed=seed + 1)


def star(attributes: int, *, rows: int = 100_000, seed: int = 0) -> NoisyMarginals:
    """Every attribute depends on the first; pairs with the first, Gaussian noise, σ = 10."""
    rng = np.random.default_rng(seed)
    sizes = tuple(int(size) for size in rng.integers(2, 51, attributes))
    codes = np.empty((rows, attributes), dtype=np.int64)
    codes[:, 0] = rng.integers(0, sizes[0], rows)
    for j in range(1, attributes):
        codes[:, j] = drawn(rng.dirichlet(np.full(sizes[j], 0.3), sizes[0])[codes[:, 0]], rng)
    records = NamedRecords(f"star of {attributes}", sizes, codes)
    return measured(records, [(0, j) for j in range(1, attributes)], law="gaussian", scale=10.0, seed=seed + 1)


def adult_fine(*, law: Law = "gaussian", scale: float = 30.0, seed: int = 0) -> NoisyMarginals:
    """The 15 triples of the paper on the finer Adult, Gaussian noise with σ = 30 unless told."""
    columns = list(ADULT_FINE)
    scopes = [tuple(sorted(columns.index(name) for name in triple)) for triple in ADULT_TRIPLES]
    return measured(named_records("adult-fine"), scopes, law=law, scale=scale, seed=seed)


def random_triples(name: str, *, scale: float = 15.0, seed: int = 0) -> NoisyMarginals:
    """15 triples of columns, the same for every seed, with Laplace noise: of scale 15 it is ε = 1."""
    records = named_records(name)
    triples = list(itertools.combinations(range(len(records.sizes)), 3))
    scopes = sorted(random.Random(0).sample(triples, 15))
    return measured(records, scopes, law="laplace", scale=scale, seed=seed)
