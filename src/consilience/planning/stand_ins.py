"""Stand-ins: tables that are made up from a domain and a number of records, for trying a plan on before there are data.

A record has a hidden group g. Each attribute takes its value from the group's own law with probability `coupling`, else
from the law of all groups, so that every pair of attributes goes together as much as every other:

    P(x_i = v | g)  =  coupling · p_ig(v) + (1 − coupling) · p_i(v),        p(v) ∝ 1 / rank(v)^skew.

Ranks are drawn at random for categories. For what has an order they follow the distance from a mode, so that neighbours
have like counts. With skew and coupling 0 the table is uniform. Nothing here is read off data.

The constants of the skewed stand-in were tuned on Adult and Titanic (see `benchmarks/accuracy/what_if.py`, which judges
by Loans, Stroke and Kosarak).
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain.attributes import Attribute
from consilience.domain.domains import Domain, PublicFacts
from consilience.domain.source_format import SourceFormat
from consilience.errors import DeclarationError
from consilience.kernels.rng import Generator, generator
from consilience.publication.synthetic import are_possible, record_arrays
from consilience.source import Source, open_table

if TYPE_CHECKING:
    import pyarrow as pa

Codes = NDArray[np.int64]
Shape = Literal["uniform", "skewed"]

MOST_RECORDS = 2_000_000
MOST_VALUES = 40_000_000
"""Records, and records times attributes, that a stand-in has at most: half a gigabyte while it is made."""
REDRAWS = 50
"""How often impossible records are drawn again."""
UNIT = "(unit of a stand-in)"


@dataclass(frozen=True)
class StandIn:
    """How a made-up table is spread over its cells."""

    name: Shape
    skew: float
    coupling: float
    groups: int = 8


UNIFORM = StandIn("uniform", 0.0, 0.0)
SKEWED = StandIn("skewed", 1.0, 0.7)
STAND_INS = (UNIFORM, SKEWED)


def most_records(domain: Domain, records: int) -> int:
    """How many records a stand-in for so many has."""
    return min(records, MOST_RECORDS, max(MOST_VALUES // max(len(domain.counted), 1), 1))


def stand_in_domain(domain: Domain) -> Domain:
    """The domain of stand-ins: its counted attributes, without published margins, which made-up records contradict."""
    counted = domain.project(domain.counted_names)
    return replace(counted, public=PublicFacts(counted.public.total), source_format=SourceFormat())


def open_stand_in(how: StandIn, domain: Domain, records: int, *, rows_per_unit: int = 1, seed: int = 0) -> Source:
    """A made-up table of so many records, opened as any table is; it is of nobody.

    >>> source = open_stand_in(SKEWED, Domain.from_sizes({"a": 3, "b": 2}), 100)
    >>> int(source.exact_counts([("a",)])[0].sum())
    100
    """
    table = stand_in_table(how, domain, records, seed=seed)
    if rows_per_unit == 1:
        return open_table(table, domain)
    table = table.append_column(UNIT, [np.arange(records)])  # type: ignore[list-item]
    return open_table(table, domain, unit=UNIT, max_rows_per_unit=rows_per_unit)


def stand_in_table(how: StandIn, domain: Domain, records: int, *, seed: int = 0) -> "pa.Table":
    """The made-up records, with the labels and types that the domain declares."""
    import pyarrow as pa

    rng = generator(seed, 0 if how.name == "uniform" else 1)
    names = list(domain.counted_names)
    arrays = record_arrays(domain, names, _possible_codes(how, domain, records, rng), "even", rng)
    if domain.weight is not None and domain.weight.column not in names:
        low, high = domain.weight.range
        names.append(domain.weight.column)
        arrays.append(pa.array(np.full(records, (low + high) / 2.0)))
    return pa.table(arrays, names=names)


def _possible_codes(how: StandIn, domain: Domain, records: int, rng: Generator) -> Codes:
    """Codes of records, none of them impossible: those that are get drawn again, and at last are copies."""
    laws = [_Law.of(how, attribute, rng) for attribute in domain.counted]
    codes = _drawn(how, laws, records, rng)
    for _ in range(REDRAWS):
        broken = np.flatnonzero(~are_possible(codes, domain))
        if not broken.size:
            return codes
        codes[broken] = _drawn(how, laws, broken.size, rng)
    possible = are_possible(codes, domain)
    if not possible.any():
        raise DeclarationError(
            f"domain {domain.name!r} leaves so few cells possible that no made-up record lies in one; errors can be "
            "told of it by a simulation on a table of your own: consilience release --simulate 1"
        )
    codes[~possible] = codes[possible][rng.integers(0, int(possible.sum()), int((~possible).sum()))]
    return codes


def _drawn(how: StandIn, laws: "list[_Law]", records: int, rng: Generator) -> Codes:
    weights = 1.0 / np.arange(1, how.groups + 1)
    group = rng.choice(how.groups, records, p=weights / weights.sum()) if how.coupling else None
    codes = np.empty((records, len(laws)), dtype=np.int64)
    for place, law in enumerate(laws):
        rows = np.zeros(records, dtype=np.intp)
        if group is not None:
            rows = np.where(rng.random(records) < how.coupling, 1 + group, 0)
        codes[:, place] = law.draw(rows, rng)
    return codes


@dataclass(frozen=True, eq=False)
class _Law:
    """Cumulated shares of the values of one attribute: for all groups in the first row, then for each."""

    cumulated: NDArray[np.float64]

    @staticmethod
    def of(how: StandIn, attribute: Attribute, rng: Generator) -> "_Law":
        size = max(len(attribute.ordinary_labels), 1)
        rows = 1 + (how.groups if how.coupling else 0)
        shares = np.zeros((rows, attribute.size))
        for row in range(rows):
            if attribute.is_ordered:
                mode = rng.random() * size
                order = np.argsort(np.abs(np.arange(size) + 0.5 - mode), kind="stable")
            else:
                order = rng.permutation(size)
            shares[row, order] = 1.0 / np.arange(1, size + 1) ** how.skew
        return _Law(np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1))

    def draw(self, rows: NDArray[np.intp], rng: Generator) -> Codes:
        steps = (self.cumulated + np.arange(len(self.cumulated))[:, None]).ravel()
        found = np.searchsorted(steps, rows + rng.random(rows.size), side="right")
        size = self.cumulated.shape[1]
        return np.clip(found - rows * size, 0, size - 1)
