"""A country of blocks: errors, bias and coverage of its tables at every level, and the time that more places take.

The country is generated: blocks of lognormal size, half of them below 30 people, whose people differ by sex, age and
group in shares that vary by state, county and block. At every level the table and the total of each place get Gaussian
noise. Compared are the noisy tables themselves, `Tree` on the tables of all levels, `Geographic`, and *level by level*:
each level's own measurements, fitted by non-negative least squares within the table of the place above that was found
before (as the 2020 Census' TopDown does), by an open solver.
"""

import itertools
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from consilience.domain import Attribute, Domain, Query, factors
from consilience.estimators.geographic import Geographic, GeographicEstimate
from consilience.estimators.regions import estimate_regions
from consilience.estimators.tree import Tree
from consilience.measurements import Gaussian, Measurement, MeasurementSet, PrivacyStatement
from consilience.measurements.regional import RegionalMeasurements, variance_of
from consilience.measurements.regions import PlaceRows
from consilience.solvers.geography.cell_basis import CellBasis
from consilience.solvers.geography.least_squares import NodeEvidence, fit_signed, sums_of_leaves
from consilience.solvers.geography.nonnegative import divide
from consilience.solvers.trees.layout import forest

LEVELS = ("Nation", "State", "County", "Block")
SIZES = {"sex": 2, "age": 6, "group": 3}
CELLS = 36
MEDIAN_BLOCK, SPREAD = 28.0, 1.08
"""Of the lognormal sizes of blocks: half are below 30 people, and the mean is about 50."""
STDDEV = {"Nation": 6.0, "State": 4.0, "County": 4.0, "Block": 3.0}
"""Of the noise of each cell and each total."""
CLASSES = (0.0, 10.0, 30.0, 100.0, np.inf)


@dataclass(frozen=True, eq=False)
class Country:
    """Tables of the places of each level, the nation first, and the place above each."""

    domain: Domain
    tables: list[np.ndarray]
    above: list[np.ndarray]


def country(blocks: int, seed: int = 0) -> Country:
    """A generated country with so many blocks, some 50 to a county and 20 counties to a state."""
    rng = np.random.default_rng(seed)
    counties = max(4, blocks // 50)
    states = max(2, counties // 20)
    county = np.sort(np.concatenate([np.arange(counties), rng.integers(0, counties, blocks - counties)]))
    state = np.sort(np.concatenate([np.arange(states), rng.integers(0, states, counties - states)]))
    shares = rng.dirichlet(np.full(CELLS, 2.0))
    of_states = np.array([rng.dirichlet(60 * shares + 1e-3) for _ in range(states)])
    of_counties = np.array([rng.dirichlet(60 * of_states[place] + 1e-3) for place in state])
    of_blocks = np.array([rng.dirichlet(20 * of_counties[place] + 1e-3) for place in county])
    sizes = rng.poisson(rng.lognormal(np.log(MEDIAN_BLOCK), SPREAD, blocks))
    table = np.array([rng.multinomial(size, share) for size, share in zip(sizes, of_blocks, strict=True)], dtype=float)
    tables, above = [table], [county, state, np.zeros(states, dtype=np.int64)]
    for parents in above:
        tables.append(summed(tables[-1], parents))
    parents = {f"b{place:06d}": f"c{up:05d}" for place, up in enumerate(county)}
    parents |= {f"c{place:05d}": f"s{up:03d}" for place, up in enumerate(state)}
    parents |= {f"s{place:03d}": "nation" for place in range(states)}
    places = Attribute.hierarchy("block", parents, levels=LEVELS, geography=True)
    others = [Attribute.categorical(name, [str(code) for code in range(size)]) for name, size in SIZES.items()]
    return Country(Domain("country", (places, *others)), tables[::-1], above[::-1])


def summed(tables: np.ndarray, parents: np.ndarray) -> np.ndarray:
    found = np.zeros((int(parents.max()) + 1, tables.shape[1]))
    np.add.at(found, parents, tables)
    return found


def measured(land: Country, seed: int, *, totals: bool = True) -> MeasurementSet:
    """Noisy tables, and totals, of all places."""
    rng, found = np.random.default_rng(seed), []
    for level, tables in zip(LEVELS, land.tables, strict=True):
        noise, place = Gaussian(STDDEV[level]), ("block", factors.Level(level))
        every = Query((place, *((name, factors.Identity()) for name in SIZES)))
        noisy, sums = (exact + rng.normal(0, STDDEV[level], exact.shape) for exact in (tables, tables.sum(1)))
        found.append(Measurement(every, noisy.ravel(), noise))
        if totals:
            found.append(Measurement(Query((place,)), sums, noise))
    return MeasurementSet(land.domain, tuple(found), PrivacyStatement(), {}, private=False)


def by_level(land: Country, leaves: np.ndarray) -> list[np.ndarray]:
    """The tables of all levels from those of the blocks."""
    tables = [leaves]
    for parents in land.above[::-1]:
        tables.append(summed(tables[-1], parents))
    return tables[::-1]


def level_by_level(land: Country, noisy: MeasurementSet) -> list[np.ndarray]:
    """Non-negative least squares of each level's own measurements, within the tables found above them."""
    values = [each.values for each in noisy]
    shaped = [(values[2 * k].reshape(-1, CELLS), values[2 * k + 1]) for k in range(len(LEVELS))]
    found = [_within(*shaped[0], None)]
    for (tables, totals), parents in zip(shaped[1:], land.above, strict=True):
        level = np.empty_like(tables)
        for place in range(len(found[-1])):
            below = np.flatnonzero(parents == place)
            level[below] = _within(tables[below], totals[below], found[-1][place])
        found.append(level)
    return found


def _within(tables: np.ndarray, totals: np.ndarray, parent: np.ndarray | None) -> np.ndarray:
    """min ‖x − y‖² + ‖Σ_h x − t‖² with x ≥ 0 whose children sum to the parent, by an interior point."""
    clarabel: Any = import_module("clarabel")
    places, cells = tables.shape
    size = places * cells
    sums = sp.kron(sp.eye(places), np.ones((1, cells)))
    upper = sp.triu(sp.eye(size) + sums.T @ sums).tocsc()
    linear = -(tables.ravel() + sums.T @ totals)
    cones: list[Any] = [clarabel.NonnegativeConeT(size)]
    rows, right = [-sp.eye(size)], [np.zeros(size)]
    if parent is not None:
        rows.insert(0, sp.kron(np.ones((1, places)), sp.eye(cells)))
        right.insert(0, parent)
        cones.insert(0, clarabel.ZeroConeT(cells))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solver = clarabel.DefaultSolver(upper, linear, sp.vstack(rows).tocsc(), np.concatenate(right), cones, settings)
    return np.maximum(np.array(solver.solve().x).reshape(places, cells), 0.0)


def accuracy(land: Country, noisy: MeasurementSet, account: GeographicEstimate) -> Iterator[dict[str, Any]]:
    """The mean absolute error of cells and totals at each level, of each method."""
    tables_alone = MeasurementSet(land.domain, noisy.measurements[::2], noisy.privacy, {}, private=False)
    found = {
        "measured": [each.values.reshape(-1, CELLS) for each in noisy.measurements[::2]],
        "level by level": level_by_level(land, noisy),
        "Tree": by_level(land, Tree().fit(tables_alone).counts.reshape(-1, CELLS)),
        "Geographic": by_level(land, account.counts.reshape(-1, CELLS)),
    }
    for place, level in enumerate(LEVELS):
        truth = land.tables[place]
        cells = {name: float(np.abs(tables[place] - truth).mean()) for name, tables in found.items()}
        sums = {name: float(np.abs((tables[place] - truth).sum(1)).mean()) for name, tables in found.items()}
        sums["measured"] = float(np.abs(noisy.measurements[2 * place + 1].values - truth.sum(1)).mean())
        yield {"problem": "error", "level": level, "of": "cells", **cells}
        yield {"problem": "error", "level": level, "of": "totals", **sums}


def bias(land: Country, accounts: list[GeographicEstimate]) -> Iterator[dict[str, Any]]:
    """The mean signed error of the totals of blocks by size."""
    truth = land.tables[-1].sum(1)
    errors = np.mean([each.counts.reshape(len(truth), -1).sum(1) - truth for each in accounts], axis=0)
    for low, high in itertools.pairwise(CLASSES):
        chosen = (truth >= low) & (truth < high)
        off = float(errors[chosen].std() / np.sqrt(max(1, chosen.sum())))
        size = f"{low:g} and more" if high == np.inf else f"{low:g} to {high - 1:g}"
        row = {"problem": "bias", "level": "Block", "of": f"totals of {size}", "places": int(chosen.sum())}
        yield row | {"mean signed error": float(errors[chosen].mean()), "standard error": off}


def coverage(land: Country, accounts: list[GeographicEstimate]) -> Iterator[dict[str, Any]]:
    """How often 95 % intervals hold the truth at each level, for cells above and below two standard deviations."""
    from consilience.publication.intervals import interval

    asked = {
        "Nation": "by Nation",
        "State": "by State",
        "County": "block=s000 by County",
        "Block": "block=c00000 by Block",
    }
    for level, where in asked.items():
        for text, of in ((where, "totals"), (f"{where}, sex, age, group", "cells")):
            held: list[np.ndarray] = []
            widths: list[np.ndarray] = []
            large: list[np.ndarray] = []
            for seed, account in enumerate(accounts):
                found = interval(account, text, refits=100, seed=seed)
                bound = Query.parse(text).over(land.domain).bind(land.domain)
                truth = bound.answer_full(land.tables[-1].reshape(land.domain.shape)).ravel()
                held.append((found.low <= truth + 1e-9) & (truth <= found.high + 1e-9))
                widths.append(found.high - found.low)
                large.append(truth > 2 * STDDEV[level])
            marks = np.concatenate(large)
            for chosen, size in ((marks, "above"), (~marks, "up to")):
                if chosen.any():
                    row = {"problem": "coverage", "level": level, "of": f"{of} {size} two deviations"}
                    share = float(np.concatenate(held)[chosen].mean())
                    yield row | {
                        "answers": int(chosen.sum()),
                        "held": share,
                        "width": float(np.concatenate(widths)[chosen].mean()),
                    }


def scale(leaves: int, cells: tuple[int, ...]) -> dict[str, Any]:
    """The processor time of a fit with so many leaves, from noisy tables and totals of all places in memory."""
    rng = np.random.default_rng(1)
    widths = [1, 51, *([3143] if leaves > 3143 else []), leaves]
    parent = [np.array([-1])]
    for place, width in enumerate(widths[1:]):
        start = sum(widths[:place])
        parent.append(
            start
            + np.sort(np.concatenate([np.arange(widths[place]), rng.integers(0, widths[place], width - widths[place])]))
        )
    layout = forest(np.concatenate(parent), sum(widths))
    basis = CellBasis(cells)
    truth = rng.poisson(0.5, (layout.nodes, basis.cells)).astype(float)
    noisy = truth + rng.normal(0, 3, truth.shape)
    totals = truth.sum(1, keepdims=True) + rng.normal(0, 3, (layout.nodes, 1))
    began = time.process_time()
    evidence = NodeEvidence(layout.nodes, basis)
    every = np.arange(layout.nodes)
    evidence.add(every, tuple(range(len(cells))), noisy, 9.0)
    evidence.add(every, (), totals, 9.0)
    fit = fit_signed(layout, evidence)
    signed = time.process_time() - began
    found = divide(fit, [np.zeros(basis.cells, dtype=np.int64)], whole=True)
    seconds = time.process_time() - began
    row = {
        "problem": "scale",
        "level": "all",
        "of": f"{leaves:,} leaves × {basis.cells} cells",
        "least squares": signed,
    }
    return row | {"seconds": seconds, "microseconds per cell": 1e6 * seconds / truth.size, "unmet": found.unmet}


def streamed(leaves: int, regions: int, sizes: tuple[int, int] = (5, 20)) -> dict[str, Any]:
    """Processor time and memory of an estimate from a folder of regions to another, of whole counts.

    Five levels: the nation, regions, and below them some 40 blocks to a tract and 25 tracts to a county. The memory is
    the most that the process had so far, the making of the measurements included.
    """
    rng = np.random.default_rng(1)
    others = [
        Attribute.categorical(name, [str(code) for code in range(n)]) for name, n in zip("ab", sizes, strict=True)
    ]
    domain, noise = Domain("country", tuple(others)), 3.0
    tables = {"cells": Query.marginal("a", "b"), "total": Query(())}
    with tempfile.TemporaryDirectory() as folder:
        writer = RegionalMeasurements.writer(
            Path(folder) / "measured", domain, "block", tables, privacy=PrivacyStatement(), private=False
        )
        nation, names = np.zeros(domain.cells), [f"r{place:03d}" for place in range(regions)]

        def noisy(counts: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
            rows, variances = np.arange(len(counts)), np.full((len(counts), 1), noise**2)
            exact = {"cells": counts, "total": counts.sum(1, keepdims=True)}
            drawn = {name: each + np.rint(rng.normal(0, noise, each.shape)) for name, each in exact.items()}
            return {name: (rows, each) for name, each in drawn.items()} | {
                variance_of(name): (rows, variances) for name in drawn
            }

        with writer:
            for name in names:
                parent, counts = _region(leaves // regions, domain.cells, rng)
                nation += counts[0]
                places = [name, *(f"{name}.{place:07d}" for place in range(1, len(parent)))]
                writer.add_region(name, PlaceRows(pa.array(places), parent, noisy(counts)))
            above = np.array([-1, *[0] * regions])
            writer.finish(PlaceRows(pa.array(["nation", *names]), above, noisy(nation[None, :])))
        measured = RegionalMeasurements.open(Path(folder) / "measured")
        began = time.process_time()
        account = estimate_regions(measured, Path(folder) / "account", integers=True)
        seconds, number = time.process_time() - began, account.folder.places
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    row = {"problem": "regions", "level": "all", "of": f"{leaves:,} leaves × {domain.cells} cells in {regions} regions"}
    return row | {
        "places": number,
        "seconds": seconds,
        "microseconds per place": 1e6 * seconds / number,
        "peak GB": peak,
    }


def _region(leaves: int, cells: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The parents of the places of a region, and their counts."""
    tracts = max(1, leaves // 40)
    widths, parent, start = [1, max(1, tracts // 25), tracts, leaves], [np.array([-1])], 0
    for width, below in itertools.pairwise(widths):
        more = rng.integers(0, width, below - width)
        parent.append(start + np.sort(np.concatenate([np.arange(width), more])))
        start += width
    counts = np.zeros((sum(widths), cells))
    people = rng.lognormal(np.log(MEDIAN_BLOCK), SPREAD, (leaves, 1))
    counts[-leaves:] = rng.poisson(np.broadcast_to(people / cells, (leaves, cells)))
    parents = np.concatenate(parent)
    return parents, sums_of_leaves(forest(parents, len(parents)), counts)


def run(quick: bool) -> list[dict[str, Any]]:
    land = country(1_000 if quick else 20_000)
    sets = [measured(land, seed) for seed in range(2 if quick else 8)]
    accounts = [Geographic().fit(each) for each in sets]
    scale(200, (2, 5))  # compiles
    rows = [*accuracy(land, sets[0], accounts[0]), *bias(land, accounts), *coverage(land, accounts)]
    rows += [scale(3_143, (5, 20)), *([] if quick else [scale(100_000, (5, 20))])]
    return [*rows, *(streamed(leaves, 50) for leaves in ((2_000,) if quick else (10_000, 100_000, 1_000_000)))]
